"""Chooses what runs tasks in a peer process: the task runner of all its groups, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from onyxlog.peer.task_runner import MakeRunner
from onyxlog.testing.idle_runner import run_nothing
from zraft.address import Address


@asynccontextmanager
async def runner_factory(
    tenancy: str,
    *,
    address: Address,
    advertise: str | None,
    keys: tuple[Path, ...],
    insecure: bool,
    idle: bool,
) -> AsyncIterator[MakeRunner]:
    """What makes the runner of each group, as long as the context lasts.

    Raises:
        ConfigError: the address cannot be listened at, or would be open to everybody.
    """
    if idle:
        yield run_nothing
        return
    raise NotImplementedError
