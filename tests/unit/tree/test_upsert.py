"""PUT and ADD, and writes of clients that have no session."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from tests.unit.tree.level3 import Level3, again
from tests.unit.tree.scenario import EPHEMERAL, SEQUENTIAL, THREE, Scenario, create
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.commands.upsert import MISSING_PARENTS_MAX
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.znodes.acl import CREATE as CREATE_RIGHT
from zraft_core.znodes.acl import READ, WRITE
from zraft_core.znodes.txn import (
    ADD,
    CLOSE_SESSION,
    CREATE,
    DELETE,
    MULTI,
    PUT,
    SET_ACL,
    SET_DATA,
    SETTINGS,
    WILL,
    Command,
)

LIMITS = b"count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=2"
OTHER = (("ip", "192.168.1.1"),)


@pytest.fixture
def scenario() -> Level3:
    return Level3()


def put(scenario: Level3, path: str, data: Any = b"x", version: Any = None, **how: Any) -> Any:
    result = scenario.run((PUT, path, data, version), **how)
    return result.version if isinstance(result, Znode) else result


def test_put_creates_with_the_parents_that_it_lacks_and_replaces(scenario: Level3) -> None:
    assert put(scenario, "/a/b/c") == 0
    assert scenario.events() == [(1, "/a"), (4, "/"), (1, "/a/b"), (4, "/a"), (1, "/a/b/c"), (4, "/a/b")]
    assert put(scenario, "/a/b/c", b"y") == 1
    assert scenario.events() == [(3, "/a/b/c")]
    assert scenario.node("/a/b/c").data == b"y"
    assert scenario.node("/a/b").data == b""
    assert put(scenario, "/a/d", None) == 0
    assert scenario.node("/a/d").data is None


def test_put_by_version(scenario: Level3) -> None:
    assert put(scenario, "/a", version=0) is Code.NO_NODE
    assert put(scenario, "/a", version=-1) == 0
    assert put(scenario, "/a", version=-1) is Code.NODE_EXISTS
    assert put(scenario, "/a", version=7) is Code.BAD_VERSION
    assert put(scenario, "/a", version=0) == 1
    assert put(scenario, "/b/c", version=-1) == 0
    assert put(scenario, "/zookeeper", version=-1) is Code.NODE_EXISTS
    assert put(scenario, "/", version=-1) is Code.NODE_EXISTS


@pytest.mark.parametrize(
    "path", ["", "a", "a/b", "/a/", "//a", "/a//b", "/x/../b", "/x/./b", "/x/\0/b", "/x/\x01"]
)
def test_what_is_no_path_is_refused_without_a_trace(scenario: Level3, path: str) -> None:
    before = scenario.machine.nodes.data_bytes
    for command in ((PUT, path, b"", None), (ADD, path, b"", 1)):
        assert scenario.run(command) is Code.BAD_ARGUMENTS
    assert put(scenario, path, version=3) is Code.BAD_ARGUMENTS
    assert scenario.machine.nodes.data_bytes == before
    assert scenario.events() == []


@pytest.mark.parametrize(
    "command",
    [
        (PUT,), (PUT, "/a", b""), (PUT, 5, b"", None), (PUT, "/a", "text", None), (PUT, "/a", b"", "0"),
        (PUT, "/a", b"", True), (PUT, "/a/b", 7, None), (ADD,), (ADD, "/a", b"", "1"), (ADD, "/a", b"", 1.0),
        (ADD, "/a", "p", 1), (ADD, "/a", None, 1), (ADD, b"/a", b"", 1),
    ],
)  # fmt: skip
def test_malformed_upsert_fails_without_a_trace(scenario: Level3, command: Command) -> None:
    assert scenario.run(command) is Code.MARSHALLING_ERROR
    assert scenario.names("/") == ["zookeeper"]
    assert scenario.machine.digest() == scenario.machine.full_digest()


def test_parents_are_all_made_or_none(scenario: Level3) -> None:
    """A quota that has room for one of the two."""
    scenario.by_leader((SETTINGS, {"quota_enforced": 1}))
    scenario.multi(
        create("/q"), create("/zookeeper/quota/q"), create("/zookeeper/quota/q/zookeeper_limits", LIMITS),
        create("/zookeeper/quota/q/zookeeper_stats"),
    )  # fmt: skip
    scenario.events()
    before = scenario.machine.image()[0]
    assert put(scenario, "/q/a/b") is Code.QUOTA_EXCEEDED
    assert scenario.machine.image()[0] == before
    assert scenario.events() == []
    assert scenario.machine.digest() == scenario.machine.full_digest()
    assert put(scenario, "/q/a") == 0


def test_too_many_missing_parents_are_refused(scenario: Level3) -> None:
    """What one command costs is bounded."""
    assert put(scenario, "/a" * (MISSING_PARENTS_MAX + 2)) is Code.NO_NODE
    assert scenario.names("/") == ["zookeeper"]
    assert put(scenario, "/a" * (MISSING_PARENTS_MAX + 1)) == 0


def test_rights_are_those_of_the_deepest_parent_there_is_or_of_the_znode(scenario: Level3) -> None:
    scenario.create("/mine", acl=((READ, "world", "anyone"), (CREATE_RIGHT, "ip", "10.9.8.7")))
    assert put(scenario, "/mine/a/b", ids=OTHER) is Code.NO_AUTH
    assert put(scenario, "/mine/a/b") == 0
    assert put(scenario, "/mine/a/c", ids=OTHER) == 0, "what was made on the way is everybody's"
    assert put(scenario, "/mine") is Code.NO_AUTH
    assert put(scenario, "/zookeeper/config") is Code.NO_AUTH


def test_nothing_is_put_below_an_ephemeral(scenario: Level3) -> None:
    scenario.create("/e", flags=EPHEMERAL)
    assert put(scenario, "/e/a/b") is Code.NO_CHILDREN_FOR_EPHEMERALS
    assert put(scenario, "/e", b"new") == 1
    assert scenario.stat("/e").ephemeral_owner == scenario.session.id


def test_data_is_bounded_as_in_every_write(scenario: Level3) -> None:
    scenario.by_leader((SETTINGS, {"data_bytes_max": 4}))
    assert put(scenario, "/a/b", b"12345") is Code.BAD_ARGUMENTS
    assert "/a" not in scenario.machine.nodes
    assert put(scenario, "/a/b", b"1234") == 0
    assert scenario.run((ADD, "/a/c", b"1234", 1)) is Code.BAD_ARGUMENTS


def added(scenario: Level3, path: str, prefix: bytes, amount: int, **how: Any) -> Any:
    result = scenario.run((ADD, path, prefix, amount), **how)
    return result if isinstance(result, Code) else result[0]


def test_add_counts_from_zero_up_and_down(scenario: Level3) -> None:
    prefix = b"\x92" + msgpack.packb("visits")
    assert [added(scenario, "/d/k", prefix, amount) for amount in (5, -7, 0, 2**40)] == [5, -2, -2, 2**40 - 2]
    assert msgpack.unpackb(scenario.node("/d/k").data or b"") == ["visits", 2**40 - 2]
    assert scenario.stat("/d/k").version == 3


def test_sum_stays_within_64_bits(scenario: Level3) -> None:
    low, high = -(2**63), 2**63 - 1
    assert added(scenario, "/h", b"", high) == high
    assert added(scenario, "/h", b"", 1) is Code.BAD_ARGUMENTS
    assert added(scenario, "/l", b"", low) == low
    assert added(scenario, "/l", b"", -1) is Code.BAD_ARGUMENTS
    assert added(scenario, "/l", b"", 2**64 - 1) == high
    assert added(scenario, "/new", b"", 2**63) is Code.BAD_ARGUMENTS
    assert "/new" not in scenario.machine.nodes
    assert scenario.stat("/h").version == 0


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"p",
        b"q\x01",
        b"p\x01\x01",
        b"p\xa11",
        b"p\xc3",
        b"p\xcb" + bytes(8),
        b"p\xcd\x01",
        b"p\xcf" + b"\xff" * 8 + b"\x00",
    ],
)
def test_what_is_no_number_stays_as_it_is(scenario: Level3, data: bytes | None) -> None:
    scenario.create("/p", data)
    assert added(scenario, "/p", b"p", 1) is Code.BAD_ARGUMENTS
    assert scenario.node("/p").data == data


def test_number_in_a_longer_form_is_understood_and_written_in_the_shortest(scenario: Level3) -> None:
    scenario.create("/p", b"p\xd3" + (41).to_bytes(8, "big"))
    assert added(scenario, "/p", b"p", 1) == 42
    assert scenario.node("/p").data == b"p\x2a"


def test_add_tells_the_number_only_to_who_may_read_it(scenario: Level3) -> None:
    scenario.create("/n", b"\x01", acl=((WRITE, "world", "anyone"),))
    assert added(scenario, "/n", b"", 1) is Code.NO_AUTH
    scenario.create("/m", b"\x01", acl=((READ, "world", "anyone"),))
    assert added(scenario, "/m", b"", 1) is Code.NO_AUTH


def test_upserts_stand_in_multis(scenario: Level3) -> None:
    result = scenario.multi(
        (PUT, "/a/b", b"", None), (ADD, "/n/c", b"", 2), (ADD, "/n/c", b"", 3), (DELETE, "/a/b", -1)
    )
    assert [part[0] for part in (result[1], result[2])] == [2, 5]
    before = scenario.machine.image()[0]
    failed = scenario.multi((PUT, "/x/y", b"", None), (ADD, "/n/c", b"", 1), (PUT, "/a/q/r", b"", 5))
    assert isinstance(failed, MultiFailed)
    assert (failed.index, failed.code) == (2, Code.NO_NODE)
    assert scenario.machine.image()[0] == before
    assert scenario.machine.digest() == scenario.machine.full_digest()


def test_upserts_are_of_level_3() -> None:
    """D-5."""
    old = Scenario()
    for command in ((PUT, "/a", b"", None), (ADD, "/a", b"", 1), (WILL, "/a", "x", b"")):
        assert old.run(command) is Code.UNIMPLEMENTED
        assert old.without_session(command) is Code.UNIMPLEMENTED
    assert old.multi((PUT, "/a", b"", None)) is Code.MARSHALLING_ERROR
    assert old.without_session(create("/a")) is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (create("/s"), "/s"),
        (create("/s", flags=SEQUENTIAL), "/s0000000001"),
        ((PUT, "/p/q", b"", None), None),
        ((ADD, "/n", b"", 1), 1),
        ((DELETE, "/there", -1), Code.OK),
        ((SET_DATA, "/there", b"y", 0), None),
        ((MULTI, (create("/m"), (PUT, "/m/a", b"", -1))), None),
        (create("/e", flags=EPHEMERAL), Code.BAD_ARGUMENTS),
        ((MULTI, (create("/e", flags=EPHEMERAL),)), None),
        ((CLOSE_SESSION,), Code.UNIMPLEMENTED),
        ((WILL, "/", "x", b""), Code.UNIMPLEMENTED),
    ],
)
def test_clients_without_a_session_write_what_needs_none(
    scenario: Level3, command: Command, expected: Any
) -> None:
    scenario.create("/there")
    result = scenario.without_session(command)
    if expected is not None:
        assert (result[0] if isinstance(result, tuple) else result) == expected
    if command[0] == MULTI and command[1][0][4] == EPHEMERAL:
        assert isinstance(result, MultiFailed)
        assert result.code is Code.BAD_ARGUMENTS
    again(scenario.machine)


def test_ids_of_a_run_without_a_session_count(scenario: Level3) -> None:
    scenario.create("/mine", acl=((31, "ip", "10.9.8.7"),))
    machine = scenario.machine
    for ids, code in ((OTHER, Code.NO_AUTH), ((("ip", "10.9.8.7"),), None)):
        scenario.batch(THREE)
        assert machine.begin_run(0, ids) is Code.OK
        result = machine.execute((SET_ACL, "/mine", None, -1))
        assert result is code if code is not None else isinstance(result, Znode)


def test_leader_cannot_write_in_nobodys_name(scenario: Level3) -> None:
    """Its own batches are not deduplicated (D-2)."""
    assert scenario.by_leader((CREATE, "/x", b"", None, 0, None)) is Code.UNIMPLEMENTED
