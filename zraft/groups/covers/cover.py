"""One heartbeat between two servers for all groups that the one leads and the other follows. Pure.

The *cover* is a set of (group, term) on both sides. The leaders' server gives it: it offers groups that have nothing
under way, and withdraws those it no longer leads. The followers' server takes it: it agrees to a group only while it
follows exactly that leadership, and reports those of which that has ended. A heartbeat then names only what
changed. Why this keeps nobody alive who no longer leads, and confirms nothing that is not so: docs/GROUPS.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define, frozen

from zraft.transport.messages import SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId

WITHDRAWN_MAX: Final = 128
"""Withdrawals are all repeated until they are answered; with more of them the cover begins anew."""

LOST_MAX: Final = 128
"""Lost groups are all repeated until the leaders' server says something about them; with more, the same."""

UNANSWERED_MAX: Final = 64
"""Heartbeats whose sending is remembered. An answer to an older one says nothing that matters any more."""

WITHDRAWN: Final = 0
"""In place of a term: the sender does not lead that group for the receiver any more."""


@define
class _Item:
    """What is to be said of a group. `since`: the first heartbeat that said it, 0 if none did yet."""

    term: int
    index: int
    since: int = 0


@frozen
class Answer:
    """What an answer taught: groups that the other side agrees on now, those it lost, and whether all begins anew."""

    agreed: tuple[GroupId, ...] = ()
    lost: tuple[GroupId, ...] = ()
    began_anew: bool = False


NOTHING_NEW: Final = Answer()


class GivenCover:
    """What this server, leading, has made known to one other server.

    Attributes:
        epoch: of the cover; everything that was agreed in another one is void.
        contact: tick at which the newest answered heartbeat was *sent*; -1 before the first.
    """

    __slots__ = (
        "_agreed",
        "_answered",
        "_items",
        "_items_max",
        "_number",
        "_sent",
        "_told",
        "contact",
        "epoch",
    )

    def __init__(self, items_max: int, epoch: int = 1) -> None:
        self.epoch = epoch
        self.contact = -1
        self._items_max = items_max
        self._number = 0
        self._answered = 0
        self._sent: deque[tuple[int, int]] = deque(maxlen=UNANSWERED_MAX)  # (number, tick)
        self._agreed: dict[GroupId, tuple[int, int]] = {}
        self._items: dict[GroupId, _Item] = {}
        self._told: set[GroupId] = set()
        """Whatever the other side may take for covered. Only an answered withdrawal takes a group from it."""

    def __len__(self) -> int:
        return len(self._agreed)

    def agrees(self, group: GroupId, term: int, index: int) -> bool:
        """Has the other side confirmed that it follows `term` and knows everything up to `index` to be committed?"""
        return self._agreed.get(group) == (term, index)

    def contact_of(self, group: GroupId, term: int) -> int | None:
        """Tick at which the other side was asked when it last confirmed to follow that leadership; None if it did not."""
        agreed = self._agreed.get(group)
        return self.contact if agreed is not None and agreed[0] == term else None

    def offer(self, group: GroupId, term: int, index: int) -> None:
        """The group has nothing under way: this server leads it in `term`, and the other's log matches up to `index`,
        which is committed."""
        item = self._items.get(group)
        known = (item.term, item.index) if item is not None else self._agreed.get(group)
        if known != (term, index):
            self._items[group] = _Item(term, index)

    def withdraw(self, group: GroupId) -> None:
        """This server does not lead the group any more, or not for that server. The next heartbeat says so already."""
        self._agreed.pop(group, None)
        item = self._items.get(group)
        if group not in self._told:
            self._items.pop(group, None)
        elif item is None or item.term != WITHDRAWN:
            self._items[group] = _Item(WITHDRAWN, 0)

    @property
    def has_news(self) -> bool:
        """Is there anything that the other side has not answered?"""
        return bool(self._items)

    @property
    def overflows(self) -> bool:
        """Is there more to take back than one heartbeat says? Then the cover has to begin anew."""
        items = self._items
        return (
            len(items) > WITHDRAWN_MAX
            and sum(item.term == WITHDRAWN for item in items.values()) > WITHDRAWN_MAX
        )

    def begin_anew(self) -> None:
        """Nothing that was agreed counts any more, on either side."""
        self.epoch += 1
        self._number = self._answered = 0
        self._sent.clear()
        self._agreed.clear()
        self._told.clear()
        self._items = {
            group: _Item(item.term, item.index)
            for group, item in self._items.items()
            if item.term != WITHDRAWN
        }

    def heartbeat(self, now: int) -> SharedHeartbeat:
        """The next one."""
        self._number += 1
        self._sent.append((self._number, now))
        room = self._items_max
        items: list[tuple[GroupId, int, int]] = []
        for group in self._items:
            item = self._items[group]
            if item.term != WITHDRAWN:
                # What was said is said again until it is answered, before anything new.
                if not item.since and room <= 0:
                    continue
                room -= 1
                self._told.add(group)
            item.since = item.since or self._number
            items.append((group, item.term, item.index))
        return SharedHeartbeat(self.epoch, self._number, self._answered, tuple(items))

    def on_reply(self, reply: SharedHeartbeatReply) -> Answer | None:
        """Take an answer; None if it is late, and says nothing any more."""
        if not reply.epoch:
            if not self._answered < reply.number <= self._number or not self._answered:
                return None
            self.begin_anew()
            return Answer(began_anew=True)
        if reply.epoch != self.epoch or not self._answered < reply.number <= self._number:
            return None
        number = self._answered = reply.number
        while self._sent and self._sent[0][0] <= number:
            sent, tick = self._sent.popleft()
            if sent == number:
                self.contact = tick
        if not self._items and not reply.lost:
            return NOTHING_NEW
        lost = set(reply.lost)
        agreed = []
        for group in [group for group, item in self._items.items() if 0 < item.since <= number]:
            item = self._items.pop(group)
            if item.term == WITHDRAWN:
                self._told.discard(group)
            elif group not in lost:
                self._agreed[group] = (item.term, item.index)
                agreed.append(group)
        for group in reply.lost:
            self._agreed.pop(group, None)
            if group not in self._items:
                # Until something is said of it, it is reported again and again.
                self._items[group] = _Item(WITHDRAWN, 0)
        return Answer(tuple(agreed), reply.lost)


class TakenCover:
    """What this server, following, has agreed to with one other server.

    Attributes:
        epoch: the newest one heard of, 0 before the first.
        heard_at: tick at which the newest heartbeat came; -1 before the first.
        answer_due: is there a heartbeat to be answered?
        has_news: does the answer say more than that nothing has changed?
    """

    __slots__ = ("_groups", "_lost", "_number", "_void", "answer_due", "epoch", "has_news", "heard_at")

    def __init__(self) -> None:
        self.epoch = 0
        self.heard_at = -1
        self.answer_due = False
        self.has_news = False
        self._number = 0
        self._void = False
        self._groups: dict[GroupId, int] = {}
        self._lost: dict[GroupId, None] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def groups(self) -> tuple[GroupId, ...]:
        """All of them."""
        return tuple(self._groups)

    def term_of(self, group: GroupId) -> int | None:
        """The term in which this server agreed to follow there; None if it did not."""
        return self._groups.get(group)

    def is_late(self, message: SharedHeartbeat) -> bool:
        """Was a later one taken before?"""
        return (message.epoch, message.number) <= (self.epoch, self._number)

    def on_heartbeat(
        self, message: SharedHeartbeat, now: int, agrees: Callable[[GroupId, int, int], bool]
    ) -> bool:
        """Take one; False if it is late, and nothing was changed.

        `agrees` says whether this server follows that leadership and holds all that is said to be committed, durably.
        """
        if self.is_late(message):
            return False
        if message.epoch > self.epoch:
            self._groups.clear()
            self._lost.clear()
            self.epoch = message.epoch
            # If an earlier run of this server answered, what it agreed to is not known here.
            self._void = bool(message.answered)
            self.has_news = True
        self._number = message.number
        self.answer_due = True
        self.has_news = bool(self.has_news or self._void or self._lost or message.items)
        if self._void:
            return True
        self.heard_at = now
        for group, term, index in message.items:
            self._lost.pop(group, None)
            if term == WITHDRAWN:
                self._groups.pop(group, None)
            elif agrees(group, term, index):
                self._groups[group] = term
            else:
                self._groups.pop(group, None)
                self._lost[group] = None
        return True

    def lose(self, group: GroupId) -> None:
        """This server does not follow that leadership any more. The next answer says so."""
        if self._groups.pop(group, None) is not None:
            self._lost[group] = None
            self.has_news = True

    @property
    def overflows(self) -> bool:
        """Is there more to report than one answer says? Then the cover has to begin anew."""
        return len(self._lost) > LOST_MAX

    def give_up(self) -> None:
        """Everything is void until the other side begins anew."""
        self._void = self.has_news = True
        self._groups.clear()
        self._lost.clear()

    def answer(self) -> SharedHeartbeatReply:
        """To the newest heartbeat."""
        self.answer_due = self.has_news = False
        return SharedHeartbeatReply(0 if self._void else self.epoch, self._number, tuple(self._lost))
