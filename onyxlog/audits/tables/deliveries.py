"""Table `deliveries`: what partitions of topics delivered, from their delivery segments."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class DeliveryRow(Placed):
    """One delivery of a partition, as one server keeps it.

    Attributes:
        offset: dense, from 0, in the partition's log; `file_offset` is that of the frame.
        span: how many offsets the message takes, one for each of its records.
        time, time_group, sub, single: the stamp (T, G, sub, g).
        producer, number: name the message.
        index: Raft index of the entry that delivered it.
        destinations: groups that the message names, None if the payload is no message of ours.
        payload_digest: BLAKE2b-128 of what consumers are given (the message as encoded).
        chain: the digest after this delivery, recomputed.
        payload: only with option `payloads`.
    """

    group: int
    offset: int
    span: int = 1
    time: int
    time_group: int
    sub: int
    single: int
    producer: int
    number: int
    index: int
    wall_time_ms: int
    destinations: tuple[int, ...] | None = None
    size: int = 0
    payload_digest: bytes = b""
    chain: bytes = b""
    payload: bytes | None = None


DELIVERIES: Final = Table(
    "deliveries",
    DeliveryRow,
    "what partitions delivered",
    comes_from="servers with a topic that has messages",
)
