"""Znodes in a dictionary, for one loop: they can stop working at any call, and let others in between at any call."""

from __future__ import annotations

import asyncio
from random import Random

from zraft_client.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from zraft_client.values import Stat, Znode


class StoppedError(Exception):
    """The writer died here."""


class PlainZnodes:
    """`Znodes`. `stop_after`: calls that still work; `rng`: who goes first is drawn from it."""

    def __init__(self, rng: Random | None = None) -> None:
        self.data: dict[str, tuple[bytes, int]] = {"": (b"", 0)}
        self.stop_after: int | None = None
        self.calls = 0
        self._rng = rng

    async def _call(self) -> None:
        if self._rng is not None:
            for _ in range(self._rng.randrange(4)):
                await asyncio.sleep(0)
        if self.stop_after is not None and self.calls >= self.stop_after:
            raise StoppedError
        self.calls += 1

    def _stat(self, path: str) -> Stat:
        data, version = self.data[path]
        return Stat(0, 0, 0, 0, version, 0, 0, 0, len(data), 0, 0)

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        await self._call()
        if path in self.data:
            raise NodeExistsError(path)
        if path.rpartition("/")[0] not in self.data:
            raise NoNodeError(path)
        self.data[path] = data, 0

    async def read(self, path: str) -> Znode | None:
        await self._call()
        return Znode(self.data[path][0], self._stat(path)) if path in self.data else None

    async def exists(self, path: str) -> Stat | None:
        await self._call()
        return self._stat(path) if path in self.data else None

    async def set(self, path: str, data: bytes, version: int) -> None:
        await self._call()
        if path not in self.data:
            raise NoNodeError(path)
        if self.data[path][1] != version:
            raise BadVersionError(path)
        self.data[path] = data, version + 1

    async def remove(self, path: str) -> None:
        await self._call()
        if path not in self.data:
            raise NoNodeError(path)
        if any(other.startswith(f"{path}/") for other in self.data):
            raise NotEmptyError(path)
        del self.data[path]

    async def children(self, path: str) -> tuple[str, ...]:
        await self._call()
        above = f"{path}/"
        return tuple(
            sorted(p[len(above) :] for p in self.data if p.startswith(above) and "/" not in p[len(above) :])
        )
