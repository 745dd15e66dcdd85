"""Feature levels, and what level 2 brings: releases can be mixed while a cluster rolls (D-5)."""

from __future__ import annotations

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.errors import Code
from zraft.tree import settings as settings_module
from zraft.tree.events import NODE_DATA_CHANGED
from zraft.tree.features import FEATURE_LEVEL_MAX, FeatureLevelError, check_level
from zraft.tree.machine import MEMBERS_BYTES_MAX
from zraft.tree.txn import FEATURE, MEMBERS, SET_DATA, SETTINGS, Command

CONFIG = "/zookeeper/config"
TEXT = b"server.1=a:2888:3888:participant;a:2181\nversion=100000004"
SUPER = (("super", ""),)


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_level_begins_at_one_and_only_rises(scenario: Scenario) -> None:
    """D-5."""
    machine = scenario.machine
    assert machine.feature_level == 1
    assert scenario.by_leader((FEATURE, 1)) is Code.BAD_ARGUMENTS
    before = machine.full_digest()
    assert scenario.by_leader((FEATURE, 2)) is Code.OK
    assert machine.feature_level == 2
    for level in (2, 1, 0, -5):
        assert scenario.by_leader((FEATURE, level)) is Code.BAD_ARGUMENTS
    assert machine.feature_level == 2
    assert machine.digest() == machine.full_digest() != before


def test_level_is_part_of_state_and_digest(scenario: Scenario) -> None:
    machine = scenario.machine
    before = machine.digest(), machine.image()
    machine.feature_level = 2
    assert machine.digest() != before[0]
    assert machine.image() != before[1]


def test_level_that_this_release_does_not_know_stops_the_server(scenario: Scenario) -> None:
    """It could not apply what follows as the others do."""
    with pytest.raises(FeatureLevelError, match=f"level {FEATURE_LEVEL_MAX + 1}, this release knows 1 to"):
        scenario.by_leader((FEATURE, FEATURE_LEVEL_MAX + 1))
    assert scenario.machine.feature_level == 1


@pytest.mark.parametrize(
    "command", [(FEATURE,), (FEATURE, "2"), (FEATURE, True), (FEATURE, None), (FEATURE, 2, 2)]
)
def test_malformed_feature_command_fails(scenario: Scenario, command: Command) -> None:
    assert scenario.by_leader(command) is Code.MARSHALLING_ERROR
    assert scenario.machine.feature_level == 1


@pytest.mark.parametrize("command", [(FEATURE, 2), (MEMBERS, TEXT)])
def test_only_the_leader_raises_levels_and_shows_members(scenario: Scenario, command: Command) -> None:
    assert scenario.run(command) is Code.UNIMPLEMENTED
    assert scenario.without_session(command) is Code.UNIMPLEMENTED


def test_known_levels_are_fine() -> None:
    for level in range(1, FEATURE_LEVEL_MAX + 1):
        check_level(level, "x")
    with pytest.raises(FeatureLevelError):
        check_level(0, "x")


def test_members_are_unknown_below_level_two(scenario: Scenario) -> None:
    assert scenario.by_leader((MEMBERS, TEXT)) is Code.UNIMPLEMENTED
    assert scenario.node(CONFIG).data == b""
    scenario.by_leader((FEATURE, 2))
    assert scenario.by_leader((MEMBERS, TEXT)) is Code.OK
    assert scenario.node(CONFIG).data == TEXT


def test_members_change_the_configuration_as_a_reconfig_does(scenario: Scenario) -> None:
    """Its version is -1 at birth and after every reconfig, also when a client wrote in between."""
    scenario.by_leader((FEATURE, 2))
    scenario.events()
    bytes_before = scenario.machine.nodes.data_bytes
    born = scenario.stat(CONFIG)
    scenario.by_leader((MEMBERS, TEXT))
    stat = scenario.stat(CONFIG)
    assert stat == born._replace(
        mzxid=scenario.machine.last_zxid, mtime=scenario.wall_time, data_length=len(TEXT)
    )
    assert (born.version, stat.version) == (-1, -1)
    assert scenario.events() == [(NODE_DATA_CHANGED, CONFIG)]
    assert scenario.machine.nodes.data_bytes == bytes_before + len(TEXT)
    assert scenario.machine.digest() == scenario.machine.full_digest()
    # -1 counts up to 0 when a client with the rights writes.
    scenario.run((SET_DATA, CONFIG, b"by hand", -1), ids=SUPER)
    assert scenario.stat(CONFIG).version == 0
    scenario.by_leader((MEMBERS, TEXT))
    assert scenario.stat(CONFIG).version == -1


@pytest.mark.parametrize(
    "command",
    [
        (MEMBERS,),
        (MEMBERS, "text"),
        (MEMBERS, None),
        (MEMBERS, b"x" * (MEMBERS_BYTES_MAX + 1)),
        (MEMBERS, b"", 1),
    ],
)
def test_malformed_members_command_fails(scenario: Scenario, command: Command) -> None:
    scenario.by_leader((FEATURE, 2))
    assert scenario.by_leader(command) is Code.MARSHALLING_ERROR
    assert scenario.node(CONFIG).data == b""


def test_members_count_for_a_quota_above(scenario: Scenario) -> None:
    scenario.by_leader((FEATURE, 2))
    scenario.create("/zookeeper/quota/zookeeper")
    scenario.create("/zookeeper/quota/zookeeper/zookeeper_limits", b"count=99,bytes=99")
    stats = "/zookeeper/quota/zookeeper/zookeeper_stats"
    scenario.create(stats, b"")
    used = scenario.node(stats).data
    assert used is not None
    before = int(used.partition(b"bytes=")[2])
    scenario.by_leader((MEMBERS, TEXT))
    assert scenario.node(stats).data == used.replace(b"bytes=%d" % before, b"bytes=%d" % (before + len(TEXT)))


def test_setting_newer_than_the_level_is_unknown_and_no_part_of_the_digest(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a release that does not have it would answer, and count, otherwise."""
    machine = scenario.machine
    with_it = machine.digest()
    monkeypatch.setitem(settings_module._SINCE, "quota_enforced", 2)
    assert machine.digest() != with_it
    assert scenario.by_leader((SETTINGS, {"quota_enforced": 1})) is Code.BAD_ARGUMENTS
    assert scenario.by_leader((SETTINGS, {"quota_enforced": 1, "tick_time_ms": 5})) is Code.BAD_ARGUMENTS
    assert machine.settings.tick_time_ms == 2_000
    scenario.by_leader((FEATURE, 2))
    assert scenario.by_leader((SETTINGS, {"quota_enforced": 1})) is Code.OK
    assert machine.settings.quota_enforced == 1


def test_feature_level_is_no_setting(scenario: Scenario) -> None:
    """It rises by its own command only, which never lowers it."""
    assert scenario.by_leader((SETTINGS, {"feature_level": 2})) is Code.BAD_ARGUMENTS
