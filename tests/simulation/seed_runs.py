"""One seed of any simulation: how it ended, and how many seeds it takes to notice a planted bug."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.schedule import Schedule

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@frozen
class Result(Generic[R]):
    """One seed's end: a report, or what broke. `cpu_s` is processor time in seconds."""

    seed: int
    report: R | None
    checker: str
    reason: str
    cpu_s: float


class Simulated(Protocol[R_co]):
    """What has a schedule of its own, and reports what it saw."""

    @property
    def schedule(self) -> Schedule: ...

    def run(self) -> R_co:
        """Raises BrokenPromiseError, and whatever the product raises."""
        ...


def judged(seed: int, make: Callable[[], Simulated[R]]) -> Result[R]:
    """Make the simulation and run it; every error, of checkers or of the product itself, is a failure of the seed."""
    began = time.process_time()
    simulation = make()
    try:
        report = simulation.run()
    except BrokenPromiseError as error:
        reason = f"at {simulation.schedule.now_ms} ms: {error.found}"
        return Result(seed, None, error.checker, reason, time.process_time() - began)
    except Exception as error:
        # The product raised what no input may make it raise; where is the first thing to know.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        reason = f"at {simulation.schedule.now_ms} ms: {type(error).__name__}: {error} ({where})"
        return Result(seed, None, "no crash", reason, time.process_time() - began)
    return Result(seed, report, "", "", time.process_time() - began)


def first_to_notice(
    seeds: Iterable[int],
    planted: Callable[[], AbstractContextManager[None]],
    run: Callable[[int], Result[R]],
    is_sound: Callable[[int], bool],
) -> tuple[Result[R] | None, int]:
    """Seeds until one that is sound without the bug notices it: its result, or None, and how many it took."""
    tried = 0
    for seed in seeds:
        tried += 1
        with planted():
            result = run(seed)
        if result.report is None and is_sound(seed):
            return result, tried
    return None, tried
