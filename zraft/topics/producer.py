"""What a producer's library decides: numbers, to whom to send again, when a message is decided, how far its floor is. Pure.

A message is sent until every destination has answered for good. Only then its number is below the floor, with which groups
forget it (D-8b); until then a repeat is recognised wherever it arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from attrs import frozen

from zraft.errors import ZraftError
from zraft.ids import GroupId, ProducerId
from zraft.topics.message import After, Condition, Message
from zraft.topics.messages import Answer, Reply, StartRequest
from zraft.topics.registry_values import Table
from zraft.topics.stamps import MessageId


class Reach(Enum):
    """Whom a message is sent to. The others learn it from the first, a step later."""

    ALL = "all"
    ONE = "one"


class Ending(Enum):
    """What a message came to, for good."""

    DELIVERED = "delivered"
    """At all destinations: it precedes, wherever both are addressed, whatever is multicast from now on (D-17c)."""
    FAILED = "failed"
    """Its condition did not hold: it is delivered nowhere."""
    DECIDED = "decided"
    """One of these two; nobody remembers which."""
    NEVER = "never"
    """Not delivered, and it never will be: a destination was deleted before it arrived."""
    UNKNOWN = "unknown"
    """All destinations are removed; there is nobody left to ask."""


class WindowFullError(ZraftError):
    """As many messages as a producer may have undecided are; wait for an answer."""

    retriable = True


class UnknownGroupError(ZraftError):
    """A destination is not in the table of groups."""


@frozen
class Ended:
    """A message and what it came to; `offsets` as far as destinations said them."""

    mid: MessageId
    ending: Ending
    offsets: dict[GroupId, int]


class _Open:
    """A message that is not decided."""

    __slots__ = ("accepted", "answers", "behind", "epoch", "message", "offsets")

    def __init__(self, message: Message, epoch: int, behind: int | None) -> None:
        self.message = message
        self.epoch = epoch
        self.behind = behind
        """The number of a message without a common destination that must be decided first (D-17a)."""
        self.answers: dict[GroupId, Answer] = {}
        self.offsets: dict[GroupId, int] = {}
        self.accepted = False


_DECIDED = frozenset((Answer.DELIVERED, Answer.FAILED, Answer.DECIDED))


class Producer:
    """One registered producer. Its process may die at any step: nothing is remembered, and the next is another producer."""

    def __init__(
        self, producer: ProducerId, table: Table, *, window: int = 1024, reach: Reach = Reach.ALL
    ) -> None:
        self.producer = producer
        self.reach = reach
        self.table = table
        self.table_wanted = False
        """Somebody refused a message by a newer table: fetch it."""
        self.expired = False
        self.floor = 0
        self.last = 0
        self._window = window
        self._numbers: Counter[GroupId] = Counter()
        self._open: dict[int, _Open] = {}
        self._decided: set[int] = set()

    # -- what to send

    @property
    def room(self) -> int:
        """How many more messages the window has room for."""
        return self.floor + self._window - self.last

    @property
    def has_room(self) -> bool:
        return self.room > 0

    def multicast(
        self,
        destinations: Iterable[GroupId],
        payload: bytes = b"",
        *,
        after: Message | None = None,
        condition: Condition | None = None,
        depends: int = 0,
        partitions: tuple[GroupId, ...] | None = None,
    ) -> Message:
        """Take a message; `requests` says what to send for it. `after` is an earlier one of this producer.

        Raises:
            WindowFullError: too many are undecided.
            UnknownGroupError: a destination does not exist, as far as the table says.
        """
        groups = tuple(sorted(set(destinations)))
        if not groups or not self.table.groups.issuperset(groups):
            raise UnknownGroupError(
                f"expected destinations out of {len(self.table.groups)} groups, found {groups}"
            )
        if not self.has_room:
            raise WindowFullError(
                f"{self.last - self.floor} messages of producer {self.producer} are undecided: wait for one"
            )
        number = 0
        if len(groups) == 1:
            self._numbers[groups[0]] += 1
            number = self._numbers[groups[0]]
        self.last += 1
        mid = MessageId(self.producer, self.last)
        behind, named = self._order(groups, after)
        message = Message(mid, groups, payload, number, named, condition, depends, partitions)
        self._open[mid.seq] = _Open(message, self.table.epoch, behind)
        return message

    def _order(self, groups: tuple[GroupId, ...], after: Message | None) -> tuple[int | None, After | None]:
        """Behind a message with a common destination the groups put it; behind another the library waits."""
        if after is None or after.mid.seq not in self._open:
            return None, None
        if set(groups).intersection(after.destinations):
            return None, After(after.mid, after.destinations)
        return after.mid.seq, None

    def undecided(self) -> list[int]:
        return list(self._open)

    def requests(self, seq: int) -> list[tuple[GroupId, StartRequest]]:
        """What to send now for a message, the first time or again."""
        opened = self._open.get(seq)
        if opened is None or self.expired or opened.behind in self._open:
            return []
        message = opened.message
        left = [group for group in message.destinations if not self.table.removed(group)]
        request = StartRequest(message, self.floor, opened.epoch, self.reach is Reach.ONE)
        if self.reach is Reach.ALL:
            # Who has said what became of it need not be asked again, unless all have: then some other group is removed.
            asked = [group for group in left if opened.answers.get(group) not in _DECIDED] or left
            return [(group, request) for group in asked]
        after = message.after
        named = [group for group in left if after is None or group in after.destinations]
        fresh = [group for group in left if opened.answers.get(group) is not Answer.STALE]
        entries = [group for group in named if group in fresh] or fresh or left
        return [(entries[seq % len(entries)], request)] if entries else []

    # -- what is heard

    def on_table(self, table: Table) -> list[Ended]:
        """The table of groups, as group 0 has it now."""
        if table.position <= self.table.position:
            self.table_wanted = self.table_wanted and table.position < self.table.position
            return []
        self.table, self.table_wanted = table, False
        ended: list[Ended] = []
        for seq, opened in list(self._open.items()):
            message = opened.message
            if self.current(message):
                self._renew(opened)
            elif all(map(table.removed, message.destinations)):
                ended.append(self._end(seq, Ending.UNKNOWN))
        return ended

    def on_reply(self, reply: Reply) -> list[Ended]:
        """What a destination said; at most one message ends by it."""
        seq = reply.mid.seq
        opened = self._open.get(seq)
        if opened is None or reply.mid.producer != self.producer or self.expired:
            return []
        match reply.answer:
            case Answer.EXPIRED:
                self.expired = True
            case Answer.STALE:
                return self._refused(opened, reply)
            case Answer.ACCEPTED:
                self.accepted(opened)
            case Answer.DELIVERED | Answer.FAILED | Answer.DECIDED:
                opened.answers[reply.sender] = reply.answer
                if reply.offset is not None:
                    opened.offsets[reply.sender] = reply.offset
                if self.complete(opened.message, opened.answers, everywhere=reply.everywhere):
                    return [self._end(seq, _ending(opened.answers))]
            case Answer.RETRY | Answer.BUSY:
                pass
        return []

    def is_accepted(self, seq: int) -> bool:
        """Whether some destination has begun it, so that it will be decided whatever breaks."""
        opened = self._open.get(seq)
        return opened is not None and opened.accepted

    def accepted(self, opened: _Open) -> None:
        opened.accepted = True

    def _refused(self, opened: _Open, reply: Reply) -> list[Ended]:
        """One refusal alone is not final: another destination may have begun it (D-9c)."""
        if not self.counts(opened, reply):
            return []
        if self.table.epoch < reply.view_epoch:
            self.table_wanted = True
            return []
        if self.current(opened.message):
            self._renew(opened)
            return []
        opened.answers[reply.sender] = reply.answer
        destinations = opened.message.destinations
        if reply.everywhere or all(opened.answers.get(g) is Answer.STALE for g in destinations):
            return [self._end(reply.mid.seq, Ending.NEVER)]
        return []

    def counts(self, opened: _Open, reply: Reply) -> bool:
        """A late refusal of an older epoch says nothing: the group may have taken the repeat under the newer one."""
        return reply.epoch == opened.epoch

    def _renew(self, opened: _Open) -> None:
        if opened.epoch < self.table.epoch:
            opened.epoch = self.table.epoch
            opened.answers = {g: a for g, a in opened.answers.items() if a is not Answer.STALE}

    def current(self, message: Message) -> bool:
        """Only a message whose destinations all still take messages may go out again under a new epoch (D-18)."""
        return self.table.groups.issuperset(message.destinations)

    def complete(self, message: Message, answers: dict[GroupId, Answer], *, everywhere: bool) -> bool:
        """Decided at all destinations that are left, by what they said, or one of them for all."""
        left = [group for group in message.destinations if not self.table.removed(group)]
        return everywhere or all(answers.get(group) in _DECIDED for group in left)

    def _end(self, seq: int, ending: Ending) -> Ended:
        opened = self._open.pop(seq)
        self.move_floor(seq)
        return Ended(opened.message.mid, ending, opened.offsets)

    def move_floor(self, seq: int) -> None:
        """`seq` is decided at all destinations; the floor follows without a gap."""
        self._decided.add(seq)
        while self.floor + 1 in self._decided:
            self.floor += 1
            self._decided.discard(self.floor)


def _ending(answers: dict[GroupId, Answer]) -> Ending:
    if Answer.DELIVERED in answers.values():
        return Ending.DELIVERED
    if Answer.FAILED in answers.values():
        return Ending.FAILED
    return Ending.DECIDED
