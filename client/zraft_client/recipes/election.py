"""An election: one leader among candidates, and the others know which.

A leader writes with its token, as a lock's holder does.
"""

from __future__ import annotations

from attrs import frozen

from zraft_client.client import Client
from zraft_client.errors import NoNodeError
from zraft_client.recipes.contenders import in_order
from zraft_client.recipes.lock import Lock


@frozen
class Leader:
    """The leader: the data it campaigned with, and the zxid at which it came, which grows from leader to leader."""

    data: bytes
    czxid: int


class Election(Lock):
    """`async with Election(client, "/election", b"me") as leadership:` runs while this one leads; `lost` ends it."""

    def __init__(self, client: Client, path: str, data: bytes) -> None:
        super().__init__(client, path, data)
        self._path = path.rstrip("/")

    async def leader(self) -> Leader | None:
        """Return the present leader, None if nobody stands. Linearizable; it may have changed by the time it is read."""
        while True:
            try:
                line = in_order((await self._client.children(self._path)).names)
            except NoNodeError:
                return None
            if not line:
                return None
            try:
                found = await self._client.read(f"{self._path}/{line[0]}")
            except NoNodeError:
                continue  # gone in between; each such turn is another leader's end
            return Leader(found.data, found.stat.czxid)
