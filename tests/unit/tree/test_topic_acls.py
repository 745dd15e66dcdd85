"""Znodes with the ACLs of topics and consumers: who writes them, and what they decide about topics."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tree.level3 import again
from tests.unit.tree.scenario import NOBODY, Scenario, create
from tests.unit.tree.test_topics import Level4, of
from zraft.config.features import LEVEL_OF_ACCESS
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.machine import Machine
from zraft.tree.topic_acls import default_acl
from zraft_core.errors import Code
from zraft_core.topics.access import DIRECTORIES, Guarded, consumer_of, consumer_path, topic_path
from zraft_core.topics.registry_commands import AlterTopic, CreateTopic, DeleteTopic, RetainTopic
from zraft_core.topics.registry_values import KEEP_ALL, Refusal, Result
from zraft_core.znodes.acl import ALL, CREATE, DELETE, OF_OPERATORS, OPEN_ACL, READ, WRITE, Acl, Ids
from zraft_core.znodes.txn import CREATE_CONTAINER, FEATURE, MULTI, PUT, SET_ACL, Command
from zraft_core.znodes.txn import DELETE as DELETE_COMMAND

ALICE: Ids = (("ip", "10.9.8.7"), ("sasl", "alice"))
TOPICS = Guarded.TOPICS.value
CLOSED: Acl = ((0, "world", "anyone"),)


class Level6(Level4):
    def __init__(self) -> None:
        super().__init__()
        assert self.by_leader((FEATURE, LEVEL_OF_ACCESS)) is Code.OK

    def acl(self, path: str, acl: Acl) -> None:
        """What an operator's command does."""
        if self.machine.find(path) is None:
            made = self.run((*create(path)[:3], acl, 0, None), ids=OF_OPERATORS)
            assert not isinstance(made, Code), made
        else:
            assert not isinstance(self.run((SET_ACL, path, acl, -1), ids=OF_OPERATORS), Code)


@pytest.fixture
def scenario() -> Level6:
    return Level6()


def test_acls_that_a_multi_changes_are_as_they_were_if_a_later_part_fails(scenario: Level6) -> None:
    machine = scenario.machine
    scenario.acl(TOPICS, OPEN_ACL)
    no_such: Command = (SET_ACL, "/no-such", CLOSED, -1)
    for parts in (
        [(SET_ACL, TOPICS, CLOSED, 0), no_such],
        [create("/b"), (SET_ACL, "/b", CLOSED, 0), no_such],
    ):
        failed = scenario.run((MULTI, tuple(parts)), ids=OF_OPERATORS)
        assert isinstance(failed, MultiFailed)
        assert failed.code is Code.NO_NODE
        assert machine.topic_acls.of_topic("t") == OPEN_ACL
        assert machine.digest() == machine.full_digest()
    node = machine.find(TOPICS)
    assert node is not None
    assert node.aversion == 0
    done = scenario.run((MULTI, ((SET_ACL, TOPICS, CLOSED, 0),)), ids=OF_OPERATORS)
    assert isinstance(done, tuple)
    assert machine.topic_acls.of_topic("t") == CLOSED
    assert machine.digest() == machine.full_digest()


def test_a_multi_changes_no_acl_before_the_feature_level() -> None:
    assert Level4().run((MULTI, ((SET_ACL, "/", CLOSED, -1),)), ids=OF_OPERATORS) is Code.MARSHALLING_ERROR


@pytest.mark.parametrize("path", [TOPICS, Guarded.CONSUMERS.value, f"{TOPICS}/t", f"{TOPICS}/t/x"])
def test_only_the_super_user_creates_and_deletes_them_and_changes_their_acls(
    path: str, scenario: Level6
) -> None:
    above = [path[:end] for end in range(len("/zookeeper/") + 1, len(path)) if path[end] == "/"]
    for one in above:
        scenario.acl(one, OPEN_ACL)
    commands: list[Command] = [
        create(path),
        (CREATE_CONTAINER, path, b"", None, 0, None),
        (PUT, path, b"", None),
        (PUT, f"{path}/deep", b"", None),
    ]
    for command in commands:
        assert scenario.run(command) is Code.NO_AUTH, command
        assert scenario.multi(command).code is Code.NO_AUTH
    scenario.acl(path, OPEN_ACL)
    assert scenario.run((SET_ACL, path, OPEN_ACL, -1)) is Code.NO_AUTH
    assert scenario.run((DELETE_COMMAND, path, -1)) is Code.NO_AUTH
    assert scenario.run(create(f"{path}/below")) is Code.NO_AUTH
    assert scenario.run((DELETE_COMMAND, path, -1), ids=OF_OPERATORS) is Code.OK


def test_other_znodes_of_zookeeper_are_everybodys_as_before(scenario: Level6) -> None:
    for path in ("/zookeeper/topic", "/topics", "/zookeeper/quota/topics"):
        assert scenario.create(path) == path
        assert scenario.delete(path) is Code.OK


def test_before_the_level_everybody_writes_them_and_nothing_follows() -> None:
    scenario = Level4()
    assert scenario.create(TOPICS, acl=CLOSED) == TOPICS
    assert scenario.machine.topic_acls.guarded == set()
    assert isinstance(scenario.run(of(CreateTopic("t", 1))), Result)
    assert scenario.by_leader((FEATURE, LEVEL_OF_ACCESS)) is Code.OK
    assert scenario.machine.topic_acls.exist
    assert scenario.run(of(CreateTopic("u", 1))) is Code.NO_AUTH


def test_what_is_guarded_follows_from_the_state_alone(scenario: Level6) -> None:
    """Servers that were restored from an image decide as those that applied every entry."""
    scenario.acl(TOPICS, OPEN_ACL)
    scenario.acl(f"{TOPICS}/t", ((READ, "sasl", "alice"),))
    scenario.acl(f"{TOPICS}/t/x", OPEN_ACL)
    scenario.acl(f"{TOPICS}/gone", OPEN_ACL)
    parts = (create(f"{TOPICS}/never"), (DELETE_COMMAND, f"{TOPICS}/t/x", -1), create("/a/b"))
    assert scenario.multi(*parts, ids=OF_OPERATORS).code is Code.NO_NODE
    assert scenario.delete(f"{TOPICS}/gone", ids=OF_OPERATORS) is Code.OK
    expected = {*DIRECTORIES, f"{TOPICS}/t", f"{TOPICS}/t/x"}
    assert scenario.machine.topic_acls.guarded == expected
    restored = again(scenario.machine)
    assert restored.topic_acls.guarded == expected
    assert restored.topic_acls.exist
    empty = Machine()
    assert empty.topic_acls.guarded == set()


def test_every_change_gives_another_revision(scenario: Level6) -> None:
    seen = {scenario.machine.topic_acls.revision}

    def changed() -> bool:
        revision = scenario.machine.topic_acls.revision
        fresh = revision not in seen
        seen.add(revision)
        return fresh

    scenario.acl(TOPICS, OPEN_ACL)
    assert changed()
    scenario.acl(f"{TOPICS}/t", CLOSED)
    assert changed()
    scenario.acl(f"{TOPICS}/t", OPEN_ACL)
    assert changed()
    scenario.create("/other")
    assert not changed()
    scenario.delete(f"{TOPICS}/t", ids=OF_OPERATORS)
    assert changed()
    scenario.delete(TOPICS, ids=OF_OPERATORS)
    assert changed()
    assert not scenario.machine.topic_acls.exist


CHANGES: tuple[tuple[Any, int], ...] = (
    (CreateTopic("t", 1), CREATE),
    (AlterTopic("t", 2), DELETE),
    (RetainTopic("t", KEEP_ALL), DELETE),
    (DeleteTopic("t"), DELETE),
)


@pytest.mark.parametrize(("command", "right"), CHANGES)
def test_a_change_of_a_topic_takes_its_right_where_it_is_applied(
    command: Any, right: int, scenario: Level6
) -> None:
    scenario.acl(TOPICS, CLOSED)
    assert scenario.run(of(command), ids=ALICE) is Code.NO_AUTH
    assert scenario.run(of(command), ids=OF_OPERATORS) is not Code.NO_AUTH
    assert scenario.without_session(of(command)) is not Code.NO_AUTH, "operators of servers have no ids"
    scenario.acl(f"{TOPICS}/t", ((ALL & ~right, "sasl", "alice"),))
    assert scenario.run(of(command), ids=ALICE) is Code.NO_AUTH
    scenario.acl(f"{TOPICS}/t", ((right, "sasl", "alice"),))
    assert scenario.run(of(command), ids=NOBODY) is Code.NO_AUTH
    assert isinstance(scenario.run(of(command), ids=ALICE), Result)


def test_a_name_that_no_topic_can_have_is_judged_by_the_default(scenario: Level6) -> None:
    scenario.acl(TOPICS, CLOSED)
    scenario.acl(f"{TOPICS}/open", OPEN_ACL)
    assert scenario.run(of(CreateTopic("open/x", 1))) is Code.NO_AUTH
    assert scenario.run(of(CreateTopic("", 1))) is Code.NO_AUTH
    scenario.acl(TOPICS, OPEN_ACL)
    assert scenario.run(of(CreateTopic("open/x", 1))) == Result(Refusal.BAD_NAME)


def test_the_first_default_changes_no_rights() -> None:
    root: Acl = ((CREATE | READ, "sasl", "alice"), (DELETE | WRITE, "sasl", "bob"), (WRITE, "sasl", "eve"))
    assert default_acl(Guarded.TOPICS, OPEN_ACL) is OPEN_ACL
    assert default_acl(Guarded.CONSUMERS, root) is OPEN_ACL
    assert default_acl(Guarded.TOPICS, root) == (
        (ALL & ~(CREATE | DELETE), "world", "anyone"),
        (CREATE, "sasl", "alice"),
        (DELETE, "sasl", "bob"),
    )


@pytest.mark.parametrize(
    "name", [b"billing", b"a.b", b"..", b"a/b", b"\x00\xff%41", "é".encode(), b"x" * 255]
)
def test_a_consumer_of_any_name_has_a_znode_and_no_two_have_the_same(name: bytes) -> None:
    scenario = Scenario()
    path = consumer_path(name)
    assert path.rpartition("/")[0] == Guarded.CONSUMERS.value
    assert scenario.create(Guarded.CONSUMERS.value) == Guarded.CONSUMERS.value
    assert scenario.create(path) == path
    assert consumer_of(path.rpartition("/")[2]) == name


@pytest.mark.parametrize("written", ["", "%4", "%41", "%zz", "a.b", "é", "a/b"])
def test_a_name_that_no_consumer_has_is_recognised(written: str) -> None:
    assert consumer_of(written) is None


def test_a_topic_has_the_znode_of_its_name() -> None:
    assert topic_path("a.b-c_D") == "/zookeeper/topics/a.b-c_D"
