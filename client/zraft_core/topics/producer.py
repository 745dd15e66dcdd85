"""Decisions of a producer's library: numbers, repeats, outcomes and the floor.

Pure.

A message is sent until every destination has answered for good. Only then its number is below the floor, with which groups
forget it (D-8b); until then a repeat is recognised wherever it arrives.

An *ordered* message comes behind all that was sent before. Where no partition alone keeps it there, it is staged at its
destinations, and a round puts it in order together with what else is staged by then (docs/explanation/topics.md, "Rounds").
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from enum import Enum

from attrs import evolve, frozen

from zraft_core.errors import ZraftError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.message import After, Condition, Message, Round
from zraft_core.topics.messages import Answer, Reply, StartRequest
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId


class Reach(Enum):
    """Choice of whom a message is sent to. The others learn it from the first, a step later."""

    ALL = "all"
    ONE = "one"


class Ending(Enum):
    """Final outcomes of a message."""

    DELIVERED = "delivered"
    """At all destinations: it precedes, wherever both are addressed, whatever is multicast from now on (D-17c)."""
    FAILED = "failed"
    """Its condition did not hold: it is delivered nowhere."""
    DECIDED = "decided"
    """One of these two; nobody remembers which."""
    NEVER = "never"
    """The message is not delivered, and never will be: a destination was deleted before it arrived."""
    UNKNOWN = "unknown"
    """All destinations are removed; there is nobody left to ask."""


class WindowFullError(ZraftError):
    """Error of a message for which the producer's window has no room; wait for an outcome first."""

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

    __slots__ = (
        *("accepted", "answers", "behind", "causal", "epoch", "last_of_all", "message", "offsets"),
        "staged",
    )

    def __init__(self, message: Message, epoch: int, behind: int | None = None) -> None:
        self.message = message
        self.epoch = epoch
        self.behind = behind
        """The number of a message without a common destination that must be decided first (D-17a)."""
        self.last_of_all = self.causal = False
        """It is not sent before everything that was sent before it is decided; its stamp is to be above theirs."""
        self.staged: set[GroupId] | None = None
        """The destinations at which it is staged; None if it is sent to be begun."""
        self.answers: dict[GroupId, Answer] = {}
        self.offsets: dict[GroupId, int] = {}
        self.accepted = False


_DECIDED = frozenset((Answer.DELIVERED, Answer.FAILED, Answer.DECIDED))


class ProducerCore:
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
        self.rounds = False
        """True if partitions know rounds. Set while nothing is undecided; without, ordered messages go one at
        a time.
        """
        self.time = 0
        """The time up to which stamps of decided messages are known."""
        self._window = window
        self._numbers: Counter[GroupId] = Counter()
        self._open: dict[int, _Open] = {}
        self._decided: set[int] = set()
        self._direct: dict[int, None] = {}
        """Undecided messages that are sent to be begun, rounds excepted, in order."""
        self._run: GroupId | None = None
        """The partition to which alone all of these go, one behind the other."""
        self._staged: dict[int, None] = {}
        """Undecided messages that no round has put in order yet, in order."""
        self._round: int | None = None
        """The number of the round under way: one at a time, so that rounds need no order among them."""
        self._numbers_of_rounds: deque[int] = deque()
        """Those above the floor."""
        self._newly_accepted: list[int] = []

    # -- what to send

    @property
    def room(self) -> int:
        """The number of messages that the window still has room for; rounds take none of it."""
        return self.floor + self._window - self.last + len(self._numbers_of_rounds)

    @property
    def has_room(self) -> bool:
        """True if the window has room for a message."""
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
        ordered: bool = False,
        causal: bool = False,
        records: int = 0,
    ) -> Message:
        """Take a message; `requests` says what to send for it. `after` is an earlier one of this producer.

        `records`: how many the payload holds as a batch, 0 if it is none. `ordered`: it comes behind everything that was
        sent before, in every partition; `causal`: with a stamp above theirs.

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
                f"{self._window - self.room} messages of producer {self.producer} are undecided: wait for one"
            )
        number = 0
        if len(groups) == 1:
            self._numbers[groups[0]] += 1
            number = self._numbers[groups[0]]
        mid = MessageId(self.producer, self.last + 1)
        if causal:
            depends = max(depends, self.time)
        if ordered:
            message = Message(
                mid, groups, payload, number, None, condition, depends, partitions, records=records
            )
            opened = _Open(message, self.table.epoch)
            if self._open and not self._follows(message):
                if message.may_be_staged:
                    opened.staged = set()
                else:
                    opened.last_of_all, opened.causal = True, causal
        else:
            behind, named = self._order(groups, after)
            message = Message(
                mid, groups, payload, number, named, condition, depends, partitions, records=records
            )
            opened = _Open(message, self.table.epoch, behind)
        self._add(opened)
        return message

    def _add(self, opened: _Open) -> None:
        message = opened.message
        seq = self.last = message.mid.seq
        if opened.staged is not None:
            self._staged[seq] = None
        elif message.round is None:
            alone = message.destinations[0] if message.is_single else None
            self._run = alone if not self._open or self._run == alone else None
            self._direct[seq] = None
        self._open[seq] = opened

    def _follows(self, message: Message) -> bool:
        """Return whether everything undecided goes where this message goes, and nowhere else.

        The numbers of that partition order them then.
        """
        return (
            message.is_single
            and message.destinations[0] == self._run
            and len(self._direct) == len(self._open)
        )

    def take_round(self, destinations_max: int) -> Message | None:
        """Return the next round, if there is something to put in order: `requests` says what to send for it.

        It has what is staged at all its destinations, without a gap, and with nothing undecided before it. While it is under
        way more is staged for the next one.
        """
        if self._round is not None or not self._staged or self.expired:
            return None
        groups: set[GroupId] = set()
        depends, first, upto = self.time, 0, 0
        direct = next(iter(self._direct), self.last + 1)
        for seq in self._staged:
            opened = self._open[seq]
            more = groups.union(opened.message.destinations)
            if seq > direct or self._unstaged(opened) or (groups and len(more) > destinations_max):
                break
            groups, first, upto = more, first or seq, seq
            depends = max(depends, opened.message.depends)
        if not upto:
            return None
        mid = MessageId(self.producer, self.last + 1)
        self._round = mid.seq
        self._numbers_of_rounds.append(mid.seq)
        for seq in range(first, upto + 1):
            self._staged.pop(seq, None)
        round_ = Message(mid, tuple(sorted(groups)), depends=depends, round=Round(first, upto))
        self._add(_Open(round_, self.table.epoch))
        return round_

    def _unstaged(self, opened: _Open) -> list[GroupId]:
        """Return the destinations that have not said that they have it staged."""
        assert opened.staged is not None
        return [
            g for g in opened.message.destinations if g not in opened.staged and not self.table.removed(g)
        ]

    def _order(self, groups: tuple[GroupId, ...], after: Message | None) -> tuple[int | None, After | None]:
        """Return the message's order: behind which messages it comes.

        Behind a message with a common destination the groups put it; behind another the library
        waits.
        """
        if after is None or after.mid.seq not in self._open:
            return None, None
        if set(groups).intersection(after.destinations):
            return None, After(after.mid, after.destinations)
        return after.mid.seq, None

    def undecided(self) -> list[int]:
        """Return the numbers of the messages that are not decided."""
        return list(self._open)

    def requests(self, seq: int) -> list[tuple[GroupId, StartRequest]]:
        """Return what to send for a message now, the first time or again."""
        opened = self._open.get(seq)
        if opened is None or self.expired or self.waits(seq):
            return []
        if opened.last_of_all:
            # Nobody has heard of it yet, and now all stamps before its own are known.
            opened.last_of_all = False
            if opened.causal:
                opened.message = evolve(opened.message, depends=max(opened.message.depends, self.time))
        if opened.staged is not None:
            request = StartRequest(opened.message, self.floor, opened.epoch, staged=True)
            return [(group, request) for group in self._unstaged(opened)]
        message = opened.message
        left = [group for group in message.destinations if not self.table.removed(group)]
        request = StartRequest(message, self.floor, opened.epoch, self.reach is Reach.ONE)
        if self.reach is Reach.ALL:
            # Destinations that have said what became of it need not be asked again, unless all have: then
            # some other group is removed.
            asked = [group for group in left if opened.answers.get(group) not in _DECIDED] or left
            return [(group, request) for group in asked]
        after = message.after
        named = [group for group in left if after is None or group in after.destinations]
        fresh = [group for group in left if opened.answers.get(group) is not Answer.STALE]
        entries = [group for group in named if group in fresh] or fresh or left
        return [(entries[seq % len(entries)], request)] if entries else []

    def waits(self, seq: int) -> bool:
        """Return whether the message waits here until others are decided."""
        opened = self._open.get(seq)
        if opened is None:
            return False
        return opened.behind in self._open or (opened.last_of_all and self.floor < seq - 1)

    # -- what is heard

    def on_table(self, table: Table) -> list[Ended]:
        """Take the table of groups, as group 0 has it now, and return the messages that are decided by it."""
        if table.position <= self.table.position:
            self.table_wanted = self.table_wanted and table.position < self.table.position
            return []
        self.table, self.table_wanted = table, False
        ended: list[Ended] = []
        for seq, opened in list(self._open.items()):
            message = opened.message
            if seq not in self._open:
                continue  # it ended with its round
            if self.current(message):
                self._renew(opened)
            elif all(map(table.removed, message.destinations)):
                ended += self._end(seq, Ending.UNKNOWN)
        return [*ended, *self._given_up()]

    def on_reply(self, reply: Reply) -> list[Ended]:
        """Take a destination's answer, and return what is decided by it: one message, or all of a round."""
        seq = reply.mid.seq
        opened = self._open.get(seq)
        if opened is None or reply.mid.producer != self.producer or self.expired:
            return []
        match reply.answer:
            case Answer.STAGED:
                if opened.staged is not None:
                    opened.staged.add(reply.sender)
            case Answer.EXPIRED:
                self.expired = True
            case Answer.STALE:
                return self._refused(opened, reply)
            case Answer.ACCEPTED:
                self.accepted(opened)
            case Answer.DELIVERED | Answer.FAILED | Answer.DECIDED:
                if opened.staged is not None:
                    return []  # its round is said to be everywhere, or not
                # Above 0, which would be no claim to anything.
                self.time = max(self.time, reply.time, 1)
                opened.answers[reply.sender] = reply.answer
                if reply.offset is not None:
                    opened.offsets[reply.sender] = reply.offset
                if self.complete(opened.message, opened.answers, everywhere=reply.everywhere):
                    if opened.message.round is not None and self.table.epoch < reply.view_epoch:
                        # Who says "everywhere" may know of a partition that is gone, and what went there alone is not
                        # delivered anywhere.
                        self.table_wanted = True
                        return []
                    return self._end(seq, _ending(opened.answers))
            case Answer.RETRY | Answer.BUSY:
                pass
        return []

    def undecided_at(self, seq: int) -> list[GroupId]:
        """Return the destinations that have not said what became of a message; none once it is decided."""
        opened = self._open.get(seq)
        if opened is None:
            return []
        return [g for g in opened.message.destinations if opened.answers.get(g) not in _DECIDED]

    def is_accepted(self, seq: int) -> bool:
        """Return whether some destination has begun the message, so that it will be decided."""
        opened = self._open.get(seq)
        return opened is not None and opened.accepted

    def take_accepted(self) -> list[int]:
        """Return the numbers of messages of which `is_accepted` has become true."""
        found, self._newly_accepted = self._newly_accepted, []
        return found

    def accepted(self, opened: _Open) -> None:
        """Note that a destination has begun the message; for a round, also the messages that it orders."""
        if opened.accepted:
            return
        opened.accepted = True
        self._newly_accepted.append(opened.message.mid.seq)
        if opened.message.round is not None:
            for one in self._put_in_order_by(opened.message):
                self.accepted(one)

    def _put_in_order_by(self, message: Message) -> list[_Open]:
        """Return the messages of a round that are not decided."""
        assert message.round is not None
        numbers = range(message.round.first, message.round.upto + 1)
        return [
            self._open[seq] for seq in numbers if seq in self._open and self._open[seq].staged is not None
        ]

    def _refused(self, opened: _Open, reply: Reply) -> list[Ended]:
        """Take a refusal. One alone is not final: another destination may have begun the message (D-9c)."""
        if not self.counts(opened, reply):
            return []
        if self.table.epoch < reply.view_epoch:
            self.table_wanted = True
            return []
        if self.current(opened.message):
            self._renew(opened)
            return []
        if opened.staged is not None:
            return self._given_up()
        opened.answers[reply.sender] = reply.answer
        destinations = opened.message.destinations
        if reply.everywhere or all(opened.answers.get(g) is Answer.STALE for g in destinations):
            return self._end(reply.mid.seq, Ending.NEVER)
        return []

    def _given_up(self) -> list[Ended]:
        """End what no round will put in order, because a destination is deleted: nothing of it is begun anywhere.

        What a round under way names is for that round to decide.
        """
        lost = [seq for seq in self._staged if not self.current(self._open[seq].message)]
        return [ended for seq in lost for ended in self._end(seq, Ending.NEVER)]

    def counts(self, opened: _Open, reply: Reply) -> bool:
        """Return whether a refusal counts.

        A late refusal of an older epoch says nothing: the group may have taken the repeat under the
        newer one.
        """
        return reply.epoch == opened.epoch

    def _renew(self, opened: _Open) -> None:
        if opened.epoch < self.table.epoch:
            opened.epoch = self.table.epoch
            opened.answers = {g: a for g, a in opened.answers.items() if a is not Answer.STALE}

    def current(self, message: Message) -> bool:
        """Return whether all destinations still take messages.

        Only then may it be sent again under a new epoch (D-18).
        """
        return self.table.groups.issuperset(message.destinations)

    def complete(self, message: Message, answers: dict[GroupId, Answer], *, everywhere: bool) -> bool:
        """Return whether all remaining destinations have decided by these answers, or one of them for all."""
        left = [group for group in message.destinations if not self.table.removed(group)]
        return everywhere or all(answers.get(group) in _DECIDED for group in left)

    def _end(self, seq: int, ending: Ending) -> list[Ended]:
        opened = self._open.pop(seq)
        self._direct.pop(seq, None)
        self._staged.pop(seq, None)
        self.move_floor(seq)
        ended = [Ended(opened.message.mid, ending, opened.offsets)]
        if opened.message.round is not None:
            ended += self._end_round(opened, ending)
        return ended

    def _end_round(self, round_: _Open, ending: Ending) -> list[Ended]:
        self._round = None
        members = self._put_in_order_by(round_.message)
        if ending in (Ending.NEVER, Ending.UNKNOWN):
            # Nothing was begun: the next round takes what still can be.
            self._staged = dict.fromkeys(sorted([*self._staged, *(one.message.mid.seq for one in members)]))
            return self._given_up()
        following = dict(round_.offsets)
        ended: list[Ended] = []
        for one in members:
            for group in one.message.destinations:
                if group in following:
                    one.offsets[group] = following[group]
                    following[group] += one.message.span
            there = not self.table.groups.union(round_.answers).isdisjoint(one.message.destinations)
            ended += self._end(one.message.mid.seq, Ending.DELIVERED if there else Ending.UNKNOWN)
        return ended

    def move_floor(self, seq: int) -> None:
        """Note that `seq` is decided at all destinations; the floor follows without a gap."""
        self._decided.add(seq)
        while self.floor + 1 in self._decided:
            self.floor += 1
            self._decided.discard(self.floor)
        rounds = self._numbers_of_rounds
        while rounds and rounds[0] <= self.floor:
            rounds.popleft()


def _ending(answers: dict[GroupId, Answer]) -> Ending:
    if Answer.DELIVERED in answers.values():
        return Ending.DELIVERED
    if Answer.FAILED in answers.values():
        return Ending.FAILED
    return Ending.DECIDED
