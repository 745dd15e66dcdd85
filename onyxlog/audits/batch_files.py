"""Files that an audit's batches leave for later batches, and for a restart after a crash.

A batch leaves a directory by its number, which is replaced as a whole: if it is done again, with the same
rows, it leaves the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onyxlog.audits.followed import OPEN_ROWS_MAX, Followed, OpenRows
from onyxlog.audits.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = "rows.parquet"
"""A file with all rows that count."""
MORE: Final = "more.parquet"
"""A file with rows that come after those of the batches before it."""
BATCHES_KEPT: Final = 3
"""The number of batches whose open rows are kept: the batch under way needs what was open after the one
before.
"""
MORE_MAX: Final = 256
"""The number of batches in a row that note only what they add."""


class BatchFiles:
    """The files of one table that batches leave; `what` names the table."""

    def __init__(self, checkpoint: Path, what: str, table: str) -> None:
        self._top = checkpoint / what / table

    def numbers(self) -> list[int]:
        """Return the batches that left something, in order."""
        return sorted(int(path.name.removeprefix("batch=")) for path in self._top.glob("batch=*"))

    def has_all(self, batch: int) -> bool:
        """Return whether a batch left all open rows, and not only the rows that it added."""
        return (self._path(batch) / ROWS).exists()

    def read(self, batch: int) -> list[dict[str, Any]]:
        """Return the rows that a batch left."""
        return read_rows(self._path(batch))

    def write(self, batch: int, rows: pa.Table, name: str = ROWS) -> None:
        """Write a batch's rows. A reader finds what was there before, nothing, or all of it."""
        import pyarrow.parquet as pq

        target = self._path(batch)
        made = target.with_name(f"new-{target.name}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        pq.write_table(rows, made / name)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)

    def remove(self, batch: int) -> None:
        """Remove a batch's rows, if there are any."""
        shutil.rmtree(self._path(batch), ignore_errors=True)

    def _path(self, batch: int) -> Path:
        return self._top / f"batch={batch:09d}"


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """Return what a batch left there."""
    import pyarrow.parquet as pq

    return [
        row
        for path in directory.glob("*.parquet")
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]


class OpenFiles:
    """Rows that are open after each batch.

    A batch notes the rows that it brings, and all rows that are open once those notes have become more: so
    noting costs what a batch brings, too.
    """

    def __init__(
        self, checkpoint: Path, followed: Followed, tellers: int, rows_max: int = OPEN_ROWS_MAX
    ) -> None:
        """Use a directory; `tellers` and `rows_max` are as in `OpenRows`."""
        self._files = BatchFiles(checkpoint, "open", followed.table)
        self._table = TABLES[followed.table]
        self._followed = followed
        self._tellers = tellers
        self._rows_max = rows_max
        self._noted: list[int] = []
        """The number of rows that each batch noted since the last that noted all."""

    def before(self, batch: int) -> OpenRows:
        """Return what was open when `batch` came. Spark may leave out numbers, as it gives no empty batches."""
        open_rows = OpenRows(self._followed, self._tellers, self._rows_max)
        self._noted = []
        for number in self._since_all([number for number in self._files.numbers() if number < batch]):
            taken = open_rows.take(self._table.rows(self._files.read(number)))
            if not self._files.has_all(number):
                self._noted.append(len(taken.noted))
        return open_rows

    def note(self, batch: int, open_rows: OpenRows, noted: Sequence[Any]) -> None:
        """Note what is open after `batch`, which brought `noted`."""
        self._noted.append(len(noted))
        if len(self._noted) > MORE_MAX or sum(self._noted) > len(open_rows):
            self._noted = []
            self._write(batch, open_rows, ROWS)
        else:
            self._write(batch, noted, MORE)
        numbers = self._files.numbers()
        needed = self._since_all([number for number in numbers if number <= batch - BATCHES_KEPT])
        for old in numbers:
            if needed and old < needed[0]:
                self._files.remove(old)

    def _since_all(self, numbers: list[int]) -> list[int]:
        """Return the last batch that noted all, and those after it; all of them if none did."""
        complete = [at for at, number in enumerate(numbers) if self._files.has_all(number)]
        return numbers[complete[-1] :] if complete else numbers

    def _write(self, batch: int, rows: Iterable[Any], name: str) -> None:
        import pyarrow as pa

        self._files.write(batch, pa.Table.from_batches([self._table.batch(rows)]), name)
