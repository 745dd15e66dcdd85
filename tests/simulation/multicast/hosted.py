"""A group as the adversary sees it: the shipped partition and leader around a log whose end may be cut.

Raft is abstracted to what it promises: what is committed stays, what is not may be cut when the leader changes. All that is
kept in a snapshot goes through the shipped codec, and so may be what is logged and sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.broken import BrokenPromiseError
from zraft.topics.applied import Applied
from zraft.topics.image import partition_image, read_image, state_digest
from zraft.topics.leader import PartitionLeader
from zraft.topics.leader_settings import LeaderSettings
from zraft.topics.partition import Partition
from zraft_core.topics.codec import Bundle, decode_batch, decode_bundle, encode_batch, encode_bundles
from zraft_core.topics.commands import Batch, PartitionCommand, Stage, Start
from zraft_core.topics.message import Delivery, Message
from zraft_core.topics.messages import GroupMessage, Reply, Report, StartRequest
from zraft_core.topics.registry_values import Birth
from zraft_core.topics.stamps import MessageId

Send = Callable[[Bundle | Report], None]
"""To a group, or to group 0."""
Answer = Callable[[Reply], None]

LOG_TIME_STEP_MS: Final = 3


class HostedGroup:
    """One group. `tail` is appended but not committed; `delivered`, `begun`, `voids` and `rounds` are for the checks."""

    def __init__(
        self, birth: Birth, settings: LeaderSettings, send: Send, answer: Answer, *, coded: bool = True
    ) -> None:
        self.group = birth.record.group
        self._birth = birth
        self._settings = settings
        self._send = send
        self._answer = answer
        self._coded = coded
        self.partition = self._newborn()
        self.leader = PartitionLeader(self.partition, settings)
        self.log: list[Batch] = []
        self.tail: list[Batch] = []
        self._position = 1
        self._log_time_ms = 0
        self.delivered: list[Delivery] = []
        self.begun: list[Message] = []
        self.voids: list[MessageId] = []
        self.rounds: list[MessageId] = []
        self.commands = 0

    def _newborn(self) -> Partition:
        birth, record = self._birth, self._birth.record
        return Partition(
            *(self.group, birth.view),
            born=record.born,
            settings=birth.settings,
            first_offset=record.first_offset,
            first_time=record.first_time,
        )

    @property
    def first_offset(self) -> int:
        """The offset of the first delivery."""
        return self._birth.record.first_offset

    # -- what happens to a group

    def on_start(self, request: StartRequest, *, unchecked: bool = False) -> None:
        """A producer's request. `unchecked`: logged as a leader would have who judged it by an earlier state."""
        self.leader.on_start(request)
        self.flush()
        if unchecked:
            command = Stage if request.staged else Start
            self.append(command(request.message, request.floor, request.epoch))

    def on_bundle(self, bundle: Bundle) -> None:
        self.hear(bundle)
        self.flush()

    def hear(self, bundle: Bundle) -> None:
        """What arrives in the middle of a turn; `flush` ends it."""
        for message in bundle.messages:
            self.leader.on_message(message)

    def tick(self) -> None:
        self.leader.tick()
        self.flush()

    def append(self, *commands: PartitionCommand) -> None:
        self._log_time_ms += LOG_TIME_STEP_MS
        batch = Batch(self._log_time_ms, commands)
        self.tail.append(through_codec(batch) if self._coded else batch)

    def flush(self) -> None:
        output = self.leader.take()
        if output.commands:
            self.append(*output.commands)
        for to, messages in output.messages.items():
            self._send(Bundle(to, tuple(messages)))
        for report in output.reports:
            self._send(report)
        for reply in output.replies:
            self._answer(reply)

    def commit(self, count: int) -> None:
        for batch in self.tail[:count]:
            self.log.append(batch)
            self._note(self.partition.apply(batch, self._position))
            self._position += len(batch.commands)
            self.commands += len(batch.commands)
        del self.tail[:count]
        self.flush()

    def _note(self, applied: Applied) -> None:
        self.delivered += applied.delivered
        self.begun += begun_in(applied)
        self.voids += applied.failed
        self.rounds += [mid for mid, _ in applied.released]
        self.leader.on_applied(applied)

    def change_leader(self, kept: int, *, from_snapshot: bool) -> None:
        """A new leader: what was not committed may be cut, volatile knowledge is gone, a snapshot may be installed."""
        del self.tail[kept:]
        if from_snapshot:
            self.reinstall()
        self.leader = PartitionLeader(self.partition, self._settings)

    def reinstall(self) -> None:
        before = state_digest(self.partition)
        self.partition = read_image(list(partition_image(self.partition)))
        if state_digest(self.partition) != before:
            raise BrokenPromiseError("snapshot", f"group {self.group} is another one after its snapshot")

    def replica(self) -> tuple[Partition, list[Delivery]]:
        """Another replica: the same log from the beginning."""
        partition, delivered, position = self._newborn(), list[Delivery](), 1
        for batch in self.log:
            delivered += partition.apply(batch, position).delivered
            position += len(batch.commands)
        return partition, delivered

    @property
    def is_idle(self) -> bool:
        return not self.partition.pending and not self.tail


def begun_in(applied: Applied) -> list[Message]:
    """What a batch began, staged messages included that it put in order."""
    staged = [one.message for one in applied.delivered if one.stamp.sub and not one.stamp.single]
    return [*staged, *(entry.message for entry in applied.begun)]


def through_codec(batch: Batch) -> Batch:
    """What another server finds in its log."""
    decoded = decode_batch(encode_batch(batch))
    if decoded != batch:
        raise BrokenPromiseError("codec", f"{batch} came out of the log as {decoded}")
    return decoded


def over_wire(bundle: Bundle) -> Bundle:
    """What another server receives."""
    received: list[GroupMessage] = []
    for packed in encode_bundles(bundle.to, bundle.messages):
        part, errors = decode_bundle(packed)
        if errors:
            raise BrokenPromiseError("codec", f"{bundle} is not understood: {errors}")
        received += part.messages
    if tuple(received) != bundle.messages:
        raise BrokenPromiseError("codec", f"{bundle} arrived as {received}")
    return Bundle(bundle.to, tuple(received))
