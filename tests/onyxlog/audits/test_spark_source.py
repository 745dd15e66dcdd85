"""The data source in Spark: the same rows as read directly, errors that say what is wrong, and an audit cut short."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.source import register
from onyxlog.audits.streaming import FOLLOWED, Live, follow, violations_so_far
from tests.onyxlog.audits.conftest import age
from tests.onyxlog.audits.reading import chosen, read

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


def broken(generated: Path, tmp_path: Path) -> tuple[Path, int]:
    """Server 3 has another entry than the others at an index, under the same term: its log was rewritten so."""
    from onyxlog.audits.generating import UnsyncedFileSystem
    from zraft.storage.directory import DataDirectory
    from zraft.storage.inspection import read_records
    from zraft.storage.records import EntryRecord
    from zraft.storage.settings import WalSettings
    from zraft.storage.wal import Wal

    path = tmp_path / "broken"
    shutil.copytree(generated, path)
    victim = path / "server-3"
    fs = UnsyncedFileSystem()
    records = list(read_records(fs, str(victim)))
    shutil.rmtree(victim / "wal")
    shutil.rmtree(victim)
    directory = DataDirectory.open(fs, str(victim), server=3, entropy=lambda size: bytes(range(size)))  # type: ignore[arg-type]
    wal, _ = Wal.open(fs, directory, settings=WalSettings(segment_bytes_max=32 << 10))
    index = 0
    frames: dict[int, list[Any]] = {}
    for placed in records:
        record = placed.record
        if type(record).__name__ == "BaseRecord":
            continue
        if isinstance(record, EntryRecord) and record.entry.index == 40:
            from attrs import evolve

            payload = record.entry.payload[:-1] + bytes([record.entry.payload[-1] ^ 1])
            record, index = evolve(record, entry=evolve(record.entry, payload=payload)), 40
        frames.setdefault(placed.frame, []).append(record)
    for body in frames.values():
        wal.append(body)
    wal.close()
    directory.close()
    age(path)
    return path, index


class CutShortError(Exception):
    """What a crash looks like from inside."""


def test_an_audit_that_is_cut_short_in_a_batch_goes_on_and_tells_each_violation_once(
    zraft: Any, generated: Path, tmp_path: Path
) -> None:
    path, index = broken(generated, tmp_path)
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
    found = violations_so_far(zraft, tmp_path / "checkpoint")
    assert [(one.rule, one.server, one.group, one.index) for one in found] == [("S2", 3, 0, index)]
    assert [one.index for one in told] == [index]
    (written,) = (row for row in read(path, "entries") if row.server == 3 and row.index == index)
    assert (found[0].file, found[0].offset) == (written.file, written.file_offset)
    numbers = json.loads((tmp_path / "checkpoint" / "paths.json").read_text())
    assert numbers == [str(path)]
