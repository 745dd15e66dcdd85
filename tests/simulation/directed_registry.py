"""Owns the list of directed schedules: which planted bug each makes visible, and how it is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError

Schedule = Callable[[], None]


@frozen
class Directed:
    """A schedule, and how it ends with the plant of its name in force."""

    schedule: Schedule
    raises: type[Exception]
    promise: str = ""
    """How the message begins."""


DIRECTED: Final[dict[str, Directed]] = {}


def breaks(promise: str, raises: type[Exception] = BrokenPromiseError) -> Callable[[Schedule], Schedule]:
    def register(schedule: Schedule) -> Schedule:
        DIRECTED[schedule.__name__] = Directed(schedule, raises, promise)
        return schedule

    return register
