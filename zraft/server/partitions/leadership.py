"""One leadership of a partition on this server: from the first applied entry of its own term until another term or role.

Around `PartitionLeader`, which decides about messages: the log's time, entries on their way into the log, what
consumers ask of the leader, expiry of their claims. All of it may be lost. Pure. Source: D-9, D-11, D-12, D-16.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Final

from attrs import define, frozen

from zraft.groups.host import GroupHost
from zraft.server.partitions.machine import AppliedEntry, PartitionMachine
from zraft.server.partitions.quorum_reads import QuorumReads
from zraft.server.partitions.settings import PartitionsSettings
from zraft.server.partitions.topic_answers import Asker, TopicAnswers
from zraft.topics.entries import BatchEntry, encode_entry
from zraft.topics.leader import PartitionLeader
from zraft.topics.leader_settings import MulticastStatistics
from zraft.topics.service import Consumers, Offset, TopicClient
from zraft_core.claims.answers import Reason, Refused
from zraft_core.claims.commands import ClaimCommand, Expire
from zraft_core.claims.expiry import SCAN_INTERVAL_MS, ClaimExpiry
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.commands import Batch, PartitionCommand, Remote, Seek, Stage, Start, ViewChanged
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.messages import GroupMessage, Reply, Report, StartRequest
from zraft_core.topics.stamps import MessageId

COMMAND_BYTES: Final = 128
"""The bytes that a command takes in an entry beside its payload, roughly."""
CLAIMS_PER_ENTRY_MAX: Final = 1024
_LISTS_OF_VIEWS: Final = (
    *("producers", "groups", "opened", "closed", "retired", "created", "deleting", "removed", "given_up"),
)
BACKLOG_BYTES_MAX: Final = 8 * 1024 * 1024
"""Commands that wait for room in the log: beyond, other groups are not listened to, who say everything again."""


@frozen(eq=False)
class ViewQuery:
    """A consumer wants to see its group."""

    asker: Asker
    name: str


@frozen(eq=False)
class OffsetQuery:
    """A consumer wants to know how far it is."""

    asker: Asker
    consumer: bytes


@frozen(eq=False)
class ConsumersQuery:
    """An operator wants to know who consumes the partition."""

    asker: Asker


@frozen(eq=False)
class PlaceQuery:
    """Somebody wants to know a place of the partition, such as its end, and is told by whoever gave `on_confirmed`."""

    asker: Asker
    on_confirmed: Callable[[], None]


Query = ViewQuery | OffsetQuery | ConsumersQuery | PlaceQuery


@frozen
class _InFlight:
    """Entry that is in the log and not applied, and who asked for what of it."""

    claims: tuple[Asker | None, ...]
    seeks: tuple[tuple[Asker, bytes], ...]


@frozen
class _Encoded:
    """An entry for the log, or that the log had no room for. `meant`: what it says, if that need not be decoded."""

    payload: bytes
    count: int
    in_flight: _InFlight
    meant: BatchEntry | None


@frozen
class LeaderOutput:
    """Output of a leader: messages by group, and messages to group 0."""

    messages: dict[GroupId, list[GroupMessage]]
    edges: list[Report | Reply]


@define
class Logged:
    """Counts of what leaderships of this server have appended to logs."""

    entries: int = 0
    commands: int = 0


class PartitionLeadership:
    """Leadership of the partition in `machine`, whose birth was applied.

    Args:
        run_ms: time in which this process ran; the leadership's clock.
        contexts: see `QuorumReads`.
    """

    def __init__(
        self,
        machine: PartitionMachine,
        settings: PartitionsSettings,
        answers: TopicAnswers,
        contexts: Iterator[int],
        logged: Logged,
        *,
        term: int,
        run_ms: int,
    ) -> None:
        partition = machine.partition
        assert partition is not None, "a partition is led once it is born"
        self.group = machine.group
        self.term = term
        self.leader = PartitionLeader(partition, settings.leader)
        self._partition = partition
        self._machine = machine
        self._settings = settings
        self._answers = answers
        self._logged = logged
        self._began = run_ms
        self._log_time_base = machine.log_time_ms
        self._ticked = 0
        self._askers: dict[ProducerId, Asker] = {}
        self._relayed: set[MessageId] = set()
        self._commands: deque[tuple[PartitionCommand, int]] = deque()
        """Each with its size in an entry."""
        self._backlog_bytes = 0
        self._claims: deque[tuple[ClaimCommand, Asker | None]] = deque()
        self._seeks: deque[tuple[Seek, Asker]] = deque()
        self._encoded: _Encoded | None = None
        self._in_flight: dict[int, _InFlight] = {}
        self._requests = 0
        self._reads = QuorumReads[Query](contexts)
        self._expiry = ClaimExpiry()
        self._aged_at = run_ms
        self._scan_at: int | None = run_ms if machine.claims is not None else None

    # -- what is asked

    def produce(self, asker: Asker, request: StartRequest) -> None:
        """Take a producer's message; it is answered to whoever asked for that producer last."""
        message = request.message
        self._askers[message.mid.producer] = asker
        if request.relayed and not message.is_single:
            self._relayed.add(message.mid)
        self.leader.on_start(request)

    def knows(self, mid: MessageId) -> bool:
        """Return whether the message was begun or decided here."""
        return self._partition.known(mid)

    def start(self, request: StartRequest) -> None:
        """Group 0 changes a topic; it is told by itself."""
        self.leader.on_start(request)

    def hear(self, messages: Sequence[GroupMessage]) -> None:
        """Take messages of other groups' leaders; they are dropped while the backlog is too large."""
        if self._backlog_bytes > BACKLOG_BYTES_MAX:
            return
        for message in messages:
            self.leader.on_message(message)

    def claim(self, asker: Asker, command: ClaimCommand) -> None:
        """Take a consumer's command. Expiry is for the leader alone to propose."""
        if isinstance(command, Expire):
            self._answers.give(asker, Refused(Reason.INVALID, None, 0, self._machine.log_time_ms))
        elif self._takes(asker):
            self._claims.append((command, asker))

    def seek(self, asker: Asker, consumer: bytes, offset: int | None) -> None:
        """Store a consumer's offset."""
        if self._takes(asker):
            self._seeks.append((Seek(consumer, offset), asker))

    def _takes(self, asker: Asker) -> bool:
        if self._requests >= self._settings.requests_max:
            self._answers.refuse(
                asker, "busy", self.group, f"{self._requests} requests of consumers wait for their entry"
            )
            return False
        self._requests += 1
        return True

    def ask(self, query: Query) -> None:
        """Read something that must not be stale."""
        if len(self._reads) >= self._settings.requests_max:
            self._answers.refuse(query.asker, "busy", self.group, f"{len(self._reads)} reads wait")
        else:
            self._reads.add(query)

    def drop(self, gone: Set[TopicClient]) -> None:
        """Forget connections that are gone. What they asked for goes on, unanswered."""
        self._askers = {p: asker for p, asker in self._askers.items() if asker[0] not in gone}
        self._reads.keep(lambda query: query.asker[0] not in gone)

    # -- what was applied

    def on_applied(self, entry: AppliedEntry) -> None:
        """Take an entry of the group's log that was applied, whoever proposed it."""
        applied = entry.applied
        if applied is not None:
            self.leader.on_applied(applied)
            for mid in applied.everywhere:
                if mid in self._relayed:
                    self._relayed.discard(mid)
                    self.leader.tell(mid)
        if entry.answers and self._scan_at is None:
            self._scan_at = self._aged_at + SCAN_INTERVAL_MS
        asked = self._in_flight.pop(entry.index, None)
        if asked is None or entry.term != self.term:
            return
        for asker, answer in zip(asked.claims, entry.answers, strict=True):
            if asker is not None:
                self._requests -= 1
                self._answers.give(asker, answer)
        for asker, consumer in asked.seeks:
            self._requests -= 1
            self._answers.give(asker, Offset(self.group, self._partition.offsets.get(consumer)))

    def on_round(self, number: int, run_ms: int) -> None:
        """Answer the reads of a confirmed round, since what was committed before it is applied."""
        for query in self._reads.answered(number):
            if isinstance(query, OffsetQuery):
                offset = self._partition.offsets.get(query.consumer)
                self._answers.give(query.asker, Offset(self.group, offset))
            elif isinstance(query, ConsumersQuery):
                self._answers.give(query.asker, self.consumers())
            elif isinstance(query, PlaceQuery):
                query.on_confirmed()
            elif self._machine.claims is not None:
                view = self._machine.claims.view(query.name, self.log_time_ms(run_ms))
                self._answers.give(query.asker, view)

    def consumers(self) -> Consumers:
        """Return who consumes the partition, as it is applied here."""
        claims, partition = self._machine.claims, self._partition
        found: list[tuple[bytes, int, tuple[str, ...] | None]] = [
            (name, offset, None) for name, offset in sorted(partition.offsets.items())
        ]
        if claims is not None:
            for name in sorted(group.name for group in claims.groups()):
                view = claims.view(name)
                found.append((name.encode(), view.start, tuple(claim.owner.client for claim in view.claims)))
        return Consumers(self.group, tuple(found), partition.next_offset)

    # -- a turn

    def log_time_ms(self, run_ms: int) -> int:
        """Return the log time, which never goes back, and stands still while this process does not run (D-12)."""
        return self._log_time_base + run_ms - self._began

    def turn(self, host: GroupHost, run_ms: int, wall_ms: int) -> LeaderOutput:
        """Do what is due: append what waits as far as the log takes it, and return the rest for others."""
        ticks = (run_ms - self._began) // self._settings.tick_ms
        if ticks > self._ticked:
            self.leader.tick(ticks - self._ticked)
            self._ticked = ticks
        self._expire(run_ms)
        number = self._reads.begin(run_ms)
        if number is not None:
            host.read_index(self.group, number)
        output = self.leader.take()
        for command in output.commands:
            size = _size(command)
            self._commands.append((command, size))
            self._backlog_bytes += size
        edges: list[Report | Reply] = list(output.reports)
        for reply in output.replies:
            if reply.mid.producer == COORDINATOR:
                edges.append(reply)
            elif (asker := self._askers.get(reply.mid.producer)) is not None:
                self._answers.give(asker, reply)
        self._propose(host, run_ms, wall_ms)
        return LeaderOutput(output.messages, edges)

    def due_in(self, run_ms: int) -> int | None:
        """Return the milliseconds until `turn` has something to do by itself.

        None if something else has to happen first.
        """
        due: list[int] = []
        ticks = self.leader.due_in()
        if ticks is not None:
            tick_ms = self._settings.tick_ms
            due.append((self._ticked + ticks) * tick_ms - (run_ms - self._began))
        if self._scan_at is not None:
            due.append(self._scan_at - run_ms)
        lost = self._reads.due_in(run_ms)
        if lost is not None:
            due.append(lost)
        return max(0, min(due)) if due else None

    def _expire(self, run_ms: int) -> None:
        """Expire claims whose owners are silent (docs/explanation/claims.md, rule 4)."""
        claims, expiry = self._machine.claims, self._expiry
        assert claims is not None
        expiry.advance(run_ms - self._aged_at)
        self._aged_at = run_ms
        for command in expiry.proposals(claims, self._reads.confirmed):
            self._claims.append((command, None))
        if self._scan_at is None or run_ms < self._scan_at:
            return
        if expiry.wants_round(claims, self._reads.next_round):
            self._reads.want()
        live = any(group.claims for group in claims.groups())
        self._scan_at = run_ms + SCAN_INTERVAL_MS if live else None

    # -- into the log

    def _propose(self, host: GroupHost, run_ms: int, wall_ms: int) -> None:
        raft = host.groups[self.group].raft
        while self._encoded is not None or self._commands or self._claims or self._seeks:
            if raft.log.last_index - raft.commit_index >= self._settings.entries_in_flight_max:
                return
            entry = self._encoded or self._next_entry(run_ms, wall_ms)
            proposed = host.propose(self.group, entry.payload, entry.count)
            if proposed is None:
                self._encoded = entry
                return
            self._encoded = None
            self._logged.entries += 1
            self._logged.commands += entry.count
            if entry.meant is not None:
                self._machine.proposed(proposed[0], entry.payload, entry.meant)
            if entry.in_flight.claims or entry.in_flight.seeks:
                self._in_flight[proposed[0]] = entry.in_flight

    def _next_entry(self, run_ms: int, wall_ms: int) -> _Encoded:
        commands: list[PartitionCommand] = []
        size, plain = 0, not self._seeks and not self._claims
        while self._commands and (not commands or size < self._settings.entry_bytes_max):
            command, one = self._commands[0]
            if commands and size + one > self._settings.entry_bytes_max:
                break
            self._commands.popleft()
            size += one
            self._backlog_bytes -= one
            # Messages of producers were decoded here, by the same forms as entries are. The rest is rare.
            plain = plain and type(command) is Start
            commands.append(command)
        seeks: list[tuple[Asker, bytes]] = []
        while self._seeks and len(seeks) < CLAIMS_PER_ENTRY_MAX:
            seek, asker = self._seeks.popleft()
            commands.append(seek)
            seeks.append((asker, seek.consumer))
        claims: list[ClaimCommand] = []
        askers: list[Asker | None] = []
        while self._claims and len(claims) < CLAIMS_PER_ENTRY_MAX:
            claim, by = self._claims.popleft()
            claims.append(claim)
            askers.append(by)
        batch = Batch(self.log_time_ms(run_ms), tuple(commands))
        entry = BatchEntry(wall_ms, batch, tuple(claims))
        in_flight = _InFlight(tuple(askers), tuple(seeks))
        return _Encoded(encode_entry(entry), entry.count, in_flight, entry if plain else None)

    # -- its end

    def end(self, leader: ServerId | None) -> None:
        """Tell all who wait that somebody else leads: `leader`, as far as is known."""
        self._machine.forget_proposed()
        detail = f"group {self.group} is led by another server now"
        for asker in set(self._askers.values()):
            self._answers.refuse(asker, "not_leader", self.group, detail, leader=leader)
        for query in self._reads.take_all():
            self._answers.refuse(query.asker, "not_leader", self.group, detail, leader=leader)
        asked = list(self._in_flight.values())
        if self._encoded is not None:
            asked.append(self._encoded.in_flight)
        waiting = [asker for one in asked for asker in (*one.claims, *(by for by, _ in one.seeks))]
        waiting += [asker for _, asker in self._claims]
        waiting += [asker for _, asker in self._seeks]
        for by in waiting:
            if by is not None:
                self._answers.refuse(by, "timeout", self.group, detail, leader=leader)

    def statistics(self, run_ms: int) -> MulticastStatistics:
        """Return counts of what is pending."""
        return self.leader.statistics(self.log_time_ms(run_ms))


def _size(command: PartitionCommand) -> int:
    if type(command) is Start:  # nearly all are
        return COMMAND_BYTES + len(command.message.payload) + 16 * len(command.message.destinations)
    match command:
        case Stage(message) | Remote(message=message):
            if message is None:
                return COMMAND_BYTES
            return COMMAND_BYTES + len(message.payload) + 16 * len(message.destinations)
        case ViewChanged(view):
            lists = [getattr(view, name) for name in _LISTS_OF_VIEWS if hasattr(view, name)]
            return COMMAND_BYTES + 9 * sum(map(len, lists))
        case _:
            return COMMAND_BYTES
