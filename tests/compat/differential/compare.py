"""Whether two systems said the same, when what they cannot have in common is put aside.

zxids are compared by rank: there must be a one-to-one relation between those of one system and those of the other that
keeps the order of any two. Session ids are compared by whose they are. Times only by whether there is one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import attrs
from attrs import define, field

from tests.compat.differential.protocol import (
    UNIMPLEMENTED,
    Connected,
    Event,
    LastZxid,
    Observed,
    Reply,
    SessionId,
    Time,
    Zxid,
)

NO_ZXID: Final = -1
"""What ZooKeeper sends where there is no transaction to name."""


@define
class Ranks:
    """The relation of zxids so far: both lists ascend, equal places belong together."""

    left: list[int] = field(factory=list)
    right: list[int] = field(factory=list)

    def fits(self, one: int, other: int) -> bool:
        """Whether the pair is in the relation or can join it; it joins."""
        if one <= 0 or other <= 0:
            return one == other
        at = bisect_left(self.left, one)
        if at < len(self.left) and self.left[at] == one:
            return self.right[at] == other
        if at != bisect_left(self.right, other) or (at < len(self.right) and self.right[at] == other):
            return False
        self.left.insert(at, one)
        self.right.insert(at, other)
        return True

    def fits_between(self, one: int, other: int) -> bool:
        """Whether both have the same zxids of the relation before them."""
        if one <= 0 or other <= 0:
            return one == other
        return bisect_right(self.left, one) == bisect_right(self.right, other)


def _sorted_events(told: Sequence[Observed]) -> list[Observed]:
    """Events of one zxid that follow each other, by path."""
    found: list[Observed] = []
    for _, group in groupby(told, key=lambda one: one.zxid if isinstance(one, Event) else id(one)):
        events = list(group)
        found += sorted(events, key=lambda e: (e.path, e.type) if isinstance(e, Event) else ("", 0))
    return found


def _without_zxid(one: Observed) -> Observed:
    assert isinstance(one, Event | Reply), one
    return attrs.evolve(one, zxid=Zxid(NO_ZXID))


@define
class Comparison:
    """All that has been found to belong together so far."""

    zxids: Ranks = field(factory=Ranks)
    sessions: dict[int, int] = field(factory=lambda: {0: 0})
    events_have_zxids: bool = True
    """ZooKeeper before 3.9 sends -1 with every event."""
    passwords: tuple[dict[int, bytes], dict[int, bytes]] = field(factory=lambda: ({}, {}))

    def differences_unordered(self, theirs: Sequence[Observed], ours: Sequence[Observed]) -> list[str]:
        """The same, after a session's end: ZooKeeper deletes its ephemerals in the order of a hash table."""
        return self.differences(_sorted_events(theirs), _sorted_events(ours))

    def differences(self, theirs: Sequence[Observed], ours: Sequence[Observed]) -> list[str]:
        """A line for each place where they differ."""
        found = []
        for place, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            if one.__class__ is other.__class__ and self._is_masked(one):
                one, other = _without_zxid(one), _without_zxid(other)
            if not self._same(one, other):
                found.append(f"message {place}")
        if len(theirs) != len(ours):
            found.append(f"{len(theirs)} messages and {len(ours)}")
        return found

    def _is_masked(self, theirs: Observed) -> bool:
        """Whether only the zxid of this is put aside: in the reply to an unknown request ZooKeeper has none."""
        match theirs:
            case Event():
                return theirs.zxid == NO_ZXID and not self.events_have_zxids
            case Reply():
                return theirs.zxid == NO_ZXID and theirs.err == UNIMPLEMENTED
        return False

    def _same(self, one: Any, other: Any) -> bool:
        if type(one) is not type(other):
            return False
        match one:
            case Zxid():
                return self.zxids.fits(one, other)
            case LastZxid():
                # Not one to one: a session that moves takes a zxid in zraft, and none in ZooKeeper.
                return self.zxids.fits_between(one, other)
            case Time():
                return (int(one) > 0) == (int(other) > 0)
            case SessionId():
                return self._same_session(one, other)
            case Connected():
                return (
                    self._same_attrs(one, other)
                    and self._kept_password(one, 0)
                    and self._kept_password(other, 1)
                )
            case Reply() | Event():
                return self._same_attrs(one, other)
            case tuple():
                return len(one) == len(other) and all(map(self._same, one, other))
        return bool(one == other)

    def _same_attrs(self, one: Any, other: Any) -> bool:
        names = [a.name for a in attrs.fields(type(one)) if a.eq]
        # All are compared, so that each zxid gets its place.
        same = [self._same(getattr(one, name), getattr(other, name)) for name in names]
        return all(same)

    def _same_session(self, one: int, other: int) -> bool:
        if one not in self.sessions:
            if other in self.sessions.values():
                return False
            self.sessions[one] = other
        return self.sessions[one] == other

    def _kept_password(self, told: Connected, side: int) -> bool:
        """A session keeps its password for as long as it lives."""
        return self.passwords[side].setdefault(told.session, told.password) == told.password
