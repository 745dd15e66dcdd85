"""The digest of a partition's claims: a sum over groups, brought up to date for those that changed (D-26)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgpack

from zraft_core.claims.group import Group
from zraft_core.claims.layout import GROUP

_MODULUS: Final = 2**128


def item_hash(*fields: Any) -> int:
    """Return the share of one item; `fields` start with its kind."""
    return int.from_bytes(blake2b(msgpack.packb(fields), digest_size=16).digest(), "big")


class ClaimsDigest:
    """Shares of groups, hashed again when the digest is wanted and the group was marked."""

    __slots__ = ("_groups", "_marked", "_shares", "_total")

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self._shares: dict[str, int] = {}
        self._marked = set(groups)
        self._total = 0

    def mark(self, name: str) -> None:
        """Note that the group changed, came, or went."""
        self._marked.add(name)

    def total(self, *counters: int) -> int:
        """Return the digest, after hashing the groups that were marked again."""
        for name in self._marked:
            group = self._groups.get(name)
            self._total -= self._shares.pop(name, 0)
            if group is not None:
                share = self._shares[name] = item_hash("group", *GROUP.pack(group))
                self._total += share
        self._marked.clear()
        return (self._total + item_hash("counters", *counters)) % _MODULUS
