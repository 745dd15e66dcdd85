"""What a batch of an audit that follows comes to: told once, and kept until all have told."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from onyxlog.audits.followed import FOLLOWED, Followed, OpenRows, identity, violations_in
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
    open_rows = OpenRows(followed, tellers)
    for row in rows:
        assert violations_in(followed, open_rows.take([row]).judged, ()) == []


def test_rows_that_come_in_different_batches_contradict_each_other_once() -> None:
    followed, rows = BY_TABLE["entries"], entries()
    wrong = next(row for row in rows if row.server == 3)
    rows = [evolve(row, digest=b"another") if row is wrong else row for row in rows]
    open_rows = OpenRows(followed, tellers=3)
    told: set[tuple[object, ...]] = set()
    found = []
    for server in (1, 2, 3):
        taken = open_rows.take(row for row in rows if row.server == server)
        for one in violations_in(followed, taken.judged, told):
            told.add(identity(one))
            found.append(one)
    assert [(one.rule, one.server, one.index) for one in found] == [("S2", 3, wrong.index)]
    # Given again, as after a crash that came before Spark noted the batch.
    assert violations_in(followed, rows, told) == []
    assert len(violations_in(followed, rows, ())) == 1


def test_a_key_is_kept_until_all_have_told() -> None:
    followed, rows = BY_TABLE["entries"], entries()
    some = [row for row in rows if row.server != 3]
    open_rows = OpenRows(followed, tellers=3)
    assert open_rows.take(some).judged == some_in_order(some)
    kept = list(open_rows)
    assert {place(row) for row in kept} == {place(row) for row in some}
    assert len(open_rows) == len(kept)
    open_rows.take(some)
    assert {place(row) for row in open_rows} == {place(row) for row in some}
    assert open_rows.take(row for row in rows if row.server == 3).given_up == 0
    everybody = {(row.index, row.term) for row in rows if row.server == 3} & {
        (row.index, row.term) for row in rows if row.server == 1
    }
    assert everybody
    assert everybody.isdisjoint((row.index, row.term) for row in open_rows if row.server != 3)
    assert len(open_rows) == len(list(open_rows))


def place(row: EntryRow) -> tuple[int, int, int]:
    return row.server, row.index, row.term


def some_in_order(rows: list[EntryRow]) -> list[EntryRow]:
    """By their keys, in the order of the first of each."""
    keys = dict.fromkeys((row.index, row.term) for row in rows)
    return [row for key in keys for row in rows if (row.index, row.term) == key]


def test_a_quiet_group_waits_for_its_slowest_server_however_far_another_group_is() -> None:
    followed, row = BY_TABLE["entries"], entries()[0]
    open_rows = OpenRows(followed, tellers=2)
    quiet = evolve(row, group=7, index=5, server=1)
    open_rows.take([quiet, *(evolve(row, group=0, index=5_000_000 + n, server=1) for n in range(10))])
    taken = open_rows.take([evolve(quiet, server=2, digest=b"another")])
    assert [(one.group, one.index) for one in violations_in(followed, taken.judged, ())] == [(7, 5)]


def test_a_batch_is_judged_with_the_rows_of_its_own_keys_only_however_many_are_open() -> None:
    followed, row = BY_TABLE["entries"], entries()[0]
    open_rows = OpenRows(followed, tellers=3)
    open_rows.take(evolve(row, index=n, server=server) for n in range(1_000) for server in (1, 2))
    assert len(open_rows) == 2_000
    taken = open_rows.take([evolve(row, index=500, server=3), evolve(row, index=1_000, server=1)])
    assert [(one.index, one.server) for one in taken.judged] == [(500, 1), (500, 2), (500, 3), (1_000, 1)]
    assert len(open_rows) == 1_999


def test_too_many_rows_are_given_up_from_the_oldest_on_and_counted() -> None:
    followed, row = BY_TABLE["entries"], entries()[0]
    open_rows = OpenRows(followed, tellers=3, rows_max=10)
    assert open_rows.take(evolve(row, index=n, server=1) for n in range(10)).given_up == 0
    assert open_rows.take([evolve(row, index=0, server=2)]).given_up == 1
    assert [(one.index, one.server) for one in open_rows] == [*((n, 1) for n in range(2, 10)), (0, 1), (0, 2)]


@pytest.mark.parametrize("followed", FOLLOWED, ids=lambda one: one.table)
def test_what_batches_note_makes_what_is_open_again(followed: Followed) -> None:
    """Also with a bound, and if tellers come in any order and some never tell."""
    rng = random.Random(f"{followed.table} 1")
    rows = list(sound()[followed.table])
    for rows_max in (3, 20, 10_000):
        open_rows = OpenRows(followed, 3, rows_max)
        again = OpenRows(followed, 3, rows_max)
        for _ in range(60):
            taken = open_rows.take(rng.sample(rows, min(len(rows), rng.randrange(1, 12))))
            again.take(taken.noted)
            assert list(again) == list(open_rows)
            if rng.random() < 0.2:
                again = OpenRows(followed, 3, rows_max)
                again.take(open_rows)
                assert list(again) == list(open_rows)


def test_of_votes_the_newest_of_each_log_stays() -> None:
    followed = BY_TABLE["hard_states"]
    rows = [row for row in sound()["hard_states"] if isinstance(row, HardStateRow)]
    open_rows = OpenRows(followed, tellers=3)
    for at in range(0, len(rows), 3):
        open_rows.take(rows[at : at + 3])
    kept = list(open_rows)
    for row in kept:
        same = [
            one
            for one in rows
            if (one.server, one.instance, one.group) == (row.server, row.instance, row.group)
        ]
        assert row.frame == max(one.frame for one in same)
    assert len(kept) == len({(row.server, row.instance, row.group) for row in rows})
