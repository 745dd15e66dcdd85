"""HyParView: each group keeps a few links that both ends know, and a larger reserve of groups it has heard of.

Leitao, Pereira and Rodrigues, "HyParView: a membership protocol for reliable gossip-based broadcast" (DSN
2007). This differs from the paper in two ways. The members are known from the log, so a contact is never
missing, the reserve is filled from it, and a group that has left is dropped at once. As UDP does not report a
broken link, both ends of a link send each other signs of life.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from onyxlog.gossip.messages import (
    Alive,
    Disconnect,
    ForwardJoin,
    Join,
    Neighbour,
    NeighbourReply,
    Send,
    Shuffle,
    ShuffleReply,
    Spread,
)
from onyxlog.gossip.pacing import about
from onyxlog.gossip.spreading import SpreadingSettings
from onyxlog.ids import GroupId

SHUFFLED_ACTIVE: Final = 3
SHUFFLED_PASSIVE: Final = 4
MISSING_SIGNS_MAX: Final = 3


class HyParView:
    """The views of `me`. Events travel along the `active` view."""

    def __init__(self, me: GroupId, settings: SpreadingSettings, random: Random, now: int) -> None:
        self._me = me
        self._settings = settings
        self._random = random
        self._heard: dict[GroupId, int] = {}
        """When each group of the active view was last heard of."""
        self._passive: list[GroupId] = []
        self._members: frozenset[GroupId] = frozenset()
        self._asked: tuple[GroupId, int] | None = None
        """Groups that were asked to be a neighbour or a contact, and until when an answer is waited for."""
        self._alive_at = now + about(settings.alive_ms, random)
        self._shuffle_at = now + about(settings.shuffle_ms, random)

    @property
    def active(self) -> tuple[GroupId, ...]:
        """The groups of the active view: the links along which events travel."""
        return tuple(self._heard)

    @property
    def passive(self) -> tuple[GroupId, ...]:
        """The groups of the passive view, which replace lost links."""
        return tuple(self._passive)

    def membership(self, groups: Iterable[GroupId], now: int) -> Iterator[Send]:
        """Note that groups came or left, as the log says."""
        self._members = frozenset(groups) - {self._me}
        for gone in [group for group in self._heard if group not in self._members]:
            del self._heard[gone]
        self._passive = [group for group in self._passive if group in self._members]
        if len(self._passive) < min(self._settings.passive, len(self._members) - len(self._heard)):
            self._reserve(*self._sample(sorted(self._members), self._settings.passive))
        yield from self._completed(now)

    def receive(self, sender: GroupId, message: Spread, now: int) -> Iterator[Send]:
        """Take a message of the overlay, and return what to send."""
        if sender in self._heard:
            self._heard[sender] = now
        match message:
            case Join():
                yield from self._linked(sender, now)
                yield Send((sender,), NeighbourReply(True))
                others = tuple(group for group in self._heard if group != sender)
                if others:
                    yield Send(others, ForwardJoin(sender, self._settings.active_walk))
            case ForwardJoin(joiner, ttl):
                yield from self._walked(sender, joiner, ttl)
            case Neighbour(urgent):
                accepted = urgent or sender in self._heard or len(self._heard) < self._settings.active
                if accepted:
                    yield from self._linked(sender, now)
                yield Send((sender,), NeighbourReply(accepted))
            case NeighbourReply(accepted):
                self._asked = None
                if accepted:
                    yield from self._linked(sender, now)
                    yield from self._completed(now)
            case Disconnect():
                if self._heard.pop(sender, None) is not None:
                    # Do not ask the same one again at once: two that lack a neighbour would push each other
                    # out for ever.
                    yield from self._completed(now)
                    self._reserve(sender)
            case Alive():
                if sender not in self._heard:  # only one end has the link, and both must agree on it
                    yield Send((sender,), Disconnect())
            case Shuffle(origin, groups, ttl):
                yield from self._shuffled(sender, origin, groups, ttl)
            case ShuffleReply(groups):
                self._reserve(*groups)
            case _:
                pass

    def tick(self, now: int) -> Iterator[Send]:
        """Do what is due, and return what to send."""
        if self._asked is not None and self._asked[1] <= now:
            silent, self._asked = self._asked[0], None
            self._passive = [group for group in self._passive if group != silent]
        if self._alive_at <= now:
            self._alive_at = now + about(self._settings.alive_ms, self._random)
            patience = MISSING_SIGNS_MAX * self._settings.alive_ms
            for silent in [group for group, at in self._heard.items() if now - at > patience]:
                del self._heard[silent]
            yield from self._completed(now)
            if self._heard:
                yield Send(self.active, Alive())
        if self._shuffle_at <= now:
            self._shuffle_at = now + about(self._settings.shuffle_ms, self._random)
            # Draw one from the log: views that are only mixed among themselves never find another island again.
            self._reserve(*self._sample(sorted(self._members), 1))
            if self._heard:
                target = self._random.choice(self.active)
                yield Send((target,), Shuffle(self._me, self._some(), self._settings.active_walk))

    def deadline(self) -> int:
        """Return the time at which `tick` must be called next."""
        asked = self._alive_at if self._asked is None else self._asked[1]
        return min(self._alive_at, self._shuffle_at, asked)

    def _walked(self, sender: GroupId, joiner: GroupId, ttl: int) -> Iterator[Send]:
        if joiner == self._me:
            return
        onward = [group for group in self._heard if group not in (sender, joiner)]
        if ttl <= 0 or not onward:
            if joiner not in self._heard:
                yield Send((joiner,), Neighbour(urgent=True))
            return
        if ttl == self._settings.passive_walk:
            self._reserve(joiner)
        yield Send((self._random.choice(onward),), ForwardJoin(joiner, ttl - 1))

    def _shuffled(
        self, sender: GroupId, origin: GroupId, groups: tuple[GroupId, ...], ttl: int
    ) -> Iterator[Send]:
        onward = [group for group in self._heard if group not in (sender, origin)]
        if ttl > 1 and onward:
            yield Send((self._random.choice(onward),), Shuffle(origin, groups, ttl - 1))
        elif origin != self._me:
            yield Send((origin,), ShuffleReply(self._sample(self._passive, len(groups))))
            self._reserve(*groups)

    def _linked(self, group: GroupId, now: int) -> Iterator[Send]:
        """Take a group into the active view; if the view is full, another group leaves it."""
        if group == self._me or group in self._heard:
            return
        if len(self._heard) >= self._settings.active:
            dropped = self._random.choice(self.active)
            del self._heard[dropped]
            self._reserve(dropped)
            yield Send((dropped,), Disconnect())
        self._heard[group] = now
        if group in self._passive:
            self._passive.remove(group)

    def _completed(self, now: int) -> Iterator[Send]:
        """Look for another neighbour if there are too few, one at a time: from the reserve, or from the log."""
        if self._asked is not None or len(self._heard) >= min(self._settings.active, len(self._members)):
            return
        reserve = [group for group in self._passive if group not in self._heard]
        if reserve:
            wanted = self._random.choice(reserve)
            yield Send((wanted,), Neighbour(urgent=not self._heard))
        elif not self._heard and self._members:
            wanted = self._random.choice(sorted(self._members))
            yield Send((wanted,), Join())
        else:
            return
        self._asked = (wanted, now + self._settings.alive_ms)

    def _reserve(self, *groups: GroupId) -> None:
        for group in groups:
            if group in self._members and group not in self._heard and group not in self._passive:
                if len(self._passive) >= self._settings.passive:
                    self._passive.pop(self._random.randrange(len(self._passive)))
                self._passive.append(group)

    def _some(self) -> tuple[GroupId, ...]:
        return (
            self._me,
            *self._sample(list(self._heard), SHUFFLED_ACTIVE),
            *self._sample(self._passive, SHUFFLED_PASSIVE),
        )

    def _sample(self, of: list[GroupId], count: int) -> tuple[GroupId, ...]:
        return tuple(self._random.sample(of, min(count, len(of))))
