"""Requests of connections to the partitions of this server: to its leader, its deliveries, or why not. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count

from attrs import frozen

from zraft.config.features import LEVEL_OF_RECORDS, LEVEL_OF_ROUNDS, LEVEL_OF_TOPICS
from zraft.server.partitions.delivery_reading import FindOffset, ReadDeliveries, ReadResult, ReadTask
from zraft.server.partitions.hosted_partition import FetchWaiter, HostedPartition
from zraft.server.partitions.leadership import (
    ConsumersQuery,
    OffsetQuery,
    PartitionLeadership,
    PlaceQuery,
    Query,
    ViewQuery,
)
from zraft.server.partitions.settings import PartitionsSettings
from zraft.server.partitions.topic_answers import Asker, TopicAnswers
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.errors import DeliveriesGoneError
from zraft.topics.service import Offset, TopicClient
from zraft_core.claims.codec import is_newer
from zraft_core.claims.commands import ClaimCommand
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import StartRequest


@frozen
class _Search:
    """A search for a time before the tail, which began at `tail_first` then; `in_tail` counts if nothing is found there."""

    asker: Asker
    tail_first: int
    in_tail: int


class TopicRequests:
    """A `TopicService`.

    Args:
        hosted: the partitions that are here.
        leader_of: who leads a group, as far as is known.
        keeps_up: whether the replica here of a group gets what is delivered.
        destinations_max: how many partitions a message may go to now.
        features: the feature level in force: nothing is logged that a member's release may not know (D-5).
        need: pass a consumer's need on to the group's leader.
        stir: a leader was given something to do in this turn.
        read: read from the disk, beside the loop; its end is told by `read_done`.

    Attributes:
        woken: groups of which somebody can be served who does not have to wait.
    """

    def __init__(
        self,
        settings: PartitionsSettings,
        answers: TopicAnswers,
        hosted: Mapping[GroupId, HostedPartition],
        *,
        leader_of: Callable[[GroupId], ServerId | None],
        keeps_up: Callable[[GroupId], bool],
        destinations_max: Callable[[], int],
        features: Callable[[], int],
        need: Callable[[GroupId, int], None],
        stir: Callable[[GroupId], None],
        read: Callable[[ReadTask], None],
    ) -> None:
        self._settings = settings
        self._answers = answers
        self._hosted = hosted
        self._leader_of = leader_of
        self._keeps_up = keeps_up
        self._destinations_max = destinations_max
        self._features = features
        self._need = need
        self._stir = stir
        self._read = read
        self._now_ms = 0
        self._numbers = count()
        self._deadlines: list[tuple[int, int, FetchWaiter]] = []
        self.woken: dict[GroupId, None] = {}
        self._reading: dict[ReadTask, FetchWaiter | _Search] = {}
        self._to_read: deque[ReadTask] = deque()
        """Reads that have not begun. What is read is in memory until the loop takes it, so only so many go on at once."""
        self._reading_bytes = 0
        """The most that the reads which have begun bring."""
        self._waiting = 0
        self._gone: set[TopicClient] = set()
        self.fetches_total = 0
        self.deliveries_read_total = 0

    # -- producers

    def produce(self, client: TopicClient, id: int, group: GroupId, requests: Sequence[StartRequest]) -> None:
        """Pass messages of a producer to the group's leader, or refuse them."""
        leadership = self._led(client, id, group)
        if leadership is None:
            return
        asker = (client, id)
        features, bytes_max = self._features(), self._settings.payload_bytes_max
        for request in requests:
            message = request.message
            level = LEVEL_OF_TOPICS
            if message.records:
                level = LEVEL_OF_RECORDS
            elif request.staged or message.round is not None:
                level = LEVEL_OF_ROUNDS
            to = len(message.destinations)
            if features < level:
                self._refuse_newer(asker, group, level)
            elif len(message.payload) > bytes_max:
                detail = (
                    f"a payload of {len(message.payload)} bytes; at most {bytes_max} are taken "
                    "(partitions.payload_bytes_max)"
                )
                self._answers.refuse(asker, "too_large", group, detail)
            elif to > 1 and to > self._destinations_max() and not leadership.knows(message.mid):
                # Messages that began under a higher limit come to their end: only new ones are refused.
                detail = (
                    f"a message to {to} partitions; at most {self._destinations_max()} are allowed "
                    "(setting topics_destinations_max)"
                )
                self._answers.refuse(asker, "too_large", group, detail)
            else:
                leadership.produce(asker, request)
        self._stir(group)

    # -- consumers

    def fetch(
        self, client: TopicClient, id: int, group: GroupId, offset: int, bytes_max: int, wait_ms: int
    ) -> None:
        """Answer with deliveries from an offset on, or let the connection wait up to `wait_ms` for some.

        A consumer that has read all that is here of a partition which left this server is sent elsewhere.
        So is one that waited in vain at a replica without a leader: another replica may have one.

        Who asks beyond the end without waiting wants to know where the partition begins and ends. Only the leader
        says so, once a quorum confirmed it: another replica may lack what its producer knows to be there.
        """
        self._answers.meet(client)
        self.fetches_total += 1
        hosted = self._hosted.get(group)
        if hosted is None:
            self._refuse_absent((client, id), group)
            return
        bytes_max = max(1, min(bytes_max, self._settings.fetch_bytes_max))
        wait_ms = max(0, min(wait_ms, self._settings.fetch_wait_ms_max))
        waiter = FetchWaiter((client, id), group, offset, bytes_max, self._now_ms + wait_ms)
        if offset > hosted.end and not wait_ms:
            self._ask(client, id, group, PlaceQuery((client, id), partial(self._wait, hosted, waiter)))
        elif offset < hosted.end or not wait_ms or hosted.left:
            self._serve(hosted, waiter)
        elif self._waiting >= self._settings.fetches_max:
            self._answers.refuse((client, id), "busy", group, f"{self._waiting} fetches wait on this server")
        else:
            self._wait(hosted, waiter)

    def _wait(self, hosted: HostedPartition, waiter: FetchWaiter) -> None:
        """Let a fetch wait: if its time is over already, up to the end of the turn, when what was applied can be read."""
        self._waiting += 1
        hosted.waiters.append(waiter)
        heappush(self._deadlines, (waiter.deadline_ms, next(self._numbers), waiter))

    def _serve(self, hosted: HostedPartition, waiter: FetchWaiter) -> None:
        """Answer now, or as soon as the disk has been read."""
        tail = hosted.tail
        if waiter.offset >= tail.end:
            if hosted.left:
                self._refuse_absent(waiter.asker, hosted.group)
            else:
                self._answers.give(waiter.asker, hosted.fetched(waiter.offset, ()))
        elif waiter.offset >= tail.first:
            found = tail.read(waiter.offset, waiter.bytes_max)
            self.deliveries_read_total += len(found)
            self._answers.give(waiter.asker, hosted.fetched(waiter.offset, found))
        elif (log := self._readable(hosted, waiter.asker)) is not None:
            self._begin(ReadDeliveries(hosted.group, log, waiter.offset, waiter.bytes_max), waiter)

    def _readable(self, hosted: HostedPartition, asker: Asker) -> DeliveryLog | None:
        """Return the deliveries on the disk; if they cannot be read now, refuse."""
        if hosted.failure:
            self._answers.refuse(asker, "failed", hosted.group, hosted.failure)
        elif hosted.log is None:
            self._answers.refuse(asker, "busy", hosted.group, "its deliveries are being opened")
        elif len(self._reading) >= self._settings.reads_max:
            self._answers.refuse(asker, "busy", hosted.group, "too many reads are under way")
        else:
            return hosted.log
        return None

    def _begin(self, task: ReadTask, reader: FetchWaiter | _Search) -> None:
        """Read from the disk for somebody, as soon as there is room."""
        self._reading[task] = reader
        self._to_read.append(task)
        self._read_more()

    def _read_more(self) -> None:
        """Begin the reads whose turn it is, as far as there is room in memory for what they bring; one always has."""
        while self._to_read:
            size = self._bytes_of(self._to_read[0])
            if self._reading_bytes and self._reading_bytes + size > self._settings.reads_bytes_max:
                break
            self._reading_bytes += size
            self._read(self._to_read.popleft())

    def _bytes_of(self, task: ReadTask) -> int:
        """Return how much a read brings at most: one delivery always comes, however little was asked for."""
        wanted = task.bytes_max if isinstance(task, ReadDeliveries) else 0
        return max(wanted, self._settings.payload_bytes_max)

    def read_done(self, task: ReadTask, result: ReadResult) -> None:
        """Take the result of a read from the disk."""
        reader = self._reading.pop(task)
        self._reading_bytes -= self._bytes_of(task)
        self._read_more()
        hosted = self._hosted.get(task.group)
        if hosted is None:
            self._refuse_absent(reader.asker, task.group)
        elif isinstance(result, DeliveriesGoneError):
            self._answers.refuse(reader.asker, "gone", task.group, str(result), first=hosted.first)
        elif isinstance(result, StorageError):
            self._answers.refuse(reader.asker, "failed", task.group, str(result))
        elif isinstance(reader, _Search):
            assert isinstance(result, int), "an offset was searched for"
            found = result if result < reader.tail_first else reader.in_tail
            self._answers.give(reader.asker, Offset(task.group, found))
        else:
            assert not isinstance(result, int), "deliveries were asked for"
            self.deliveries_read_total += len(result)
            self._answers.give(reader.asker, hosted.fetched(reader.offset, result))

    def need(self, group: GroupId, time: int) -> None:
        """Ask a group to pass a time, so that a merged consumer can go on."""
        hosted = self._hosted.get(group)
        if hosted is not None and hosted.frontier().time >= time:
            # The time that is waited for has come already: a consumer that waits for it in a fetch is to see
            # it.
            self.woken[group] = None
        else:
            self._need(group, time)

    def claim(self, client: TopicClient, id: int, group: GroupId, command: ClaimCommand) -> None:
        """Pass a claim's command to the group's leader, or refuse it."""
        leadership = self._led(client, id, group)
        if leadership is None:
            return
        if is_newer(command) and self._features() < LEVEL_OF_ROUNDS:
            self._refuse_newer((client, id), group, LEVEL_OF_ROUNDS)
            return
        leadership.claim((client, id), command)
        self._stir(group)

    def _refuse_newer(self, asker: Asker, group: GroupId, level: int) -> None:
        """Refuse a request of a client that knows of a level that this server will know in a moment."""
        detail = f"the feature level here is {self._features()}, this needs {level}; ask again"
        self._answers.refuse(asker, "busy", group, detail)

    def claims_view(self, client: TopicClient, id: int, group: GroupId, name: str) -> None:
        """Answer with a consumer group's claims once a quorum confirmed the leader, or refuse."""
        self._ask(client, id, group, ViewQuery((client, id), name))

    def seek(self, client: TopicClient, id: int, group: GroupId, consumer: bytes, offset: int | None) -> None:
        """Let the group's leader store a consumer's offset, or refuse."""
        leadership = self._led(client, id, group)
        if leadership is not None:
            leadership.seek((client, id), consumer, offset)
            self._stir(group)

    def offset_of(self, client: TopicClient, id: int, group: GroupId, consumer: bytes) -> None:
        """Answer with a consumer's offset once a quorum confirmed the leader, or refuse."""
        self._ask(client, id, group, OffsetQuery((client, id), consumer))

    def offset_at(self, client: TopicClient, id: int, group: GroupId, time_ms: int) -> None:
        """Answer with the offset of a time once a quorum confirmed the leader, or refuse."""
        asker = client, id
        self._ask(client, id, group, PlaceQuery(asker, partial(self._find, asker, group, time_ms)))

    def _find(self, asker: Asker, group: GroupId, time_ms: int) -> None:
        """Answer with the offset of a time now, or as soon as what lies before the tail has been searched."""
        hosted = self._hosted[group]
        tail = hosted.tail
        in_tail = tail.offset_of_time(time_ms)
        if hosted.log is not None and hosted.log.base.offset >= tail.first:
            self._answers.give(asker, Offset(group, in_tail))
        elif (log := self._readable(hosted, asker)) is not None:
            self._begin(FindOffset(group, log, time_ms), _Search(asker, tail.first, in_tail))

    def consumers(self, client: TopicClient, id: int, group: GroupId) -> None:
        """Answer with who consumes the partition once a quorum confirmed the leader, or refuse."""
        self._ask(client, id, group, ConsumersQuery((client, id)))

    def _ask(self, client: TopicClient, id: int, group: GroupId, query: Query) -> None:
        leadership = self._led(client, id, group)
        if leadership is not None:
            leadership.ask(query)
            self._stir(group)

    def drop(self, client: TopicClient) -> None:
        """Drop a connection that is gone: it is told nothing more, and the next turn forgets what it asked for."""
        self._answers.drop(client)
        self._gone.add(client)

    def _forget_gone(self) -> None:
        """Forget what connections asked for that are gone: of all at once, for thousands may leave at one moment."""
        gone, self._gone = self._gone, set()
        for hosted in self._hosted.values():
            if hosted.leadership is not None:
                hosted.leadership.drop(gone)
            if hosted.waiters:
                for waiter in hosted.waiters:
                    if waiter.asker[0] in gone:
                        self._end(waiter)
                hosted.waiters = [waiter for waiter in hosted.waiters if not waiter.over]

    def _led(self, client: TopicClient, id: int, group: GroupId) -> PartitionLeadership | None:
        """Return the leadership that a request is for; without one it is refused."""
        self._answers.meet(client)
        hosted = self._hosted.get(group)
        if hosted is None:
            self._refuse_absent((client, id), group)
            return None
        if hosted.leadership is None:
            detail = hosted.machine.error or f"this server does not lead group {group}"
            leader = self._leader_of(group)
            self._answers.refuse((client, id), "not_leader", group, detail, leader=leader)
        return hosted.leadership

    def _refuse_absent(self, asker: Asker, group: GroupId) -> None:
        leader = self._leader_of(group)
        self._answers.refuse(asker, "no_group", group, f"group {group} is not on this server", leader=leader)

    # -- a turn

    def begin(self, now_ms: int) -> None:
        """Begin a turn: requests come at this time from now on."""
        self._now_ms = now_ms
        if self._gone:
            self._forget_gone()

    def wake(self, group: GroupId) -> None:
        """Wake those who wait for a group: something was delivered, or its frontier moved.

        They are answered at the end of the turn.
        """
        self.woken[group] = None

    def closed(self, hosted: HostedPartition) -> None:
        """Refuse what waits for a partition that is no longer here."""
        for waiter in hosted.waiters:
            self._end(waiter)
            self._refuse_absent(waiter.asker, hosted.group)
        hosted.waiters.clear()

    def finish(self, now_ms: int) -> None:
        """Serve those whose wait is over."""
        woken, self.woken = self.woken, {}
        for group in woken:
            hosted = self._hosted.get(group)
            if hosted is not None and hosted.waiters:
                waiters, end = hosted.waiters, hosted.end
                # A consumer that has read more elsewhere than there is here waits until this replica has come
                # as far.
                hosted.waiters = [waiter for waiter in waiters if waiter.offset > end]
                for waiter in waiters:
                    if waiter.offset <= end:
                        self._end(waiter)
                        self._serve(hosted, waiter)
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].over or deadlines[0][0] <= now_ms):
            waiter = heappop(deadlines)[2]
            hosted = self._hosted.get(waiter.group)
            if not waiter.over and hosted is not None:
                hosted.waiters.remove(waiter)
                self._end(waiter)
                if self._keeps_up(hosted.group):
                    self._serve(hosted, waiter)
                else:
                    detail = f"this server knows no leader of group {hosted.group}, and may lack deliveries"
                    self._answers.refuse(waiter.asker, "not_leader", hosted.group, detail)
        if len(deadlines) > 64 + 4 * self._waiting:
            self._deadlines = [one for one in deadlines if not one[2].over]
            self._deadlines.sort()

    def _end(self, waiter: FetchWaiter) -> None:
        waiter.over = True
        self._waiting -= 1

    def due_in(self, now_ms: int) -> int | None:
        """Return the milliseconds until a wait is over; None without a wait."""
        return max(0, self._deadlines[0][0] - now_ms) if self._deadlines else None

    @property
    def waiting(self) -> int:
        """Fetches that wait for something new."""
        return self._waiting

    @property
    def reading(self) -> int:
        """Reads from the disk that are under way or wait for room."""
        return len(self._reading)
