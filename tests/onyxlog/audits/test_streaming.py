"""An audit that follows: what it judges, what it is begun with and when beginning is tried again; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve

from onyxlog.audits import streaming
from onyxlog.audits.errors import AuditError
from onyxlog.audits.followed import FOLLOWED
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.streaming import Live, _Batches, follow, followed_tables, violations_so_far
from onyxlog.audits.tables import TABLES
from tests.onyxlog.audits.sound import sound


def live(tmp_path: Path, *paths: str) -> Live:
    return Live(
        paths=paths, checkpoint=tmp_path / "checkpoint", on_violations=lambda _: None, tables=FOLLOWED[:1]
    )


def test_what_is_followed_are_checks_of_the_rules_over_tables_that_grow() -> None:
    known = {(rule.id, check.promise): check for rule in RULES.values() for check in rule.checks}
    for followed in FOLLOWED:
        assert TABLES[followed.table].streams
        columns = {column.name for column in TABLES[followed.table].columns}
        assert {*followed.key, followed.position} <= columns
        for promise in followed.promises:
            assert followed.table in [one.table for one in known[promise].inputs]
            # A key that is closer than the check's would part rows that belong together.
            (keys,) = {one.key for one in known[promise].inputs if one.table == followed.table}
            assert set(followed.key) <= set(keys)


def test_only_what_is_there_is_followed() -> None:
    assert {one.table for one in followed_tables(3, 0)} == {one.table for one in FOLLOWED} - {
        "replica_digests"
    }
    assert {one.table for one in followed_tables(0, 2)} == {"replica_digests", "files"}


class Query:
    """What a query of Spark shows of itself."""

    def __init__(self, error: str | None) -> None:
        self._error = error
        self.isActive = error is None
        self.lastProgress = None
        self.status = {"message": "Waiting for data to arrive"}

    def exception(self) -> Exception | None:
        return None if self._error is None else Exception(self._error)


@pytest.mark.parametrize(
    ("errors", "begun"),
    [
        ([None], 1),
        (["Python worker failed to connect back.", "Python worker failed to connect back.", None], 3),
        (["corrupt at offset 7", None], 1),
        (["Python worker failed to connect back."] * 9, streaming.STARTS_MAX),
    ],
)
def test_a_process_that_was_too_slow_to_begin_is_tried_again_and_nothing_else(
    errors: list[str | None], begun: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Query] = []

    def query(*_: Any) -> Query:
        made.append(Query(errors[len(made)]))
        return made[-1]

    monkeypatch.setattr(streaming, "_query", query)
    assert follow(None, live(tmp_path, "/data"), servers=3) == [made[-1]]
    assert len(made) == begun


def test_a_checkpoint_of_another_audit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_query", lambda *_: Query(None))
    follow(None, live(tmp_path, "/one", "/two"), servers=3)
    follow(None, live(tmp_path, "/two", "/one"), servers=3)
    with pytest.raises(AuditError, match="checkpoint of an audit of /one, /two"):
        follow(None, live(tmp_path, "/three"), servers=3)


ENTRIES = next(one for one in FOLLOWED if one.table == "entries")


class Frame:
    """Rows as a batch of Spark's has them."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def where(self, condition: str) -> Frame:
        assert condition == ENTRIES.where
        return self

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches([TABLES["entries"].batch(self._rows)])


def by_server() -> dict[int, list[Any]]:
    """Of one group; server 3 has another entry than the others."""
    rows = [row for row in sound()["entries"] if row.group == 0]
    wrong = next(row for row in rows if row.server == 3)
    rows = [evolve(row, digest=b"another") if row is wrong else row for row in rows]
    return {server: [row for row in rows if row.server == server] for server in (1, 2, 3)}


def test_a_batch_that_was_cut_short_is_judged_again_from_what_is_on_the_disk(tmp_path: Path) -> None:
    rows, failing = by_server(), True
    told: list[list[Violation]] = []

    def written(table: str, batch: int) -> None:
        if batch == 1 and failing:
            raise OSError("no space")

    here = evolve(live(tmp_path, "/data"), on_violations=told.append, written=written)
    batches = _Batches(here, ENTRIES, 3)
    batches.judge(Frame(rows[1]), 0)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            batches.judge(Frame(rows[3]), 1)
    failing = False
    batches.judge(Frame(rows[3]), 1)
    batches.judge(Frame(rows[2]), 2)
    ((one,),) = told
    assert (one.rule, one.server) == ("S2", 3)
    assert violations_so_far(here.checkpoint) == [one]


def test_rows_that_are_given_up_are_told_of(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    rows = by_server()[1]
    here = evolve(live(tmp_path, "/data"), open_rows_max=3, on_given_up=lambda *given: told.append(given))
    batches = _Batches(here, ENTRIES, 3)
    batches.judge(Frame(rows[:3]), 0)
    assert told == []
    batches.judge(Frame(rows[3:5]), 1)
    assert told == [("entries", 2)]
