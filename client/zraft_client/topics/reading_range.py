"""A range of one partition, read once, from whichever replica answers; the leader says where it ends."""

from __future__ import annotations

import asyncio
from itertools import islice

from zraft_client.topics.bounds import bounds_of
from zraft_client.topics.directory import Directory
from zraft_client.topics.fetching import PAUSE_S, fetch_part
from zraft_client.topics.records import records_of
from zraft_client.topics.requests import FETCH_BYTES_MAX
from zraft_client.topics.values import Record


async def read_range(
    directory: Directory,
    topic: str,
    partition: int,
    offset: int,
    count: int,
    *,
    timeout_s: float | None = None,
) -> list[Record]:
    """Return up to `count` records from `offset` on; fewer if the partition ends before.

    Raises:
        NoTopicError: there is no such partition.
        OffsetGoneError: retention removed `offset`.
        DeadlineError: no replica answered in time.
    """
    metadata = await directory.known()
    if topic not in metadata.topics or partition >= len(metadata.topics[topic].partitions):
        metadata = await directory.refresh()
    group = metadata.group(topic, partition)
    called = f"{topic}/{partition}"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (directory.client.timeout_s if timeout_s is None else timeout_s)
    found: list[Record] = []
    while len(found) < count:
        part = await fetch_part(
            directory, group, offset, FETCH_BYTES_MAX, timeout_s=deadline - loop.time(), called=called
        )
        for delivery in part.deliveries:
            found += islice(records_of(delivery, topic, partition, offset), count - len(found))
        offset = part.next
        if part.deliveries:
            continue
        # A replica that lags has nothing more; only the leader knows whether there is more.
        if (await bounds_of(directory, group, deadline - loop.time())).end <= offset:
            return found
        await asyncio.sleep(PAUSE_S)
    return found
