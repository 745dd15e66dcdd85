"""The figures published for Zatt (Accascina, 2017, tables 3.1 and 3.2, section 3.2), to be shown beside ours. Data only.

Five of the 55 rows have no result: the cluster was not stable enough to finish. No claim about election speed says
whether the time to notice the loss is part of it.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

LAPTOP: Final = "laptop, i7-4600U"
AWS_4: Final = "2 x c4.large servers, 4 clients"
AWS_2: Final = "2 x c4.large servers, 2 clients"


@frozen
class ThesisRow:
    """One measured cell; `time_s` None: no result. `servers` was 2 in all of them."""

    platform: str
    clients: int
    workers: int
    entries: int
    value_bytes: int
    time_s: float | None
    per_second: int | None
    unstable: bool = False


def _rows(platform: str, clients: int, text: str) -> tuple[ThesisRow, ...]:
    rows = []
    for line in text.split("\n"):
        if line.strip():
            workers, entries, size, time_s, rate, *mark = line.split()
            rows.append(
                ThesisRow(
                    platform,
                    clients,
                    int(workers),
                    int(entries),
                    int(size),
                    None if time_s == "-" else float(time_s),
                    None if rate == "-" else int(rate),
                    bool(mark),
                )
            )
    return tuple(rows)


ROWS: Final = (
    *_rows(
        LAPTOP,
        1,
        """
        10 100 100 1.23 81
        10 100 1000 1.03 97
        10 1000 100 3.05 328
        10 1000 1000 2.45 408
        100 1000 100 1.34 746
        100 1000 1000 2.01 498
        256 1000 100 7.39 135
        256 1000 1000 8.45 118
        10 5000 100 10.71 467
        10 5000 1000 12.67 394
        100 5000 100 3.41 1466
        100 5000 1000 10.36 483
        256 5000 100 26.47 189
        256 5000 100 10.21 490
        256 5000 1000 33.54 149
        256 5000 1000 33.87 148
        10 10000 100 20.86 479
        10 10000 1000 32.47 308
        100 10000 100 6.93 1442
        100 10000 1000 22.19 451
        256 10000 100 10.06 995
        256 10000 1000 14.14 707
        """,
    ),
    *_rows(
        AWS_4,
        4,
        """
        10 100 100 0.65 153
        10 100 1000 1.04 96
        10 1000 100 2.05 487
        10 1000 1000 2.07 483
        100 1000 100 1.49 672
        256 1000 100 16.16 62
        256 1000 1000 10.94 91
        10 5000 100 6.32 792 Y
        10 5000 1000 7.02 712
        100 5000 100 4.17 1200
        100 5000 1000 11.85 422
        256 5000 100 7.15 699
        256 5000 1000 - - Y
        10 10000 100 12.22 818
        10 10000 1000 15.22 657
        100 10000 100 - - Y
        256 10000 100 9.08 1101
        256 10000 1000 32.01 312
        """,
    ),
    *_rows(
        AWS_2,
        2,
        """
        10 100 100 0.84 119
        10 100 1000 1.24 81
        10 1000 100 3.05 327
        10 1000 1000 2.86 350
        100 1000 100 0.91 1097
        100 1000 1000 - - Y
        256 1000 100 9.11 110
        256 1000 1000 10.71 93
        10 5000 100 10.91 458
        10 5000 1000 11.16 448
        100 5000 100 3.13 1597
        256 5000 100 - - Y
        10 10000 100 21.39 468
        10 10000 1000 23.53 425
        100 10000 100 - - Y
        """,
    ),
)

MEAN_PER_SECOND: Final = 498
"""Of the rows with a result; what the text calls the peak."""

BEST_OF_A_CLIENT: Final = 100
BEST_LOCAL: Final = 2000
"""Three servers, 64 clients; 1,500 with 256."""

ELECTION_SERVERS: Final = 5
ELECTION_TRIALS: Final = 1000
ELECTION_SHARES: Final = ((80.0, 0.87), (100.0, 0.98))
"""(milliseconds, share of the elections that took less)."""


def rows_of(workers: int, entries: int, value_bytes: int) -> list[ThesisRow]:
    """What was published for a cell: several rows, one or more per platform, or none."""
    return [
        row for row in ROWS if (row.workers, row.entries, row.value_bytes) == (workers, entries, value_bytes)
    ]
