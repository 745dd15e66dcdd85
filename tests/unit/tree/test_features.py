"""Feature levels, and what level 2 brings: releases can be mixed while a cluster rolls (D-5)."""

from __future__ import annotations

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.config.features import (
    FEATURE_LEVEL_MAX,
    LEVEL_OF_MEMBERS,
    LEVEL_OF_ONE_PORT,
    FeatureLevelError,
    check_level,
)
from zraft.tree import settings as settings_module
from zraft.tree.members import WantedMember, config_text
from zraft_core.errors import Code
from zraft_core.ids import ServerId
from zraft_core.znodes.events import NODE_DATA_CHANGED
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT
from zraft_core.znodes.txn import FEATURE, MEMBERS, SET_DATA, SETTINGS, Command

CONFIG = "/zookeeper/config"
THREE_MEMBERS = (MEMBERS, True, -1, ((1, PARTICIPANT, "a:1"), (3, OBSERVER, "c:3"), (2, PARTICIPANT, "b:2")))
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


def test_no_client_raises_the_level(scenario: Scenario) -> None:
    assert scenario.run((FEATURE, 2), ids=SUPER) is Code.UNIMPLEMENTED
    assert scenario.machine.feature_level == 1


def test_no_origin_raises_the_level(scenario: Scenario) -> None:
    """One bad server could otherwise stop all with a level that nobody knows."""
    assert scenario.without_session((FEATURE, 2)) is Code.UNIMPLEMENTED
    assert scenario.without_session((FEATURE, FEATURE_LEVEL_MAX + 1)) is Code.UNIMPLEMENTED
    assert scenario.machine.feature_level == 1


def test_configuration_is_empty_while_an_address_is_unknown() -> None:
    """Clients that read it (Curator) choke on half an address."""
    for level in (LEVEL_OF_MEMBERS, FEATURE_LEVEL_MAX):
        for nowhere in ("", "0.0.0.0:2181", "[::]:2181"):
            founders = {ServerId(1): WantedMember(True, "a:1"), ServerId(2): WantedMember(True, nowhere)}
            assert config_text(founders, 5, level) == b"", "clients would connect to themselves"
        assert config_text({ServerId(1): WantedMember(True, "a:1")}, 5, level).endswith(b"version=5")


def test_no_election_port_is_named_from_level_five_on() -> None:
    """Two equal ports are none to ZooKeeper's Java classes; servers of older releases write them until all can do both."""
    members = {
        ServerId(1): WantedMember(True, "a:65535"),
        ServerId(12): WantedMember(False, "[fd00::1]:2181"),
    }
    older = [
        b"server.1=a:65535:65535:participant;a:65535",
        b"server.12=[fd00::1]:2181:2181:observer;[fd00::1]:2181",
        b"version=2a",
    ]
    for level in range(LEVEL_OF_MEMBERS, LEVEL_OF_ONE_PORT):
        assert config_text(members, 42, level).splitlines() == older
    assert config_text(members, 42, LEVEL_OF_ONE_PORT).splitlines() == [
        b"server.1=a:65535:0:participant;a:65535",
        b"server.12=[fd00::1]:2181:0:observer;[fd00::1]:2181",
        b"version=2a",
    ]


def test_level_five_rewrites_the_configuration_when_it_comes_into_force(scenario: Scenario) -> None:
    """Clients that watch it read it again: what they had was nothing to them."""
    scenario.by_leader((FEATURE, LEVEL_OF_ONE_PORT - 1))
    scenario.by_leader(THREE_MEMBERS)
    scenario.events()
    machine = scenario.machine
    members, before = machine.members, scenario.stat(CONFIG)
    assert scenario.by_leader((FEATURE, LEVEL_OF_ONE_PORT)) is Code.OK
    data = scenario.node(CONFIG).data
    assert data == config_text(members, machine.last_zxid, LEVEL_OF_ONE_PORT)
    assert scenario.stat(CONFIG) == before._replace(
        mzxid=machine.last_zxid, mtime=scenario.wall_time, data_length=len(data)
    )
    assert scenario.events() == [(NODE_DATA_CHANGED, CONFIG)]
    assert machine.members == members
    assert machine.digest() == machine.full_digest()


def test_level_five_leaves_the_configuration_alone_before_members_are_written_down(
    scenario: Scenario,
) -> None:
    before = scenario.stat(CONFIG)
    assert scenario.by_leader((FEATURE, LEVEL_OF_ONE_PORT)) is Code.OK
    assert scenario.stat(CONFIG) == before
    assert scenario.events() == []
    scenario.by_leader(THREE_MEMBERS)
    configuration = scenario.node(CONFIG).data
    assert configuration is not None
    assert b"server.3=c:3:0:observer;c:3" in configuration


def test_known_levels_are_fine() -> None:
    for level in range(1, FEATURE_LEVEL_MAX + 1):
        check_level(level, "x")
    with pytest.raises(FeatureLevelError):
        check_level(0, "x")


def test_members_are_unknown_below_level_two(scenario: Scenario) -> None:
    assert scenario.by_leader(THREE_MEMBERS) is Code.UNIMPLEMENTED
    assert scenario.node(CONFIG).data == b""
    scenario.by_leader((FEATURE, 2))
    assert not isinstance(scenario.by_leader(THREE_MEMBERS), Code)
    assert sorted(scenario.machine.members) == [1, 2, 3]


def test_members_change_the_configuration_as_a_reconfig_does(scenario: Scenario) -> None:
    """Its version is -1 at birth and after every reconfig, also when a super user wrote in between."""
    scenario.by_leader((FEATURE, 2))
    scenario.events()
    bytes_before = scenario.machine.nodes.data_bytes
    born = scenario.stat(CONFIG)
    scenario.by_leader(THREE_MEMBERS)
    zxid, stat, data = scenario.machine.last_zxid, scenario.stat(CONFIG), scenario.node(CONFIG).data
    assert data is not None
    assert data.decode().splitlines() == [
        "server.1=a:1:1:participant;a:1",
        "server.2=b:2:2:participant;b:2",
        "server.3=c:3:3:observer;c:3",
        f"version={zxid:x}",
    ]
    assert stat == born._replace(mzxid=zxid, mtime=scenario.wall_time, data_length=len(data))
    assert (born.version, stat.version) == (-1, -1)
    assert scenario.events() == [(NODE_DATA_CHANGED, CONFIG)]
    assert scenario.machine.nodes.data_bytes == bytes_before + len(data)
    assert scenario.machine.digest() == scenario.machine.full_digest()
    # -1 counts up to 0 when a client with the rights writes.
    scenario.run((SET_DATA, CONFIG, b"by hand", -1), ids=SUPER)
    assert scenario.stat(CONFIG).version == 0
    scenario.by_leader(THREE_MEMBERS)
    assert scenario.stat(CONFIG).version == -1


def test_members_are_part_of_state_and_digest(scenario: Scenario) -> None:
    scenario.by_leader((FEATURE, 2))
    scenario.by_leader(THREE_MEMBERS)
    machine = scenario.machine
    before = machine.digest(), machine.image()
    machine.members = {server: member for server, member in machine.members.items() if server != 3}
    assert machine.digest() != before[0]
    assert machine.image() != before[1]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ((MEMBERS,), Code.MARSHALLING_ERROR),
        ((MEMBERS, True, "-1", ()), Code.MARSHALLING_ERROR),
        ((MEMBERS, 1, -1, ()), Code.MARSHALLING_ERROR),
        ((MEMBERS, True, -1, None), Code.MARSHALLING_ERROR),
        ((MEMBERS, True, -1, ()), Code.NEW_CONFIG_NO_QUORUM),
        ((MEMBERS, True, -1, ((1, OBSERVER, "a:1"),)), Code.NEW_CONFIG_NO_QUORUM),
        ((MEMBERS, True, -1, ((0, PARTICIPANT, "a:1"),)), Code.BAD_ARGUMENTS),
        ((MEMBERS, True, -1, ((255, PARTICIPANT, "a:1"),)), Code.BAD_ARGUMENTS),
        ((MEMBERS, True, -1, ((1, 3, "a:1"),)), Code.BAD_ARGUMENTS),
        ((MEMBERS, True, -1, ((1, PARTICIPANT, b"a:1"),)), Code.BAD_ARGUMENTS),
        ((MEMBERS, True, -1, ((1, PARTICIPANT, "a"),)), Code.BAD_ARGUMENTS),
        ((MEMBERS, True, -1, ((1, PARTICIPANT),)), Code.BAD_ARGUMENTS),
        ((MEMBERS, False, 77, ((4, PARTICIPANT, "a:1"),)), Code.BAD_VERSION),
    ],
)
def test_members_that_cannot_be_change_nothing(scenario: Scenario, command: Command, code: Code) -> None:
    scenario.by_leader((FEATURE, 2))
    scenario.by_leader(THREE_MEMBERS)
    before = scenario.machine.members, scenario.stat(CONFIG)
    assert scenario.by_leader(command) is code
    assert (scenario.machine.members, scenario.stat(CONFIG)) == before


def test_client_needs_the_right_to_write_the_configuration(scenario: Scenario) -> None:
    """NOAUTH (WRITE on /zookeeper/config), as ZooKeeper's reconfig."""
    scenario.by_leader((FEATURE, 2))
    assert scenario.run(THREE_MEMBERS, ids=SUPER) is Code.RECONFIG_IN_PROGRESS, "the leader is first"
    scenario.by_leader(THREE_MEMBERS)
    assert scenario.run(THREE_MEMBERS) is Code.NO_AUTH
    assert not isinstance(scenario.run(THREE_MEMBERS, ids=SUPER), Code)


def test_members_count_for_a_quota_above(scenario: Scenario) -> None:
    scenario.by_leader((FEATURE, 2))
    scenario.create("/zookeeper/quota/zookeeper")
    scenario.create("/zookeeper/quota/zookeeper/zookeeper_limits", b"count=99,bytes=99")
    stats = "/zookeeper/quota/zookeeper/zookeeper_stats"
    scenario.create(stats, b"")
    used = scenario.node(stats).data
    assert used is not None
    before = int(used.partition(b"bytes=")[2])
    scenario.by_leader(THREE_MEMBERS)
    growth = scenario.stat(CONFIG).data_length
    assert scenario.node(stats).data == used.replace(b"bytes=%d" % before, b"bytes=%d" % (before + growth))


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
