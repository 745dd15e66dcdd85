"""Decisions of the leader of a partition's group.

Values go in; commands, messages and replies come out.

Everything here may be lost at any moment. A new leader is made from the state, after an entry of its own term was applied,
and goes on where the last one was: it says again all that is pending (docs/explanation/topics.md, "The leader"). Time is in
ticks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zraft.topics.applied import Applied, StartVerdict
from zraft.topics.leader_settings import (
    Exchange,
    LeaderSettings,
    MulticastOutput,
    MulticastStatistics,
    entry_of,
)
from zraft.topics.partition import NO_ROW, Partition
from zraft.topics.pending import PendingMessage
from zraft.topics.resending import AT_ONCE, Resending
from zraft.topics.rows import FAILED
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.commands import (
    Advance,
    Attest,
    PartitionCommand,
    Remote,
    Settled,
    Stage,
    Start,
    ViewChanged,
)
from zraft_core.topics.message import Delivery, Message, may_change_topics
from zraft_core.topics.messages import (
    Answer,
    Attestation,
    FloorReport,
    GroupMessage,
    Need,
    NeedPayload,
    Propose,
    Query,
    Reply,
    Report,
    StartRequest,
    Told,
    ViewUpdate,
)
from zraft_core.topics.stamps import BEGINNING, FinalTime, MessageId


class PartitionLeader:
    """The leader of `partition`'s group. `partition` is read here and never changed."""

    def __init__(self, partition: Partition, settings: LeaderSettings | None = None) -> None:
        self.partition = partition
        self.group = partition.group
        self.settings = settings or LeaderSettings()
        self._now = 0
        self._told: dict[MessageId, set[GroupId]] = {}
        self._relayed: set[MessageId] = set()
        self._started: dict[MessageId, Message] = {}
        """STARTs in the log that are not applied yet."""
        self._started_bytes = 0
        self._numbers: dict[ProducerId, int] = {}
        self._of_producer: Counter[ProducerId] = Counter()
        self._remotes: set[tuple[MessageId, GroupId]] = set()
        self._testimonies: set[tuple[MessageId, GroupId, int]] = set()
        self._settling: dict[GroupId, FinalTime] = {}
        self._owed: dict[GroupId, FinalTime | None] = {}
        """The floor that was waited for of each group when they were last asked."""
        self._viewing = 0
        self._needed = 0
        self._advancing = 0
        self._reported: Report | None = None
        self._report_wanted = True
        self._resending = Resending(self.settings.resend_ticks, self.settings.resend_ticks_max)
        self._timed: tuple[PendingMessage, int] | None = None
        """A message, and when it was said: how long answers take is measured on one at a time."""
        self._commands: list[PartitionCommand] = []
        self._held: list[PartitionCommand] = []
        """Commands that wait for others, to share an entry with them, or until `_held_until`."""
        self._held_until = 0
        self._messages: dict[GroupId, list[GroupMessage]] = {}
        self._reports: list[Report] = []
        self._replies: list[Reply] = []
        for mid in partition.pending.entries:
            self._resending.add(mid, 0, at_once=True)

    def take(self) -> MulticastOutput:
        """Return everything since the last call; the commands go into one entry."""
        if self._held and (self._commands or self._now >= self._held_until):
            self._commands += self._held  # behind a START of the same message
            self._held = []
        output = MulticastOutput(
            tuple(self._commands), self._messages, tuple(self._reports), tuple(self._replies)
        )
        self._commands, self._messages, self._reports, self._replies = [], {}, [], []
        return output

    def statistics(self, log_time_ms: int) -> MulticastStatistics:
        """Return counts of what is pending at that log time, which goes on while nothing is appended."""
        partition = self.partition
        return MulticastStatistics(
            len(partition.pending),
            partition.pending.payload_bytes,
            partition.pending_age_ms(log_time_ms),
            len(partition.settled),
            len(self._started),
            dict(partition.pending.awaited),
        )

    # -- producers

    def on_start(self, request: StartRequest) -> None:
        """Take a producer's message, perhaps again.

        Apply decides; what is refused here would only be refused there, or is a limit.
        """
        message = request.message
        mid = message.mid
        if mid not in self._started and not request.staged and not self._is_full():
            last = self._numbers.get(mid[0], 0)
            if self.partition.next_row(message, request.floor, request.epoch, last) is not None:
                self._start(request)
                return
        if self.group not in message.destinations or not may_change_topics(message):
            self._reply(mid, Answer.STALE, request.epoch)
            return
        if mid in self._started:
            return
        if request.staged:
            self._on_stage(request)
            return
        verdict = self.partition.verdict(message, request.floor, request.epoch)
        match verdict:
            case StartVerdict.KNOWN:
                self._tell(mid, request.epoch)
            case StartVerdict.EXPIRED:
                self._reply(mid, Answer.EXPIRED, request.epoch)
            case StartVerdict.STALE:
                self._reply(mid, Answer.STALE, request.epoch, everywhere=self._final(message))
            case StartVerdict.ADMIT | StartVerdict.RETRY:
                if not self._will_do(message, request.floor):
                    self._reply(mid, Answer.RETRY, request.epoch)
                elif self._busy(message):
                    self._reply(mid, Answer.BUSY, request.epoch)
                else:
                    self._start(request)

    def _on_stage(self, request: StartRequest) -> None:
        """Take a message that is to be staged, perhaps again."""
        message, mid, epoch = request.message, request.message.mid, request.epoch
        if self.partition.is_staged(mid):
            self._reply(mid, Answer.STAGED, epoch)
            return
        match self.partition.verdict_staged(message, request.floor, epoch):
            case StartVerdict.KNOWN:
                # Its round tells whether it is everywhere.
                self._tell(mid, epoch, staged=True)
            case StartVerdict.EXPIRED:
                self._reply(mid, Answer.EXPIRED, epoch)
            case StartVerdict.STALE:
                self._reply(mid, Answer.STALE, epoch, everywhere=self._final(message))
            case StartVerdict.RETRY:
                self._reply(mid, Answer.RETRY, epoch)
            case StartVerdict.ADMIT:
                if self._has_room_to_stage(request):
                    self._taken(message)
                    self._commands.append(Stage(message, request.floor, epoch))
                else:
                    self._reply(mid, Answer.BUSY, epoch)

    def _has_room_to_stage(self, request: StartRequest) -> bool:
        partition, settings, mid = self.partition, self.settings, request.message.mid
        if self._is_full():
            return False
        row = partition.rows.get(mid.producer, NO_ROW)
        oldest = mid.seq == max(row.floor, request.floor) + 1
        return oldest or partition.staged_bytes + self._started_bytes < settings.staged_bytes_max

    def _taken(self, message: Message) -> None:
        """Note a message that goes into the log."""
        self._started[message.mid] = message
        self._started_bytes += len(message.payload)
        self._of_producer[message.mid.producer] += 1

    def _start(self, request: StartRequest) -> None:
        message = request.message
        self._taken(message)
        if message.is_single:
            self._numbers[message.mid.producer] = message.number
        if request.relayed:
            self._relayed.add(message.mid)
        self._commands.append(Start(message, request.floor, request.epoch))

    def _will_do(self, message: Message, floor: int) -> bool:
        """Return whether it is to be admitted after what is in the log before it."""
        partition = self.partition
        if not partition.expects(message, floor):
            return False
        if message.is_single:
            producer = message.mid.producer
            last = max(partition.rows.get(producer, NO_ROW).last, self._numbers.get(producer, 0))
            if message.number != last + 1:
                return False
        after = message.after
        return partition.follows(message, floor) or (after is not None and self._decided_soon(after.mid))

    def _decided_soon(self, mid: MessageId) -> bool:
        started = self._started.get(mid)
        return started is not None and started.is_single

    def _busy(self, message: Message) -> bool:
        partition, settings = self.partition, self.settings
        if self._is_full():
            return True
        if message.is_single and not message.depends:
            return False
        pending = partition.pending
        return (
            len(pending) + len(self._started) >= settings.pending_max
            or pending.payload_bytes >= settings.pending_bytes_max
            or any(pending.awaited[group] >= settings.awaited_max for group in message.destinations)
        )

    def _is_full(self) -> bool:
        settings = self.settings
        return len(self._started) >= settings.started_max or self._started_bytes >= settings.started_bytes_max

    def tell(self, mid: MessageId) -> None:
        """Say to its producer what became of a message that is known here, as if that had asked."""
        self._tell(mid, 0)

    def _tell(self, mid: MessageId, epoch: int, *, staged: bool = False) -> None:
        """Tell what became of a message that is known here.

        Of one that was `staged` nothing is said of other groups.
        """
        partition = self.partition
        if mid in partition.pending:
            self._reply(mid, Answer.ACCEPTED, epoch)
            return
        everywhere = mid not in partition.settled and not staged
        row = partition.rows.get(mid.producer, NO_ROW)
        outcome = row.outcomes.get(mid.seq)
        if partition.retired(mid.producer):
            self._reply(mid, Answer.EXPIRED, epoch, everywhere=everywhere)
        elif outcome is None:
            self._reply(mid, Answer.DECIDED, epoch, everywhere=everywhere)
        elif outcome == FAILED:
            self._reply(mid, Answer.FAILED, epoch, everywhere=everywhere)
        else:
            self._reply(mid, Answer.DELIVERED, epoch, everywhere=everywhere, offset=outcome)

    def _final(self, message: Message) -> bool:
        """Return whether an unknown message is never to be delivered: a destination is removed.

        What was begun is delivered before that (D-9c).
        """
        return any(self.partition.view.removed(group) for group in message.destinations)

    def _reply(
        self,
        mid: MessageId,
        answer: Answer,
        epoch: int,
        *,
        everywhere: bool = False,
        offset: int | None = None,
    ) -> None:
        partition = self.partition
        self._replies.append(
            Reply(
                mid, self.group, answer, everywhere, offset, epoch, partition.view.epoch, partition.floor.time
            )
        )

    # -- other groups

    def on_message(self, message: GroupMessage) -> None:
        """Take a message of another group's leader."""
        match message:
            case Propose():
                self._on_propose(message)
            case Told(mid, sender):
                if mid in self.partition.pending:
                    self._told.setdefault(mid, set()).add(sender)
            case Query(mid, sender):
                entry = self._begun(mid)
                if entry is not None:
                    self._propose(sender, entry)
                    self._testify(sender, entry)
            case Attestation():
                self._on_testimony(message)
            case NeedPayload(mid, sender):
                entry = self.partition.pending.entries.get(mid)
                if entry is not None:
                    self._propose(sender, entry, with_payload=True)
            case FloorReport(sender, floor, wanted):
                self._on_floor(sender, floor)
                if wanted:
                    self._send(sender, FloorReport(self.group, self.partition.floor, wanted=False))
            case Need(time):
                if self.partition.floor.time < time:
                    self._needed = max(self._needed, time)
            case ViewUpdate(view):
                if self.partition.view.fits(view):
                    if view.position > self._viewing:
                        self._viewing = view.position
                        self._commands.append(ViewChanged(view))
                elif view.position <= self.partition.view.position:
                    # Group 0 does not know that this one has it.
                    self._report_wanted = True

    def _begun(self, mid: MessageId) -> PendingMessage | None:
        return self.partition.pending.entries.get(mid) or self.partition.settled.entries.get(mid)

    def _on_propose(self, propose: Propose) -> None:
        partition, mid, sender = self.partition, propose.mid, propose.sender
        view = partition.view
        if (sender not in view.groups or sender in view.given_up) and view.silenced(sender):
            return
        entry = partition.pending.entries.get(mid)
        if sender in entry.proposals if entry is not None else partition.known(mid):
            self._send(sender, Told(mid, self.group))
            return
        if (mid, sender) in self._remotes:
            return
        message = propose.message
        if entry is None and mid not in self._started:
            if message is None:
                self._send(sender, NeedPayload(mid, self.group))
                return
            if not partition.takes(message):
                return
        else:
            message = None
        self._remotes.add((mid, sender))
        command = Remote(mid, sender, propose.time, propose.void, propose.floor, propose.digest, message)
        if message is None and self._waits_for_more(mid, entry):
            self._hold(command, self.settings.gather_ticks)
        else:
            self._commands.append(command)

    def _waits_for_more(self, mid: MessageId, entry: PendingMessage | None) -> bool:
        """Return whether nothing can be done with a proposal yet: others are missing, and no other message is pending.

        Another message may be delivered as soon as the known proposals of this one show that it comes later.
        """
        if len(self.partition.pending) + len(self._started) > 1:
            return False
        known = entry.proposals if entry is not None else ()
        destinations = entry.message.destinations if entry is not None else self._started[mid].destinations
        return any(
            group != self.group and group not in known and (mid, group) not in self._remotes
            for group in destinations
        )

    def _hold(self, command: PartitionCommand, ticks: int) -> None:
        """Let a command wait for another one, or for so many ticks: an entry of its own costs more than it brings."""
        until = self._now + ticks
        self._held_until = min(self._held_until, until) if self._held else until
        self._held.append(command)

    def _on_floor(self, sender: GroupId, floor: FinalTime) -> None:
        """Log a floor that lets something go, once."""
        owed = self.partition.settled.first_owed(sender)
        if owed is not None and owed <= floor and self._settling.get(sender, BEGINNING) < floor:
            self._settling[sender] = floor
            self._hold(Settled(sender, floor), self.settings.settle_ticks)

    def _propose(self, to: GroupId, entry: PendingMessage, *, with_payload: bool = False) -> None:
        self._send(to, self._proposal(entry, with_payload=with_payload))

    def _proposal(self, entry: PendingMessage, *, with_payload: bool = False) -> Propose:
        """Return what this group says of a message, the same to all of its destinations."""
        message = entry.message
        row = self.partition.rows.get(message.mid.producer, NO_ROW)
        condition = message.condition
        at_home = condition is not None and condition.home == self.group
        whole = with_payload or len(message.payload) <= self.settings.inline_bytes_max
        settled = message.mid not in self.partition.pending
        return Propose(
            message.mid,
            self.group,
            entry.time,
            entry.void if at_home else None,
            row.floor,
            entry.digest,
            # A group that asks for the proposal of a message delivered here has begun it, or it would not be
            # delivered.
            message if whole and not settled else None,
        )

    def _on_testimony(self, testimony: Attestation) -> None:
        partition, mid, sender = self.partition, testimony.mid, testimony.sender
        entry = partition.pending.entries.get(mid)
        known = mid, sender, testimony.epoch
        if (
            entry is None
            or partition.view.silenced(sender)
            or (entry.testified or {}).get(sender, -1) >= testimony.epoch
            or known in self._testimonies
        ):
            return
        self._testimonies.add(known)
        self._commands.append(Attest(mid, sender, testimony.epoch, testimony.known, testimony.void))

    def _testify(self, to: GroupId, entry: PendingMessage) -> None:
        """Tell what this group knows of the proposals of destinations that are given up, if any are."""
        partition = self.partition
        given_up = partition.given_up_of(entry.message)
        if not given_up:
            return
        known = tuple((group, entry.proposals[group]) for group in given_up if group in entry.proposals)
        condition = entry.message.condition
        void = entry.void if condition is not None and condition.home in given_up else None
        self._send(to, Attestation(entry.mid, self.group, partition.view.epoch, known, void))

    def _send(self, to: GroupId, message: GroupMessage) -> None:
        if self.partition.view.given_up and to in self.partition.view.given_up:
            return
        self._messages.setdefault(to, []).append(message)

    # -- what was applied

    def on_applied(self, applied: Applied) -> None:
        """Follow up an entry of this group's log, whoever proposed it."""
        self._forget(applied.commands)
        settled = self.partition.settled
        several = [entry for entry in applied.begun if len(entry.message.destinations) > 1]
        if several:
            began_here = {c.message.mid for c in applied.commands if isinstance(c, Start)}
            for entry in several:
                self._announce(entry, told_all=entry.mid in began_here)
        if self._timed is not None and self._timed[0].final is not None:
            self._resending.took(self._now - self._timed[1])
            self._timed = None
        if self.settings.exchange is Exchange.ENTRY:
            for entry in applied.fixed:
                self._pass_on(entry)
        for mid in applied.staged:
            self._reply(mid, Answer.STAGED, 0)
        for mid, offset in applied.released:
            self._told.pop(mid, None)
            self._reply(mid, Answer.DELIVERED, 0, everywhere=mid not in settled, offset=offset)
        self._tell_delivered(applied.delivered)
        for mid in applied.failed:
            self._told.pop(mid, None)
            self._reply(mid, Answer.FAILED, 0, everywhere=mid not in settled)

    def _tell_delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Tell producers of deliveries: as `_reply` for each, with all that is the same for all of them looked up once."""
        group, settled, told, replies = self.group, self.partition.settled.entries, self._told, self._replies
        view_epoch, time = self.partition.view.epoch, self.partition.floor.time
        for delivery in deliveries:
            stamp = delivery.stamp
            if stamp.sub and not stamp.single:
                continue  # its round was told
            mid = delivery.message.mid
            if told:
                told.pop(mid, None)
            everywhere = mid not in settled
            replies.append(
                Reply(mid, group, Answer.DELIVERED, everywhere, delivery.offset, 0, view_epoch, time)
            )

    def _announce(self, entry: PendingMessage, *, told_all: bool) -> None:
        """Tell the others of a message that has begun here. `told_all`: its producer has told them, as far as is known."""
        mid = entry.mid
        relayed = mid in self._relayed
        self._relayed.discard(mid)
        proposal = self._proposal(entry, with_payload=relayed)
        for group in self._told_first(entry.message, told_all=told_all and not relayed):
            if group != self.group:
                self._send(group, proposal)
        if mid in self.partition.pending:
            self._reply(mid, Answer.ACCEPTED, 0)
            self._resending.add(mid, self._now)
            self._time(entry)

    def _time(self, entry: PendingMessage) -> None:
        """Measure on this one, unless another one is under way; on one that takes for ever, no longer."""
        if self._timed is None or self._now - self._timed[1] > self.settings.resend_ticks_max:
            self._timed = entry, self._now

    def _told_first(self, message: Message, *, told_all: bool) -> Sequence[GroupId]:
        if self.settings.exchange is Exchange.ALL:
            return message.destinations
        entry_group = entry_of(message)
        if self.group != entry_group:
            return (entry_group,)
        return () if told_all else message.destinations

    def _pass_on(self, entry: PendingMessage) -> None:
        """Tell each destination the proposals of all others, if this is the entry group.

        They are facts of their logs, whoever says them.
        """
        message = entry.message
        if entry_of(message) != self.group:
            return
        home = message.condition.home if message.condition is not None else None
        row = self.partition.rows.get(message.mid.producer, NO_ROW)
        for to in message.destinations:
            if to == self.group:
                continue
            for sender, time in entry.proposals.items():
                if sender != to:
                    void = entry.void if sender == home else None
                    self._send(to, Propose(message.mid, sender, time, void, row.floor, entry.digest))

    def _forget(self, commands: Sequence[PartitionCommand]) -> None:
        """Forget what is applied, and so in the log no more."""
        for command in commands:
            if type(command) is Start:  # nearly all are
                self._applied_start(command.message)
                continue
            match command:
                case Stage(message):
                    self._applied_start(message)
                case Remote(mid, sender):
                    self._remotes.discard((mid, sender))
                case Attest(mid, sender, epoch):
                    self._testimonies.discard((mid, sender, epoch))
                case ViewChanged():
                    self._go_on_without()
                case Settled(group, floor):
                    if self._settling.get(group) == floor:
                        del self._settling[group]
                case Advance(time):
                    # It may have come to less than was asked for: what started before it holds it back.
                    if self._advancing <= time:
                        self._advancing = 0
                case _:
                    pass

    def _applied_start(self, message: Message) -> None:
        started = self._started.pop(message.mid, None)
        if started is None:
            return
        self._started_bytes -= len(started.payload)
        producer = message.mid.producer
        left = self._of_producer[producer] - 1
        if left:
            self._of_producer[producer] = left
        else:
            # If one was refused, so are those behind it: count from what was taken.
            del self._of_producer[producer]
            self._numbers.pop(producer, None)
        if self._relayed and message.mid not in self.partition.pending:
            self._relayed.discard(message.mid)

    # -- time

    def tick(self, elapsed: int = 1) -> None:
        """Say again what nobody has confirmed; all of it is derived from the replicated state."""
        before, self._now = self._now, self._now + elapsed
        self._resend()
        settings = self.settings
        if self._passed(before, settings.floor_ticks):
            self._ask_floors()
        if self._passed(before, settings.advance_ticks):
            self._advance()
        if self._passed(before, settings.report_ticks):
            self._report()

    def _passed(self, before: int, interval: int) -> bool:
        return before // interval != self._now // interval

    def due_in(self) -> int | None:
        """Return the ticks after which `tick` has something to do.

        None if that takes something else to happen first.
        """
        now, settings = self._now, self.settings
        due: list[int] = []
        if self._held:
            due.append(max(1, self._held_until - now))
        resend = self._resending.next_due()
        if resend is not None:
            due.append(max(1, resend - now))
        if self.partition.settled.awaited():
            due.append(settings.floor_ticks - now % settings.floor_ticks)
        if self._reachable() is not None:
            due.append(settings.advance_ticks - now % settings.advance_ticks)
        if self._has_to_report():
            due.append(settings.report_ticks - now % settings.report_ticks)
        return min(due, default=None)

    def _resend(self) -> None:
        """Say again what is pending to whoever has not proposed.

        Who has proposed has begun the message, and asks for this group's proposal if it lacks that. So one that only waits
        for its turn is not repeated. The first time that a new leader says it, it is said to all: who asked, asked the
        last one.
        """
        for mid, interval in self._resending.due(self._now, self.settings.resends_per_tick_max):
            entry = self.partition.pending.entries.get(mid)
            if entry is None or (entry.final is not None and interval != AT_ONCE):
                continue
            told = self._told.get(mid, ())
            given_up = self.partition.given_up_of(entry.message) if self.partition.view.given_up else ()
            asked = self.partition.lacks_testimony(entry) if given_up else ()
            for group in entry.message.destinations:
                if group == self.group:
                    continue
                if given_up:
                    self._testify(group, entry)
                lacks = group not in entry.proposals or group in asked
                if group not in told and (lacks or interval == AT_ONCE):
                    self._propose(group, entry)
                if lacks:
                    self._send(group, Query(mid, self.group))
            self._resending.again(mid, self._now, interval)

    def _go_on_without(self) -> None:
        """Ask at once what others know of groups that are given up, as of the view that was just logged."""
        if self.partition.view.given_up:
            for mid, entry in self.partition.pending.entries.items():
                if entry.final is None and self.partition.given_up_of(entry.message):
                    self._resending.add(mid, self._now, at_once=True)

    def _ask_floors(self) -> None:
        """Ask those whose floor is waited for.

        Whoever is asked learns this group's floor by that. So of two that wait for each other, as destinations of one
        message do, the one with the smaller number asks; the other one only if it has waited since it last looked.
        """
        settled, before = self.partition.settled, self._owed
        self._owed = {group: settled.first_owed(group) for group in settled.awaited()}
        for group, owed in self._owed.items():
            if self.group < group or before.get(group) == owed:
                self._send(group, FloorReport(self.group, self.partition.floor, wanted=True))

    def _advance(self) -> None:
        """Log an ADVANCE if somebody needs it and it would change anything; otherwise look again later."""
        reachable = self._reachable()
        if reachable is not None:
            self._advancing = reachable
            self._commands.append(Advance(reachable))

    def _reachable(self) -> int | None:
        """Return the time to advance to, if that is asked for and would change anything."""
        if self._needed <= self.partition.floor.time:
            return None
        oldest = self.partition.pending.oldest()
        reachable = self._needed if oldest is None else min(self._needed, oldest.time - 1)
        return reachable if reachable > max(self.partition.floor.time, self._advancing) else None

    def _has_to_report(self) -> bool:
        """Return at little cost whether `_report` may have something to say."""
        view, reported = self.partition.view, self._reported
        return (
            self.settings.report_unchanged
            or self._report_wanted
            or bool(view.closed or view.deleting)
            or reported is None
            or reported.position != view.position
        )

    def _report(self) -> None:
        if not self._has_to_report():
            return
        partition = self.partition
        report = Report(
            self.group,
            partition.view.position,
            tuple(partition.clear_producers()),
            tuple(partition.clear_deleting()),
        )
        repeated = report == self._reported and not (report.producers or report.deleting)
        if self.settings.report_unchanged or self._report_wanted or not repeated:
            self._reports.append(report)
        self._reported, self._report_wanted = report, False
