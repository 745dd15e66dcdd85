"""Group 0's share of topics in the machine: who may say what, sessions and their producers, images (D-5, D-8, D-18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from tests.unit.tree.histories import History, whole
from tests.unit.tree.level3 import Level3, again, from_image, image_of
from tests.unit.tree.scenario import NOBODY, ONE, TWO
from zraft.topics.registry import Registry
from zraft.tree.image.layout import END, HEAD, REGISTRY
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.errors import Code, ProtocolError
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    Placed,
    PlaceGroup,
    RegisterProducer,
    RegistryCommand,
    RetainTopic,
    TopicChanged,
)
from zraft_core.topics.registry_values import Refusal, Result, Retention
from zraft_core.znodes.acl import ALL, CREATE, READ
from zraft_core.znodes.txn import CLOSE_SESSION, FEATURE, MULTI, SET_ACL, SETTINGS, TOPICS, Command

DISKS = (ONE, TWO)
ANY_GROUP = GroupId(7)


def of(command: RegistryCommand) -> Command:
    return TOPICS, encode_registry(command)


class Level4(Level3):
    def __init__(self) -> None:
        super().__init__()
        assert self.by_leader((FEATURE, 4)) is Code.OK

    def producer(self, **how: Any) -> ProducerId:
        session = how.get("session") or self.session
        result = self.run(of(RegisterProducer(session.id)), **how)
        assert isinstance(result, Result)
        assert result.refusal is None
        assert result.created is not None
        return ProducerId(result.created)

    def topic(self, name: str, partitions: int = 1) -> list[GroupId]:
        topic = self.run(of(CreateTopic(name, partitions))).created
        return [self.by_leader(of(CreateGroup(topic, DISKS))).created for _ in range(partitions)]


@pytest.fixture
def scenario() -> Level4:
    return Level4()


def test_d5_below_its_level_nobody_changes_a_topic() -> None:
    scenario = Level3()
    command = of(CreateTopic("t", 1))
    before = scenario.machine.registry.position
    assert scenario.run(command) is Code.UNIMPLEMENTED
    assert scenario.without_session(command) is Code.UNIMPLEMENTED
    assert scenario.by_leader(command) is Code.UNIMPLEMENTED
    assert scenario.machine.registry.topics == {}
    assert scenario.machine.registry.position == before == 0


def test_d5_the_settings_of_topics_come_with_their_level() -> None:
    scenario = Level3()
    assert scenario.by_leader((SETTINGS, {"topics_replication": 5})) is Code.BAD_ARGUMENTS
    assert scenario.by_leader((FEATURE, 4)) is Code.OK
    assert scenario.by_leader((SETTINGS, {"topics_replication": 5})) is Code.OK
    assert scenario.machine.settings.topics_replication == 5


def test_d5_the_limits_of_the_registry_are_the_settings_in_force(scenario: Level4) -> None:
    assert scenario.by_leader((SETTINGS, {"topics_max": 1})) is Code.OK
    assert scenario.run(of(CreateTopic("t", 1))).refusal is None
    assert scenario.run(of(CreateTopic("u", 1))).refusal is Refusal.TOO_MANY
    restored = from_image(image_of(scenario.machine))
    assert restored.registry.settings == scenario.machine.registry.settings
    assert restored.registry.settings.topics_max == 1
    assert scenario.by_leader((SETTINGS, {"topics_destinations_max": 2})) is Code.OK
    assert scenario.machine.registry.settings.destinations_max == 2


def test_d8d_the_end_of_a_session_closes_its_producers_however_it_ends(scenario: Level4) -> None:
    registry = scenario.machine.registry
    scenario.topic("t")
    other = scenario.new_session(TWO)
    expired = scenario.new_session(TWO)
    first = [scenario.producer(), scenario.producer()]
    second = scenario.producer(session=other, origin=TWO)
    third = scenario.producer(session=expired, origin=TWO)
    scenario.close()
    assert set(registry.closed) == set(first)
    scenario.expire(expired)
    assert set(registry.closed) == {*first, third}
    assert set(registry.producers) == {COORDINATOR, second}
    assert registry.owned == {other.id: {second}}


def test_a_producer_belongs_to_the_session_that_registers_it(scenario: Level4) -> None:
    other = scenario.new_session(TWO)
    assert scenario.run(of(RegisterProducer(other.id))) is Code.BAD_ARGUMENTS
    assert scenario.without_session(of(RegisterProducer(scenario.session.id))) is Code.BAD_ARGUMENTS
    assert scenario.by_leader(of(RegisterProducer(scenario.session.id))) is Code.BAD_ARGUMENTS
    producer = scenario.producer()
    assert scenario.run(of(CloseProducer(producer)), session=other, origin=TWO) is Code.BAD_ARGUMENTS
    assert producer in scenario.machine.registry.producers
    assert scenario.run(of(CloseProducer(producer))) == Result()
    assert producer not in scenario.machine.registry.producers


@pytest.mark.parametrize(
    "command",
    [
        CreateGroup(5, DISKS),
        PlaceGroup(ANY_GROUP, DISKS),
        Placed(ANY_GROUP, DISKS),
        TopicChanged(1),
        Cleared(ANY_GROUP, (), ()),
    ],
)
def test_what_only_servers_may_say_is_refused_to_clients(scenario: Level4, command: RegistryCommand) -> None:
    assert scenario.run(of(command)) is Code.BAD_ARGUMENTS
    # A client without a session has ids, and no server has.
    scenario.batch()
    assert scenario.machine.begin_run(0, NOBODY) is Code.OK
    assert scenario.machine.execute(of(command)) is Code.BAD_ARGUMENTS
    assert isinstance(scenario.without_session(of(command)), Result)
    assert isinstance(scenario.by_leader(of(command)), Result)


def test_nobody_says_that_a_session_ended(scenario: Level4) -> None:
    command = of(EndOwner(scenario.session.id))
    producer = scenario.producer()
    for said in (scenario.run(command), scenario.without_session(command), scenario.by_leader(command)):
        assert said is Code.BAD_ARGUMENTS
    assert producer in scenario.machine.registry.producers


def test_who_may_not_write_the_root_may_not_change_topics(scenario: Level4) -> None:
    scenario.topic("t")
    only_create = ((CREATE, "ip", "10.0.0.0/8"), (READ, "world", "anyone"), (ALL, "ip", "192.168.0.0/16"))
    assert scenario.run((SET_ACL, "/", only_create, -1)) is not Code.NO_AUTH
    assert scenario.run(of(CreateTopic("u", 1))).refusal is None
    for command in (AlterTopic("t", 2), RetainTopic("t", Retention(5)), DeleteTopic("t")):
        assert scenario.run(of(command)) is Code.NO_AUTH
    stranger = (("ip", "11.0.0.1"),)
    assert scenario.run(of(CreateTopic("v", 1)), ids=stranger) is Code.NO_AUTH
    owner = (("ip", "192.168.7.7"),)
    assert scenario.run(of(AlterTopic("t", 2)), ids=owner).refusal is None
    # Operators hold the cluster's key.
    assert scenario.without_session(of(DeleteTopic("t"))).refusal is None


@pytest.mark.parametrize(
    "command",
    [
        (TOPICS,),
        (TOPICS, "text"),
        (TOPICS, b""),
        (TOPICS, encode_registry(DeleteTopic("t")) + b"x"),
        (TOPICS, encode_registry(DeleteTopic("t")), 1),
        (TOPICS, msgpack.packb((2, (8, b"t")))),
        (TOPICS, msgpack.packb((1, (99, b"t")))),
    ],
)
def test_what_is_no_registry_command_fails_and_changes_nothing(scenario: Level4, command: Command) -> None:
    scenario.topic("t")
    before = tuple(scenario.machine.registry.topics)
    assert scenario.run(command) is Code.MARSHALLING_ERROR
    assert tuple(scenario.machine.registry.topics) == before


def test_topics_are_no_part_of_a_multi(scenario: Level4) -> None:
    result = scenario.run((MULTI, (of(CreateTopic("t", 1)),)))
    assert not isinstance(result, tuple)
    assert scenario.machine.registry.topics == {}


def test_a_numbered_command_creates_a_topic_once(scenario: Level4) -> None:
    first = scenario.once(1, 0, of(CreateTopic("t", 2)))
    assert first[2:] == (0, (first[0],))
    assert scenario.once(1, 0, of(CreateTopic("t", 2))) == first
    assert scenario.once(2, 1, of(CreateTopic("t", 2)))[2:] == (int(Code.NODE_EXISTS), ("exists",))
    assert len(scenario.machine.registry.topics) == 1


def everything() -> Level4:
    """A registry with an item in each table."""
    scenario = Level4()
    (a,) = scenario.topic("t")
    b, _ = scenario.topic("u", 2)
    scenario.run(of(RetainTopic("u", Retention(1_000, 60_000))))
    producer = scenario.producer()
    scenario.producer()
    scenario.run(of(CloseProducer(producer)))
    scenario.by_leader(of(Cleared(b, (producer,), ())))
    scenario.run(of(AlterTopic("u", 3)))
    scenario.by_leader(of(CreateGroup(scenario.machine.registry.names["u"], DISKS, ServerId(2))))
    scenario.by_leader(of(PlaceGroup(b, (TWO,), ServerId(2))))
    scenario.run(of(DeleteTopic("t")))
    scenario.by_leader(of(Cleared(a, (), (a,))))
    registry = scenario.machine.registry
    assert all((registry.closed, registry.topics, registry.deleting, registry.changes, registry.owned))
    return scenario


def test_d4_a_snapshot_holds_all_of_the_registry() -> None:
    scenario = everything()
    restored = again(scenario.machine)
    assert whole(restored) == whole(scenario.machine)
    before, after = scenario.machine.registry, restored.registry
    for table in ("producers", "closed", "topics", "names", "groups", "deleting", "changes", "owned"):
        assert getattr(before, table) == getattr(after, table), table
    assert (before.position, before.epoch, before.last_change) == (
        after.position,
        after.epoch,
        after.last_change,
    )


def test_d4_a_snapshot_is_of_the_moment_at_which_it_began() -> None:
    """The registry goes on while it is written."""
    scenario = everything()
    machine = scenario.machine
    at_begin, digest = machine.image(), machine.full_digest()
    writer = ImageWriter(machine)
    pieces = [writer.step(1, 100)]
    for name in ("x", "y", "z"):
        scenario.topic(name, 2)
    scenario.by_leader(of(Cleared(GroupId(min(machine.registry.groups)), tuple(machine.registry.closed), ())))
    scenario.close()
    while piece := writer.step(1, 100):
        pieces.append(piece)
    assert from_image(b"".join(pieces)).image() == at_begin
    assert writer.digest == digest


def test_d26_every_part_of_the_registry_counts_in_the_digest() -> None:
    seen = set()
    machine = everything().machine
    changes: tuple[Callable[[Registry], object], ...] = (
        lambda r: r.producers.clear(),
        lambda r: r.closed.clear(),
        lambda r: r.topics.clear(),
        lambda r: r.groups.clear(),
        lambda r: r.deleting.clear(),
        lambda r: r.changes.clear(),
        lambda r: setattr(r, "position", 1),
        lambda r: setattr(r, "epoch", 77),
        lambda r: setattr(r, "last_change", 77),
    )
    for change in changes:
        other = everything().machine
        assert other.digest() == machine.digest()
        change(other.registry)
        seen.add(other.full_digest())
    assert len(seen - {machine.digest()}) == 9


def test_d26_below_level_4_digest_and_image_are_those_of_older_releases() -> None:
    """A registry in which nothing happened adds nothing, so that releases can be mixed."""
    scenario = Level3()
    records = list(msgpack.Unpacker(_bytes(scenario.machine), use_list=False, strict_map_key=False))
    assert {record[0] for record in records} & {REGISTRY} == set()
    assert not any(name.startswith("topics_") for name in records[0][10])
    assert scenario.machine.registry.digest.value() == 0


def _bytes(machine: Machine) -> Any:
    from io import BytesIO

    return BytesIO(image_of(machine))


def _changed(machine: Machine, change: Any) -> bytes:
    records = list(msgpack.Unpacker(_bytes(machine), use_list=False, strict_map_key=False))
    return b"".join(msgpack.packb(record) for record in change(records))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda records: [r for r in records if r[0] != REGISTRY], "its end missing"),
        (lambda records: [r for r in records if r[0] != REGISTRY or b"\x03" not in r[1][1:3]], "digest"),
        (lambda records: [records[0], (REGISTRY, 7), *records[1:]], "wrong fields"),
        (lambda records: [records[0], (REGISTRY, b"abc"), *records[1:]], "expected"),
        (
            lambda records: [(HEAD, records[0][1], 3, *records[0][3:10], {}), *records[1:]],
            "before feature level 4",
        ),
        (lambda records: [r for r in records if r[0] != 2 or r[0] == END], "session"),
    ],
    ids=["no registry", "a piece is missing", "no bytes", "no piece", "level 3", "no session"],
)
def test_a_snapshot_whose_registry_is_damaged_is_refused(change: Any, said: str) -> None:
    damaged = _changed(everything().machine, change)
    with pytest.raises(ProtocolError, match=said):
        from_image(damaged)


def test_a_server_takes_on_the_registry_of_a_snapshot_under_those_who_look_at_it() -> None:
    scenario = everything()
    follower = Machine([ONE])
    looked_at, revision = follower.registry, follower.registry.revision
    other = from_image(image_of(scenario.machine))
    reader_state = image_of(other)
    from zraft.tree.image.reader import ImageReader

    reader = ImageReader()
    reader.feed(reader_state)
    while reader.step(50):
        pass
    follower.adopt(reader.finish())
    assert follower.registry is looked_at
    assert looked_at.groups == scenario.machine.registry.groups
    assert looked_at.revision > revision
    assert looked_at.view_since(1) == looked_at.view(), "what changed before is not known here"


def test_random_histories_of_topics_see_enough() -> None:
    """What the histories of the other tests hold of topics, or those would test nothing of it."""
    kinds: set[str] = set()
    for seed in range(12):
        history = History(seed)
        for _ in range(300):
            history.step()
        kinds |= {kind for kind in history.kinds if kind.startswith(f"{TOPICS} ")}
        assert history.machine.digest() == history.machine.full_digest()
    assert kinds >= {
        f"{TOPICS} done",
        f"{TOPICS} {int(Code.BAD_ARGUMENTS)}",
        f"{TOPICS} {int(Code.MARSHALLING_ERROR)}",
    }


def test_a_closed_session_has_no_producers_in_the_same_run(scenario: Level4) -> None:
    producer = scenario.producer()
    scenario.topic("t")
    scenario.batch()
    scenario.machine.begin_run(scenario.session.id, NOBODY)
    assert scenario.machine.execute((CLOSE_SESSION,)) is Code.OK
    assert scenario.machine.execute(of(RegisterProducer(scenario.session.id))) is Code.SESSION_EXPIRED
    assert set(scenario.machine.registry.closed) == {producer}
