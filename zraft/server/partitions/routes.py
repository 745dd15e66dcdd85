"""Guesses of where a group's leader is.

Pure.

Only guesses: whoever gets something for a group that it does not lead passes it on, and says who leads. What is lost is said
again by those who need it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define

from zraft_core.ids import GroupId, ServerId

TRUSTED_MS: Final = 2_000
"""The time for which a leader that was heard is taken for one. Then its group is asked where it should be,
and elsewhere in turn.
"""
KNOWN_MAX: Final = 65_536


@define
class _Known:
    server: ServerId
    heard_ms: int


class GroupRoutes:
    """One server's knowledge of leaders. `replicas` as in `Coordination`."""

    def __init__(self, replicas: Callable[[GroupId], Sequence[ServerId]]) -> None:
        self._replicas = replicas
        self._known: OrderedDict[GroupId, _Known] = OrderedDict()
        self._tries: dict[GroupId, int] = {}

    def heard(self, group: GroupId, server: ServerId, now_ms: int) -> None:
        """Note that `server` speaks for the group, or that somebody says so."""
        known = self._known.get(group)
        if known is None:
            self._known[group] = _Known(server, now_ms)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        else:
            known.server, known.heard_ms = server, now_ms
        self._tries.pop(group, None)

    def target(self, group: GroupId, now_ms: int) -> ServerId | None:
        """Return whom to send to now; None if nobody is known."""
        known = self._known.get(group)
        if known is not None:
            if now_ms - known.heard_ms <= TRUSTED_MS:
                return known.server
            del self._known[group]
        replicas = self._replicas(group)
        if not replicas:
            self._tries.pop(group, None)
            return None
        tries = self._tries.get(group, 0)
        if len(self._tries) > KNOWN_MAX:
            self._tries.clear()
        self._tries[group] = tries + 1
        return replicas[tries % len(replicas)]
