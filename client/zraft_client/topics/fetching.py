"""One fetch of one partition, from whichever replica answers."""

from __future__ import annotations

import asyncio
from typing import Final

from zraft_client.errors import DeadlineError
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError, OffsetGoneError
from zraft_client.topics.requests import Part
from zraft_core.ids import GroupId

PAUSE_S: Final = 0.05


async def fetch_part(
    directory: Directory,
    group: GroupId,
    offset: int,
    bytes_max: int,
    *,
    timeout_s: float,
    wait_ms: int = 0,
    called: str = "",
) -> Part:
    """Return what a partition has from an offset on; nothing if nothing came within `wait_ms`.

    Args:
        called: what errors call the partition, if not by its group.

    Raises:
        OffsetGoneError: retention removed the offset.
        DeadlineError: no replica answered in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    called = called or f"group {group}"
    why = "nobody was asked"
    while (left := deadline - loop.time()) > 0:
        server = directory.leader(group)
        try:
            link = directory.link_of(group)
            fetched = await link.ask(requests.fetch([(group, offset, bytes_max)], wait_ms), left)
        except LinkError as error:
            why = str(error)
            if server is not None:
                directory.not_there(group, server)
        else:
            if fetched.parts:
                return fetched.parts[0]
            refused = fetched.refused[0]
            if refused.kind == "gone" and refused.first is not None:
                raise OffsetGoneError(
                    f"{called}: found records from {refused.first} on, expected {offset}: retention removed it",
                    refused.first,
                )
            why = f"server {link.server}: {refused.kind} {refused.detail}".rstrip()
            await directory.turned_away(group, link.server, refused, deadline - loop.time())
        await asyncio.sleep(min(PAUSE_S, max(0.0, deadline - loop.time())))
    raise DeadlineError(f"{called}: no replica answered within {timeout_s:.3g} s; the last: {why}")
