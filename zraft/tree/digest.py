"""The state digest: a sum over all items of the state, equal on all servers at equal index (D-26).

Each item (znode, session, row, setting, counter) is hashed by itself, BLAKE2b over its MessagePack form; the
digest is the sum modulo 2^128 (AdHash). So it depends neither on any order nor on when it is asked for, and a
write pays only for a mark: the marked items are hashed again when the digest is next wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgpack

from zraft.tree.node import NodeTable, Znode
from zraft.tree.sessions import Session

MODULUS: Final = 2**128
DIRTY_MAX: Final = 65_536
"""Marks kept before `relieve` works them off: bounds their memory and the stall of the next digest."""
FOLD_BATCH: Final = 1_000
"""Items hashed per `relieve`: more than an entry usually marks, and about 3 ms."""


# Kept between calls because making a packer costs as much as using it.
_pack = msgpack.Packer(use_bin_type=True).pack


def item_hash(*fields: Any) -> int:
    """The share of one item; `fields` start with its kind, so that no two kinds can be confused."""
    return int.from_bytes(blake2b(_pack(fields), digest_size=16).digest(), "big")


def node_hash(path: str, node: Znode) -> int:
    # Children and numChildren follow from the paths; `creates` does not. Called once per changed znode, so it
    # is written out.
    packed = _pack(
        (
            "node",
            path,
            node.data,
            node.acl,
            node.czxid,
            node.mzxid,
            node.pzxid,
            node.ctime,
            node.mtime,
            node.version,
            node.creates,
            node.aversion,
            node.ephemeral_owner if node.lifetime is None else node.lifetime,
        )
    )
    return int.from_bytes(blake2b(packed, digest_size=16).digest(), "big")


def session_hash(session: Session) -> int:
    # Ephemerals follow from the znodes' owners.
    return item_hash(
        "session",
        session.id,
        session.password,
        session.timeout_ms,
        session.owner,
        session.attach_position,
        session.write_position,
    )


class Digest:
    """The sum over znodes and sessions, brought up to date lazily.

    An item's `folded` is its share of `total`. Marks are paths and ids; one whose item is gone means nothing,
    because what is removed takes its share along at once.
    """

    __slots__ = ("_nodes", "_sessions", "dirty_nodes", "dirty_sessions", "total")

    def __init__(self, nodes: NodeTable, sessions: dict[int, Session]) -> None:
        self._nodes = nodes
        self._sessions = sessions
        self.total = 0
        self.dirty_nodes: set[str] = {path for path, _ in nodes.items()}
        self.dirty_sessions: set[int] = set(sessions)

    def relieve(self) -> None:
        """Work off a bounded number of marks if there are many; called once per entry."""
        if len(self.dirty_nodes) > DIRTY_MAX:
            self._fold_nodes(FOLD_BATCH)
        if len(self.dirty_sessions) > DIRTY_MAX:
            self._fold_sessions(FOLD_BATCH)

    @property
    def pending(self) -> int:
        """Marks to work off before the digest is known: about 4 us each."""
        return len(self.dirty_nodes) + len(self.dirty_sessions)

    def fold(self, limit: int) -> None:
        """Work off up to `limit` marks of each kind, for moments without other work."""
        self._fold_nodes(min(limit, len(self.dirty_nodes)))
        self._fold_sessions(min(limit, len(self.dirty_sessions)))

    def folded_total(self, extra: Iterable[int]) -> int:
        """The digest as of now, with the shares of items that are not kept folded."""
        self._fold_nodes(len(self.dirty_nodes))
        self._fold_sessions(len(self.dirty_sessions))
        return (self.total + sum(extra)) % MODULUS

    def full_total(self, extra: Iterable[int]) -> int:
        """The same from scratch, touching nothing."""
        total = sum(node_hash(path, node) for path, node in self._nodes.items())
        total += sum(map(session_hash, self._sessions.values()))
        return (total + sum(extra)) % MODULUS

    def _fold_nodes(self, limit: int) -> None:
        dirty, total = self.dirty_nodes, self.total
        for _ in range(limit):
            path = dirty.pop()
            node = self._nodes.get(path)
            if node is not None:
                share = node_hash(path, node)
                total += share - node.folded
                node.folded = share
        self.total = total % MODULUS

    def _fold_sessions(self, limit: int) -> None:
        dirty, total = self.dirty_sessions, self.total
        for _ in range(limit):
            session = self._sessions.get(dirty.pop())
            if session is not None:
                share = session_hash(session)
                total += share - session.folded
                session.folded = share
        self.total = total % MODULUS
