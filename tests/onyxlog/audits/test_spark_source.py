"""The data source in Spark: the same rows as read directly, errors that say what is wrong, and an audit cut short."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.followed import FOLLOWED
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.source import register
from onyxlog.audits.streaming import Live, follow, violations_so_far
from tests.onyxlog.audits.conftest import age
from tests.onyxlog.audits.diverged import diverged
from tests.onyxlog.audits.reading import chosen, read
from tests.onyxlog.audits.test_damage import flip

pytest.importorskip("pyspark", reason="needs the extra `audits`")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ENTRIES = tuple(one for one in FOLLOWED if one.table == "entries")


@pytest.fixture
def zraft(spark: Any) -> Any:
    register(spark)
    return spark


def frame(spark: Any, path: Path, table: str, **given: str) -> Any:
    return spark.read.format("zraft").options(table=table, **given).load(str(path))


@pytest.mark.parametrize("table", ["commands", "members"])
def test_spark_gives_the_rows_that_are_read_directly(zraft: Any, generated: Path, table: str) -> None:
    options = chosen(generated, table)
    rows = [row.asDict() for row in frame(zraft, generated, table, batch_rows="100").collect()]
    assert list(options.table.rows(rows)) == read(generated, table)


def test_wrong_options_are_told_when_the_frame_is_made(zraft: Any, generated: Path) -> None:
    with pytest.raises(Exception, match="did you mean 'entries'"):
        frame(zraft, generated, "entrys").count()


class CutShortError(Exception):
    """What a crash looks like from inside."""


def test_an_audit_that_is_cut_short_in_a_batch_goes_on_and_tells_each_violation_once(
    zraft: Any, generated: Path, tmp_path: Path
) -> None:
    path, index = tmp_path / "diverged", 40
    diverged(generated, path, {index})
    told: list[Violation] = []
    cut: list[int] = []

    def cut_short(table: str, batch: int) -> None:
        if batch == 1 and not cut:
            cut.append(batch)
            raise CutShortError

    live = Live(
        paths=(str(path),),
        checkpoint=tmp_path / "checkpoint",
        on_violations=told.extend,
        tables=ENTRIES,
        once=True,
        bytes_per_batch=120_000,
        written=cut_short,
    )
    (query,) = follow(zraft, live, servers=3)
    with pytest.raises(Exception, match="CutShort"):
        query.awaitTermination()
    assert cut == [1]
    (again,) = follow(zraft, live, servers=3)
    again.awaitTermination()
    assert again.lastProgress is not None
    found = violations_so_far(tmp_path / "checkpoint")
    assert [(one.rule, one.server, one.group, one.index) for one in found] == [("S2", 3, 0, index)]
    assert [one.index for one in told] == [index]
    (written,) = (row for row in read(path, "entries") if row.server == 3 and row.index == index)
    assert (found[0].file, found[0].offset) == (written.file, written.file_offset)
    numbers = json.loads((tmp_path / "checkpoint" / "paths.json").read_text())
    assert numbers == [str(path)]


def test_a_damaged_log_is_told_and_what_is_whole_is_judged_on(
    zraft: Any, generated: Path, tmp_path: Path
) -> None:
    path, index = tmp_path / "diverged", 40
    diverged(generated, path, {index})
    victim = sorted(path.glob("server-2/wal/*.seg"))[0]
    flip(victim, random.Random(7))
    age(path)
    told: list[Violation] = []
    live = Live(
        paths=(str(path),),
        checkpoint=tmp_path / "checkpoint",
        on_violations=told.extend,
        tables=tuple(one for one in FOLLOWED if one.table in ("entries", "files")),
        once=True,
    )
    for _ in range(2):
        for query in follow(zraft, live, servers=3):
            query.awaitTermination()
        assert sorted((one.rule, one.server, one.index) for one in told) == [
            ("S2", 3, index),
            ("S6", 2, None),
        ]
    assert sorted(one.rule for one in violations_so_far(tmp_path / "checkpoint")) == ["S2", "S6"]
    assert {one.file for one in told if one.rule == "S6"} == {str(victim)}
