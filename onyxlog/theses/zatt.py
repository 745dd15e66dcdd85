"""The figures published for Zatt (tables 3.1 and 3.2, section 3.2).

Five of the 55 rows have no result: the cluster was not stable enough to finish. No claim about election speed says
whether the time to notice the loss is part of it.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from onyxlog.theses.figures import FIGURES


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


def _result(figure: Any) -> Any:
    return None if figure == "-" else figure


_ZATT: Final[dict[str, Any]] = FIGURES["zatt"]
ROWS: Final = tuple(
    ThesisRow(
        *(platform["name"], platform["clients"], workers, entries, value_bytes),
        *(_result(time_s), _result(rate), unstable),
    )
    for platform in _ZATT["platforms"]
    for workers, entries, value_bytes, time_s, rate, unstable in platform["rows"]
)
LAPTOP, AWS_4, AWS_2 = (platform["name"] for platform in _ZATT["platforms"])

MEAN_PER_SECOND: Final[int] = _ZATT["mean_per_second"]
"""The mean of the rows with a result, which the text calls the peak."""

ELECTION_SERVERS: Final[int] = _ZATT["elections"]["servers"]
ELECTION_TRIALS: Final[int] = _ZATT["elections"]["trials"]
ELECTION_SHARES: Final = tuple((float(ms), float(share)) for ms, share in _ZATT["elections"]["below"])
"""(milliseconds, share of the elections that took less)."""


def rows_of(workers: int, entries: int, value_bytes: int) -> list[ThesisRow]:
    """Return the published rows for a cell: several, one or more per platform, or none."""
    return [
        row for row in ROWS if (row.workers, row.entries, row.value_bytes) == (workers, entries, value_bytes)
    ]


def best_of(workers: int, entries: int, value_bytes: int) -> int | None:
    """Return the most requests per second that were published for a cell, on whichever platform; None: no result."""
    rates = [row.per_second for row in rows_of(workers, entries, value_bytes) if row.per_second is not None]
    return max(rates, default=None)
