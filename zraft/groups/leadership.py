"""Which leaderships are to move to their preferred servers now: a few at a time, and not again at once. Pure."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from zraft.groups.settings import GroupSettings
from zraft_core.ids import GroupId


@define
class _Move:
    due: int
    tries: int = 0
    gives_up_at: int | None = None


TRIES_COUNTED_MAX = 64
"""A target that never takes over is asked about once in so many pauses."""


class Moves:
    """Groups that this server leads although another one should."""

    __slots__ = ("_moves", "_next_at", "_settings", "begun")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._moves: dict[GroupId, _Move] = {}
        self._next_at = 0
        self.begun = 0
        """How many moves were begun."""

    def __len__(self) -> int:
        return len(self._moves)

    def add(self, group: GroupId, now: int) -> None:
        """Another server should lead it."""
        if group not in self._moves:
            self._moves[group] = _Move(now + self._settings.transfer_pause_ticks)

    def discard(self, group: GroupId) -> None:
        """It is led by whom it should be, or not from here."""
        self._moves.pop(group, None)

    def next_due(self) -> int | None:
        """Tick at which `begin` may have something to do; None if there is nothing to move."""
        if not self._moves:
            return None
        return max(self._next_at, min(move.due for move in self._moves.values()))

    def begin(self, now: int, begin: Callable[[GroupId], bool]) -> None:
        """Begin the move that waits longest, if it is time; `begin` says whether it could be begun."""
        settings = self._settings
        if now < self._next_at:
            return
        under_way = 0
        for move in self._moves.values():
            if move.gives_up_at is not None:
                if now >= move.gives_up_at:
                    move.gives_up_at = None
                else:
                    under_way += 1
        self._next_at = now + settings.transfer_pause_ticks
        for group, move in sorted(self._moves.items(), key=lambda item: (item[1].due, item[0])):
            if under_way >= settings.transfers_at_once or move.due > now:
                return
            if move.gives_up_at is not None:
                continue
            move.tries = min(move.tries + 1, TRIES_COUNTED_MAX)
            move.due = now + move.tries * settings.transfer_pause_ticks
            if begin(group):
                move.gives_up_at = now + settings.raft.election_timeout_ticks
                self.begun += 1
                return
