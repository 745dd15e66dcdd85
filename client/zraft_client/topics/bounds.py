"""Request for the first and last offset of a partition, which its leader answers."""

from __future__ import annotations

from zraft_client.topics.directory import Directory
from zraft_client.topics.fetching import fetch_part
from zraft_client.topics.requests import BEYOND
from zraft_client.topics.values import Bounds
from zraft_core.ids import GroupId


async def bounds_of(directory: Directory, group: GroupId, timeout_s: float) -> Bounds:
    """Return where a partition begins and ends: whatever was acknowledged before the call is in it.

    Servers of the release before let any replica answer, which may lag.

    Raises:
        DeadlineError: the partition's leader did not answer in time.
    """
    part = await fetch_part(directory, group, BEYOND, 0, timeout_s=timeout_s)
    return Bounds(part.first, part.end)
