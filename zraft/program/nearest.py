"""The known name that a misspelt one probably means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most like this one; None if none is.

    `cutoff`: how alike they are at least, from 0 to 1.
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `; did you mean …?`, or nothing if no known name is near."""
    near = nearest(name, known, cutoff)
    return "" if near is None else f"; did you mean {near}?"
