"""What helpers of tests ask of running servers, whoever started them: where they are, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from zraft_core.address import Address


class Addressed(Protocol):
    """One server's place."""

    @property
    def address(self) -> Address: ...


class Reachable(Protocol):
    """Servers that clients can be pointed to. `tests.processes.cluster.Cluster` is one."""

    @property
    def servers(self) -> Mapping[int, Addressed]: ...

    def hosts(self, first: int | None = None) -> str:
        """A connection string, server `first` in front."""

    def environment(self, hash_seed: int) -> dict[str, str]:
        """Of processes that are to run this code."""

    def running(self) -> list[int]: ...

    def mntr(self, number: int) -> dict[str, str] | None:
        """`mntr` without the prefix zk_; None while the server does not serve."""
