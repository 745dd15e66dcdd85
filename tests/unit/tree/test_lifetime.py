"""Containers and znodes with a time to live: what makes one, when it is due, and that apply judges again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.lifetime import TTL_MS_MAX
from zraft_core.errors import Code
from zraft_core.znodes.txn import (
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    REAP,
    SET_DATA,
    SETTINGS,
)

TTL, TTL_SEQUENTIAL = 5, 6


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.events()
    return scenario


def made(scenario: Scenario, path: str, opcode: int, flags: int, ttl_ms: int = 0, **how: Any) -> Any:
    result = scenario.run((opcode, path, b"x", None, flags, ttl_ms), **how)
    return result if isinstance(result, Code) else result[0]


def reap(scenario: Scenario, path: str) -> Any:
    """As the leader does that sees the znode as it is now; a second of log time has passed."""
    return scenario.by_leader((REAP, path, scenario.node(path).czxid))


def test_only_create_container_makes_containers(scenario: Scenario) -> None:
    """Trap 4: flag 4 in create and create2 means nothing."""
    for name, opcode in (("a", CREATE), ("b", CREATE2), ("c", CREATE_CONTAINER)):
        made(scenario, f"/{name}", opcode, 4)
    assert set(scenario.machine.mortal) == {"/c"}


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4])
def test_create_container_makes_one_with_every_flag(scenario: Scenario, flags: int) -> None:
    path = made(scenario, "/c", CREATE_CONTAINER, flags)
    assert path == ("/c0000000000" if flags in (2, 3) else "/c")
    assert scenario.stat(path).ephemeral_owner == 0, "trap 3: an owner on the wire would name a session"


def test_ttl_flags_need_the_opcode_that_carries_a_ttl(scenario: Scenario) -> None:
    for opcode in (CREATE, CREATE2, CREATE_CONTAINER):
        assert made(scenario, "/t", opcode, TTL) is Code.BAD_ARGUMENTS
    assert made(scenario, "/t", CREATE_TTL, 0, 1000) is Code.BAD_ARGUMENTS
    assert made(scenario, "/plain", CREATE_TTL, 0, -1) == "/plain", "a time below 0 says that there is none"
    assert not scenario.machine.mortal
    for ttl_ms in (0, -1, TTL_MS_MAX + 1):
        assert made(scenario, "/t", CREATE_TTL, TTL, ttl_ms) is Code.BAD_ARGUMENTS
    assert made(scenario, "/t", CREATE_TTL, TTL, TTL_MS_MAX) == "/t"
    assert made(scenario, "/s-", CREATE_TTL, TTL_SEQUENTIAL, 1) == "/s-0000000002"


def test_ttl_nodes_that_are_switched_off_are_unimplemented(scenario: Scenario) -> None:
    assert scenario.by_leader((SETTINGS, {"ttl_nodes_enabled": 0})) is Code.OK
    assert made(scenario, "/t", CREATE_TTL, TTL, 1000) is Code.UNIMPLEMENTED
    assert made(scenario, "/t", CREATE, TTL) is Code.UNIMPLEMENTED
    assert made(scenario, "/t", CREATE_CONTAINER, 4) == "/t"


def test_ttl_counts_from_the_last_change_of_data_and_not_from_children(scenario: Scenario) -> None:
    """Trap 39. Every entry of the scenario is a second of log time later."""
    made(scenario, "/t", CREATE_TTL, TTL, 3_500)
    scenario.create("/t/child")
    scenario.delete("/t/child")
    scenario.set_data("/t", b"again")
    assert [reap(scenario, "/t") for _ in range(4)] == [Code.BAD_VERSION] * 3 + [Code.OK]
    assert "/t" not in scenario.machine.nodes
    assert not scenario.machine.mortal


def test_mortal_znode_with_children_stays(scenario: Scenario) -> None:
    made(scenario, "/t", CREATE_TTL, TTL, 1)
    made(scenario, "/c", CREATE_CONTAINER, 4)
    for parent in ("/t", "/c"):
        assert scenario.create(f"{parent}/child") == f"{parent}/child"
        assert reap(scenario, parent) is Code.NOT_EMPTY


def test_container_goes_when_its_last_child_has_gone(scenario: Scenario) -> None:
    made(scenario, "/c", CREATE_CONTAINER, 4)
    assert reap(scenario, "/c") is Code.BAD_VERSION, "it never had a child"
    scenario.create("/c/child")
    scenario.delete("/c/child")
    scenario.events()
    assert reap(scenario, "/c") is Code.OK
    assert scenario.events() == [(2, "/c"), (4, "/")]


def test_container_that_never_had_a_child_goes_after_the_set_time(scenario: Scenario) -> None:
    scenario.by_leader((SETTINGS, {"container_never_used_ms_max": 2_500}))
    made(scenario, "/c", CREATE_CONTAINER, 4)
    scenario.set_data("/c", b"setting its data renews nothing")
    assert [reap(scenario, "/c") for _ in range(2)] == [Code.BAD_VERSION, Code.OK]


def test_reap_of_another_znode_of_that_name_changes_nothing(scenario: Scenario) -> None:
    """The leader looked; before its command applied, a client made the path anew."""
    made(scenario, "/t", CREATE_TTL, TTL, 1)
    czxid = scenario.node("/t").czxid
    scenario.delete("/t")
    made(scenario, "/t", CREATE_TTL, TTL, 1)
    assert scenario.by_leader((REAP, "/t", czxid)) is Code.NO_NODE
    scenario.create("/plain")
    assert reap(scenario, "/plain") is Code.BAD_VERSION
    assert scenario.by_leader((REAP, "/gone", 1)) is Code.NO_NODE


def test_clients_may_delete_a_container_but_no_ephemeral(scenario: Scenario) -> None:
    made(scenario, "/c", CREATE_CONTAINER, 4)
    scenario.create("/c/child")
    scenario.create("/e", flags=1)
    assert scenario.run((DELETE_CONTAINER, "/c")) is Code.NOT_EMPTY
    assert scenario.run((DELETE_CONTAINER, "/e")) is Code.BAD_VERSION
    assert scenario.run((DELETE_CONTAINER, "/none")) is Code.NO_NODE
    scenario.delete("/c/child")
    assert scenario.run((DELETE_CONTAINER, "/c")) is Code.OK


def test_failed_multi_leaves_no_trace_of_lifetimes(scenario: Scenario) -> None:
    made(scenario, "/old", CREATE_TTL, TTL, 5_000)
    before, digest = scenario.machine.image()[:1], scenario.machine.digest()
    failed = scenario.multi(
        (SET_DATA, "/old", b"renewed", -1),
        (DELETE, "/old", -1),
        (CREATE_TTL, "/new", b"", None, TTL, 5_000),
        (CREATE_CONTAINER, "/c", b"", None, 4, 0),
        (DELETE, "/none", -1),
    )
    assert isinstance(failed, MultiFailed)
    assert scenario.machine.image()[:1] == before
    assert set(scenario.machine.mortal) == {"/old"}
    assert scenario.machine.digest() == scenario.machine.full_digest() != digest


def test_lifetime_is_part_of_the_digest(scenario: Scenario) -> None:
    other = Scenario()
    made(scenario, "/t", CREATE_TTL, TTL, 1_000)
    made(other, "/t", CREATE_TTL, TTL, 1_001)
    assert scenario.machine.digest() != other.machine.digest()
