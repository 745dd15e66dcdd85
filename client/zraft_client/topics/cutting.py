"""A consistent copy of all topics while they are written to: everything up to one time, partition by partition.

The decisions are in `zraft_core.topics.cut`. Nothing is held up and nothing is changed, but for idle partitions, which are
asked to let a time pass, as merged consumers ask them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from attrs import frozen

from zraft_client.errors import DeadlineError
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError, NoTopicError
from zraft_client.topics.fetching import fetch_part
from zraft_client.topics.requests import BEYOND, FETCH_BYTES_MAX, Part
from zraft_client.topics.values import Metadata, Topic
from zraft_core.claims.answers import ClaimsView
from zraft_core.ids import GroupId
from zraft_core.topics.cut import Cut
from zraft_core.topics.message import Delivery
from zraft_core.topics.stamps import Stamp

T = TypeVar("T")

ASKED_AT_ONCE: Final = 64
"""Partitions that are asked at a time."""
LOOK_S: Final = 3.0
"""The time after which it is looked whether a partition that does not answer is gone, with its topic."""
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 0.5
WAIT_MS: Final = 500


@frozen
class Consumption:
    """Places of the consumers of a partition before the cut: offsets that they stored, and groups that share by claims.

    `end` is where the partition ended then.
    """

    end: int
    offsets: Mapping[bytes, int]
    groups: tuple[ClaimsView, ...]


@frozen
class TopicsCut:
    """A cut, the topics through which it goes, and how far the consumers of each partition were.

    Partitions that are being added to a topic are among them: the change that adds one may be below the cut.
    """

    cut: Cut
    topics: tuple[Topic, ...]
    features: int
    consumption: Mapping[GroupId, Consumption]


class _Moved(Exception):
    """Topics were created, deleted or altered meanwhile."""


async def cut_topics(directory: Directory, timeout_s: float) -> TopicsCut:
    """Choose a cut above all that was delivered before this call, and wait until every partition has passed it.

    The table of topics is the same before and after that. So a message below the cut names no partition that the table
    does not have, unless one that was deleted.

    Raises:
        DeadlineError: a partition has no leader, or the table did not stand still for so long.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while loop.time() < deadline:
        before = await directory.refresh()
        try:
            found = await _Cutting(directory, before, deadline).made()
        except _Moved:
            continue
        if _is_same(before, await directory.refresh()):
            return found
    raise DeadlineError(
        f"topics were created, altered or deleted again and again for {timeout_s:g} s; wait for that, or give more time"
    )


async def deliveries_below(
    directory: Directory, cut: Cut, group: GroupId, called: str, timeout_s: float, first: int
) -> AsyncIterator[Sequence[Delivery]]:
    """Yield the deliveries of a partition that passed the cut, from `first` up to the cut, some at a time.

    `timeout_s` is for each step, and `called` is what errors call the partition.

    Raises:
        OffsetGoneError: retention removed the next ones.
        NoTopicError: the topic was deleted.
        DeadlineError: no replica answered in time.
    """
    offset = first
    while True:
        read = partial(fetch_part, directory, group, offset, FETCH_BYTES_MAX, wait_ms=WAIT_MS, called=called)
        part = await _Patience(directory, timeout_s).over(group, read)
        below = cut.below(part.deliveries)
        if below:
            yield below
        if len(below) < len(part.deliveries) or cut.passed(part.frontier):
            return
        offset = part.next


async def first_offset(directory: Directory, group: GroupId, called: str, timeout_s: float) -> int:
    """Return where a partition begins now.

    Raises:
        NoTopicError: the topic was deleted.
        DeadlineError: no replica answered in time.
    """
    look = partial(fetch_part, directory, group, BEYOND, 0, called=called)
    return (await _Patience(directory, timeout_s).over(group, look)).first


class _Patience:
    """Waiting for one partition, for as long as it exists."""

    def __init__(self, directory: Directory, timeout_s: float) -> None:
        self._directory = directory
        self._until = asyncio.get_running_loop().time() + timeout_s

    async def over(self, group: GroupId, ask: Callable[..., Awaitable[T]]) -> T:
        """Ask again and again; `ask` gets the seconds that it may take, as `timeout_s`.

        Raises:
            NoTopicError: the partition is gone or goes.
            DeadlineError: nobody answered in time.
        """
        loop = asyncio.get_running_loop()
        while True:
            left = self._until - loop.time()
            try:
                return await ask(timeout_s=max(0.001, min(left, LOOK_S)))
            except DeadlineError:
                metadata = await self._directory.refresh()
                if group not in metadata.homes:
                    raise NoTopicError(f"group {group}: its topic was deleted") from None
                if left <= LOOK_S:
                    raise


class _Cutting:
    """One attempt."""

    def __init__(self, directory: Directory, table: Metadata, deadline: float) -> None:
        self._directory = directory
        self._table = table
        self._deadline = deadline
        self._room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def made(self) -> TopicsCut:
        table = self._table
        consumption: dict[GroupId, Consumption] = {}
        frontiers: list[Stamp] = []

        async def look(group: GroupId) -> None:
            found = consumption[group] = await self._consumption(group)
            frontiers.append(await self._frontier(group, found.end))

        await self._each(table.homes, look)
        cut = Cut.above(frontiers)
        await self._each(table.homes, lambda group: self._pass(group, cut))
        topics = tuple(sorted(table.topics.values(), key=lambda topic: topic.name))
        return TopicsCut(cut, topics, table.features, consumption)

    async def _each(self, groups: Iterable[GroupId], do: Callable[[GroupId], Awaitable[None]]) -> None:
        async def one(group: GroupId) -> None:
            async with self._room:
                await do(group)

        tasks = [asyncio.create_task(one(group)) for group in groups]
        try:
            await asyncio.gather(*tasks)
        except NoTopicError:
            raise _Moved from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _over(self, group: GroupId, ask: Callable[..., Awaitable[T]]) -> T:
        left = self._deadline - asyncio.get_running_loop().time()
        return await _Patience(self._directory, left).over(group, ask)

    def _called(self, group: GroupId) -> str:
        topic, number = self._table.homes[group]
        return f"{topic}/{number}"

    async def _consumption(self, group: GroupId) -> Consumption:
        """Return how far consumers are, and where the partition ends, neither of which is stale."""
        ask = self._directory.ask_leader
        found = await self._over(group, partial(ask, group, requests.consumers(group)))
        offsets: dict[bytes, int] = {}
        groups: list[ClaimsView] = []
        for name, offset, owners in found.consumers or ():
            if owners is None:
                offsets[name] = offset
            else:
                groups.append(
                    await self._over(group, partial(ask, group, requests.claims(group, name.decode())))
                )
        return Consumption(found.end or 0, offsets, tuple(groups))

    async def _look(self, group: GroupId) -> Part:
        """Return where some replica of a partition is."""
        look = partial(fetch_part, self._directory, group, BEYOND, 0, called=self._called(group))
        return await self._over(group, look)

    async def _frontier(self, group: GroupId, end: int) -> Stamp:
        """Return the frontier of a replica that has delivered up to `end`."""
        while (part := await self._look(group)).end < end:
            await self._pause(group, PAUSE_S)
        return part.frontier

    async def _pass(self, group: GroupId, cut: Cut) -> None:
        """Wait until a replica of the partition has passed the cut, and ask for it."""
        pause = PAUSE_S
        while not cut.passed((await self._look(group)).frontier):
            try:
                await self._directory.link_of(group).ask(requests.need({group: cut.needed}), LOOK_S)
            except LinkError:
                pass  # the next look asks another replica
            await self._pause(group, pause)
            pause = min(2 * pause, PAUSE_S_MAX)

    async def _pause(self, group: GroupId, pause: float) -> None:
        if asyncio.get_running_loop().time() >= self._deadline:
            raise DeadlineError(
                f"{self._called(group)}: it does not pass the time of the cut; it waits for another partition of one of its "
                "messages, or has no leader (`zraft status`)"
            )
        await asyncio.sleep(pause)


def _is_same(one: Metadata, other: Metadata) -> bool:
    """Return whether two tables have the same topics and partitions."""
    return one.topics == other.topics
