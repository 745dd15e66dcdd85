"""What a fuzz run reports: how many inputs, what became of them, how much memory they could hold, and what they cost."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from attrs import field, frozen

from tests.simulation.broken import BrokenPromiseError

PROMISE: Final = "bad input gets the documented answer"
"""What every target checks, for the errors they raise."""

SECONDS_MAX: Final = 5.0
"""Of processor time for one input, or one turn: a thousand times what any takes, so that no busy machine decides."""

COUNTED_BYTES_MIN: Final = 512
"""A shorter input counts as this long: what comes with every input is not its bytes' doing."""

SHOWN_BYTES: Final = 48

Progress = Callable[[int], None]
"""Told how many more inputs are done."""


@frozen
class Slowest:
    """The input that cost most for its length.

    Attributes:
        per_byte_us: microseconds of processor time per byte.
        size: how many bytes it has.
        begins: its first bytes.
    """

    per_byte_us: float
    size: int
    begins: bytes

    def __str__(self) -> str:
        return f"{self.per_byte_us:.2f} us per byte ({self.size:,} bytes that begin with {self.begins.hex()})"


class Stopwatch:
    """The judge of time: it remembers the worst, and fails a run only for what is beyond all reason.

    Args:
        clock: seconds of processor time.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self.slowest: Slowest | None = None
        self.longest_s = 0.0
        """The longest step: one input, or one turn."""

    def step(self, what: str, call: Callable[..., object], *arguments: object) -> float:
        """Call what holds up everybody else while it lasts; how many seconds that was.

        No garbage collection begins meanwhile, as none does in a server.

        Raises:
            BrokenPromiseError: more than `SECONDS_MAX`.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            began = self._clock()
            call(*arguments)
            spent = self._clock() - began
        finally:
            if collecting:
                gc.enable()
        self.longest_s = max(self.longest_s, spent)
        if spent > SECONDS_MAX:
            raise BrokenPromiseError(
                PROMISE, f"{what} took {spent:.1f} s, expected less than {SECONDS_MAX:g} s"
            )
        return spent

    def count(self, data: bytes, seconds: float) -> None:
        """An input took so long, in however many steps."""
        per_byte_us = seconds * 1e6 / max(len(data), COUNTED_BYTES_MIN)
        if self.slowest is None or per_byte_us > self.slowest.per_byte_us:
            self.slowest = Slowest(per_byte_us, len(data), data[:SHOWN_BYTES])


@frozen
class Outcome:
    """What a run came to. Two runs of one seed are equal; what they cost is not compared.

    Attributes:
        target: what was fuzzed.
        seed: of the run.
        inputs: how many.
        peak_bytes: the most that hostile input held at a time.
        answers: inputs by what became of them.
        slowest: the input that cost most for its length; None if none was measured.
        longest_s: the longest step in seconds of processor time.
    """

    target: str
    seed: int
    inputs: int
    peak_bytes: int
    answers: Counter[str] = field(factory=Counter)
    slowest: Slowest | None = field(default=None, eq=False)
    longest_s: float = field(default=0.0, eq=False)
