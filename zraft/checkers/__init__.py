"""Checkers of histories that clients recorded on real servers: pure, and knowing nothing of the product but its promises.

`check_histories` runs all that need no servers any more; `zraft.checkers.final` compares those with the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zraft.checkers.history import Record, Violation
from zraft.checkers.locks import check_locks
from zraft.checkers.order import check_reads, check_zxids
from zraft.checkers.registers import State, check_registers
from zraft.checkers.sequences import check_lists, check_sequences
from zraft.checkers.sessions import check_ephemerals, check_sessions
from zraft.checkers.watches import check_watches


def check_histories(
    histories: Sequence[Sequence[Record]],
    *,
    start: Mapping[str, State] | None = None,
    pauses: Sequence[tuple[int, int]] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Violation]:
    """Return every violation that every checker finds.

    Args:
        start: what keys held before the clients began.
        pauses: (from, to) in microseconds when no server ran.
        progress: called with what is looked at next.
    """
    found: list[Violation] = []
    for name, checker in (
        ("order of zxids", check_zxids),
        ("reads", check_reads),
        ("sessions", lambda all_of_them: check_sessions(all_of_them, pauses)),
        ("ephemerals", check_ephemerals),
        ("locks", check_locks),
        ("sequences", check_sequences),
        ("lists of children", check_lists),
        ("watches", check_watches),
    ):
        progress(name)
        found += checker(histories)
    return found + check_registers(histories, start=start, progress=progress)
