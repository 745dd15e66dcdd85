"""create, delete, setData: results, stats, events and the order of checks, as in ZooKeeper 3.9.

Trap numbers are those of the project's checklist of exact semantics.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tree.scenario import (
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    NOBODY,
    PERSISTENT,
    SEQUENTIAL,
    Scenario,
    create,
)
from zraft_core.errors import Code
from zraft_core.znodes.acl import ALL, CREATE, DELETE, OPEN_ACL, READ, WRITE
from zraft_core.znodes.events import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN, Stat
from zraft_core.znodes.txn import CHECK, CLOSE_SESSION, CREATE2, MULTI, SET_DATA, SETTINGS
from zraft_core.znodes.txn import CREATE as CREATE_COMMAND
from zraft_core.znodes.txn import DELETE as DELETE_COMMAND

OTHERS_ONLY = ((ALL, "ip", "1.1.1.1"),)


def without(permission: int) -> tuple[tuple[int, str, str], ...]:
    return ((ALL & ~permission, "world", "anyone"),)


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.events()
    return scenario


# -- birth


def test_tree_is_born_with_zookeepers_own_znodes_and_stats(scenario: Scenario) -> None:
    """Trap 26."""
    machine = Scenario().machine
    assert sorted(path for path, _ in machine.nodes.items()) == [
        "/",
        "/zookeeper",
        "/zookeeper/config",
        "/zookeeper/quota",
    ]
    zeros = Stat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    assert scenario.stat("/zookeeper/config") == zeros._replace(version=-1, aversion=-1)
    assert scenario.stat("/zookeeper/quota") == zeros
    assert scenario.node("/zookeeper/config").data == b""
    assert scenario.node("/zookeeper/config").acl == ((READ, "world", "anyone"),)


@pytest.mark.parametrize(("path", "children"), [("/", 1), ("/zookeeper", 2)])
def test_znodes_of_birth_were_never_created(scenario: Scenario, path: str, children: int) -> None:
    """Real ZooKeeper puts them in place without a create, so the wire cversion is -numChildren there too."""
    assert scenario.node(path).creates == 0
    assert scenario.stat(path)._replace(num_children=0, cversion=0) == Stat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    assert scenario.stat(path).num_children == children


# -- stats


def test_create_gives_all_zxids_and_both_times_of_the_command(scenario: Scenario) -> None:
    assert scenario.create("/a", b"xyz") == "/a"
    zxid, now = scenario.machine.last_zxid, scenario.wall_time
    assert scenario.stat("/a") == Stat(zxid, zxid, now, now, 0, 0, 0, 0, 3, 0, zxid)


def test_set_data_moves_mzxid_mtime_and_version_only(scenario: Scenario) -> None:
    scenario.create("/a", b"old")
    before = scenario.stat("/a")
    node = scenario.set_data("/a", b"longer", 0)
    zxid = scenario.machine.last_zxid
    assert node is scenario.node("/a")
    expected = before._replace(mzxid=zxid, mtime=scenario.wall_time, version=1, data_length=6)
    assert scenario.stat("/a") == expected


def test_pzxid_moves_on_create_and_delete_of_a_child_but_not_on_its_set_data(scenario: Scenario) -> None:
    """Trap 2."""
    scenario.create("/a")
    born = scenario.stat("/a").pzxid
    scenario.create("/a/b")
    created = scenario.stat("/a").pzxid
    assert created == scenario.machine.last_zxid > born
    scenario.set_data("/a/b")
    assert scenario.stat("/a").pzxid == created
    scenario.create("/a/b/c")
    assert scenario.stat("/a").pzxid == created
    scenario.delete("/a/b/c")
    assert scenario.stat("/a").pzxid == created
    scenario.delete("/a/b")
    assert scenario.stat("/a").pzxid == scenario.machine.last_zxid
    assert scenario.stat("/a").mzxid == born


def test_wire_cversion_counts_creates_plus_deletes(scenario: Scenario) -> None:
    """Trap 1."""
    scenario.create("/a")
    scenario.create("/a/1")
    scenario.create("/a/2")
    assert scenario.stat("/a").cversion == 2
    scenario.delete("/a/1")
    assert scenario.stat("/a").cversion == 3
    scenario.delete("/a/2")
    assert scenario.stat("/a").cversion == 4
    scenario.create("/a/1")
    assert (scenario.stat("/a").cversion, scenario.stat("/a").num_children) == (5, 1)


def test_null_and_empty_data_stay_different(scenario: Scenario) -> None:
    """Trap 23."""
    scenario.create("/null", None)
    scenario.create("/empty", b"")
    assert scenario.node("/null").data is None
    assert scenario.node("/empty").data == b""
    scenario.set_data("/empty", None)
    scenario.set_data("/null", b"")
    assert scenario.node("/empty").data is None
    assert scenario.node("/null").data == b""
    assert scenario.stat("/empty").data_length == 0


# -- sequential names


def test_suffix_is_the_number_of_creates_ever_sequential_or_not(scenario: Scenario) -> None:
    """Trap 1."""
    scenario.create("/d")
    assert scenario.create("/d/a") == "/d/a"
    assert scenario.create("/d/b-", flags=SEQUENTIAL) == "/d/b-0000000001"
    assert scenario.create("/d/c-", flags=EPHEMERAL_SEQUENTIAL) == "/d/c-0000000002"


def test_deletes_and_failed_creates_do_not_advance_the_suffix(scenario: Scenario) -> None:
    scenario.create("/d")
    scenario.create("/d/a")
    scenario.delete("/d/a")
    scenario.create("/d/x")
    assert scenario.create("/d/x") is Code.NODE_EXISTS
    assert scenario.create("/d/\x01", flags=SEQUENTIAL) is Code.BAD_ARGUMENTS
    assert scenario.create("/d/s", flags=SEQUENTIAL) == "/d/s0000000002"


def test_suffix_alone_can_be_the_name(scenario: Scenario) -> None:
    """Trap 28: the path is checked after the suffix, so a trailing slash or a dot is legal there."""
    scenario.create("/d")
    assert scenario.create("/d/", flags=SEQUENTIAL) == "/d/0000000000"
    assert scenario.create("/d/..", flags=SEQUENTIAL) == "/d/..0000000001"
    assert scenario.create("/", flags=SEQUENTIAL) == "/0000000001"


def test_suffix_wraps_like_a_signed_32_bit_number(scenario: Scenario) -> None:
    scenario.create("/d")
    scenario.node("/d").creates = INT32_MAX
    assert scenario.create("/d/s", flags=SEQUENTIAL) == "/d/s2147483647"
    assert scenario.create("/d/s", flags=SEQUENTIAL) == "/d/s-2147483648"
    assert scenario.create("/d/s", flags=SEQUENTIAL) == "/d/s-2147483647"
    scenario.node("/d").creates = -5
    assert scenario.create("/d/s", flags=SEQUENTIAL) == "/d/s-000000005"


def test_wire_cversion_wraps_like_a_signed_32_bit_number(scenario: Scenario) -> None:
    scenario.create("/d")
    scenario.node("/d").creates = 2**30
    assert scenario.stat("/d").cversion == INT32_MIN


def test_sequential_name_that_exists_is_refused(scenario: Scenario) -> None:
    scenario.create("/d")
    scenario.create("/d/s0000000001")
    assert scenario.create("/d/s", flags=SEQUENTIAL) is Code.NODE_EXISTS


# -- versions


def test_minus_one_is_any_version(scenario: Scenario) -> None:
    scenario.create("/a")
    assert scenario.set_data("/a", version=-1).version == 1
    assert scenario.set_data("/a", version=1).version == 2
    assert scenario.set_data("/a", version=1) is Code.BAD_VERSION
    assert scenario.delete("/a", 1) is Code.BAD_VERSION
    assert scenario.delete("/a", 2) is Code.OK


def test_version_wraps_and_skips_minus_one(scenario: Scenario) -> None:
    """Trap 24 (ZOOKEEPER-4743)."""
    scenario.create("/a")
    scenario.node("/a").version = INT32_MAX
    assert scenario.set_data("/a", version=INT32_MAX).version == INT32_MIN
    scenario.node("/a").version = -2
    assert scenario.set_data("/a", version=-2).version == 0


# -- events


def test_events_name_the_node_first_and_then_its_parent(scenario: Scenario) -> None:
    scenario.create("/a")
    assert scenario.events() == [(NODE_CREATED, "/a"), (NODE_CHILDREN_CHANGED, "/")]
    scenario.create("/a/b")
    assert scenario.events() == [(NODE_CREATED, "/a/b"), (NODE_CHILDREN_CHANGED, "/a")]
    scenario.set_data("/a")
    assert scenario.events() == [(NODE_DATA_CHANGED, "/a")]
    scenario.delete("/a/b")
    assert scenario.events() == [(NODE_DELETED, "/a/b"), (NODE_CHILDREN_CHANGED, "/a")]


def test_failures_have_no_events(scenario: Scenario) -> None:
    scenario.create("/a/b")
    scenario.set_data("/a")
    scenario.delete("/a")
    scenario.create("/zookeeper")
    assert scenario.events() == []


def test_events_carry_the_acl_of_the_node_and_of_the_parent(scenario: Scenario) -> None:
    """Trap 15: a deletion is judged by the ACL the node had, the parent's event by the parent's."""
    acl = ((ALL, "ip", "10.9.8.7"),)
    scenario.create("/a", acl=acl)
    scenario.delete("/a")
    assert [event[2] for event in scenario.machine.events] == [acl, OPEN_ACL, acl, OPEN_ACL]


# -- create: order of checks


def test_create_checks_flags_first(scenario: Scenario) -> None:
    assert scenario.create("", acl=(), flags=7) is Code.BAD_ARGUMENTS
    for flags in (5, 6, 7, -1, 2**31):
        assert scenario.create("/a", flags=flags) is Code.BAD_ARGUMENTS


def test_create_without_slash_or_with_null_is_bad_before_the_acl(scenario: Scenario) -> None:
    assert scenario.create("a", acl=()) is Code.BAD_ARGUMENTS
    assert scenario.create("/no/\0", acl=()) is Code.BAD_ARGUMENTS


def test_create_checks_acl_before_parent(scenario: Scenario) -> None:
    assert scenario.create("/no/a", acl=()) is Code.INVALID_ACL


def test_create_misses_parent_before_it_judges_the_path(scenario: Scenario) -> None:
    assert scenario.create("/no/..") is Code.NO_NODE
    assert scenario.create("no/a") is Code.NO_NODE
    assert scenario.create("/a//b") is Code.NO_NODE


def test_create_checks_right_on_parent_before_it_judges_the_path(scenario: Scenario) -> None:
    """Trap 14: the parent's CREATE bit counts."""
    scenario.create("/p", acl=without(CREATE))
    assert scenario.create("/p/..") is Code.NO_AUTH
    assert scenario.create("/p/a") is Code.NO_AUTH
    scenario.create("/q", acl=((CREATE, "world", "anyone"),))
    assert scenario.create("/q/a") == "/q/a"


def test_create_judges_path_before_existence(scenario: Scenario) -> None:
    scenario.create("/a")
    for path in ("/a/", "/a/.", "/a/..", "/a/\x1f", "/a/\ud7ff\ue000", "//", "//a", "/a/\U0001f600"):
        assert scenario.create(path) is Code.BAD_ARGUMENTS
    assert scenario.create("//", flags=SEQUENTIAL) is Code.BAD_ARGUMENTS


def test_create_of_the_root_says_that_it_exists(scenario: Scenario) -> None:
    assert scenario.create("/") is Code.NODE_EXISTS


def test_existing_child_of_ephemeral_parent_cannot_be_but_existence_is_checked_first(
    scenario: Scenario,
) -> None:
    """Trap 27: NODE_EXISTS before NO_CHILDREN_FOR_EPHEMERALS. Such a child is planted to see the order."""
    scenario.create("/e", flags=EPHEMERAL)
    assert scenario.create("/e/a") is Code.NO_CHILDREN_FOR_EPHEMERALS
    assert scenario.create("/e/a", flags=SEQUENTIAL) is Code.NO_CHILDREN_FOR_EPHEMERALS
    scenario.node("/e").children = {"/e/a": None}
    assert scenario.create("/e/a") is Code.NODE_EXISTS


def test_create2_is_the_same_command(scenario: Scenario) -> None:
    path, node = scenario.run((CREATE2, "/a", b"x", None, PERSISTENT, None))
    assert (path, node) == ("/a", scenario.node("/a"))


def test_create_stores_a_restricted_acl_without_duplicates(scenario: Scenario) -> None:
    scenario.create("/a", acl=((READ, "world", "anyone"), (ALL, "ip", "1.1.1.1"), (READ, "world", "anyone")))
    assert scenario.node("/a").acl == ((READ, "world", "anyone"), (ALL, "ip", "1.1.1.1"))


# -- delete: order of checks


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "", "a", "/\0"])
def test_reserved_and_impossible_paths_cannot_be_deleted(scenario: Scenario, path: str) -> None:
    assert scenario.delete(path) is Code.BAD_ARGUMENTS


def test_children_of_reserved_paths_can_be_deleted(scenario: Scenario) -> None:
    scenario.create("/zookeeper/quota/a")
    assert scenario.delete("/zookeeper/quota/a") is Code.OK


def test_delete_checks_parent_then_right_then_node_then_version_then_children(scenario: Scenario) -> None:
    """Trap 14: the parent's DELETE bit counts, not the node's."""
    assert scenario.delete("/p/a") is Code.NO_NODE
    scenario.create("/p", acl=without(DELETE))
    assert scenario.delete("/p/a") is Code.NO_AUTH
    scenario.create("/q", acl=((ALL, "world", "anyone"),))
    assert scenario.delete("/q/a") is Code.NO_NODE
    assert scenario.delete("/q/a/") is Code.NO_NODE
    scenario.create("/q/a", acl=((CREATE, "world", "anyone"),))
    scenario.create("/q/a/b")
    assert scenario.delete("/q/a", 7) is Code.BAD_VERSION
    assert scenario.delete("/q/a") is Code.NOT_EMPTY
    scenario.run(create("/q/a/c"))
    assert scenario.delete("/q/a/b") is Code.NO_AUTH


def test_delete_ignores_the_rights_on_the_node_itself(scenario: Scenario) -> None:
    scenario.create("/a", acl=OTHERS_ONLY)
    assert scenario.delete("/a") is Code.OK
    assert "/a" not in scenario.machine.nodes
    assert len(scenario.machine.nodes) == 4


# -- setData and check: order of checks


def test_set_data_checks_path_then_node_then_right_then_version(scenario: Scenario) -> None:
    for path in ("", "a", "/a/", "//", "/.."):
        assert scenario.set_data(path) is Code.BAD_ARGUMENTS
    assert scenario.set_data("/a", version=5) is Code.NO_NODE
    scenario.create("/a", acl=without(WRITE))
    assert scenario.set_data("/a", version=5) is Code.NO_AUTH
    scenario.create("/b", acl=((WRITE, "world", "anyone"),))
    assert scenario.set_data("/b", version=5) is Code.BAD_VERSION
    assert scenario.set_data("/b", b"new", 0).data == b"new"


def test_root_takes_data_but_config_is_read_only(scenario: Scenario) -> None:
    assert scenario.set_data("/", b"x").version == 1
    assert scenario.set_data("/zookeeper/config", b"x") is Code.NO_AUTH
    assert scenario.create("/zookeeper/config/a") is Code.NO_AUTH


def test_check_needs_read(scenario: Scenario) -> None:
    scenario.create("/a", acl=without(READ))
    scenario.create("/b", acl=((READ, "world", "anyone"),))
    codes = []
    for path, version in (("/..", 0), ("/no", 0), ("/a", 9), ("/b", 9), ("/b", 0), ("/b", -1)):
        result = scenario.multi((CHECK, path, version))
        codes.append(result[0] if isinstance(result, tuple) else result.code)
    assert codes == [Code.BAD_ARGUMENTS, Code.NO_NODE, Code.NO_AUTH, Code.BAD_VERSION, Code.OK, Code.OK]


def test_check_alone_is_no_operation(scenario: Scenario) -> None:
    """A top-level check is an unknown opcode."""
    assert scenario.run((CHECK, "/", -1)) is Code.UNIMPLEMENTED


def test_ids_of_the_run_decide(scenario: Scenario) -> None:
    """D-5: rights come from the ids in the entry."""
    scenario.create("/a", acl=OTHERS_ONLY)
    assert scenario.set_data("/a", ids=NOBODY) is Code.NO_AUTH
    assert scenario.set_data("/a", ids=()) is Code.NO_AUTH
    assert scenario.set_data("/a", ids=(("ip", "1.1.1.1"),)).version == 1


# -- limits are replicated settings (D-5)


def test_data_above_the_replicated_limit_is_refused(scenario: Scenario) -> None:
    assert scenario.by_leader((SETTINGS, {"data_bytes_max": 4})) is Code.OK
    assert scenario.create("/a", b"12345") is Code.BAD_ARGUMENTS
    assert scenario.create("/a", b"1234") == "/a"
    assert scenario.set_data("/a", b"12345") is Code.BAD_ARGUMENTS
    assert scenario.set_data("/a", None).data is None


def test_ephemerals_per_session_are_limited(scenario: Scenario) -> None:
    """D-20: a session's end removes all of them in one command."""
    assert scenario.by_leader((SETTINGS, {"session_ephemerals_max": 2})) is Code.OK
    scenario.create("/1", flags=EPHEMERAL)
    scenario.create("/2", flags=EPHEMERAL)
    assert scenario.create("/3", flags=EPHEMERAL) is Code.QUOTA_EXCEEDED
    assert scenario.create("/p", flags=PERSISTENT) == "/p"
    assert scenario.create("/3", flags=EPHEMERAL, session=scenario.new_session()) == "/3"
    scenario.delete("/1")
    assert scenario.create("/4", flags=EPHEMERAL) == "/4"


# -- poison entries (flaw 23)

NO_STRING: tuple[Any, ...] = (None, True, 1, 1.5, b"/a", ("/a",), {}, {"x": 1})
NO_DATA: tuple[Any, ...] = (True, 1, "text", (), {}, bytearray(b"x"))
NO_NUMBER: tuple[Any, ...] = (None, True, 1.0, "1", b"1", (), {})
NO_ACL: tuple[Any, ...] = (True, 1, "acl", b"acl", {}, (1,), ((31, "world"),), (("31", "world", "anyone"),))

POISON: list[Any] = [
    *[(CREATE_COMMAND, bad, b"", None, 0, None) for bad in NO_STRING],
    *[(CREATE_COMMAND, "/n", bad, None, 0, None) for bad in NO_DATA],
    *[(CREATE_COMMAND, "/n", b"", bad, 0, None) for bad in NO_ACL],
    *[(CREATE_COMMAND, "/n", b"", None, bad, None) for bad in NO_NUMBER],
    *[(SET_DATA, bad, b"", 0) for bad in NO_STRING],
    *[(SET_DATA, "/", bad, 0) for bad in NO_DATA],
    *[(SET_DATA, "/", b"", bad) for bad in NO_NUMBER],
    *[(DELETE_COMMAND, bad, 0) for bad in NO_STRING],
    *[(DELETE_COMMAND, "/a", bad) for bad in NO_NUMBER],
    *[
        (MULTI, bad)
        for bad in (*NO_STRING, [], (5,), ((),), ([],), ((14, ()),), ((-11,),), ((True, "/", 0),))
    ],
    *[(MULTI, (create("/n"), (SET_DATA, bad, b"", 0))) for bad in NO_STRING],
    *[(MULTI, (create("/n"), (CHECK, "/", bad))) for bad in NO_NUMBER],
    *[(opcode, "/a") for opcode in (CREATE_COMMAND, SET_DATA, DELETE_COMMAND, CLOSE_SESSION)],
    *[(SET_DATA, "/", b"", 0, 0), (DELETE_COMMAND,), (MULTI,), (CREATE_COMMAND,), (1.0, "/a"), (True,)],
    *[None, 5, (), (None,), ({},), {}, {0: 1}, {0: 5, 1: 1, 2: 2, 3: 3}, [], b"\x01abcde", b"\x05abc"],
]


@pytest.mark.parametrize("command", POISON, ids=repr)
def test_malformed_command_fails_without_a_trace(scenario: Scenario, command: Any) -> None:
    """Flaw 23: a poison entry must not stop every server, and must mean the same to all of them."""
    scenario.create("/a")
    scenario.events()
    before = scenario.machine.image()[:1]
    zxid, position = scenario.machine.last_zxid, scenario.machine.position
    result = scenario.run(command)
    assert result in (Code.MARSHALLING_ERROR, Code.UNIMPLEMENTED)
    assert (scenario.machine.last_zxid, scenario.machine.position) == (zxid + 1, position + 1)
    assert scenario.machine.image()[:1] == before
    assert scenario.events() == []
    assert scenario.machine.digest() == scenario.machine.full_digest()


@pytest.mark.parametrize("opcode", [99, "1", "create", -10, 200, 201, 202, 203, 204, 13])
def test_opcode_that_a_session_cannot_use_is_unimplemented(scenario: Scenario, opcode: Any) -> None:
    assert scenario.run((opcode, "/", -1)) is Code.UNIMPLEMENTED
