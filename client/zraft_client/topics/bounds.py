"""Request for the first and last offset of a partition, to any replica."""

from __future__ import annotations

import asyncio
from typing import Final

from zraft_client.errors import DeadlineError
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError
from zraft_client.topics.values import Bounds
from zraft_core.ids import GroupId

PAUSE_S: Final = 0.05


async def bounds_of(directory: Directory, group: GroupId, timeout_s: float) -> Bounds:
    """Return where a partition begins and ends, by any replica.

    Raises:
        DeadlineError: no replica answered in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    why = "nobody was asked"
    while (left := deadline - loop.time()) > 0:
        server = directory.leader(group)
        try:
            link = directory.link_of(group)
            fetched = await link.ask(requests.fetch([(group, requests.BEYOND, 0)], 0), left)
        except LinkError as error:
            why = str(error)
            if server is not None:
                directory.not_there(group, server)
        else:
            for part in fetched.parts:
                return Bounds(part.first, part.end)
            refused = fetched.refused[0]
            why = f"server {link.server}: {refused.kind} {refused.detail}".rstrip()
            await directory.turned_away(group, link.server, refused, deadline - loop.time())
        await asyncio.sleep(min(PAUSE_S, max(0.0, left)))
    raise DeadlineError(f"group {group}: no replica answered within {timeout_s:g} s; the last: {why}")
