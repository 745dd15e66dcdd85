"""Outputs that write nowhere outside: into this process' memory, for tests and for trying things out, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onyxlog.plugins.plugin import PluginContext

_collected: dict[str, list[Any]] = {}


def collected(name: str) -> list[Any]:
    """Return what all outputs `collecting` of that name in this process have written, in the order in which they did."""
    return _collected.setdefault(name, [])


def forget(name: str) -> None:
    """Forget what was collected under a name."""
    _collected.pop(name, None)


class CollectingOutput:
    """Output into the list `collected(name)`.

    It is not idempotent: what is written again after a failure is there twice.
    """

    def __init__(self, context: PluginContext, name: str) -> None:
        self._list = collected(name)

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Do nothing."""

    async def write(self, segments: Sequence[Any]) -> None:
        """Append the segments to the list."""
        self._list.extend(segments)

    async def flush(self) -> None:
        """Do nothing, as there is nothing to store."""

    async def close(self) -> None:
        """Do nothing."""


class NullOutput:
    """Output that drops everything."""

    def __init__(self, context: PluginContext) -> None:
        pass

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Do nothing."""

    async def write(self, segments: Sequence[Any]) -> None:
        """Drop the segments."""

    async def flush(self) -> None:
        """Do nothing, as there is nothing to store."""

    async def close(self) -> None:
        """Do nothing."""
