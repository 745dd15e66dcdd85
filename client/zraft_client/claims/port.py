"""The service as consumers need it: a protocol that the native client, a fake and the simulator implement.

Every call may raise `PortError`: then a command may have been carried out or not, may be carried out later,
and even twice. Consumers are written for that.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.claims.commands import ClaimCommand


@frozen
class Record:
    """A message as its partition has it."""

    offset: int
    value: bytes


@frozen
class Fetched:
    """Messages at or above the offset asked for, in order.

    Below `earliest` retention removed them; `end` is exclusive.
    """

    records: tuple[Record, ...]
    earliest: int
    end: int


@frozen
class Seen:
    """Result of a look at a partition; it may be outdated when it arrives.

    `plain`: the servers' release knows neither intervals of single claims nor commits of ranges.
    """

    view: ClaimsView
    earliest: int
    end: int
    plain: bool = False


class ClaimsPort(Protocol):
    """The service, for consumers."""

    async def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has, 0 if there is none of that name."""
        ...

    async def look(self, topic: str, partition: int, group: str) -> Seen:
        """Return the group's claims on the partition, and the partition's bounds."""

    async def submit(self, topic: str, partition: int, command: ClaimCommand) -> ClaimAnswer:
        """Let the partition's group carry out a command, and return its answer."""
        ...

    async def fetch(self, topic: str, partition: int, first: int, count: int, bytes_max: int) -> Fetched:
        """Return at most `count` committed messages from `first` on; none if there are none yet.

        They have at most `bytes_max` bytes, but a single message may have any size. It may wait a while for
        the first one: so a fetch that brings nothing need not be repeated at once.
        """
        ...
