"""Places in a topic as people write them: a word, an offset, or a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click
from attrs import frozen

if TYPE_CHECKING:
    from zraft_client.topics import Topics
    from zraft_client.topics.values import Bounds

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
END: Final = "end"
TIMES: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Units of time, in milliseconds."""
EXAMPLES: Final = "an offset, a time such as 2026-11-29T10:00, or 2h for two hours ago"


@frozen
class Moment:
    """A time, in milliseconds since 1970."""

    ms: int


Place = str | int | Moment
"""A word that stands for a place of every partition, the number of an offset, or a time."""


def place(*words: str, now: Callable[[], float] = time.time) -> Callable[[str], Place]:
    """Return a reader of places; `now` is in seconds since 1970. A time without a zone is local."""

    def read(text: str) -> Place:
        if text in words:
            return text
        if text.isascii() and text.isdigit():
            return int(text)
        ago = re.fullmatch(r"([0-9]{1,15})([a-z]+)", text)
        if ago is not None and ago.group(2) in TIMES:
            return Moment(max(0, int(now() * 1_000) - int(ago.group(1)) * TIMES[ago.group(2)]))
        try:
            at = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            at = -1.0
        if at < 0:
            raise click.BadParameter(f"found {text!r}, expected {', '.join(words)}, {EXAMPLES}")
        return Moment(round(at * 1_000))

    return read


async def offsets_of(topics: Topics, name: str, where: Place, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Return the offset that a place means in each of the partitions with these bounds."""
    if isinstance(where, Moment):
        found = await topics.offsets_at(name, where.ms)
        return {number: found[number] for number in bounds}
    if isinstance(where, int):
        return dict.fromkeys(bounds, where)
    return {number: one.first if where == EARLIEST else one.end for number, one in bounds.items()}
