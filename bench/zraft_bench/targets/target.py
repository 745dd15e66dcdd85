"""Interface of a system to a load generator: write a key, read a key, over one connection.

A target is made in the process that uses it; `TARGETS` names all targets, so that only the name travels to
the process. Each imports its library only when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, Protocol

from zraft_core.errors import ZraftError


class RequestFailedError(ZraftError):
    """The request was refused or not answered. `unknown`: it may have happened all the same."""

    def __init__(self, text: str, *, unknown: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown


class Target(Protocol):
    """One connection to the system. Any number of requests may be under way at the same time."""

    async def open(self) -> None:
        """Connect.

        Raises:
            RequestFailedError: no server could be reached.
        """

    async def prepare(self, keys: Sequence[int], value: bytes) -> None:
        """Make sure that the keys can be read and written, each with `value`.

        Raises:
            RequestFailedError: a key could not be made.
        """

    async def write(self, key: int, value: bytes) -> None:
        """Write a value; return once the write is acknowledged.

        Raises:
            RequestFailedError: the write was refused or not answered.
        """

    async def read(self, key: int) -> None:
        """Read a value; return once it is here.

        Raises:
            RequestFailedError: the read was refused or not answered.
        """

    async def close(self) -> None:
        """End the connection. This raises nothing."""


MakeTarget = Callable[[str, str, bool, float], Target]
"""Makes a connection: hosts (HOST:PORT,…), name of the keys' common place, linearizable reads, deadline in s."""

TARGETS: Final = {
    "zraft": "zraft_bench.targets.zraft:ZraftTarget",
    "zraft-zookeeper": "zraft_bench.targets.zookeeper:ZooKeeperTarget",
    "zookeeper": "zraft_bench.targets.zookeeper:ZooKeeperTarget",
    "pysyncobj": "zraft_bench.targets.pysyncobj:PySyncObjTarget",
}
"""Name in results to where the target is implemented."""


def in_turn(hosts: str, turn: int) -> str:
    """Return `hosts` beginning with another one each turn: so connections of a process are spread over the servers."""
    listed = hosts.split(",")
    first = turn % len(listed)
    return ",".join(listed[first:] + listed[:first])


def maker(name: str) -> MakeTarget:
    """Return what makes connections to the system called `name`."""
    module, _, attribute = TARGETS[name].partition(":")
    found: MakeTarget = getattr(import_module(module), attribute)
    return found
