"""Plumtree: events go along the links of a tree that forms by itself, and are announced along the others.

Leitao, Pereira and Rodrigues, "Epidemic broadcast trees" (SRDS 2007), over HyParView's active view. A link
that brought a known event becomes lazy (PRUNE). A link that announced an event that did not come becomes
eager (GRAFT).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from attrs import define, field

from onyxlog.gossip.hyparview import HyParView
from onyxlog.gossip.messages import Event, Graft, IHave, Prune, Send, Spread, TreeEvent
from onyxlog.gossip.spreading import SpreadingSettings
from onyxlog.gossip.streams import View
from onyxlog.ids import GroupId, Position

KEPT: Final = 1024
"""The number of recently announced events that are kept for groups that graft."""
ANNOUNCE_MS: Final = 20
"""The time that announcements wait, so that several go together."""
MISSING_MAX: Final = 1024


@define
class _Missing:
    """An event that was announced and did not come: by whom, with which round; `due`: when the next group is asked."""

    due: int
    announced: deque[tuple[GroupId, int]] = field(factory=deque)


class Plumtree:
    """The tree's links of `me`."""

    def __init__(self, me: GroupId, settings: SpreadingSettings, random: Random, now: int) -> None:
        self._settings = settings
        self.overlay = HyParView(me, settings, random, now)
        self._lazy: set[GroupId] = set()
        self._events: dict[Position, tuple[Event, int]] = {}
        self._missing: dict[Position, _Missing] = {}
        self._announcements: dict[GroupId, list[tuple[Position, int]]] = {}
        self._announce_at: int | None = None

    @property
    def eager(self) -> tuple[GroupId, ...]:
        """The active links along which events are sent."""
        return tuple(group for group in self.overlay.active if group not in self._lazy)

    @property
    def lazy(self) -> tuple[GroupId, ...]:
        """The active links along which events are announced."""
        return tuple(group for group in self.overlay.active if group in self._lazy)

    def membership(self, view: View, now: int) -> Iterator[Send]:
        """Take a new deal of the pool, and return what to send."""
        yield from self.overlay.membership(view.current.groups(), now)
        self._lazy.intersection_update(self.overlay.active)

    def publish(self, event: Event, now: int) -> Iterator[Send]:
        """Send this group's own event along the tree, and return what to send."""
        yield from self._pushed(event, 0, None, now)

    def receive(self, sender: GroupId, message: Spread, first: bool, now: int) -> Iterator[Send]:
        """Take a message of the tree or of its overlay, and return what to send.

        `first`: the event was not known here.
        """
        match message:
            case TreeEvent(event, round_number):
                self._missing.pop(event.position, None)
                if first:
                    self._lazy.discard(sender)
                    yield from self._pushed(event, round_number + 1, sender, now)
                else:
                    if sender in self.overlay.active:
                        self._lazy.add(sender)
                    yield Send((sender,), Prune())
            case IHave(events):
                self._announced(sender, events, now)
            case Graft(position, _):
                self._lazy.discard(sender)
                if position in self._events:
                    yield Send((sender,), TreeEvent(*self._events[position]))
            case Prune():
                if sender in self.overlay.active:
                    self._lazy.add(sender)
            case _:
                yield from self.overlay.receive(sender, message, now)
                self._lazy.intersection_update(self.overlay.active)

    def learn(self, event: Event, now: int) -> Iterable[Send]:
        """Note an event that came otherwise, so that nobody is asked for it."""
        self._missing.pop(event.position, None)
        return ()

    def knows(self, sender: GroupId, newest: Position, now: int) -> None:
        """Do nothing: the tree does not use others' positions."""

    def tick(self, now: int) -> Iterator[Send]:
        """Do what is due, and return what to send."""
        yield from self.overlay.tick(now)
        self._lazy.intersection_update(self.overlay.active)
        if self._announce_at is not None and self._announce_at <= now:
            self._announce_at = None
            pending, self._announcements = self._announcements, {}
            for group, events in pending.items():
                yield Send((group,), IHave(tuple(events)))
        for position in [p for p, missing in self._missing.items() if missing.due <= now]:
            missing = self._missing[position]
            if not missing.announced:
                del self._missing[position]
                continue
            group, round_number = missing.announced.popleft()
            missing.due = now + self._settings.graft_again_ms
            self._lazy.discard(group)
            yield Send((group,), Graft(position, round_number))

    def deadline(self) -> int:
        """Return the time at which `tick` must be called next."""
        dues = [self.overlay.deadline(), *(missing.due for missing in self._missing.values())]
        if self._announce_at is not None:
            dues.append(self._announce_at)
        return min(dues)

    def _pushed(self, event: Event, round_number: int, but: GroupId | None, now: int) -> Iterator[Send]:
        self._events[event.position] = (event, round_number)
        while len(self._events) > KEPT:
            del self._events[next(iter(self._events))]
        eager = tuple(group for group in self.eager if group not in (but, event.publisher))
        if eager:
            yield Send(eager, TreeEvent(event, round_number))
        for group in self.lazy:
            if group not in (but, event.publisher):
                self._announcements.setdefault(group, []).append((event.position, round_number))
        if self._announcements and self._announce_at is None:
            self._announce_at = now + ANNOUNCE_MS

    def _announced(self, sender: GroupId, events: Iterable[tuple[Position, int]], now: int) -> None:
        for position, round_number in events:
            if position in self._events:
                continue
            missing = self._missing.get(position)
            if missing is None:
                if len(self._missing) >= MISSING_MAX:
                    continue
                missing = self._missing[position] = _Missing(now + self._settings.graft_ms)
            missing.announced.append((sender, round_number))
