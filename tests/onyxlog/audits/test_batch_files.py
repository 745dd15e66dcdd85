"""What the batches of an audit that follows leave on disk: what is open is there again after a crash at any batch."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from onyxlog.audits.batch_files import BATCHES_KEPT, MORE_MAX, BatchFiles, OpenFiles
from onyxlog.audits.followed import FOLLOWED, Followed
from onyxlog.audits.tables.entries import ENTRIES, EntryRow
from tests.onyxlog.audits.sound import sound

FOLLOWED_ENTRIES = next(one for one in FOLLOWED if one.table == "entries")


def entry(index: int, server: int) -> EntryRow:
    return EntryRow(
        server=server,
        file=f"wal-{server}",
        file_offset=index,
        group=0,
        index=index,
        term=1,
        kind="commands",
        previous_term=1,
        position=index,
        count=1,
        size=1,
        digest=b"same",
        durable_term=1,
    )


@pytest.mark.parametrize("followed", FOLLOWED, ids=lambda one: one.table)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_open_is_there_again_after_a_crash_in_any_batch(
    followed: Followed, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{followed.table} {seed}")
    rows = list(sound()[followed.table])
    files = OpenFiles(tmp_path, followed, 3)
    open_rows = files.before(0)
    after: dict[int, list[object]] = {-1: []}
    batch = 0
    for _ in range(30):
        new = rng.sample(rows, min(len(rows), rng.randrange(1, 12)))
        files.note(batch, open_rows, open_rows.take(new).noted)
        after[batch] = list(open_rows)
        # Spark repeats the last batch, and nothing before it.
        for back in (0, 1):
            known = max(number for number in after if number <= batch - back)
            assert list(OpenFiles(tmp_path, followed, 3).before(batch - back + 1)) == after[known]
        if rng.random() < 0.3:
            # A crash; the batch is done again by another process.
            files = OpenFiles(tmp_path, followed, 3)
            open_rows = files.before(batch)
            files.note(batch, open_rows, open_rows.take(new).noted)
            assert list(open_rows) == after[batch]
        batch += rng.choice((1, 1, 1, 3))


def test_noting_costs_what_a_batch_brings_however_many_rows_are_open(tmp_path: Path) -> None:
    files = OpenFiles(tmp_path, FOLLOWED_ENTRIES, 3)
    open_rows = files.before(0)
    files.note(0, open_rows, open_rows.take(entry(index, 1) for index in range(5_000)).noted)
    in_all = size_of(tmp_path)
    for batch in range(1, 40):
        files.note(batch, open_rows, open_rows.take(entry(10_000 + batch, server) for server in (1, 2)).noted)
    newest = tmp_path / "open" / "entries" / "batch=000000039"
    assert size_of(newest) < in_all / 5
    assert len(OpenFiles(tmp_path, FOLLOWED_ENTRIES, 3).before(40)) == 5_000 + 39 * 2


def test_directories_of_batches_are_bounded_and_none_that_is_needed_goes(tmp_path: Path) -> None:
    files = OpenFiles(tmp_path, FOLLOWED_ENTRIES, 3)
    open_rows = files.before(0)
    files.note(0, open_rows, open_rows.take(entry(index, 1) for index in range(2_000)).noted)
    most = 0
    for batch in range(1, MORE_MAX + 50):
        files.note(batch, open_rows, open_rows.take([entry(10_000 + batch, 1)]).noted)
        if batch % 20 == 0:
            most = max(most, len(BatchFiles(tmp_path, "open", "entries").numbers()))
    assert most <= MORE_MAX + BATCHES_KEPT + 1
    assert len(BatchFiles(tmp_path, "open", "entries").numbers()) < 60, "all rows were noted in between"
    assert list(OpenFiles(tmp_path, FOLLOWED_ENTRIES, 3).before(MORE_MAX + 50)) == list(open_rows)


def test_a_checkpoint_of_before_in_which_each_batch_noted_all_is_gone_on_with(tmp_path: Path) -> None:
    rows = [entry(index, 1) for index in range(10)]
    files = BatchFiles(tmp_path, "open", "entries")
    for batch in (5, 6, 7):
        files.write(batch, pa.Table.from_batches([ENTRIES.batch(rows[: batch + 2])]))
    opened = OpenFiles(tmp_path, FOLLOWED_ENTRIES, 3)
    assert list(opened.before(8)) == rows[:9]
    assert list(opened.before(7)) == rows[:8]


def test_whoever_reads_finds_all_that_a_batch_left_or_nothing(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path, "open", "entries")
    unfinished = tmp_path / "open" / "entries" / "new-batch=000000004"
    unfinished.mkdir(parents=True)
    assert files.numbers() == []
    files.write(4, pa.Table.from_batches([ENTRIES.batch([entry(1, 1)])]))
    assert files.numbers() == [4]
    assert not unfinished.exists()
    assert [row["index"] for row in files.read(4)] == [1]
    files.remove(4)
    files.remove(4)
    assert files.numbers() == []


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
