"""Servers that a change removed and that are still told of it, for a while (dissertation, section 4.2.2).

A server that does not learn that it was removed goes on standing for election. So its leader goes on sending to
it until an election timeout after the removal was committed, heartbeats repeating what was lost.
"""

from __future__ import annotations

from attrs import define

from zraft_core.ids import Instance, ServerId


@define
class _Departure:
    instance: Instance
    index: int
    until: int | None = None


class Departures:
    """The removed servers of one leadership."""

    __slots__ = ("_departures",)

    def __init__(self) -> None:
        self._departures: dict[ServerId, _Departure] = {}

    def __len__(self) -> int:
        return len(self._departures)

    def __contains__(self, server: ServerId) -> bool:
        return server in self._departures

    def has(self, server: ServerId, instance: Instance) -> bool:
        """Return whether that disk was removed."""
        departure = self._departures.get(server)
        return departure is not None and departure.instance == instance

    def add(self, server: ServerId, instance: Instance, index: int) -> None:
        """Note that the entry `index` removes a server."""
        self._departures[server] = _Departure(instance, index)

    def discard(self, server: ServerId) -> None:
        """Forget a removed server, because it, or another disk of it, is a member again."""
        self._departures.pop(server, None)

    def clear(self) -> None:
        """Forget all removed servers."""
        self._departures.clear()

    def over(self, commit_index: int, now: int, patience: int) -> tuple[ServerId, ...]:
        """Return those who were told for long enough; they are forgotten."""
        gone = []
        for server, departure in self._departures.items():
            if departure.until is None:
                if departure.index <= commit_index:
                    departure.until = now + patience
            elif now >= departure.until:
                gone.append(server)
        for server in gone:
            del self._departures[server]
        return tuple(gone)
