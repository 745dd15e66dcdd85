"""The cover between two servers: one heartbeat for all groups that the one leads and the other follows. Pure.

The *cover* is a set of (group, term) on both sides. The leaders' server gives it: it offers groups that have
nothing under way, and withdraws those it no longer leads. The followers' server takes it: it agrees to a
group only while it follows exactly that leadership, and reports the groups in which this has ended. A
heartbeat then names only what changed. docs/explanation/groups.md argues why this keeps nobody alive who no longer leads,
and confirms nothing that is not so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define, frozen

from zraft.transport.messages import SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId

WITHDRAWN_MAX: Final = 128
"""How many withdrawals may wait for an answer. Each heartbeat repeats all of them; with more, the cover begins anew."""

LOST_MAX: Final = 128
"""How many lost groups one answer may report. Each answer repeats all of them until the leaders' server has said
something about them; with more, the cover begins anew.
"""

UNANSWERED_MAX: Final = 64
"""How many unanswered heartbeats are remembered, with the ticks of their sending. Answers to older ones do not matter."""

WITHDRAWN: Final = 0
"""Stands in the place of a term: the sender does not lead that group for the receiver any more."""


@define
class _Item:
    """What the next heartbeats say of a group. `since` is the number of the first one that said it, 0 if none did yet."""

    term: int
    index: int
    since: int = 0


@frozen
class CoverAnswer:
    """Changes made by an answer to a heartbeat.

    Attributes:
        agreed: groups that the other server follows from now on, as it was offered.
        lost: groups that it does not follow, or no longer.
        began_anew: whether the cover begins anew, because the other server does not know how it began.
    """

    agreed: tuple[GroupId, ...] = ()
    lost: tuple[GroupId, ...] = ()
    began_anew: bool = False


NOTHING_NEW: Final = CoverAnswer()


class GivenCover:
    """Cover that this server, as a leader, has made known to one other server.

    Attributes:
        epoch: number of the cover; what was agreed in another epoch is void.
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
        """Groups that the other server may consider covered. Only an answered withdrawal removes one."""

    def __len__(self) -> int:
        return len(self._agreed)

    def agrees(self, group: GroupId, term: int, index: int) -> bool:
        """Return whether the other server has confirmed that it follows `term` and considers all up to `index` committed."""
        return self._agreed.get(group) == (term, index)

    def contact_of(self, group: GroupId, term: int) -> int | None:
        """Return the tick of the other server's last contact that counts for this leadership of the group.

        It is the tick at which this server sent the newest heartbeat that was answered; None if the other
        server has not agreed to follow the group in `term`.
        """
        agreed = self._agreed.get(group)
        return self.contact if agreed is not None and agreed[0] == term else None

    def offer(self, group: GroupId, term: int, index: int) -> None:
        """Offer a group that has nothing under way.

        This server leads it in `term`; the other server's log is known to match up to `index`, which is
        committed.
        """
        item = self._items.get(group)
        known = (item.term, item.index) if item is not None else self._agreed.get(group)
        if known != (term, index):
            self._items[group] = _Item(term, index)

    def withdraw(self, group: GroupId) -> None:
        """Withdraw a group that this server no longer leads, or not for that server. The next heartbeat says so."""
        self._agreed.pop(group, None)
        item = self._items.get(group)
        if group not in self._told:
            self._items.pop(group, None)
        elif item is None or item.term != WITHDRAWN:
            self._items[group] = _Item(WITHDRAWN, 0)

    @property
    def has_news(self) -> bool:
        """True if there is anything that the other server has not answered."""
        return bool(self._items)

    @property
    def overflows(self) -> bool:
        """True if there are more withdrawals than one heartbeat may carry, so that the cover has to begin anew."""
        items = self._items
        return (
            len(items) > WITHDRAWN_MAX
            and sum(item.term == WITHDRAWN for item in items.values()) > WITHDRAWN_MAX
        )

    def begin_anew(self) -> None:
        """Begin the next epoch: nothing that was agreed counts any more, on either side."""
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
        """Return the next heartbeat, which is sent at tick `now`."""
        self._number += 1
        self._sent.append((self._number, now))
        room = self._items_max
        items: list[tuple[GroupId, int, int]] = []
        for group in self._items:
            item = self._items[group]
            if item.term != WITHDRAWN:
                # An offer is repeated until it is answered, before any new one is made.
                if not item.since and room <= 0:
                    continue
                room -= 1
                self._told.add(group)
            item.since = item.since or self._number
            items.append((group, item.term, item.index))
        return SharedHeartbeat(self.epoch, self._number, self._answered, tuple(items))

    def on_reply(self, reply: SharedHeartbeatReply) -> CoverAnswer | None:
        """Take an answer to a heartbeat; return what it changed, or None if it came too late to count."""
        if not reply.epoch:
            if not self._answered < reply.number <= self._number or not self._answered:
                return None
            self.begin_anew()
            return CoverAnswer(began_anew=True)
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
                # The other server reports it again and again until something is said of it.
                self._items[group] = _Item(WITHDRAWN, 0)
        return CoverAnswer(tuple(agreed), reply.lost)


class TakenCover:
    """Cover that this server, as a follower, has agreed to with one other server.

    Attributes:
        epoch: number of the newest cover that it heard of, 0 before the first.
        heard_at: tick at which the newest heartbeat came; -1 before the first.
        answer_due: whether there is a heartbeat to be answered.
        has_news: whether the answer says more than that nothing has changed.
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
        """The groups that this server has agreed to follow there."""
        return tuple(self._groups)

    def term_of(self, group: GroupId) -> int | None:
        """Return the term in which this server agreed to follow there; None if it did not."""
        return self._groups.get(group)

    def is_late(self, message: SharedHeartbeat) -> bool:
        """Return whether a later heartbeat was taken before this one."""
        return (message.epoch, message.number) <= (self.epoch, self._number)

    def on_heartbeat(
        self, message: SharedHeartbeat, now: int, agrees: Callable[[GroupId, int, int], bool]
    ) -> bool:
        """Take a heartbeat; return False if it is late, and nothing was changed.

        Args:
            agrees: says of (group, term, index) whether this server follows that leadership and holds
                everything up to the index durably.
        """
        if self.is_late(message):
            return False
        if message.epoch > self.epoch:
            self._groups.clear()
            self._lost.clear()
            self.epoch = message.epoch
            # An earlier run of this server answered: what it agreed to is not known here.
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
        """Take a group out of the cover, because this server no longer follows that leadership. The next answer says so."""
        if self._groups.pop(group, None) is not None:
            self._lost[group] = None
            self.has_news = True

    @property
    def overflows(self) -> bool:
        """True if there are more lost groups than one answer may report, so that the cover has to begin anew."""
        return len(self._lost) > LOST_MAX

    def give_up(self) -> None:
        """Consider everything void until the other server begins anew."""
        self._void = self.has_news = True
        self._groups.clear()
        self._lost.clear()

    def answer(self) -> SharedHeartbeatReply:
        """Return the answer to the newest heartbeat."""
        self.answer_due = self.has_news = False
        return SharedHeartbeatReply(0 if self._void else self.epoch, self._number, tuple(self._lost))
