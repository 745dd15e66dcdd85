"""Digests noted at points of the log, so that servers can compare states at an equal index (D-26)."""

from __future__ import annotations

import random

import pytest

from tests.unit.tree.scenario import ONE, THREE, TWO, Scenario
from zraft.tree import digest
from zraft.tree import machine as machine_module
from zraft.tree.digest import DIGEST_EVERY, DIGESTS_KEPT, FOLD_BATCH, PENDING_AT_POINT
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.txn import CREATE, SET_DATA


def go_to(scenario: Scenario, index: int) -> None:
    """Entries up to `index`, each with one write."""
    while scenario.index < index:
        scenario.set_data("/", b"%d" % scenario.index)
    scenario.machine.events.clear()


def test_point_is_noted_when_the_entry_after_it_begins() -> None:
    scenario = Scenario()
    machine = scenario.machine
    go_to(scenario, DIGEST_EVERY)
    expected = machine.full_digest()
    assert not machine.digests
    go_to(scenario, DIGEST_EVERY + 1)
    assert list(machine.digests) == [(DIGEST_EVERY, expected)]
    go_to(scenario, 2 * DIGEST_EVERY)
    assert len(machine.digests) == 1


def test_whatever_entry_comes_next_the_point_is_of_the_state_before_it() -> None:
    """Also a MEMBERSHIP entry, which changes rows before it passes."""
    noted = []
    for kind in ("commands", "noop", "membership"):
        scenario = Scenario()
        machine = scenario.machine
        go_to(scenario, DIGEST_EVERY)
        if kind == "commands":
            scenario.set_data("/", b"more")
        else:
            if kind == "membership":
                machine.set_members([ONE, TWO, THREE, (ServerId(4), Instance(b"4" * 16))])
            machine.pass_entry(DIGEST_EVERY + 1, scenario.term)
        noted.append(list(machine.digests))
    assert noted[0] == noted[1] == noted[2]
    assert len(noted[0]) == 1


def test_points_do_not_depend_on_folding_digests_or_images_in_between() -> None:
    plain, busy = Scenario(), Scenario()
    rng = random.Random(3)
    writer = None
    for number in range(3 * DIGEST_EVERY):
        for scenario in (plain, busy):
            scenario.create(f"/n{number}") if number % 3 else scenario.set_data("/", b"%d" % number)
        match rng.randint(0, 9):
            case 0:
                busy.machine.digest()
            case 1:
                busy.machine.fold_digest(5)
            case 2 if writer is None:
                writer = ImageWriter(busy.machine)
        if writer is not None and not writer.step(20, 10_000):
            writer = None
    assert len(plain.machine.digests) == 3
    assert plain.machine.digests == busy.machine.digests


def test_only_the_newest_points_are_kept() -> None:
    machine = Machine()
    for index in range(1, (DIGESTS_KEPT + 3) * DIGEST_EVERY + 2):
        machine.pass_entry(index, 1)
    assert [index for index, _ in machine.digests] == [n * DIGEST_EVERY for n in range(4, DIGESTS_KEPT + 4)]


def test_restored_machine_forgets_its_old_points_and_notes_the_one_it_was_restored_at() -> None:
    """What a server computed before it was reinstalled says nothing about the state it has now."""
    origin, other = Scenario(), Scenario()
    go_to(origin, DIGEST_EVERY)
    go_to(other, 2 * DIGEST_EVERY + 1)
    assert other.machine.digests
    writer, reader = ImageWriter(origin.machine), ImageReader()
    while piece := writer.step(100, 10_000):
        reader.feed(piece)
    while reader.step(100):
        pass
    other.machine.adopt(reader.finish())
    assert not other.machine.digests
    for machine in (origin.machine, other.machine):
        machine.pass_entry(DIGEST_EVERY + 1, 1)
    assert list(other.machine.digests) == list(origin.machine.digests) != []


def test_few_marks_are_left_at_a_point_under_many_changes() -> None:
    """The stall at a point is bounded by work done ahead of it, some in each entry."""
    scenario = Scenario()
    machine = scenario.machine
    changed = 24
    create_many(scenario, 20_000, per_entry=1_000)
    paths = sorted(path for path, _ in machine.nodes.items() if path.startswith("/m"))
    go_to(scenario, DIGEST_EVERY + 1)
    left, most = [], 0
    for index in range(scenario.index + 1, 3 * DIGEST_EVERY + 1):
        scenario.batch()
        before = machine.undigested
        machine.begin_run(scenario.session.id, ())
        for number in range(changed):
            machine.execute((SET_DATA, paths[(index * changed + number) % len(paths)], b"", -1))
        machine.events.clear()
        most = max(most, before)
        if index % DIGEST_EVERY == 0:
            left.append(machine.undigested)
    assert len(left) == 2
    assert max(left) <= PENDING_AT_POINT + changed + 4
    assert most > 3 * PENDING_AT_POINT, "the work is not put off, so what changes often is hashed too often"


def test_few_marks_are_left_at_a_point_under_many_creates() -> None:
    scenario = Scenario()
    machine = scenario.machine
    made, left = 24, []
    for index in range(scenario.index + 1, 2 * DIGEST_EVERY + 1):
        create_many(scenario, made, per_entry=made)
        if index % DIGEST_EVERY == 0:
            left.append(machine.undigested)
    assert len(left) == 2
    assert max(left) <= PENDING_AT_POINT + made + 4


def test_new_znodes_are_hashed_at_once_only_while_more_are_made_than_a_point_hashes() -> None:
    scenario = Scenario()
    create_many(scenario, PENDING_AT_POINT)
    assert scenario.machine.undigested >= PENDING_AT_POINT
    create_many(scenario, 50 * PENDING_AT_POINT)
    assert scenario.machine.undigested < 2 * PENDING_AT_POINT
    assert scenario.machine.digest() == scenario.machine.full_digest()


def test_what_changes_in_every_entry_is_hashed_rarely() -> None:
    scenario = Scenario()
    scenario.create("/counter")
    machine = scenario.machine
    machine.digest()
    share = scenario.node("/counter").folded
    scenario.batch()
    for _ in range(500):
        scenario.batch()
        machine.begin_run(scenario.session.id, ())
        machine.execute((SET_DATA, "/counter", b"", -1))
    assert scenario.node("/counter").folded == share


def create_many(scenario: Scenario, count: int, per_entry: int = 50) -> None:
    """Each znode is new; entries have `per_entry` of them."""
    machine = scenario.machine
    for _ in range(0, count, per_entry):
        scenario.batch()
        machine.begin_run(scenario.session.id, ())
        for number in range(per_entry):
            machine.execute((CREATE, f"/m{scenario.index}-{number}", b"", None, 0, None))
        machine.events.clear()


def test_a_server_that_is_behind_hashes_later_and_passes_points_over() -> None:
    late, plain = Scenario(), Scenario()
    for scenario in (late, plain):
        go_to(scenario, DIGEST_EVERY - 50)
    late.machine.behind = True
    for scenario in (late, plain):
        create_many(scenario, 5_000)
    assert late.index == plain.index > DIGEST_EVERY
    assert late.machine.undigested > 5_000
    assert plain.machine.undigested < 5_000
    assert [index for index, _ in plain.machine.digests] == [DIGEST_EVERY]
    assert not late.machine.digests, "nobody waits for thousands of hashes"

    late.machine.behind = False
    for scenario in (late, plain):
        go_to(scenario, 2 * DIGEST_EVERY + 1)
    assert late.machine.digests[-1] == plain.machine.digests[-1]
    assert late.machine.digests[-1][0] == 2 * DIGEST_EVERY


def test_a_server_that_is_behind_notes_points_at_which_little_is_left() -> None:
    late, plain = Scenario(), Scenario()
    late.machine.behind = True
    for scenario in (late, plain):
        go_to(scenario, DIGEST_EVERY + 1)
    assert list(late.machine.digests) == list(plain.machine.digests) != []


@pytest.mark.parametrize("behind", [True, False])
def test_marks_are_bounded_whatever_entries_bring(behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "MARKS_MAX", 3_000)
    scenario = Scenario()
    machine = scenario.machine
    machine.behind = behind
    create_many(scenario, 20_000, per_entry=1_000)
    assert machine.undigested < 4_100
    paths = sorted(path for path, _ in machine.nodes.items() if path.startswith("/m"))
    for begin in range(0, len(paths), 1_000):
        scenario.batch()
        machine.begin_run(scenario.session.id, ())
        for path in paths[begin : begin + 1_000]:
            machine.execute((SET_DATA, path, b"", -1))
        machine.events.clear()
    assert 3_000 <= machine.undigested < 4_100


def test_after_a_long_replay_each_entry_hashes_a_bounded_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (digest, machine_module):
        monkeypatch.setattr(module, "DIRTY_MAX", 2_000)
    scenario = Scenario()
    machine = scenario.machine
    go_to(scenario, DIGEST_EVERY - 110)
    machine.behind = True
    create_many(scenario, 5_000)
    machine.behind = False
    before = machine.undigested
    scenario.set_data("/", b"one")
    assert before - machine.undigested <= FOLD_BATCH
    go_to(scenario, DIGEST_EVERY + 1)
    assert [index for index, _ in machine.digests] == [DIGEST_EVERY]


def test_a_point_after_a_huge_entry_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "DIRTY_MAX", 2_000)
    scenario = Scenario()
    go_to(scenario, DIGEST_EVERY - 1)
    create_many(scenario, 3_000, per_entry=3_000)
    go_to(scenario, 2 * DIGEST_EVERY + 1)
    assert [index for index, _ in scenario.machine.digests] == [2 * DIGEST_EVERY]
