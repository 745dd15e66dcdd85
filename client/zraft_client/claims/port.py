"""The service as consumers need it: a protocol, so that the native client, a fake and the simulator fit alike.

Every call may raise `PortError`: then a command may have been carried out or not, may be carried out later, and even
twice. Consumers are written for that.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from zraft_core.claims.answers import Answer, View
from zraft_core.claims.commands import Command


@frozen
class Record:
    """A message as its partition has it."""

    offset: int
    value: bytes


@frozen
class Fetched:
    """Messages at or above the offset asked for, in order. Below `earliest` retention removed them; `end` is exclusive."""

    records: tuple[Record, ...]
    earliest: int
    end: int


@frozen
class Seen:
    """What a look at a partition shows; it may be old when it arrives.

    `plain`: the servers are of a release that takes no interval of a claim's own and no commits of ranges.
    """

    view: View
    earliest: int
    end: int
    plain: bool = False


class ClaimsPort(Protocol):
    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has, 0 if there is none of that name."""
        ...

    async def look(self, topic: str, partition: int, group: str) -> Seen: ...

    async def submit(self, topic: str, partition: int, command: Command) -> Answer:
        """Have the command carried out by the partition's group."""
        ...

    async def fetch(self, topic: str, partition: int, first: int, count: int, bytes_max: int) -> Fetched:
        """At most `count` committed messages from `first` on; none if there are none yet.

        At most `bytes_max` bytes, but a single message whatever its size. It may wait a while for the first one: so one that
        brings nothing need not be asked again at once.
        """
        ...
