"""The replicated state of one partition of a topic: a pure function of its group's committed log.

Stamps are proposed and fixed by commands (docs/explanation/topics.md, "The state of a group"). Nothing here knows of
leaders, messages between groups, clocks or disks: what follows from a batch comes back as `Applied`.
"""

from __future__ import annotations

from typing import Final

from zraft.topics.applied import Applied, BrokenGroupError, StartVerdict
from zraft.topics.chain import encoded_digest, first_link, message_digest, next_link
from zraft.topics.pending import Involved, Pending, PendingMessage, SettledEntries
from zraft.topics.rows import FAILED, ProducerRow
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import encode_message
from zraft_core.topics.commands import (
    Advance,
    Attest,
    Batch,
    PartitionCommand,
    Remote,
    Seek,
    Settled,
    Stage,
    Start,
    ViewChanged,
)
from zraft_core.topics.message import Delivery, Message, Round, without_payload
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import AFTER_ALL_GROUPS, BEGINNING, FinalTime, MessageId, Stamp
from zraft_core.topics.view import AnyView, LoggedView, View

NO_ROW: Final = ProducerRow()
"""Stands for the row of a producer that is not known here. Never changed."""


class Partition:
    """State of one group. `born` is False for a partition that is being added to a topic, until it delivered the change."""

    __slots__ = (
        *(
            "_begun",
            "_delivered",
            "_everywhere",
            "_failed",
            "_fixed",
            "_log_time_ms",
            "_position",
            "_released",
            "_staged",
            "_unlisted",
        ),
        *(
            "born",
            "chain",
            "clock",
            "conflicts",
            "floor",
            "floors",
            "group",
            "involved",
            "next_offset",
            "offsets",
        ),
        *("pending", "rows", "settings", "settled", "staged_bytes", "sub", "view"),
    )

    def __init__(
        self,
        group: GroupId,
        view: View,
        *,
        born: bool = True,
        settings: PartitionSettings | None = None,
        first_offset: int = 0,
        first_time: int = 0,
    ) -> None:
        """Begin as the group's creation in group 0's log makes it: `view` is as of that position (D-8d).

        Args:
            born: it takes messages at once, not only when the change that adds it to its topic is delivered.
            settings: the limits as of its creation.
            first_offset: that of its first delivery.
            first_time: its stamps are above that time.
        """
        self.group = group
        self.settings = settings or PartitionSettings()
        self.view = LoggedView(view)
        self.born = born
        self.clock = first_time
        """Nothing that starts later is proposed a time up to this one."""
        self.floor = BEGINNING
        """Nothing that is agreed on will be delivered up to this time."""
        self.sub = 0
        self.next_offset = first_offset
        self.chain = first_link(group)
        self.conflicts = 0
        """Proposals for a message that is another one here: a producer used an id twice."""
        self.pending = Pending(group)
        self.settled = SettledEntries()
        self.involved = Involved()
        self.rows: dict[ProducerId, ProducerRow] = {}
        self.floors: dict[GroupId, FinalTime] = {}
        self.offsets: dict[bytes, int] = {}
        self.staged_bytes = 0
        """Payloads that wait for their rounds; follows from the rows."""
        self._unlisted: set[ProducerId] = set()
        """Rows of producers that the view does not name: registered since, or nobody's. Follows from rows and view."""
        self._log_time_ms = 0
        self._position = 0
        self._begun: list[PendingMessage] = []
        self._fixed: list[PendingMessage] = []
        self._delivered: list[Delivery] = []
        self._failed: list[MessageId] = []
        self._everywhere: list[MessageId] = []
        self._staged: list[MessageId] = []
        self._released: list[tuple[MessageId, int]] = []

    def apply(self, batch: Batch, position: int) -> Applied:
        """Take one committed entry; `position` is that of its first command.

        Raises:
            BrokenGroupError: a group proposes a second time for one message, or a time that was passed.
        """
        self._log_time_ms = max(self._log_time_ms, batch.log_time_ms)
        self._begun, self._fixed, self._delivered, self._failed, self._everywhere = [], [], [], [], []
        self._staged, self._released = [], []
        for self._position, command in enumerate(batch.commands, position):
            if type(command) is Start:  # nearly all are, and of these nearly all are plainly next
                message, floor = command.message, command.floor
                row = self.next_row(message, floor, command.epoch)
                if row is not None:
                    self._deliver_next(message, row)
                    if floor > row.floor:
                        self._raise_floor(message.mid[0], floor)
                    continue
            self._apply(command)
        if self._unlisted and self._everywhere:
            for producer in self._unlisted.intersection(mid.producer for mid in self._everywhere):
                self._drop_row(producer)
        return Applied(
            batch.commands,
            tuple(self._begun),
            tuple(self._fixed),
            tuple(self._delivered),
            tuple(self._failed),
            tuple(self._everywhere),
            tuple(self._staged),
            tuple(self._released),
        )

    def _apply(self, command: PartitionCommand) -> None:
        match command:
            case Remote():  # most are
                self._remote(command)
                self._raise_floor(command.mid[0], command.floor)
            case Start(message, floor, epoch):
                if self.admits(message, floor, epoch):
                    self._begin(message)
                self._raise_floor(message.mid[0], floor)
            case Stage(message, floor, epoch):
                if self.stages(message, floor, epoch):
                    self._stage(message)
                self._raise_floor(message.mid[0], floor)
            case Advance(time):
                self._advance(time)
            case Settled(group, floor):
                self._reached(group, floor)
            case ViewChanged(view):
                self._on_view(view)
            case Seek(consumer, offset):
                self._seek(consumer, offset)
            case Attest():
                self._testified(command)

    # -- what nearly all messages are

    def next_row(self, message: Message, floor: int, epoch: int, last: int = 0) -> ProducerRow | None:
        """Return the producer's row if a message is plainly the next one of its producer to this partition alone.

        Such a message is admitted and takes the bypass. None says nothing: `verdict` and `_begin` look closer.

        Args:
            last: the number of the last message of the producer to this group alone that is in the log, if that is more
                than what was applied.
        """
        number = message.number
        if (
            not number
            or message.depends
            or message.after is not None
            or message.condition is not None
            or message.partitions is not None
        ):
            return None
        mid = message.mid
        producer, seq = mid
        row = self.rows.get(producer)
        if row is None or row.queued or number != (last if last > row.last else row.last) + 1:
            return None
        group, view, window = self.group, self.view, self.settings.window
        if (
            message.destinations[0] != group
            or seq <= row.floor
            or seq in row.outcomes
            or (seq > row.floor + window and seq > floor + window)
            or epoch < view.epoch
            or (producer not in view.producers and producer <= view.position)
            or producer in view.closed
            or group not in view.groups
            or not self.born
            or mid in self.pending.entries
            or mid in self.settled.entries
        ):
            return None
        return row

    def _deliver_next(self, message: Message, row: ProducerRow) -> None:
        """Deliver a message for which `next_row` gave a row: what `_begin` and `_record` come to."""
        row.last = message.number
        self.sub += 1
        encoded = encode_message(message)
        digest = encoded_digest(encoded)
        self._begun.append(PendingMessage(message, digest, 0, False, self._log_time_ms))
        offset = self.next_offset
        stamp = Stamp(*self.floor, self.sub, self.group)
        row.outcomes[message.mid[1]] = offset
        self.next_offset = offset + (message.records or 1)
        self.chain = next_link(self.chain, offset, stamp, digest)
        self._delivered.append(Delivery(offset, stamp, message, self._position, encoded, digest))

    # -- what is known, what is admitted

    def retired(self, producer: ProducerId) -> bool:
        """Return whether the producer is closed, and nothing of it is left anywhere."""
        return self.view.retired(producer)

    def known(self, mid: MessageId) -> bool:
        """Return whether a message was begun here, or decided, or its producer's are all decided.

        It is not to be begun again then (D-8a).
        """
        producer, seq = mid
        row = self.rows.get(producer)
        if row is not None and row.decided(seq):
            return True
        return mid in self.pending.entries or mid in self.settled.entries or self.retired(producer)

    def verdict(self, message: Message, floor: int, epoch: int) -> StartVerdict:
        """Judge a START by this group's log alone (D-9a). A refusal for good comes before "not yet" (D-18)."""
        producer = message.mid.producer
        if self.known(message.mid):
            return StartVerdict.KNOWN
        if producer in self.view.closed:
            return StartVerdict.EXPIRED
        if epoch < self.view.epoch or self.view.any_removed(message.destinations):
            return StartVerdict.STALE
        if not (self.expects(message, floor) and self.in_turn(message) and self.follows(message, floor)):
            return StartVerdict.RETRY
        return StartVerdict.ADMIT

    def admits(self, message: Message, floor: int, epoch: int) -> bool:
        """Return whether a START may be logged now."""
        return (
            self.group in message.destinations and self.verdict(message, floor, epoch) is StartVerdict.ADMIT
        )

    def verdict_staged(self, message: Message, floor: int, epoch: int) -> StartVerdict:
        """Return the verdict on a message that is to be staged.

        Its order is left to its round.
        """
        if self.known(message.mid):
            return StartVerdict.KNOWN
        if message.mid.producer in self.view.closed:
            return StartVerdict.EXPIRED
        if epoch < self.view.epoch or self.view.any_removed(message.destinations):
            return StartVerdict.STALE
        return StartVerdict.ADMIT if self.expects(message, floor, staged=True) else StartVerdict.RETRY

    def stages(self, message: Message, floor: int, epoch: int) -> bool:
        """Return whether a message may be staged now."""
        return (
            self.group in message.destinations
            and message.may_be_staged
            and not self.is_staged(message.mid)
            and self.verdict_staged(message, floor, epoch) is StartVerdict.ADMIT
        )

    def is_staged(self, mid: MessageId) -> bool:
        """Return whether the message is staged here."""
        return mid.seq in self.rows.get(mid.producer, NO_ROW).staged

    def expects(self, message: Message, floor: int, *, staged: bool = False) -> bool:
        """Return whether all destinations exist, as far as is logged here, and the number is in the window."""
        row = self.rows.get(message.mid.producer, NO_ROW)
        # Numbers of rounds lie among those of what they put in order, which alone may fill the window.
        window = self.settings.window * (2 if staged or message.round is not None else 1)
        return (
            self.takes(message)
            and message.mid.seq <= max(row.floor, floor) + window
            and self.view.groups.issuperset(message.destinations)
        )

    def takes(self, message: Message) -> bool:
        """Return whether the partition takes a message.

        A partition added to a topic takes nothing before the change itself, not even from another
        group (D-17d).
        """
        return self.born or message.partitions is not None

    def in_turn(self, message: Message) -> bool:
        """Return whether the message is next in turn: messages to this group alone have no gap (D-17b)."""
        return not message.is_single or message.number == self.rows.get(message.mid.producer, NO_ROW).last + 1

    def follows(self, message: Message, floor: int) -> bool:
        """Return whether what `after` names lets the message begin here.

        Only a group that `after` names, and where that message is decided, may be the first to
        begin this one (D-17a).
        """
        after = message.after
        if after is None:
            return True
        decided = after.mid not in self.pending and self.known(after.mid)
        return (self.group in after.destinations and decided) or (
            after.mid.producer == message.mid.producer and after.mid.seq <= floor
        )

    # -- stamping

    def _begin(self, message: Message) -> None:
        row = self._row(message.mid.producer)
        void = self._judge(message)
        digest = message_digest(message)
        if message.is_single:
            row.last = message.number
            if self._bypasses(message, row):
                self.sub += 1
                entry = PendingMessage(message, digest, 0, void, self._log_time_ms)
                self._begun.append(entry)
                self._record(entry, Stamp(*self.floor, self.sub, self.group))
                return
            row.queued += 1
        self._raise_clock(message.depends)
        self.clock += 1
        entry = PendingMessage(message, digest, self.clock, void, self._log_time_ms)
        entry.proposals[self.group] = self.clock
        self.pending.add(entry)
        self.involved.began(message)
        self._begun.append(entry)
        self._fix(entry)

    def _stage(self, message: Message) -> None:
        entry = PendingMessage(message, message_digest(message), 0, False, self._log_time_ms)
        self._row(message.mid.producer).stage(entry)
        self.staged_bytes += len(message.payload)
        self._staged.append(message.mid)

    def _row(self, producer: ProducerId) -> ProducerRow:
        row = self.rows.get(producer)
        if row is None:
            row = self.rows[producer] = ProducerRow()
            if not self.view.names(producer):
                self._unlisted.add(producer)
        return row

    def _bypasses(self, message: Message, row: ProducerRow) -> bool:
        """Return whether a message goes before everything pending.

        It does if it depends on nothing, and overtakes none of its producer that does.
        """
        return not message.depends and not row.queued

    def _judge(self, message: Message) -> bool | None:
        """Test the condition and take its effect, at its home, once, when the message begins; others are told (D-9d)."""
        condition = message.condition
        if condition is None:
            return False
        if condition.home != self.group:
            return None
        return not self._consume(condition.consumer, condition.expected, condition.following)

    def _consume(self, consumer: bytes, expected: int, following: int) -> bool:
        if self.offsets.get(consumer, 0) != expected:
            return False
        if consumer not in self.offsets and len(self.offsets) >= self.settings.consumers_max:
            return False
        self.offsets[consumer] = following
        return True

    def _remote(self, remote: Remote) -> None:
        """Take a proposal.

        It is never refused: the sender has committed the message (D-9b).

        A partition not yet born lets it be repeated.
        """
        view, sender = self.view, remote.sender
        if (sender not in view.groups or sender in view.given_up) and view.silenced(sender):
            return  # G-2: what it had proposed and this group knows was known before
        entry = self.pending.entries.get(remote.mid)
        if entry is None:
            message = remote.message
            if self.known(remote.mid) or message is None or not self._concerns(remote, message):
                return
            self._begin(message)
            entry = self.pending.entries[remote.mid]
        if entry.digest != remote.digest:
            self.conflicts += 1
        if sender not in entry.message.destinations or sender == self.group:
            return
        held = entry.proposals.get(sender)
        if held is None:
            self.pending.proposed(entry, sender, remote.time)
        elif held != remote.time:
            raise BrokenGroupError(
                f"group {self.group}: group {sender} proposed {held} and now {remote.time} for message "
                f"{remote.mid.seq} of producer {remote.mid.producer}; it lost a part of its log: stop its servers "
                "and compare their data directories with a backup"
            )
        if remote.void is not None:
            entry.void = remote.void
        self._fix(entry)

    def _concerns(self, remote: Remote, message: Message) -> bool:
        return (
            self.takes(message)
            and self.group in message.destinations
            and remote.sender in message.destinations
            and remote.sender != self.group
        )

    def _fix(self, entry: PendingMessage) -> None:
        """Fix the final time once all have proposed: the largest proposal.

        Then deliver what is first and final.
        """
        if entry.final is None and (
            len(entry.proposals) == len(entry.message.destinations)
            or (self.view.given_up and self._decides_without(entry))
        ):
            entry.final = self.final_time(entry.proposals)
            self._fixed.append(entry)
            self._raise_clock(entry.final.time)
            self._deliver()

    # -- without groups that are given up (docs/decisions/0012)

    def given_up_of(self, message: Message) -> list[GroupId]:
        """Return those destinations of a message that are given up."""
        given_up = self.view.given_up
        return [group for group in message.destinations if group in given_up] if given_up else []

    def lacks_testimony(self, entry: PendingMessage) -> list[GroupId]:
        """Return the destinations that have not told, as of this group's view, what they know (G-3, G-4)."""
        given_up, testified, epoch = self.view.given_up, entry.testified or {}, self.view.epoch
        return [
            group
            for group in entry.message.destinations
            if group != self.group and group not in given_up and testified.get(group, -1) < epoch
        ]

    def _decides_without(self, entry: PendingMessage) -> bool:
        """Do without proposals that nobody knows who is left; return whether nothing else is missing."""
        missing = [group for group in entry.message.destinations if group not in entry.proposals]
        if not self.view.given_up.issuperset(missing) or self.lacks_testimony(entry):
            return False
        self.pending.forgo(entry)
        if entry.void is None:
            entry.void = True  # the home of its condition is given up, and nobody knows what it said
        return True

    def _testified(self, testimony: Attest) -> None:
        entry = self.pending.entries.get(testimony.mid)
        sender = testimony.sender
        if entry is None or sender not in entry.message.destinations or sender == self.group:
            return
        if self.view.silenced(sender):
            return  # G-4
        if entry.testified is None:
            entry.testified = {}
        entry.testified[sender] = max(testimony.epoch, entry.testified.get(sender, 0))
        for group, time in testimony.known:
            if group in entry.message.destinations and group not in entry.proposals:
                self.pending.proposed(entry, group, time)
        if testimony.void is not None:
            entry.void = testimony.void
        self._fix(entry)

    def _go_on_without(self, groups: tuple[GroupId, ...]) -> None:
        for group in groups:
            self.floors.pop(group, None)
            self._forgo(group)
        for entry in list(self.pending.entries.values()):
            if self.given_up_of(entry.message):
                self._fix(entry)

    def final_time(self, proposals: dict[GroupId, int]) -> FinalTime:
        """Return the final time of these proposals.

        It is the same at all destinations, and of no other message: a group proposes each time
        once.
        """
        largest, by = 0, GroupId(0)
        for group, time in proposals.items():
            if time > largest or (time == largest and group > by):
                largest, by = time, group
        return FinalTime(largest, by)

    def _raise_clock(self, time: int) -> None:
        if time > self.clock:
            self.clock = time

    def _deliver(self) -> None:
        while (entry := self.pending.pop_deliverable()) is not None:
            final = entry.final
            assert final is not None
            if final <= self.floor:
                raise BrokenGroupError(
                    f"group {self.group}: message {entry.mid.seq} of producer {entry.mid.producer} is final at "
                    f"{tuple(final)}, behind the floor {tuple(self.floor)}; some destination lost a part of its log"
                )
            self.floor, self.sub = final, 0
            if entry.message.is_single:
                self.rows[entry.mid.producer].queued -= 1
            self._settle(entry)
            if entry.message.round is None:
                self._record(entry, Stamp(*final, 0, GroupId(0)))
            else:
                self._release(entry.mid, entry.message, entry.message.round, final)
            if entry.waiting:
                # Whoever still asks for it has begun it, and so has the payload.
                entry.message = without_payload(entry.message)

    def _release(self, mid: MessageId, message: Message, round: Round, final: FinalTime) -> None:
        """Deliver what the round puts in order, at its place and in the order of the producer's numbers.

        The same message has the same stamp wherever it goes; what takes the bypass here afterwards has one above all of the
        round's, also those at other groups.
        """
        row = self._row(mid.producer)
        if mid.seq > row.floor:
            row.outcomes[mid.seq] = self.next_offset
        self._released.append((mid, self.next_offset))
        before = row.staged_bytes
        for staged in row.unstaged(round.upto):
            one = staged.message
            if one.mid.seq < round.first or not set(one.destinations).issubset(message.destinations):
                continue  # its producer gave it up
            if one.is_single:
                row.last = one.number
            self._record(staged, Stamp(*final, one.mid.seq - round.first + 1, GroupId(0)))
        self.staged_bytes -= before - row.staged_bytes
        self.sub = round.places

    def _record(self, entry: PendingMessage, stamp: Stamp) -> None:
        message = entry.message
        producer, seq = message.mid
        row = self._row(producer)
        offset = FAILED if entry.void else self.next_offset
        if seq > row.floor:
            row.outcomes[seq] = offset
        if message.partitions is not None:
            self.born = True
        if entry.void:
            self._failed.append(message.mid)
            return
        self.next_offset += message.span
        self.chain = next_link(self.chain, offset, stamp, entry.digest)
        self._delivered.append(Delivery(offset, stamp, message, self._position))

    def _advance(self, time: int) -> None:
        """Advance up to `time`, but not past what is pending and may still get any time above this group's proposal."""
        oldest = self.pending.oldest()
        if oldest is not None:
            time = min(time, oldest.time - 1)
        self._advance_to(time)

    def _advance_to(self, time: int) -> None:
        if time > self.floor.time:
            self.floor, self.sub = FinalTime(time, AFTER_ALL_GROUPS), 0
            self._raise_clock(time)

    def frontier(self) -> Stamp:
        """Return a stamp that every later delivery here is above."""
        return Stamp(*self.floor, self.sub, self.group if self.sub else GroupId(0))

    # -- forgetting

    def _settle(self, entry: PendingMessage) -> None:
        waiting = entry.waiting = set(entry.message.destinations)
        waiting.discard(self.group)
        if self.view.given_up:
            waiting.difference_update(self.view.given_up)
        if not self.view.groups.issuperset(waiting):
            waiting.difference_update([group for group in waiting if self.view.removed(group)])
        self.settled.keep(entry, self.floors)
        if not entry.waiting:
            self._done(entry)

    def _reached(self, group: GroupId, floor: FinalTime) -> None:
        if (
            self.view.removed(group)
            or group in self.view.given_up
            or floor <= self.floors.get(group, BEGINNING)
        ):
            return
        self.floors[group] = floor
        for entry in self.settled.reached(group, floor):
            self._done(entry)

    def _done(self, entry: PendingMessage) -> None:
        self.involved.ended(entry.message)
        self._everywhere.append(entry.mid)

    def _raise_floor(self, producer: ProducerId, floor: int) -> None:
        """Raise a producer's floor.

        This never makes a row: a late message of a retired producer must leave nothing behind
        (D-8b).
        """
        row = self.rows.get(producer)
        if row is not None and floor > row.floor:
            before = row.staged_bytes
            row.raise_floor(floor)
            self.staged_bytes -= before - row.staged_bytes

    def _on_view(self, view: AnyView) -> None:
        gone = self.view.adopt(view)
        if gone is None:
            return
        self._unlisted.update(gone.producers)
        for producer in list(self._unlisted):
            self._drop_row(producer)
        for group in gone.groups:
            self.floors.pop(group, None)
            self._forgo(group)
        if gone.given_up:
            self._go_on_without(gone.given_up)

    def _drop_row(self, producer: ProducerId) -> None:
        """Drop the row of a producer that retired, or that never was.

        Who invents an id must not leave anything behind either.

        What is everywhere may still be settled here when its producer retires: other groups may say so first. Then the
        row goes with the last of it.
        """
        if self.view.names(producer):
            self._unlisted.discard(producer)
        elif self.retired(producer) and not self.involved.of_producer[producer]:
            self._unlisted.discard(producer)
            row = self.rows.pop(producer, None)
            self.staged_bytes -= 0 if row is None else row.staged_bytes

    def _forgo(self, group: GroupId) -> None:
        """Stop waiting for a removed group: its removal waited until it had delivered everything (D-8e)."""
        for entry in self.settled.removed(group):
            self._done(entry)

    def _seek(self, consumer: bytes, offset: int | None) -> None:
        if offset is None:
            self.offsets.pop(consumer, None)
        elif consumer in self.offsets or len(self.offsets) < self.settings.consumers_max:
            self.offsets[consumer] = offset

    def clear_producers(self) -> list[ProducerId]:
        """Return the closed producers of which nothing is pending or settled.

        When every group has said so once, there is nothing anywhere (D-8e).
        """
        return sorted(p for p in self.view.closed if not self.involved.of_producer[p])

    def clear_deleting(self) -> list[GroupId]:
        """Return the groups that are being deleted and have no message pending here."""
        return sorted(g for g in self.view.deleting if not self.involved.to_group[g])

    # -- what is exposed

    def pending_age_ms(self, log_time_ms: int) -> int:
        """Return for how long the oldest pending message has been pending at that log time, in ms."""
        oldest = self.pending.oldest()
        return 0 if oldest is None else max(0, log_time_ms - oldest.began_ms)

    @property
    def log_time_ms(self) -> int:
        """The log time of the last entry, in ms."""
        return self._log_time_ms

    # -- from a snapshot

    def restore_row(self, producer: ProducerId) -> ProducerRow:
        """Return a producer's row, to be filled from a snapshot."""
        return self._row(producer)

    def restore_staged(self, entry: PendingMessage) -> None:
        """Put back a staged message.

        Raises:
            ProtocolError: it is none of this group, or may not be staged.
        """
        message, row = entry.message, self._row(entry.mid.producer)
        if self.group not in message.destinations or not message.may_be_staged or row.decided(entry.mid.seq):
            raise ProtocolError(
                f"snapshot of group {self.group}: message {tuple(entry.mid)} cannot be a staged one"
            )
        row.stage(entry)
        self.staged_bytes += len(message.payload)

    def restore_log_time(self, log_time_ms: int) -> None:
        """Set the log time from a snapshot."""
        self._log_time_ms = log_time_ms

    def restore_pending(self, entry: PendingMessage) -> None:
        """Put back a pending message; they come in the order of their proposals.

        Raises:
            ProtocolError: it is none of this group, or out of order.
        """
        oldest_first = self.pending.newest_time < entry.time <= self.clock
        if entry.proposals.get(self.group) != entry.time or entry.mid in self.pending or not oldest_first:
            raise ProtocolError(
                f"snapshot of group {self.group}: message {tuple(entry.mid)}, proposed {entry.time}, is no next pending one"
            )
        self.pending.add(entry)
        self.involved.began(entry.message)
        if entry.message.is_single:
            self._row(entry.mid.producer).queued += 1

    def restore_settled(self, entry: PendingMessage) -> None:
        """Put back a delivered message that is kept for others; they come in the order of their final times.

        Raises:
            ProtocolError: it has no final time, or out of order.
        """
        if (
            entry.final is None
            or not self.settled.newest_final < entry.final <= self.floor
            or not entry.waiting
        ):
            raise ProtocolError(
                f"snapshot of group {self.group}: message {tuple(entry.mid)}, final at {entry.final}, is no next settled one"
            )
        self.settled.keep(entry, {})
        self.involved.began(entry.message)
