"""Writing of the image of a machine's state in small steps, while the machine goes on (D-19).

Items are swept shard by shard. What changes before the sweep came to it is packed as it was, just before it
changes: the digest's marks tell (`TreeDigest.tell`). So the image is the state of the moment the writer was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgpack

from zraft.config.features import LEVEL_OF_TOPICS
from zraft.topics.registry import Registry
from zraft.topics.registry_image import registry_image
from zraft.tree.children import ManyChildren
from zraft.tree.digest import MODULUS, TreeDigest, node_hash, session_hash
from zraft.tree.image.layout import (
    ACL,
    DIGEST_BYTES,
    END,
    FORMAT,
    GHOST,
    HEAD,
    MEMBER,
    REGISTRY,
    ROW,
    SESSION,
    ZNODE,
    record_of,
)
from zraft.tree.image.small_items import SmallState, small_shares
from zraft.tree.node import SHARD_COUNT, SHARD_SHIFT, NodeTable, Znode, resting_share
from zraft.tree.sessions.session import Session
from zraft_core.znodes.acl import OPEN_ACL, Acl

_SHARD_MASK: Final = SHARD_COUNT - 1


class WrittenState(SmallState, Protocol):
    """State that an image is written of: a `zraft.tree.machine.Machine`."""

    image_writer: ImageWriter | None
    nodes: NodeTable
    sessions: dict[int, Session]
    registry: Registry

    @property
    def marks(self) -> TreeDigest:
        """The digest, which tells of each change before it happens."""


class ImageWriter:
    """One image. At most one writer is open per machine, and it begins between two entries.

    `step` until `done`, or `close` to give up; either ends what the image costs the machine. `items` counts znodes
    and sessions; `digest` is known when done, and is what `Machine.digest` was at the beginning.
    """

    def __init__(self, machine: WrittenState) -> None:
        """Begin at once.

        This costs copies of the set of marks and of the tables of sessions and of topics:
        milliseconds.

        Raises:
            RuntimeError: another image of this machine is being written.
        """
        if machine.image_writer is not None:
            raise RuntimeError(
                "one image of this machine is being written already: step it to its end, or close it"
            )
        self._machine = machine
        self._marks = machine.marks
        self._nodes = machine.nodes
        self.index = machine.index
        self.term = machine.term
        self.zxid = machine.last_zxid
        self.position = machine.position
        self.items = 0
        self.done = False
        self.closed = False
        self._znode_count = 0
        self._session_count = 0
        self._digest = sum(small_shares(machine)) + machine.registry.digest.value()
        self._pack = msgpack.Packer(use_bin_type=True).pack
        self._ready = bytearray()
        self._acl_numbers: dict[Acl, int] = {}
        self._sessions: dict[int, Session] = dict(machine.sessions)
        self._shard = -1
        self._znodes: dict[str, Znode | bytes] = {}
        """The rest of the shard being swept, exactly as it was at the beginning."""
        self._gone: list[set[str] | None] = [None] * SHARD_COUNT
        """Paths of shards still to come that were changed, made or removed, hence packed if they were there."""
        self._out(
            (
                HEAD, FORMAT, machine.feature_level, machine.last_zxid, machine.position, machine.log_time,
                machine.wall_time, machine.index, machine.term, machine.faults,
                machine.settings.known_at(machine.feature_level),
            )
        )  # fmt: skip
        for (server, instance), row in sorted(machine.rows.items()):
            self._out((ROW, server, instance, row.boot, row.seq, row.boot_id))
        for server, member in sorted(machine.members.items()):
            self._out((MEMBER, server, member.voter, member.address))
        for path, first in sorted(machine.ghosts.items()):
            self._out((GHOST, path, first))
        with_topics = machine.feature_level >= LEVEL_OF_TOPICS
        self._topics: Iterator[bytes] = registry_image(machine.registry.frozen()) if with_topics else iter(())
        machine.image_writer = self
        self._marks.tell(self._before_node, self._before_session)
        self._dirty_nodes = self._marks.dirty_nodes

    @property
    def digest(self) -> int:
        """The digest of the written state; valid once the image is done."""
        assert self.done, "the digest of an image is known when all of it was swept"
        return self._digest

    @property
    def part(self) -> float:
        """The part of the znodes that was swept, from 0 to 1."""
        return max(0, self._shard) / SHARD_COUNT

    @property
    def backlog(self) -> int:
        """Bytes packed and not yet taken: what changed since the last step, before the sweep reached it."""
        return len(self._ready)

    @property
    def exhausted(self) -> bool:
        """True if all of it was given out."""
        return self.done and not self.backlog

    def step(self, items: int, bytes_max: int) -> bytes:
        """Return the next piece, of up to `bytes_max` bytes, after a sweep of up to `items` items: 2 us per item.

        Records may be cut between pieces. b"" when all was given out; before that never.

        Raises:
            RuntimeError: the writer was closed before it was done.
        """
        if self.closed and not self.done:
            raise RuntimeError("this image was given up: its machine took on another state, or it was closed")
        assert items > 0
        assert bytes_max > 0
        while True:
            left = items
            while left > 0 and not self.done and self.backlog < bytes_max:
                left -= self._sweep(min(left, 64))
            if self.backlog or self.done:
                break
        ready = self._ready
        piece = bytes(memoryview(ready)[:bytes_max])
        del ready[: len(piece)]
        return piece

    def close(self) -> None:
        """Give up, or nothing if it is done: the machine's changes cost what they did before."""
        if not self.closed:
            self.closed = True
            self._marks.tell_nobody()
            self._machine.image_writer = None
            self._sessions = {}
            self._znodes = {}
            self._gone = []
            self._topics = iter(())

    def _sweep(self, limit: int) -> int:
        """Pack up to `limit` items; what that counts for, at least 1."""
        sessions = self._sessions
        if sessions:
            count = min(limit, len(sessions))
            for _ in range(count):
                self._pack_session(sessions.popitem()[1])
            return count
        piece = next(self._topics, None)
        if piece is not None:
            self._out((REGISTRY, piece))
            return limit
        znodes = self._znodes
        if not znodes:
            return self._next_shard()
        count = min(limit, len(znodes))
        marks, dirty = self._marks, self._dirty_nodes
        for _ in range(count):
            path, placed = znodes.popitem()
            if isinstance(placed, bytes):
                self._put_resting(placed)
                continue
            if path in dirty:
                # It must be hashed anyway: then the machine's digest has it, too.
                dirty.discard(path)
                share = node_hash(path, placed)
                marks.total += share - placed.folded
                placed.folded = share
            self._put_znode(path, placed, placed.folded)
        marks.total %= MODULUS
        return count

    def _next_shard(self) -> int:
        self._shard += 1
        if self._shard == SHARD_COUNT:
            self._digest %= MODULUS
            self._out(
                (END, self._znode_count, self._session_count, self._digest.to_bytes(DIGEST_BYTES, "big"))
            )
            self.done = True
            self.close()
            return 1
        self._znodes = znodes = self._nodes.shards[self._shard].copy()
        gone = self._gone[self._shard]
        if gone is not None:
            self._gone[self._shard] = None
            for path in gone:
                znodes.pop(path, None)
        return 1 + len(znodes) // 64

    def _before_node(self, path: str) -> None:
        shard = hash(path) >> SHARD_SHIFT & _SHARD_MASK
        if shard > self._shard:
            gone = self._gone[shard]
            if gone is None:
                gone = self._gone[shard] = set()
            elif path in gone:
                return
            gone.add(path)
            placed = self._nodes.shards[shard].get(path)
        elif shard == self._shard:
            placed = self._znodes.pop(path, None)
        else:
            return
        if isinstance(placed, bytes):
            self._put_resting(placed)
        elif placed is not None:
            # This is not `marks.dirty_nodes`: in a multi, marks of earlier commands stand in the set that it
            # put aside.
            stale = path in self._dirty_nodes
            self._put_znode(path, placed, node_hash(path, placed) if stale else placed.folded)

    def _before_session(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._pack_session(session)

    def _pack_session(self, session: Session) -> None:
        stale = session.id in self._marks.dirty_sessions
        self._digest += session_hash(session) if stale else session.folded
        self._session_count += 1
        self.items += 1
        self._out(
            (
                SESSION, session.id, session.password, session.timeout_ms, session.owner,
                session.attach_position, session.write_position, *session.memory(),
            )
        )  # fmt: skip

    def _put_resting(self, placed: bytes) -> None:
        self._digest += resting_share(placed)
        self._znode_count += 1
        self.items += 1
        self._ready += record_of(placed)

    def _put_znode(self, path: str, node: Znode, share: int) -> None:
        acl = node.acl
        number = 0 if acl is OPEN_ACL else self._acl_number(acl)
        self._digest += share
        self._znode_count += 1
        self.items += 1
        whose: Any = node.ephemeral_owner if node.lifetime is None else node.lifetime
        self._out(
            (
                ZNODE, path, node.data, number, node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime,
                node.version, node.creates, node.aversion, whose,
                *((node.first,) if node.children.__class__ is ManyChildren and node.first else ()),
            )
        )  # fmt: skip

    def _out(self, record: tuple[Any, ...]) -> None:
        self._ready += self._pack(record)

    def _acl_number(self, acl: Acl) -> int:
        numbers = self._acl_numbers
        number = numbers.get(acl)
        if number is None:
            number = numbers[acl] = len(numbers) + 1
            self._out((ACL, number, acl))
        return number
