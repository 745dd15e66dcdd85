"""Servers inside a test: started in milliseconds in the test's own process, killed, paused and cut off from each other.

`TestServer` is one server, `TestCluster` several; both are context managers. Pytest finds the fixtures `zraft_server` and
`zraft_cluster` by itself (`zraft.testing.plugin`). docs/how-to/testing-with-zraft.md shows how to use them.

The names are imported when they are used: pytest imports this package in every project where zraft is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zraft.testing.errors import ZraftTestError
    from zraft.testing.servers import ServerShare, TestCluster, TestServer

__all__ = ["ServerShare", "TestCluster", "TestServer", "ZraftTestError"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("zraft.testing.servers"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
