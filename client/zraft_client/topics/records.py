"""Conversion of partitions' deliveries to records for programs. Pure."""

from __future__ import annotations

from zraft_client.topics.payloads import decode_content
from zraft_client.topics.values import Record
from zraft_core.topics.message import Delivery


def record_of(delivery: Delivery, topic: str, partition: int) -> Record | None:
    """Return the record of a delivery; None for one that only changes the topic's partitions.

    Raises:
        PayloadError: its value is compressed and cannot be read.
    """
    message = delivery.message
    if message.partitions is not None:
        return None
    content = decode_content(message.payload)
    return Record(
        topic,
        partition,
        delivery.offset,
        delivery.stamp,
        content.value,
        content.key,
        content.headers,
        message.mid,
        message.destinations,
    )
