"""What a batch of an audit that follows comes to: told once, and kept until all have told."""

from __future__ import annotations

import pytest
from attrs import evolve

from onyxlog.audits.followed import FOLLOWED, INDEXES_KEPT, Followed, identity, left_open, violations_in
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.hard_states import HardStateRow
from tests.onyxlog.audits.sound import sound

BY_TABLE = {one.table: one for one in FOLLOWED}


def entries() -> list[EntryRow]:
    return [row for row in sound()["entries"] if row.group == 0]


@pytest.mark.parametrize("followed", FOLLOWED, ids=lambda one: one.table)
def test_sound_rows_are_no_violation_however_they_come(followed: Followed) -> None:
    rows = sound()[followed.table]
    assert rows
    tellers = len({getattr(row, followed.teller) for row in rows}) if followed.teller else 0
    kept: list[object] = []
    for row in rows:
        assert violations_in(followed, [*kept, row], ()) == []
        kept = left_open(followed, [*kept, row], tellers)


def test_rows_that_come_in_different_batches_contradict_each_other_once() -> None:
    followed, rows = BY_TABLE["entries"], entries()
    wrong = next(row for row in rows if row.server == 3)
    rows = [evolve(row, digest=b"another") if row is wrong else row for row in rows]
    kept: list[EntryRow] = []
    told: set[tuple[object, ...]] = set()
    found = []
    for server in (1, 2, 3):
        batch = [*kept, *(row for row in rows if row.server == server)]
        for one in violations_in(followed, batch, told):
            told.add(identity(one))
            found.append(one)
        kept = left_open(followed, batch, 3)
    assert [(one.rule, one.server, one.index) for one in found] == [("S2", 3, wrong.index)]
    # Given again, as after a crash that came before Spark noted the batch.
    assert violations_in(followed, rows, told) == []
    assert len(violations_in(followed, rows, ())) == 1


def test_a_key_is_kept_until_all_have_told_and_given_up_far_behind() -> None:
    followed, rows = BY_TABLE["entries"], entries()
    some = [row for row in rows if row.server != 3]
    kept = left_open(followed, some, 3)
    assert {(row.server, row.index, row.term) for row in kept} == {
        (row.server, row.index, row.term) for row in some
    }
    assert left_open(followed, [*some, *some], 3) == kept
    everybody = {(row.index, row.term) for row in rows if row.server == 3} & {
        (row.index, row.term) for row in rows if row.server == 1
    }
    assert everybody.isdisjoint(
        (row.index, row.term) for row in left_open(followed, rows, 3) if row.server != 3
    )
    far = evolve(rows[0], index=max(row.index for row in rows) + INDEXES_KEPT)
    assert [row.index for row in left_open(followed, [*some, far], 3)] == [far.index]


def test_of_votes_the_newest_of_each_log_stays() -> None:
    followed = BY_TABLE["hard_states"]
    rows = [row for row in sound()["hard_states"] if isinstance(row, HardStateRow)]
    kept = left_open(followed, rows, 3)
    for row in kept:
        same = [
            one
            for one in rows
            if (one.server, one.instance, one.group) == (row.server, row.instance, row.group)
        ]
        assert row.frame == max(one.frame for one in same)
    assert len(kept) == len({(row.server, row.instance, row.group) for row in rows})
