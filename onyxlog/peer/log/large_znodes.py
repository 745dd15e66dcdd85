"""Znodes of any size on znodes of limited size: a read always gives the whole of one version. `parts` has the sizes."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from onyxlog.errors import EntryError
from onyxlog.peer.log.layout import parents
from onyxlog.peer.log.parts import (
    PART_BYTES,
    Head,
    decode_head,
    encode_head,
    head_of,
    is_parts,
    join,
    order_of,
    part_name,
    split,
)
from zraft_client.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from zraft_client.values import Stat, Znode

AT_ONCE: Final = 8
"""The number of parts that are under way at a time: 4 MiB."""
ATTEMPTS_MAX: Final = 100
"""The number of times in a row that another writer may be quicker with the same znode."""


class Znodes(Protocol):
    """Plain znodes; raises what `zraft_client` raises. An implementation that cannot tell may do a write twice."""

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Create a znode.

        Raises:
            NodeExistsError: it exists.
        """

    async def read(self, path: str) -> Znode | None:
        """Return the znode, or None if it does not exist."""

    async def exists(self, path: str) -> Stat | None:
        """Return the znode's stat, or None if it does not exist."""

    async def set(self, path: str, data: bytes, version: int) -> None:
        """Set the data of the znode if it has this version.

        Raises:
            BadVersionError: it has another one.
        """

    async def remove(self, path: str) -> None:
        """Remove the znode.

        Raises:
            NoNodeError: it does not exist.
        """

    async def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children, sorted; none if there is no such znode."""
        ...


class LargeZnodes:
    """Large znodes.

    Each call may be interrupted at any point and leaves no half version; a later call removes its remains.

    A znode without data was begun and has no version yet.
    """

    def __init__(self, znodes: Znodes, part_bytes: int = PART_BYTES) -> None:
        self._znodes = znodes
        self._part_bytes = part_bytes

    async def read(self, path: str) -> bytes | None:
        """Return the newest version.

        Raises:
            EntryError: it is damaged.
        """
        before = None
        while True:
            znode = await self._znodes.read(path)
            if znode is None or not znode.data:
                return None
            head = decode_head(znode.data, path)
            if head.data is not None:
                return head.data
            found = await self._read_parts(f"{path}/{head.directory}", head.count)
            if found is not None:
                return join(head, found, path)
            if znode.data == before:
                raise EntryError(f"{path}/{head.directory}: parts are missing, though the znode names them")
            before = znode.data

    async def _read_parts(self, directory: str, count: int) -> list[bytes] | None:
        found: list[bytes] = []
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            for znode in await asyncio.gather(
                *(self._znodes.read(f"{directory}/{part_name(number)}") for number in numbers)
            ):
                if znode is None:
                    return None
                found.append(znode.data)
        return found

    async def head(self, path: str) -> Head | None:
        """Return what the newest version's head says, without its parts."""
        znode = await self._znodes.read(path)
        return None if znode is None or not znode.data else decode_head(znode.data, path)

    async def write(self, path: str, data: bytes) -> None:
        """Replace whatever version there is; parents are made. Of concurrent writers the last one wins.

        Raises:
            EntryError: others have written it many times in between.
        """
        for _ in range(ATTEMPTS_MAX):
            znode = await self._znodes.read(path)
            if znode is None:
                if await self._begin(path, head_of(0, data, self._part_bytes)):
                    return
            elif (head := await self._switch(path, data, znode.stat.version)) is not None:
                had_parts = bool(znode.data) and decode_head(znode.data, path).data is None
                if had_parts or head.data is None:
                    await self.clean(path, head)
                return
        raise EntryError(
            f"{path}: others have written it {ATTEMPTS_MAX} times in between: one writer per znode"
        )

    async def _begin(self, path: str, head: Head) -> bool:
        """Make the znode, with its first version if that is small: then return True, unless somebody else made it."""
        data = b"" if head.data is None else encode_head(head)
        try:
            made = await self._make(path, data)
        except NoNodeError:
            for above in parents(path):
                await self._make(above)
            made = await self._make(path, data)
        return made and head.data is not None

    async def _make(self, path: str, data: bytes = b"") -> bool:
        try:
            await self._znodes.create(path, data)
        except NodeExistsError:
            return False
        return True

    async def write_once(self, path: str, data: bytes) -> bool:
        """Write the first version; return False if another one exists. Repeating the call does nothing.

        Raises:
            EntryError: the znode was removed many times while it was written.
        """
        for _ in range(ATTEMPTS_MAX):
            znode = await self._znodes.read(path)
            if znode is None:
                await self._begin(path, head_of(0, data, self._part_bytes))
            elif znode.data:
                return await self.read(path) == data
            else:
                # a writer that may be gone began it: the first to switch it has written it
                await self._switch(path, data, znode.stat.version)
        raise EntryError(f"{path}: removed {ATTEMPTS_MAX} times while it was written")

    async def _switch(self, path: str, data: bytes, version: int) -> Head | None:
        """Make `data` the next version of a znode of this `version`; return None if somebody else was quicker."""
        try:
            head = await self.prepare(path, version + 1, data)
            await self._znodes.set(path, encode_head(head), version)
        except (BadVersionError, NoNodeError):
            return None
        return head

    async def prepare(self, path: str, order: int, data: bytes) -> Head:
        """Make the parts, if any are needed, and return the head that names them.

        Raises:
            NoNodeError: a newer version's writer takes them away already, or the znode is gone.
        """
        head = head_of(order, data, self._part_bytes)
        if head.data is None:
            directory = f"{path}/{head.directory}"
            await self._make(directory)
            parts = list(split(data, self._part_bytes))
            for start in range(0, len(parts), AT_ONCE):
                await asyncio.gather(
                    *(
                        self._make(f"{directory}/{name}", part)
                        for name, part in parts[start : start + AT_ONCE]
                    )
                )
        return head

    async def clean(self, path: str, head: Head) -> None:
        """Remove the parts of versions before the one of `head`, and of rivals that came too late."""
        for name in await self._znodes.children(path):
            if is_parts(name) and order_of(name) <= head.order and name != head.directory:
                await self.remove(f"{path}/{name}")

    async def names(self, path: str) -> tuple[str, ...]:
        """Return the names of the znodes directly below."""
        return tuple(name for name in await self._znodes.children(path) if not is_parts(name))

    async def remove(self, path: str) -> None:
        """Remove the znode with all below it; nothing happens if there is none.

        Raises:
            EntryError: somebody keeps writing below it.
        """
        for _ in range(ATTEMPTS_MAX):
            for name in await self._znodes.children(path):
                await self.remove(f"{path}/{name}")
            try:
                await self._znodes.remove(path)
            except NotEmptyError:
                continue  # somebody wrote there meanwhile
            except NoNodeError:
                pass
            return
        raise EntryError(f"{path}: somebody keeps writing below it; stop that before it is removed")
