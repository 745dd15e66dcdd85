"""What stands in the log of a partition's group: its birth first, then batches of topics' and of claims' commands. Pure.

docs/TOPICS.md, "Formats".
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from zraft_core.claims.codec import decode_command, encode_command
from zraft_core.claims.commands import Command as ClaimCommand
from zraft_core.errors import ProtocolError
from zraft_core.topics import layouts
from zraft_core.topics.codec import decode_batch, encode_batch
from zraft_core.topics.commands import Batch
from zraft_core.topics.layouts import array, from_bytes, number, to_bytes, wrong
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.view import View

FORMAT: Final = 1
_BATCH, _BIRTH = 1, 2
_CLAIM: Final = layouts.binary(1, 1 << 20)
_BATCH_BYTES: Final = layouts.binary(1, 1 << 30)


@frozen
class BatchEntry:
    """One turn's commands. Those of topics come first, in positions as well; all have the batch's log time.

    `wall_ms`: for people and for retention.
    """

    wall_ms: int
    batch: Batch
    claims: tuple[ClaimCommand, ...] = ()

    @property
    def count(self) -> int:
        """How many positions of the log it takes (D-16)."""
        return len(self.batch.commands) + len(self.claims)


@frozen
class BirthEntry:
    """What the partition begins with: what its leader found in group 0's state. Only the first one of a log counts.

    `born` as in `Partition`; `heartbeat_ms` is that of claims until somebody configures another one.
    """

    wall_ms: int
    log_time_ms: int
    view: View
    settings: PartitionSettings
    born: bool
    heartbeat_ms: int
    count: int = 1


PartitionEntry = BatchEntry | BirthEntry


def encode_entry(entry: PartitionEntry) -> bytes:
    """The payload of one entry of a partition's log."""
    if isinstance(entry, BatchEntry):
        claims = [encode_command(command) for command in entry.claims]
        return to_bytes((FORMAT, _BATCH, entry.wall_ms, encode_batch(entry.batch), claims))
    settings = entry.settings
    return to_bytes(
        (
            *(FORMAT, _BIRTH, entry.wall_ms, entry.log_time_ms, layouts.pack_view(entry.view)),
            *((settings.window, settings.consumers_max), entry.born, entry.heartbeat_ms),
        )
    )


def decode_entry(payload: bytes | memoryview) -> PartitionEntry:
    """The entry of exactly these bytes.

    Raises:
        ProtocolError: they are not one; the group must stop, because all its replicas would have to guess alike (D-5).
    """
    items = array(from_bytes(payload), "entry of a partition's log")
    if len(items) < 3 or items[0] != FORMAT:
        raise ProtocolError(
            f"entry of a partition's log: expected an array of format {FORMAT}, found {layouts.found(items[:1])}: a newer "
            "release wrote it; upgrade this server"
        )
    wall_ms = number.unpack(items[2], "entry's wall time")
    if items[1] == _BATCH:
        return _batch(items, wall_ms)
    if items[1] == _BIRTH:
        return _birth(items, wall_ms)
    raise wrong("kind of a partition's entry", f"{_BATCH} or {_BIRTH}; a newer release may know it", items[1])


def _batch(items: tuple[Any, ...], wall_ms: int) -> BatchEntry:
    _, _, _, batch, claims = array(items, "entry of a partition's log", 5)
    return BatchEntry(
        wall_ms,
        decode_batch(_BATCH_BYTES.unpack(batch, "entry's batch")),
        tuple(
            [
                decode_command(_CLAIM.unpack(one, "command of claims"))
                for one in array(claims, "entry's claims")
            ]
        ),
    )


def _birth(items: tuple[Any, ...], wall_ms: int) -> BirthEntry:
    _, _, _, log_time_ms, view, settings, born, heartbeat_ms = array(items, "birth of a partition", 8)
    whole = layouts.view.unpack(view, "birth's view")
    if not isinstance(whole, View):
        raise wrong("birth's view", "a whole view", view)
    window, consumers_max = array(settings, "birth's settings", 2)
    return BirthEntry(
        wall_ms,
        number.unpack(log_time_ms, "birth's log time"),
        whole,
        PartitionSettings(number.unpack(window, "window"), number.unpack(consumers_max, "consumers_max")),
        layouts.boolean.unpack(born, "born"),
        number.unpack(heartbeat_ms, "heartbeat_ms"),
    )
