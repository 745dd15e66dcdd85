"""Conversion of partitions' deliveries to records for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from zraft_client.topics.payloads import PayloadError, decode_content
from zraft_client.topics.values import Record
from zraft_core.errors import ProtocolError
from zraft_core.records import Headers, read_batch
from zraft_core.topics.message import Delivery

DECODED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that the records of one batch may come to when they are decompressed."""

_NO_HEADERS: Final[Mapping[str, bytes]] = {}


def records_of(delivery: Delivery, topic: str, partition: int, offset: int = 0) -> Iterator[Record]:
    """Yield the records of a delivery from `offset` on, each decoded when it is asked for.

    There are none in one that only changes the topic's partitions.

    Raises:
        PayloadError: the records cannot be read.
        MissingPackageError: they are compressed, and the package for that is not installed.
    """
    message = delivery.message
    if message.partitions is not None:
        return
    if message.records:
        yield from _records_of_batch(delivery, topic, partition, max(0, offset - delivery.offset))
    elif offset <= delivery.offset:
        content = decode_content(message.payload)
        place = topic, partition, delivery.offset, delivery.stamp
        yield Record(*place, content.value, content.key, content.headers, message.mid, message.destinations)


def _records_of_batch(delivery: Delivery, topic: str, partition: int, index: int) -> Iterator[Record]:
    message, stamp = delivery.message, delivery.stamp
    mid, destinations, first = message.mid, message.destinations, delivery.offset
    try:
        for one in read_batch(message.payload, DECODED_BYTES_MAX, index, message.records):
            value = one.value
            yield Record(
                topic,
                partition,
                first + index,
                stamp,
                b"" if value is None else value,
                one.key,
                _as_mapping(one.headers) if one.headers else _NO_HEADERS,
                mid,
                destinations,
                one.timestamp,
                index,
                value is None,
            )
            index += 1
    except ProtocolError as error:
        raise PayloadError(f"{topic}/{partition}, offset {first}: {error}") from error


def _as_mapping(headers: Headers) -> Mapping[str, bytes]:
    return {name: b"" if value is None else value for name, value in headers}
