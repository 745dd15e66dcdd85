"""State of a partition's group: the partition, the claims on it, and results that were not taken yet.

Pure. Changes by committed entries alone (D-5). The birth is the first entry that counts: until then there is no partition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final

from attrs import frozen

from zraft.raft.messages import Entry, EntryKind
from zraft.storage.delivery.values import Mark, Stamp, StoredDelivery, beginning
from zraft.topics.applied import Applied, BrokenGroupError
from zraft.topics.entries import BatchEntry, BirthEntry, PartitionEntry, decode_entry
from zraft.topics.group_image import decode_group_image, encode_group_image, encode_unborn
from zraft.topics.image import read_image
from zraft.topics.partition import Partition
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.snapshot import decode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.topics import stamps as topics
from zraft_core.topics.codec import encode_message

_NOTHING: Final[tuple[bytes, BatchEntry | None]] = b"", None


@frozen
class AppliedEntry:
    """Result of an entry.

    `applied` is None for a birth; `answers` are those to its claims' commands, in order.
    """

    index: int
    term: int
    applied: Applied | None
    answers: tuple[ClaimAnswer, ...] = ()
    deliveries: tuple[StoredDelivery, ...] = ()


class PartitionMachine:
    """A `zraft.groups.machine.StateMachine`.

    Attributes:
        partition, claims: None before the birth.
        error: why it stopped; "" while it has not.
        restored_total: how often the offset of the next delivery became another one at once: by a snapshot that took the
            place of the state, or by the birth of a partition that begins above those of the one before it.
        restored_offset: what it became last.
    """

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.partition: Partition | None = None
        self.claims: Claims | None = None
        self.error = ""
        self.restored_total = 0
        self.restored_offset = 0
        self._last_stamp: Stamp | None = None
        self._fresh: list[AppliedEntry] = []
        self._proposed: dict[int, tuple[bytes, BatchEntry]] = {}

    @property
    def stopped(self) -> bool:
        """True after an error in the state, after which nothing is applied."""
        return bool(self.error)

    @property
    def next_offset(self) -> int:
        """The offset of the next delivery."""
        return 0 if self.partition is None else self.partition.next_offset

    @property
    def log_time_ms(self) -> int:
        """The log time of the last entry (D-12)."""
        if self.partition is None or self.claims is None:
            return 0
        return max(self.partition.log_time_ms, self.claims.log_time_ms)

    def take_fresh(self) -> list[AppliedEntry]:
        """Return the results since the last call, in order."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def proposed(self, index: int, payload: bytes, entry: BatchEntry) -> None:
        """Remember what an entry means that this server has appended to the log, so as not to decode its bytes again.

        The caller bounds how many there are. Who gives an entry that its bytes do not mean makes the replicas differ.
        """
        self._proposed[index] = payload, entry

    def forget_proposed(self) -> None:
        """Forget what was proposed and not applied, since the leadership is over."""
        self._proposed.clear()

    def _meaning(self, entry: Entry) -> PartitionEntry:
        """Return what an entry says. If it is another one than was proposed at its index, its bytes do."""
        payload, meant = self._proposed.pop(entry.index, _NOTHING)
        return meant if meant is not None and payload is entry.payload else decode_entry(entry.payload)

    # -- a state machine

    def apply(self, entry: Entry) -> bool:
        """Take the next entry. One that cannot be carried out stops the group here, as it does on all of its replicas."""
        if entry.kind is not EntryKind.COMMANDS:
            return True
        try:
            self._fresh.append(self._apply(entry))
        except (BrokenGroupError, ProtocolError) as error:
            self.error = f"group {self.group}, entry {entry.index}: {error}"
            return False
        return True

    def _apply(self, entry: Entry) -> AppliedEntry:
        found = self._meaning(entry)
        if isinstance(found, BirthEntry):
            if self.partition is None:
                self.partition = Partition(
                    *(self.group, found.view),
                    born=found.born,
                    settings=found.settings,
                    first_offset=found.first_offset,
                    first_time=found.first_time,
                )
                self.partition.restore_log_time(found.log_time_ms)
                if found.first_offset:
                    self.restored_total += 1
                    self.restored_offset = found.first_offset
                self.claims = Claims(
                    found.heartbeat_ms, position=entry.position, log_time_ms=found.log_time_ms
                )
            return AppliedEntry(entry.index, entry.term, None)
        partition, claims = self.partition, self.claims
        if partition is None or claims is None:
            raise ProtocolError("commands before the partition's birth; its log lost its beginning")
        return self._apply_batch(partition, claims, entry, found)

    def _apply_batch(
        self, partition: Partition, claims: Claims, entry: Entry, found: BatchEntry
    ) -> AppliedEntry:
        if found.count != entry.count:
            raise ProtocolError(f"{found.count} commands where the log counts {entry.count}")
        applied = partition.apply(found.batch, entry.position)
        deliveries = tuple(
            [
                StoredDelivery(
                    one.offset,
                    one.stamp,
                    *one.message.mid,
                    one.encoded or encode_message(one.message),
                    entry.index,
                    found.wall_ms,
                    one.message.records or 1,
                    one.digest,
                )
                for one in applied.delivered
            ]
        )
        if deliveries:
            self._last_stamp = deliveries[-1].stamp
        first = entry.position + len(found.batch.commands)
        log_time_ms, end = partition.log_time_ms, partition.next_offset
        answers = tuple(
            [claims.apply(command, first + at, log_time_ms, end) for at, command in enumerate(found.claims)]
        )
        return AppliedEntry(entry.index, entry.term, applied, answers, deliveries)

    def snapshot(self) -> bytes:
        """Return the state as the bytes of a snapshot."""
        partition, claims = self.partition, self.claims
        if partition is None or claims is None:
            return encode_unborn(self.group)
        return encode_group_image(partition, claims, self._last_stamp)

    def prepare_restore(self, image: bytes) -> Callable[[], None]:
        """Read the state of a snapshot, and change nothing yet.

        Returns:
            A function that replaces the state by that one. It cannot fail.

        Raises:
            ProtocolError: the bytes are no image of this group, or contradict themselves.
        """
        read = decode_group_image(image, self.group)
        if read is None:
            return partial(self._adopt, None, None, None)
        place = read.place
        partition = read_image(read.pieces)
        found = partition.group, partition.next_offset, partition.chain
        if found != (self.group, place.next_offset, place.chain):
            raise ProtocolError(f"image of group {self.group}: its state does not belong to {place}")
        return partial(self._adopt, partition, decode_snapshot(read.claims), _plain(place.last_stamp))

    def _adopt(self, partition: Partition | None, claims: Claims | None, last_stamp: Stamp | None) -> None:
        self.partition, self.claims, self._last_stamp = partition, claims, last_stamp
        self._fresh.clear()
        self._proposed.clear()
        self.restored_total += 1
        self.restored_offset = self.next_offset

    def digest(self) -> int:
        """Return the digest of the whole state."""
        return int.from_bytes(blake2b(self.snapshot(), digest_size=16).digest())


def mark_of_image(group: GroupId, image: bytes, index: int) -> Mark:
    """Return where the group's deliveries stand in a snapshot that covers the log up to `index`.

    Raises:
        ProtocolError: the bytes are no image of that group.
    """
    read = decode_group_image(image, group)
    if read is None:
        return beginning(group)
    place = read.place
    return Mark(place.next_offset, _plain(place.last_stamp), place.chain, index)


def _plain(stamp: topics.Stamp | None) -> Stamp | None:
    """Return a stamp as deliveries on the disk have it."""
    return None if stamp is None else (stamp.time, stamp.group, stamp.sub, stamp.single)
