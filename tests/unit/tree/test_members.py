"""Who is to belong to the cluster, as state: what changes it, who may, and what clients read of it (D-18)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tree.scenario import ONE, Scenario
from zraft.tree.node import CONFIG
from zraft_core.errors import Code
from zraft_core.znodes.events import NODE_DATA_CHANGED
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE
from zraft_core.znodes.txn import FEATURE, MEMBERS

FOUNDERS = tuple((n, PARTICIPANT, f"10.0.0.{n}:2181") for n in (1, 2, 3))
FOUR = (4, PARTICIPANT, "10.0.0.4:2181")
SUPER = (("super", ""),)


@pytest.fixture
def scenario() -> Scenario:
    """The leader has written down the founders."""
    scenario = Scenario()
    assert scenario.by_leader((FEATURE, 2)) is Code.OK
    assert not isinstance(scenario.by_leader((MEMBERS, True, -1, FOUNDERS)), Code)
    scenario.events()
    return scenario


def as_operator(scenario: Scenario, *changes: Any, replace: bool = False, version: int = -1) -> Any:
    return scenario.without_session((MEMBERS, replace, version, changes))


def as_client(scenario: Scenario, *changes: Any, ids: Any = SUPER, version: int = -1) -> Any:
    return scenario.run((MEMBERS, False, version, changes), ids=ids)


def members(scenario: Scenario) -> list[int]:
    return list(scenario.machine.members)


@pytest.mark.parametrize("replace", [False, True])
def test_nothing_can_be_changed_before_the_leader_wrote_down_who_there_is(replace: bool) -> None:
    """A fourth server added to nothing would be the only one wanted, and the others would be removed."""
    scenario = Scenario()
    assert scenario.by_leader((FEATURE, 2)) is Code.OK
    assert as_operator(scenario, FOUR, replace=replace) is Code.RECONFIG_IN_PROGRESS
    assert scenario.run((MEMBERS, replace, -1, (FOUR,)), ids=SUPER) is Code.RECONFIG_IN_PROGRESS
    assert members(scenario) == []
    scenario.by_leader((MEMBERS, True, -1, FOUNDERS))
    as_operator(scenario, FOUR)
    assert members(scenario) == [1, 2, 3, 4]


def test_a_change_is_shown_in_the_configuration_with_its_zxid_as_version(scenario: Scenario) -> None:
    node = as_client(scenario, FOUR, (2, REMOVE, ""), (3, OBSERVER, "10.0.0.3:2181"))
    zxid = scenario.machine.last_zxid
    assert node.data.decode().splitlines() == [
        "server.1=10.0.0.1:2181:2181:participant;10.0.0.1:2181",
        "server.3=10.0.0.3:2181:2181:observer;10.0.0.3:2181",
        "server.4=10.0.0.4:2181:2181:participant;10.0.0.4:2181",
        f"version={zxid:x}",
    ]
    assert (node.version, node.mzxid) == (-1, zxid)
    assert scenario.events() == [(NODE_DATA_CHANGED, CONFIG)]


def test_a_client_needs_the_right_to_write_the_configuration(scenario: Scenario) -> None:
    before = scenario.node(CONFIG).mzxid
    assert as_client(scenario, FOUR, ids=(("ip", "10.9.8.7"), ("world", "anyone"))) is Code.NO_AUTH
    assert scenario.node(CONFIG).mzxid == before
    assert scenario.events() == []


def test_a_change_of_an_older_configuration_is_refused(scenario: Scenario) -> None:
    version = scenario.node(CONFIG).mzxid
    assert not isinstance(as_client(scenario, FOUR, version=version), Code)
    assert as_client(scenario, (4, REMOVE, ""), version=version) is Code.BAD_VERSION
    assert members(scenario) == [1, 2, 3, 4]


def test_the_last_voter_cannot_go(scenario: Scenario) -> None:
    gone = [(n, REMOVE, "") for n in (1, 2, 3)]
    assert as_client(scenario, *gone) is Code.NEW_CONFIG_NO_QUORUM
    assert as_client(scenario, *((n, OBSERVER, f"h:{n}") for n in (1, 2, 3))) is Code.NEW_CONFIG_NO_QUORUM
    assert members(scenario) == [1, 2, 3]


def test_removing_who_is_no_member_changes_nothing_else(scenario: Scenario) -> None:
    """As in ZooKeeper, where a list of those who leave may name some that left."""
    assert not isinstance(as_client(scenario, (9, REMOVE, ""), (2, REMOVE, "")), Code)
    assert members(scenario) == [1, 3]


@pytest.mark.parametrize(
    "change",
    [
        (0, PARTICIPANT, "h:1"),
        (255, PARTICIPANT, "h:1"),
        (4, 7, "h:1"),
        (4, PARTICIPANT, "no port"),
        (4, 1),
        "4",
    ],
)
def test_what_is_no_change_changes_nothing(scenario: Scenario, change: Any) -> None:
    assert as_client(scenario, FOUR, change) is Code.BAD_ARGUMENTS
    assert members(scenario) == [1, 2, 3]


def test_a_client_without_a_session_needs_the_right_to_change_members_as_one_with_a_session_does(
    scenario: Scenario,
) -> None:
    """Judged at apply, from what the log says (D-5): its run has ids, those of servers and operators have none."""
    command = (MEMBERS, False, -1, (FOUR,))
    scenario.batch(ONE)
    assert scenario.machine.begin_run(0, (("ip", "10.0.0.9"),)) is Code.OK
    assert scenario.machine.execute(command) is Code.NO_AUTH
    scenario.batch(ONE)
    assert scenario.machine.begin_run(0, SUPER) is Code.OK
    assert not isinstance(scenario.machine.execute(command), Code)
