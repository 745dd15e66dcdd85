"""The frame around commands: origin rows, positions, zxids, time, settings."""

from __future__ import annotations

import pytest

from tests.unit.tree.scenario import NOBODY, ONE, PASSWORD, THREE, TWO, Scenario, create
from zraft.tree.origins import BOOT_MAX
from zraft.tree.settings import Settings
from zraft_core.errors import Code
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.txn import CREATE_SESSION, REGISTER, SETTINGS


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


# -- D-2, D-3: rows


def test_exactly_the_next_batch_of_a_boot_is_accepted(scenario: Scenario) -> None:
    """D-2."""
    machine = scenario.machine
    assert machine.begin_batch(*TWO, 1, 1)
    assert not machine.begin_batch(*TWO, 1, 1)
    assert machine.begin_batch(*TWO, 1, 2)
    assert not machine.begin_batch(*TWO, 1, 1)
    assert machine.begin_batch(*TWO, 1, 3)
    assert machine.origins.faults == 0


def test_gap_is_skipped_and_counted_as_a_fault(scenario: Scenario) -> None:
    """D-2."""
    machine = scenario.machine
    assert machine.begin_batch(*TWO, 1, 1)
    assert not machine.begin_batch(*TWO, 1, 3)
    assert machine.origins.faults == 1
    assert machine.begin_batch(*TWO, 1, 2)
    assert not machine.begin_batch(*TWO, 2, 2)
    assert machine.origins.faults == 2
    assert machine.rows[TWO].boot == 1


def test_higher_boot_starts_again_at_one_and_older_boots_are_skipped_whole(scenario: Scenario) -> None:
    """D-3: the late (7, 12) after (8, 1)."""
    machine = scenario.machine
    assert machine.begin_batch(*TWO, 7, 1)
    assert machine.begin_batch(*TWO, 8, 1)
    assert not machine.begin_batch(*TWO, 7, 2)
    assert not machine.begin_batch(*TWO, 7, 1)
    assert machine.begin_batch(*TWO, 8, 2)
    assert machine.origins.faults == 0


def test_a_boot_that_no_message_and_no_image_can_carry_is_skipped_and_counted_as_a_fault(
    scenario: Scenario,
) -> None:
    """Only a faulty leader lets one into the log. The next snapshot with it could be read by nobody."""
    machine = scenario.machine
    assert machine.begin_batch(*TWO, BOOT_MAX, 1)
    assert not machine.begin_batch(*TWO, BOOT_MAX + 1, 1)
    assert machine.origins.faults == 1
    assert machine.rows[TWO].boot == BOOT_MAX


def test_rows_exist_exactly_for_members(scenario: Scenario) -> None:
    """D-3b: a replaced disk takes its row along, and its late batches count for nothing."""
    machine = scenario.machine
    new_disk = (TWO[0], Instance(b"n" * 16))
    assert machine.begin_batch(*TWO, 5, 1)
    machine.set_members([ONE, new_disk])
    assert set(machine.rows) == {ONE, new_disk}
    assert not machine.begin_batch(*TWO, 5, 2)
    assert not machine.begin_batch(*THREE, 1, 1)
    assert machine.begin_batch(*new_disk, 1, 1)
    assert (machine.rows[ONE].boot, machine.rows[ONE].seq) == (1, 1)
    assert machine.origins.faults == 0


def test_leaders_batches_are_not_deduplicated(scenario: Scenario) -> None:
    for _ in range(3):
        assert scenario.by_leader((SETTINGS, {})) is Code.OK


@pytest.mark.parametrize(
    "header",
    [
        (None, b"", 0, 0),
        (1, "1" * 16, 1, 1),
        ((), b"", 1, 1),
        ({}, b"", 1, 1),
        (1, b"1" * 16, None, 2),
        (1, b"1" * 16, 1, "2"),
        (True, b"1" * 16, 1, 2),
        (0.0, b"", 0, 0),
    ],
)
def test_malformed_header_of_a_batch_is_skipped(scenario: Scenario, header: tuple[object, ...]) -> None:
    """Flaw 23."""
    before = scenario.machine.image()
    assert not scenario.machine.begin_batch(*header)  # type: ignore[arg-type]
    assert scenario.machine.image() == before


def test_register_sets_the_boot_id_of_its_boot(scenario: Scenario) -> None:
    """D-1."""
    rows = scenario.machine.rows
    assert scenario.without_session((REGISTER, b"first"), TWO) is Code.OK
    assert rows[TWO].boot_id == b"first"
    scenario.restart(TWO)
    scenario.batch(TWO)
    assert rows[TWO].boot_id == b""
    assert scenario.without_session((REGISTER, b"second"), TWO) is Code.OK
    assert rows[TWO].boot_id == b"second"


def test_one_boot_keeps_its_first_boot_id(scenario: Scenario) -> None:
    """D-1: another random id under the same boot number is a copy of the directory."""
    assert scenario.without_session((REGISTER, b"mine"), TWO) is Code.OK
    assert scenario.without_session((REGISTER, b"mine"), TWO) is Code.OK
    assert scenario.without_session((REGISTER, b"copy"), TWO) is Code.BAD_ARGUMENTS
    assert scenario.machine.rows[TWO].boot_id == b"mine"


# -- D-15, D-16: zxids and positions


def test_every_command_takes_one_zxid_failed_ones_too(scenario: Scenario) -> None:
    """D-15."""
    zxid = scenario.machine.last_zxid
    scenario.create("/a")
    scenario.create("/a")
    scenario.set_data("/no")
    scenario.multi(create("/b"), create("/c"))
    scenario.new_session()
    assert scenario.machine.last_zxid == zxid + 5


def test_zxid_follows_the_term_and_never_goes_back(scenario: Scenario) -> None:
    """D-15: max(last + 1, term << 32)."""
    scenario.term = 7
    scenario.create("/a")
    assert scenario.machine.last_zxid == 7 << 32
    scenario.create("/b")
    assert scenario.machine.last_zxid == (7 << 32) + 1
    scenario.machine.last_zxid = (9 << 32) + 5  # as after a restore (D-15)
    scenario.term = 8
    scenario.create("/c")
    assert scenario.machine.last_zxid == (9 << 32) + 6


def test_full_counter_carries_into_the_next_epoch(scenario: Scenario) -> None:
    """D-15: no election, unlike ZooKeeper."""
    scenario.machine.last_zxid = (1 << 32) + 2**32 - 1
    scenario.create("/a")
    assert scenario.machine.last_zxid == 2 << 32


def test_entry_without_accepted_commands_takes_no_zxid(scenario: Scenario) -> None:
    """D-15: skipped batches and no-ops."""
    machine = scenario.machine
    zxid = machine.last_zxid
    scenario.term = 5
    scenario.entry()
    machine.pass_entry(100, 6)
    assert (machine.last_zxid, machine.index, machine.term) == (zxid, 100, 6)


def test_skipped_batch_has_positions_but_no_zxids(scenario: Scenario) -> None:
    """D-15, D-16."""
    machine = scenario.machine
    scenario.entry()
    zxid, position = machine.last_zxid, machine.position
    assert not machine.begin_batch(*ONE, 1, 1)
    machine.skip_batch(4)
    assert machine.begin_batch(*TWO, 1, 1)
    machine.begin_run(0, ())
    machine.execute((CREATE_SESSION, 1, PASSWORD))
    assert (machine.last_zxid, machine.position) == (zxid + 1, position + 5)


def test_entry_states_the_position_of_its_first_command(scenario: Scenario) -> None:
    """D-16: also when this server could not see all commands before it."""
    machine = scenario.machine
    machine.begin_entry(9, 1, 1000, 0, 0)
    assert machine.begin_batch(*TWO, 1, 1)
    machine.begin_run(0, ())
    machine.execute((CREATE_SESSION, 1, PASSWORD))
    assert machine.position == 1000
    machine.begin_entry(10, 1, 5, 0, 0)
    assert machine.position == 1000


def test_nothing_can_be_executed_outside_a_run(scenario: Scenario) -> None:
    machine = scenario.machine
    scenario.batch()
    machine.begin_run(scenario.session.id, NOBODY)
    scenario.batch()
    assert machine.execute(create("/a")) is Code.BAD_ARGUMENTS
    assert "/a" not in machine.nodes


# -- D-12: time


def test_log_time_never_goes_back(scenario: Scenario) -> None:
    """D-12."""
    machine = scenario.machine
    machine.begin_entry(1, 1, 1, 50_000, 0)
    machine.begin_entry(2, 1, 1, 40_000, 0)
    assert machine.log_time == 50_000
    machine.begin_entry(3, 1, 1, 50_001, 0)
    assert machine.log_time == 50_001


def test_wall_time_is_taken_as_it_is_for_ctime_and_mtime(scenario: Scenario) -> None:
    """D-12: it may go back; nothing but ctime and mtime shows it."""
    scenario.create("/a")
    earlier = scenario.wall_time = 5000
    scenario.set_data("/a")
    assert scenario.stat("/a").mtime == earlier + 1000 == scenario.machine.wall_time


@pytest.mark.parametrize("bad", [None, "1", 1.5, -1, 2**63, (), True])
def test_times_that_are_none_change_nothing(scenario: Scenario, bad: object) -> None:
    """Flaw 23: a time must fit the 64 bits of a stat and stay monotone."""
    machine = scenario.machine
    log_time, wall_time = machine.log_time, machine.wall_time
    machine.begin_entry(1, 1, 1, bad, bad)  # type: ignore[arg-type]
    assert (machine.log_time, machine.wall_time) == (log_time, wall_time)


# -- D-5: settings


def test_settings_change_by_a_logged_command_only_all_at_once(scenario: Scenario) -> None:
    """D-5."""
    assert scenario.by_leader((SETTINGS, {"tick_time_ms": 500, "data_bytes_max": 10})) is Code.OK
    assert scenario.machine.settings == Settings(tick_time_ms=500, data_bytes_max=10)


@pytest.mark.parametrize(
    "changes",
    [
        {"no_such": 1},
        {"tick_time_ms": "1"},
        {"tick_time_ms": 0},
        {"tick_time_ms": True},
        {5: 5},
        {None: 1},
        {"session_timeout_ms_min": 50_000},
        {"tick_time_ms": 9, "no_such": 1},
        {"data_bytes_max": 2**31},
        {"feature_level": 2},
        {"__class__": 1},
        {(): 1},
    ],
)
def test_unknown_or_impossible_setting_changes_nothing(
    scenario: Scenario, changes: dict[object, object]
) -> None:
    """D-5, flaw 23."""
    assert scenario.by_leader((SETTINGS, changes)) is Code.BAD_ARGUMENTS
    assert scenario.machine.settings == Settings()


@pytest.mark.parametrize("command", [(SETTINGS,), (SETTINGS, None), (SETTINGS, ()), (SETTINGS, {}, {})])
def test_malformed_settings_command_fails(scenario: Scenario, command: tuple[object, ...]) -> None:
    """Flaw 23."""
    assert scenario.by_leader(command) is Code.MARSHALLING_ERROR


def test_member_with_an_impossible_server_id_is_our_own_mistake(scenario: Scenario) -> None:
    with pytest.raises(AssertionError):
        scenario.machine.set_members([(ServerId(255), Instance(b"x" * 16))])
