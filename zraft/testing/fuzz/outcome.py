"""What a fuzz run reports: how many inputs, what became of them, and how much memory they could hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from attrs import field, frozen

PROMISE: Final = "bad input gets the documented answer"
"""What every target checks, for the errors they raise."""

Progress = Callable[[int], None]
"""Told how many more inputs are done."""


@frozen
class Outcome:
    """`answers` counts inputs by what became of them; `peak_bytes` is the most that hostile input held at a time."""

    target: str
    seed: int
    inputs: int
    peak_bytes: int
    answers: Counter[str] = field(factory=Counter)
