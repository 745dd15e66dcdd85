"""Directory of topics, partitions and their leaders, as far as this client knows them.

A leader is a guess: the server that should lead, until another one is named. A wrong guess costs one
question.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from zraft_client.calls import Request
from zraft_client.client import Client
from zraft_client.errors import BadArgumentsError, DeadlineError, FailedError
from zraft_client.pacing import delay_s
from zraft_client.topics import requests
from zraft_client.topics.errors import LinkError, NoTopicError
from zraft_client.topics.links import Link, Links
from zraft_client.topics.values import Metadata, Topic
from zraft_core.errors import Code
from zraft_core.ids import GroupId, ServerId
from zraft_core.wire.native.topic_results import ReplicaRefusal

T = TypeVar("T")

ATTEMPT_S: Final = 10.0
"""The time that one server may take over a question before another one is asked."""
REFRESH_S: Final = 2.0
"""The time that group 0 may take to tell where things are, for callers that wait for something else."""


class Directory:
    """A directory that all producers and consumers of one client share."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.links = Links(client)
        self._metadata: Metadata | None = None
        self._refreshing: asyncio.Task[Metadata] | None = None
        self._leaders: dict[GroupId, ServerId] = {}
        self._remove = self.links.listen(self._on_link)

    # -- the table

    @property
    def metadata(self) -> Metadata | None:
        """The table as of the last refresh, None before the first."""
        return self._metadata

    async def known(self) -> Metadata:
        """Return what is known, however old; ask if nothing is."""
        return self._metadata if self._metadata is not None else await self.refresh()

    async def refresh(self) -> Metadata:
        """Ask for the present table. Concurrent callers share one question, unless it was asked before they came."""
        running = self._refreshing
        if running is not None and not running.done():
            await asyncio.wait(
                (running,)
            )  # it may be of a moment before this call, and its failure is not ours
            if self._refreshing is not running and self._refreshing is not None:
                return await asyncio.shield(self._refreshing)
        self._refreshing = asyncio.get_running_loop().create_task(self._ask())
        self._refreshing.add_done_callback(_retrieved)
        return await asyncio.shield(self._refreshing)

    async def _ask(self) -> Metadata:
        found = await self.client.ask(requests.topics(self._metadata))
        self._metadata = found
        self._leaders = {g: s for g, s in self._leaders.items() if g in found.placements}
        self.links.keep(frozenset(found.servers))
        return found

    async def topic(self, name: str) -> Topic:
        """Return a topic with at least one partition; ask again before it is said to be missing.

        Raises:
            NoTopicError: there is no such topic, or it has no partition yet.
        """
        known = await self.known()
        topic = known.topics.get(name)
        if topic is None or not topic.partitions:
            topic = (await self.refresh()).topic(name)
        if not topic.partitions:
            raise NoTopicError(f"topic {name!r}: it is just being created, and has no partition yet")
        return topic

    # -- leaders

    def leader(self, group: GroupId) -> ServerId | None:
        """Return the server that seems to lead; None if nobody can be guessed."""
        found = self._leaders.get(group)
        if found is not None:
            return found
        placement = None if self._metadata is None else self._metadata.placements.get(group)
        if placement is None:
            return None
        return placement.leader or next(iter(placement.servers), None)

    def not_there(self, group: GroupId, asked: ServerId, leader: ServerId | None = None) -> None:
        """Note that `asked` does not lead the group, or cannot be asked, and who leads, if somebody said so."""
        if self.leader(group) != asked:
            return  # known already
        if leader is not None and leader != asked:
            self._leaders[group] = leader
            return
        placement = None if self._metadata is None else self._metadata.placements.get(group)
        ring = [] if placement is None else list(placement.servers)
        if asked in ring:
            self._leaders[group] = ring[(ring.index(asked) + 1) % len(ring)]
        elif ring:
            self._leaders[group] = ring[0]

    async def turned_away(
        self, group: GroupId, asked: ServerId, refusal: ReplicaRefusal, timeout_s: float
    ) -> None:
        """Note that a replica refused to be read, and ask where the group is if it has left that server."""
        self.not_there(group, asked, refusal.leader)
        if refusal.kind == "no_group":
            await self.refresh_quietly(min(REFRESH_S, timeout_s))

    def link_to(self, server: ServerId) -> Link:
        """Return a link to a server.

        Raises:
            LinkError: its address is not known.
        """
        metadata = self._metadata
        return self.links.to(server, None if metadata is None else metadata.servers.get(server))

    def link_of(self, group: GroupId) -> Link:
        """Return a link to the server that seems to lead.

        Raises:
            LinkError: nobody knows where the group is.
        """
        server = self.leader(group)
        if server is None:
            raise LinkError(f"group {group}: nobody knows where it is")
        return self.link_to(server)

    def _on_link(self, link: Link) -> None:
        if link.is_up or self._metadata is None:
            return
        for group, placement in self._metadata.placements.items():
            if link.server in placement.servers and self.leader(group) == link.server:
                self.not_there(group, link.server)

    # -- asking a leader

    async def ask_leader(self, group: GroupId, request: Request[T | ReplicaRefusal], timeout_s: float) -> T:
        """Ask the leader, and search it as long as it takes. The request may be carried out more than once.

        Raises:
            DeadlineError: nobody answered in time.
            ClientError: it was refused for good.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        attempt, why = 0, "nobody was asked"
        while (left := deadline - loop.time()) > 0:
            server = self.leader(group)
            try:
                link = self.link_of(group)
                answer = await link.ask(request, min(left, ATTEMPT_S))
                if not isinstance(answer, ReplicaRefusal):
                    return answer
                why = f"server {link.server}: {answer.kind} {answer.detail}".rstrip()
                if answer.kind == "too_large":
                    raise BadArgumentsError(
                        f"group {group}: {answer.detail or answer.kind}", Code.BAD_ARGUMENTS
                    )
                if answer.kind in ("not_leader", "no_group", "timeout"):
                    self.not_there(group, link.server, answer.leader)
                    if answer.leader is not None and attempt == 0:
                        attempt = 1
                        continue
            except LinkError as error:
                why = str(error)
                if server is not None:
                    self.not_there(group, server)
            attempt += 1
            if attempt % 4 == 0:
                await self.refresh_quietly(min(REFRESH_S, deadline - loop.time()))
            await asyncio.sleep(
                min(delay_s(min(attempt, 4), self.client.rng), max(0.0, deadline - loop.time()))
            )
        raise DeadlineError(f"group {group}: no leader answered within {timeout_s:g} s; the last: {why}")

    async def refresh_quietly(self, timeout_s: float | None = None) -> None:
        """Refresh if group 0 answers in time; partitions may well be available while it is not."""
        try:
            async with asyncio.timeout(max(0.01, REFRESH_S if timeout_s is None else timeout_s)):
                await self.refresh()
        except (TimeoutError, FailedError):
            return

    async def close(self) -> None:
        """End the directory and its connections."""
        self._remove()
        if self._refreshing is not None and not self._refreshing.done():
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self.links.close()


def _retrieved(task: asyncio.Task[Metadata]) -> None:
    if not task.cancelled():
        task.exception()  # the waiting caller raises it, if there still is one
