"""Power cuts at every step of every disk while members are added, replaced, put aside and removed: nothing is lost.

WAL and snapshots by themselves are enumerated in tests/unit/storage; here it is identities and membership (D-1, D-4,
D-18, D-26): a roster, a directory that is formatted, a cluster that is joined, a snapshot that is installed, a log that
begins after it, joint configurations, a directory that is put aside.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.simulation import power_cuts
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.disk import SimulatedDisk, Trouble
from tests.simulation.power_cuts import TROUBLES, Cut, CutSimulation, Outcome, cuts
from zraft_core.ids import ServerId

DISKS = [(1, 0), (2, 0), (2, 1), (3, 0), (4, 0)]
"""(server, which of its disks): server 2 loses its first one."""

QUICK_EVERY = 60
QUICK_PARTS = 4

pytestmark = pytest.mark.timeout(300)


@cache
def uncut() -> Outcome:
    return CutSimulation().live()


def judge(cut: Cut) -> None:
    try:
        outcome = CutSimulation(cut).live()
    except Exception as error:
        raise AssertionError(f"{cut}: {error!r}") from error
    assert outcome.was_cut, f"{cut}: the script never came to this step"
    assert outcome.writes_after > 0, f"{cut}: nothing was written afterwards"
    assert outcome.put_aside == 1, f"{cut}: {outcome.put_aside} directories are kept aside"


def test_the_life_that_is_cut_short_does_everything() -> None:
    """Whatever is enumerated below happens in it, on every disk."""
    outcome = uncut()
    assert [disk for disk, _ in outcome.steps] == DISKS
    assert all(steps > 50 for _, steps in outcome.steps)
    assert outcome.snapshots_taken >= 5
    assert outcome.snapshots_installed >= 3, "the added, the replaced and the condemned server"
    assert outcome.put_aside == 1
    assert outcome.joint >= 5, "add, two losses and two replacements, removal"
    assert outcome.writes > 20
    assert not outcome.was_cut


def test_the_life_is_the_same_up_to_the_cut() -> None:
    """Else the steps that were counted are not those that are cut."""
    assert CutSimulation().live() == uncut()


@pytest.mark.parametrize("part", range(QUICK_PARTS))
def test_a_power_cut_at_one_step_in_many_loses_nothing(part: int) -> None:
    chosen = list(cuts(uncut()))[part * QUICK_EVERY :: QUICK_PARTS * QUICK_EVERY + 1]
    assert {cut.trouble for cut in chosen} == set(TROUBLES)
    for cut in chosen:
        judge(cut)


def test_a_leader_that_ends_its_log_with_a_noop_is_waited_for() -> None:
    """The script once waited for ever for members that had applied one entry more than the last command."""
    judge(Cut(ServerId(1), 0, 50, Trouble.DIE_AFTER))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("trouble", TROUBLES, ids=[trouble.name for trouble in TROUBLES])
@pytest.mark.parametrize("disk", DISKS, ids=[f"server{server}-disk{disk}" for server, disk in DISKS])
def test_a_power_cut_at_every_step_loses_nothing(disk: tuple[int, int], trouble: Trouble) -> None:
    chosen = [cut for cut in cuts(uncut()) if (cut.server, cut.disk) == disk and cut.trouble is trouble]
    assert len(chosen) > 50
    for cut in chosen:
        judge(cut)


def test_a_disk_that_acknowledges_what_it_has_not_got_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were nothing ever synced, a cut would show it: the enumeration can fail."""
    monkeypatch.setattr(SimulatedDisk, "fdatasync", lambda self, file: self._step() and None)
    found = 0
    for step in range(60, 100, 8):
        try:
            judge(Cut(ServerId(1), 0, step, Trouble.DIE_AFTER))
        except AssertionError:
            found += 1
    assert found > 0


def test_a_cluster_that_does_not_go_on_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_cuts, "DOWN_MS", 10**9)
    monkeypatch.setattr(power_cuts, "SCRIPT_MS", 2_000)
    with pytest.raises(BrokenPromiseError, match=r"progress: .* waited 2000 ms for"):
        CutSimulation(Cut(ServerId(4), 0, 20, Trouble.DIE_DURING)).live()
