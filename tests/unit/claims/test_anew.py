"""Claims of a copy of a partition: nothing that was consumed is consumed again, and no old owner is taken for a new one."""

from __future__ import annotations

from zraft_core.claims.anew import POSITIONS_SKIPPED, claims_anew
from zraft_core.claims.answers import Accepted, Granted, Refused
from zraft_core.claims.commands import ClaimMessages, ClaimPartition, Commit
from zraft_core.claims.snapshot import decode_snapshot, encode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Mode

END = 100


def claimed(claims: Claims, position: int, start: int = 0) -> Granted:
    answer = claims.apply(
        ClaimPartition("readers", "c", "i", 1, 0, Mode.AT_LEAST_ONCE, start), position, position, END
    )
    assert isinstance(answer, Granted)
    return answer


def test_a_group_goes_on_where_its_owner_had_committed_and_nobody_owns_anything() -> None:
    old = Claims(500)
    granted = claimed(old, 1)
    assert isinstance(old.apply(Commit("readers", granted.claim.epoch, 30), 2, 2, END), Accepted)
    anew = decode_snapshot(encode_snapshot(claims_anew([old.view("readers")], END)))
    view = anew.view("readers")
    assert (view.start, view.claims, view.heartbeat_ms) == (30, (), 500)
    assert anew.position > old.position + POSITIONS_SKIPPED - 1


def test_an_owner_of_the_old_cluster_is_fenced_in_the_new_one() -> None:
    old = Claims(500)
    epoch = claimed(old, 7).claim.epoch
    anew = claims_anew([old.view("readers")], END)
    assert isinstance(anew.apply(Commit("readers", epoch, 40), anew.position + 1, 50, END), Refused)
    answer = anew.apply(
        ClaimPartition("readers", "c", "j", 1, epoch, Mode.AT_LEAST_ONCE), anew.position + 1, 60, END
    )
    assert isinstance(answer, Granted)
    assert answer.claim.epoch > epoch + POSITIONS_SKIPPED - 1


def test_ranges_above_the_floor_stay_consumed_and_nothing_beyond_the_end_does() -> None:
    old = Claims(500)
    for position, (first, upto) in enumerate(((10, 20), (40, 60)), 1):
        answer = old.apply(
            ClaimMessages("readers", "c", "i", position, 0, Mode.AT_LEAST_ONCE, first, upto, 0),
            position * 10,
            position,
            END,
        )
        assert isinstance(answer, Granted), answer
        old.apply(Commit("readers", answer.claim.epoch, upto), position * 10 + 1, position, END)
    view = claims_anew([old.view("readers")], 50).view("readers")
    assert (view.floor, view.islands) == (0, ((10, 20), (40, 50)))


def test_a_group_that_has_consumed_nothing_does_not_begin_elsewhere() -> None:
    """It would begin where the next claim says, and pass what it has not seen."""
    old = Claims(500)
    claimed(old, 3)
    anew = claims_anew([old.view("readers")], END)
    anew.apply(
        ClaimPartition("readers", "d", "i", 1, old.view("readers").last_epoch, Mode.AT_LEAST_ONCE, END),
        anew.position + 1,
        10,
        END,
    )
    assert anew.view("readers").start == 0


def test_without_groups_there_are_claims_without_groups() -> None:
    anew = claims_anew([], END)
    assert not list(anew.groups())
    assert anew.position == POSITIONS_SKIPPED
