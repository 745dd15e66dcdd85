"""A range of one partition, read once, from whichever replica answers."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from zraft_client.errors import DeadlineError
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError, OffsetGoneError
from zraft_client.topics.records import records_of
from zraft_client.topics.requests import FETCH_BYTES_MAX
from zraft_client.topics.values import Record

PAUSE_S: Final = 0.05


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
    loop = asyncio.get_running_loop()
    timeout_s = directory.client.timeout_s if timeout_s is None else timeout_s
    deadline = loop.time() + timeout_s
    found: list[Record] = []
    why = "nobody was asked"
    while len(found) < count:
        left = deadline - loop.time()
        if left <= 0:
            raise DeadlineError(
                f"{topic}/{partition}: no replica answered within {timeout_s:g} s; the last: {why}"
            )
        server = directory.leader(group)
        try:
            link = directory.link_of(group)
            fetched = await link.ask(requests.fetch([(group, offset, FETCH_BYTES_MAX)], 0), left)
        except LinkError as error:
            why = str(error)
            if server is not None:
                directory.not_there(group, server)
        else:
            if fetched.parts:
                part = fetched.parts[0]
                for delivery in part.deliveries:
                    found += islice(records_of(delivery, topic, partition, offset), count - len(found))
                if not part.deliveries:
                    return found
                offset = part.next
                continue
            refused = fetched.refused[0]
            if refused.kind == "gone" and refused.first is not None:
                raise OffsetGoneError(
                    f"{topic}/{partition}: found records from {refused.first} on, expected {offset}: retention removed it",
                    refused.first,
                )
            why = f"server {link.server}: {refused.kind} {refused.detail}".rstrip()
            await directory.turned_away(group, link.server, refused, deadline - loop.time())
        await asyncio.sleep(PAUSE_S)
    return found
