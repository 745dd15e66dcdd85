"""A group as the adversary sees it: the shipped partition and leader around a log whose end may be cut.

Raft is abstracted to what it promises: what is committed stays, what is not may be cut when the leader changes. All that is
logged, sent or kept in a snapshot goes through the shipped codecs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zraft.ids import GroupId
from zraft.testing.broken import BrokenPromiseError
from zraft.topics.codec import decode_batch, decode_bundle, decode_edge, encode_batch, encode_bundles, encode_edge
from zraft.topics.commands import Batch, Command, Start
from zraft.topics.image import partition_image, read_image, state_digest
from zraft.topics.leader import LeaderSettings, PartitionLeader
from zraft.topics.message import Delivery, Message
from zraft.topics.messages import Reply, Report, StartRequest
from zraft.topics.partition import Applied, Partition
from zraft.topics.registry import Birth
from zraft.topics.stamps import MessageId

Send = Callable[[GroupId, bytes], None]
"""To a group, or to group 0: the bytes of a bundle or a report."""
Answer = Callable[[Reply], None]

LOG_TIME_STEP_MS: Final = 3


class HostedGroup:
    """Group `birth.record.group`. `tail` is appended but not committed; `delivered`, `begun` and `voids` are for the checks."""

    def __init__(self, birth: Birth, settings: LeaderSettings, send: Send, answer: Answer) -> None:
        self.group = birth.record.group
        self._birth = birth
        self._settings = settings
        self._send = send
        self._answer = answer
        self.partition = self._newborn()
        self.leader = PartitionLeader(self.partition, settings)
        self.log: list[bytes] = []
        self.tail: list[bytes] = []
        self._position = 1
        self._log_time_ms = 0
        self.delivered: list[Delivery] = []
        self.begun: list[Message] = []
        self.voids: list[MessageId] = []
        self.commands = 0

    def _newborn(self) -> Partition:
        birth = self._birth
        return Partition(self.group, birth.view, born=birth.record.born, settings=birth.settings)

    # -- what happens to a group

    def on_start(self, request: StartRequest, *, unchecked: bool = False) -> None:
        """A producer's request. `unchecked`: logged as a leader would have who judged it by an earlier state."""
        packed = encode_edge(request)
        decoded = decode_edge(packed)
        assert isinstance(decoded, StartRequest)
        self.leader.on_start(decoded)
        self.flush()
        if unchecked:
            self.append(Start(decoded.message, decoded.floor, decoded.epoch))

    def on_bundle(self, packed: bytes) -> None:
        bundle, errors = decode_bundle(packed)
        if errors or bundle.to != self.group:
            raise BrokenPromiseError("messages", f"group {self.group} cannot read {errors} for {bundle.to}")
        for message in bundle.messages:
            self.leader.on_message(message)
        self.flush()

    def tick(self) -> None:
        self.leader.tick()
        self.flush()

    def append(self, *commands: Command) -> None:
        self._log_time_ms += LOG_TIME_STEP_MS
        self.tail.append(encode_batch(Batch(self._log_time_ms, commands)))

    def flush(self) -> None:
        output = self.leader.take()
        if output.commands:
            self.append(*output.commands)
        for to, messages in output.messages.items():
            for packed in encode_bundles(to, messages):
                self._send(to, packed)
        for report in output.reports:
            self._send(GroupId(0), encode_edge(report))
        for reply in output.replies:
            decoded = decode_edge(encode_edge(reply))
            assert isinstance(decoded, Reply)
            self._answer(decoded)

    def commit(self, count: int) -> None:
        for packed in self.tail[:count]:
            self.log.append(packed)
            batch = decode_batch(packed)
            self._note(self.partition.apply(batch, self._position))
            self._position += len(batch.commands)
            self.commands += len(batch.commands)
        del self.tail[:count]
        self.flush()

    def _note(self, applied: Applied) -> None:
        self.delivered += applied.delivered
        self.begun += [entry.message for entry in applied.begun]
        self.voids += applied.failed
        self.leader.on_applied(applied)

    def change_leader(self, kept: int, *, from_snapshot: bool) -> None:
        """A new leader: what was not committed may be cut, all volatile knowledge is gone, perhaps it installed a snapshot."""
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
        for packed in self.log:
            batch = decode_batch(packed)
            delivered += partition.apply(batch, position).delivered
            position += len(batch.commands)
        return partition, delivered

    @property
    def is_idle(self) -> bool:
        return not self.partition.pending and not self.tail


def report_of(packed: bytes) -> Report:
    report = decode_edge(packed)
    assert isinstance(report, Report)
    return report
