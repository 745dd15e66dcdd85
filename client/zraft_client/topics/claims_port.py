"""The port of `zraft_client.claims` on real partitions: Marshal's consumers over `Topics`.

Commands and looks go to a partition's leader, messages come from any replica. Every failure is a `PortError`:
consumers repeat what was not answered, and their commands are made for that. Only what an ACL forbids is raised as it is,
a `NoAuthError`, which ends the consumer.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from zraft_client.claims.errors import PortError
from zraft_client.claims.port import Fetched, Record, Seen
from zraft_client.errors import ClientError, NoAuthError
from zraft_client.topics import requests
from zraft_client.topics.bounds import bounds_of
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError, NoTopicError
from zraft_client.topics.records import records_of
from zraft_client.topics.requests import FETCH_BYTES_MAX
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.commands import ClaimCommand
from zraft_core.ids import GroupId

TIMEOUT_S: Final = 10.0
"""Consumers have deadlines of their own, which are shorter."""
FETCH_WAIT_MS: Final = 1_000
"""The time that a replica keeps a fetch that finds nothing. It is shorter than consumers' deadlines, and an
idle claim asks once a second.
"""


class TopicsPort:
    """A `ClaimsPort`; give it to `Marshaler`."""

    def __init__(self, directory: Directory, *, timeout_s: float = TIMEOUT_S) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._fetch_wait_ms = min(FETCH_WAIT_MS, int(timeout_s * 500))

    async def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has; 0 if there is no such topic.

        Raises:
            PortError: no server answered.
        """
        try:
            return len((await self._directory.topic(topic)).partitions)
        except NoTopicError:
            return 0
        except NoAuthError:
            raise
        except ClientError as error:
            raise PortError(f"{topic}: {error}") from error

    async def look(self, topic: str, partition: int, group: str) -> Seen:
        """Return the group's claims and the partition's bounds, both from its leader.

        Raises:
            PortError: no server answered in time, or the leader refused.
        """
        try:
            home = await self._home(topic, partition)
            view, bounds = await asyncio.gather(
                self._directory.ask_leader(home, requests.claims(home, group), self._timeout_s),
                bounds_of(self._directory, home, self._timeout_s),
            )
        except NoAuthError:
            raise
        except ClientError as error:
            raise PortError(f"{topic}/{partition}: {error}") from error
        metadata = await self._directory.known()
        return Seen(view, bounds.first, bounds.end, plain=not metadata.knows_rounds)

    async def submit(self, topic: str, partition: int, command: ClaimCommand) -> ClaimAnswer:
        """Let the partition's leader carry out a command, and return its answer.

        Raises:
            PortError: nobody answered; the command may have been carried out.
        """
        try:
            home = await self._home(topic, partition)
            return await self._directory.ask_leader(home, requests.claim(home, command), self._timeout_s)
        except NoAuthError:
            raise
        except ClientError as error:
            raise PortError(f"{topic}/{partition}: {error}") from error

    async def fetch(self, topic: str, partition: int, first: int, count: int, bytes_max: int) -> Fetched:
        """Return records from any replica, after a short wait if there are none yet.

        Raises:
            PortError: no replica answered, or it refused.
        """
        try:
            home = await self._home(topic, partition)
            link = self._directory.link_of(home)
            part = (home, first, min(bytes_max, FETCH_BYTES_MAX))
            fetched = await link.ask(requests.fetch([part], self._fetch_wait_ms), self._timeout_s)
        except LinkError as error:
            self._elsewhere(topic, partition)
            raise PortError(f"{topic}/{partition}: {error}") from error
        except NoAuthError:
            raise
        except ClientError as error:
            raise PortError(f"{topic}/{partition}: {error}") from error
        for refused in fetched.refused:
            if refused.kind == "gone" and refused.first is not None:
                return Fetched((), refused.first, max(first, refused.first))
            await self._directory.turned_away(home, link.server, refused, self._timeout_s)
            raise PortError(f"{topic}/{partition}: {refused.kind} {refused.detail}")
        found = fetched.parts[0]
        records: list[Record] = []
        # A record that only changes the topic's partitions is nothing to process; offsets may leave gaps.
        for delivery in found.deliveries:
            some = islice(records_of(delivery, topic, partition, first), count - len(records))
            records += (Record(one.offset, one.value) for one in some)
            if len(records) >= count:
                break
        return Fetched(tuple(records), found.first, found.end)

    async def _home(self, topic: str, partition: int) -> GroupId:
        return (await self._directory.topic(topic)).partitions[partition]

    def _elsewhere(self, topic: str, partition: int) -> None:
        """Let the next fetch ask another replica."""
        metadata = self._directory.metadata
        group = None if metadata is None else metadata.group(topic, partition)
        server = None if group is None else self._directory.leader(group)
        if group is not None and server is not None:
            self._directory.not_there(group, server)
