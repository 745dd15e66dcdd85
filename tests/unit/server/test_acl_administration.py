"""What operators do about ACLs of topics and consumers, on a server that leads alone."""

from __future__ import annotations

import pytest

from tests.unit.server.test_administration import Office
from zraft.config.features import LEVEL_OF_ACCESS
from zraft.operator.requests import (
    AclDefaults,
    AclLine,
    AclList,
    AclListing,
    AclRemove,
    AclSet,
    AclShow,
    AclShown,
    Done,
    OperatorReply,
    OperatorRequest,
    Refused,
)
from zraft.server.operators import access
from zraft_core.topics.access import Guarded
from zraft_core.znodes.acl import ALL, CREATE, DELETE, OPEN_ACL, READ, WRITE, Acl
from zraft_core.znodes.txn import SET_ACL

TOPICS, CONSUMERS = Guarded.TOPICS, Guarded.CONSUMERS
ALICE: Acl = ((READ, "sasl", "alice"),)
CLOSED: Acl = ((0, "world", "anyone"),)


class Guard(Office):
    def __init__(self, features: int = LEVEL_OF_ACCESS) -> None:
        super().__init__(features=features)
        self.turns(1_000)

    def shown(self, kind: Guarded = TOPICS, name: bytes = b"") -> AclShown:
        found = self.ask(AclShow(kind, name))
        assert isinstance(found, AclShown)
        return found

    def done(self, request: OperatorRequest) -> None:
        reply = self.ask(request)
        assert isinstance(reply, Done), reply

    def refused(self, request: OperatorRequest) -> Refused:
        reply: OperatorReply = self.ask(request)
        assert isinstance(reply, Refused), reply
        return reply


def test_an_acl_of_a_topic_is_set_shown_changed_and_removed() -> None:
    office = Guard()
    assert office.shown(name=b"t") == AclShown(None, None, None)
    office.done(AclSet(TOPICS, b"t", ALICE, None))
    assert office.shown(name=b"t") == AclShown(ALICE, 0, OPEN_ACL), "the default is written down as it was"
    office.done(AclSet(TOPICS, b"t", CLOSED, 0))
    assert office.shown(name=b"t").acl == CLOSED
    office.done(AclRemove(TOPICS, b"t"))
    assert office.shown(name=b"t") == AclShown(None, None, OPEN_ACL)
    office.done(AclRemove(TOPICS, b"t"))


def test_an_operator_changes_what_no_acl_allows_to_anybody() -> None:
    office = Guard()
    office.done(AclSet(TOPICS, b"", CLOSED, None))
    office.done(AclSet(CONSUMERS, b"", CLOSED, None))
    office.done(AclSet(TOPICS, b"t", CLOSED, None))
    office.done(AclSet(TOPICS, b"t", ALICE, 0))
    office.done(AclSet(TOPICS, b"", OPEN_ACL, 0))
    assert office.shown(name=b"t") == AclShown(ALICE, 1, OPEN_ACL)
    assert office.shown(CONSUMERS).default == CLOSED


@pytest.mark.parametrize("before", [(), (TOPICS,), (CONSUMERS,), (TOPICS, CONSUMERS)])
def test_both_defaults_are_changed_by_one_command_of_the_log(before: tuple[Guarded, ...]) -> None:
    office = Guard()
    for kind in before:
        office.done(AclSet(kind, b"", ALICE, None))
    office.done(AclSet(TOPICS, b"t", ALICE, None))
    position = office.driver.machine.position
    office.done(AclDefaults(CLOSED))
    assert office.driver.machine.position == position + 1
    assert office.shown(TOPICS).default == office.shown(CONSUMERS).default == CLOSED
    assert office.shown(name=b"t").acl == ALICE
    office.done(AclDefaults(OPEN_ACL))
    assert office.shown(TOPICS).default == office.shown(CONSUMERS).default == OPEN_ACL


def test_defaults_that_cannot_be_set_are_both_left_as_they_were() -> None:
    office = Guard()
    office.done(AclSet(CONSUMERS, b"", ALICE, None))
    refused = office.refused(AclDefaults(((READ, "auth", ""),)))
    assert "the defaults" in refused.text
    assert "operators are no users" in refused.text
    assert office.shown(TOPICS).default is None
    assert office.shown(CONSUMERS) == AclShown(ALICE, 0, ALICE)


def test_what_somebody_else_changed_meanwhile_is_not_overwritten() -> None:
    office = Guard()
    office.done(AclSet(TOPICS, b"t", ALICE, None))
    for version in (None, 1):
        refused = office.refused(AclSet(TOPICS, b"t", CLOSED, version))
        assert "changed by somebody else" in refused.text
        assert refused.retriable
    assert office.shown(name=b"t").acl == ALICE


def test_the_first_acl_of_a_topic_leaves_the_rights_of_all_others_as_they_were() -> None:
    office = Guard()
    root: Acl = ((READ | CREATE | DELETE | WRITE, "sasl", "root"), (READ, "world", "anyone"))
    office.driver.submit_as_super((SET_ACL, "/", root, -1), lambda _: None, 0)
    office.turns(100)
    office.done(AclSet(TOPICS, b"t", ALICE, None))
    default = office.shown().default
    assert default == ((ALL & ~(CREATE | DELETE), "world", "anyone"), (CREATE | DELETE, "sasl", "root"))


def test_names_with_acls_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PAGE", 2)
    office = Guard()
    assert office.ask(AclList(CONSUMERS)) == AclListing(None, (), False)
    for name in (b"b", b"a/\xff", b"c"):
        office.done(AclSet(CONSUMERS, name, ALICE, None))
    first = office.ask(AclList(CONSUMERS))
    assert first == AclListing(
        OPEN_ACL, (AclLine("a%2F%FF", b"a/\xff", ALICE), AclLine("b", b"b", ALICE)), True
    )
    assert office.ask(AclList(CONSUMERS, "b")) == AclListing(OPEN_ACL, (AclLine("c", b"c", ALICE),), False)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (AclSet(TOPICS, b"a/b", ALICE), "topic a/b: a topic's name has"),
        (AclSet(TOPICS, b"\xff", ALICE), "a topic's name has"),
        (AclSet(CONSUMERS, b"x" * 256, ALICE), "at most 255 bytes"),
        (AclSet(TOPICS, b"t", ((READ, "auth", ""),)), "auth stands for whoever asks"),
        (AclSet(TOPICS, b"t", ((READ, "ip", "10.0.0.0/99"),)), "ip:NETWORK"),
        (AclRemove(TOPICS, b""), "zraft topic acl open"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(request_: OperatorRequest, why: str) -> None:
    office = Guard()
    assert why in office.refused(request_).text
    assert not office.driver.machine.topic_acls.exist


def test_below_the_level_nothing_is_written_and_it_is_said_what_is_missing() -> None:
    office = Guard(LEVEL_OF_ACCESS - 1)
    refused = office.refused(AclSet(TOPICS, b"", CLOSED, None))
    assert f"feature level {LEVEL_OF_ACCESS}" in refused.text
    assert refused.retriable


def test_a_request_is_logged_without_hashes_of_passwords() -> None:
    request = AclSet(TOPICS, b"t", ((READ, "digest", "bob:c2VjcmV0"),))
    assert "c2VjcmV0" not in str(request)
    assert "bob" in str(request)
