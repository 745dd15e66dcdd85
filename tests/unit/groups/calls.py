"""Counts the calls that a write costs a host of groups: three servers driven by events, one entry under way at a time."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import zraft
from tests.unit.groups.hosts import DISKS, Hosts
from tests.unit.profiled import profiled
from zraft.groups.effects import GroupMessage
from zraft.transport.messages import Sender
from zraft_core.ids import GroupId, ServerId

REPOSITORY: Final = Path(zraft.__file__).parents[1]

HOP_TICKS: Final = 1
"""What a datagram takes, what a frame takes to become durable, and a client to ask for the next write."""


class Calls:
    """How often functions of each room were called, in Python and in C, by the name of the function.

    A call belongs to the room that the function lives in. What lives in no file of ours (C, and methods that attrs
    made) belongs to the room of whoever called it.
    """

    def __init__(self) -> None:
        self._places: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count everything that is called in the block."""
        with profiled(self._note):
            yield

    def of(self, room: str) -> Counter[str]:
        """Those of a room, which is a path below the repository, such as "zraft/groups"."""
        inside: Counter[str] = Counter()
        for place, calls in self._places.items():
            if place.startswith(f"{REPOSITORY}/{room}/"):
                inside += calls
        return inside

    def _note(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            name = function.__qualname__
        elif event == "call":
            name = frame.f_code.co_qualname
            if frame.f_code.co_filename.startswith("<") and frame.f_back is not None:
                frame = frame.f_back
        else:
            return
        caller = f"{frame.f_code.co_qualname}: {name}" if event == "c_call" else name
        self._places[frame.f_code.co_filename][caller] += 1


class EventDriven:
    """The hosts of a test from now on: a turn only when something arrived that wants one, or when it is due.

    Attributes:
        calls, turns: of each server, since `forget` was called last.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts.hosts
        self._now = 0
        self._events: list[tuple[int, int, ServerId, Callable[[], None] | None]] = []
        self._number = 0
        self._turned_at = dict.fromkeys(DISKS, 0)
        self._wakes_at: dict[ServerId, int | None] = dict.fromkeys(DISKS)
        self.calls = {server: Calls() for server in DISKS}
        self.turns: Counter[ServerId] = Counter()
        for server in DISKS:
            self._turn(server)

    def forget(self) -> None:
        """Count from here on."""
        self.calls = {server: Calls() for server in DISKS}
        self.turns.clear()

    def write(self, leader: ServerId, group: int, payload: bytes) -> None:
        """Propose one entry, and go on until its leader has applied it."""
        replica = self._hosts[leader].groups[GroupId(group)]

        def propose() -> None:
            assert self._hosts[leader].propose(GroupId(group), payload, 1) is not None

        index = replica.raft.log.last_index + 1
        self._at(HOP_TICKS, leader, propose)
        while replica.applied_index < index:
            self._next()

    def _next(self) -> None:
        self._now, _, server, event = heapq.heappop(self._events)
        if event is not None:
            self._happen(server, event)
        elif self._wakes_at[server] == self._now:
            self._turn(server)

    def _at(self, ticks: int, server: ServerId, event: Callable[[], None] | None) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._now + ticks, self._number, server, event))

    def _happen(self, server: ServerId, event: Callable[[], None]) -> None:
        with self.calls[server].counted():
            event()
            wants_turn = self._hosts[server].wants_turn
        if wants_turn:
            self._turn(server)

    def _turn(self, server: ServerId) -> None:
        host = self._hosts[server]
        elapsed, self._turned_at[server] = self._now - self._turned_at[server], self._now
        self.turns[server] += 1
        with self.calls[server].counted():
            effects = host.turn(elapsed)
            records = host.frame.take()
        if records is not None:
            self._at(HOP_TICKS, server, lambda: host.persisted(host.frame.durable()))
        for to, messages in effects.sends.items():
            self._at(HOP_TICKS, to, self._receiving(server, to, messages))
        self._wakes_at[server] = None
        if effects.wake_in is not None:
            self._wakes_at[server] = self._now + effects.wake_in
            self._at(effects.wake_in, server, None)

    def _receiving(self, server: ServerId, to: ServerId, messages: list[GroupMessage]) -> Callable[[], None]:
        sender = Sender(server, DISKS[server], 1)
        return lambda: self._hosts[to].receive(sender, messages)
