"""A znode, and the table that finds it by path. Source of the stat rules: ZooKeeper's `DataNode`.

Most znodes of a large state are made in bulk or read from an image, and then nobody uses them for long. Such a one rests: it
is kept as the bytes whose hash is its share of the digest: with 100 bytes of data, they take 240 bytes of memory where the
objects take 340 and more. The first look at it makes a `Znode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgpack

from zraft.tree.children import Children, ManyChildren
from zraft_core.znodes.acl import OPEN_ACL, Acl
from zraft_core.znodes.stat import Stat


def int32(number: int) -> int:
    """Return `number` as a signed 32-bit integer wraps it."""
    return (number + 2**31) % 2**32 - 2**31


class Lifetime(NamedTuple):
    """Lifetime of a znode that goes away by itself when it is empty.

    Milliseconds of log time.

    See `zraft.tree.lifetime`.
    """

    ttl_ms: int
    since_ms: int
    """Its creation, or last change of data if `ttl_ms` is not 0."""


class Znode:
    """One znode, without its path. Whoever reads `stat` fields reads them as of now: it goes on changing.

    `creates` is the number of children ever created, wrapped to 32 bits: the suffix of the next sequential
    child. What clients see as `cversion` is derived from it. Times are wall-clock milliseconds.
    `folded` belongs to `zraft.tree.digest`: this znode's share of the digest, 0 if it has none yet.
    """

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "creates",
        "ctime",
        "czxid",
        "data",
        "ephemeral_owner",
        "folded",
        "lifetime",
        "mtime",
        "mzxid",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes | None, acl: Acl, zxid: int, time_ms: int, ephemeral_owner: int) -> None:
        self.data = data
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.version = self.creates = self.aversion = 0
        self.ephemeral_owner = ephemeral_owner
        self.children: Children | None = None
        self.folded = 0
        self.lifetime: Lifetime | None = None

    @property
    def data_length(self) -> int:
        """The size of the data in bytes, 0 without data."""
        return len(self.data) if self.data is not None else 0

    @property
    def num_children(self) -> int:
        """The number of children."""
        return len(self.children) if self.children is not None else 0

    @property
    def first(self) -> int:
        """Children with lower numbers are gone, 0 if it was never truncated."""
        return self.children.first if isinstance(self.children, ManyChildren) else 0

    @property
    def cversion(self) -> int:
        """Creates plus deletes of children, the value on the wire."""
        children = self.children
        changes = self.creates * 2 - (len(children) if children is not None else 0)
        return changes if 0 <= changes < 2**31 else int32(changes)

    def stat(self) -> Stat:
        """Return the stat as ZooKeeper's clients get it."""
        children = self.num_children
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            int32(self.creates * 2 - children),
            self.aversion,
            self.ephemeral_owner,
            self.data_length,
            children,
            self.pzxid,
        )


# They are kept between calls because making a packer costs as much as using it.
_pack = msgpack.Packer(use_bin_type=True).pack
_unpack = msgpack.unpackb
_number = int.from_bytes

HASH_BYTES: Final = 16


def node_form(path: str, node: Znode) -> bytes:
    """Return the bytes whose hash is a znode's share of the digest.

    Children and numChildren follow from the paths; `creates` does not.
    """
    packed: bytes = _pack(
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
            *((node.first,) if node.children.__class__ is ManyChildren and node.first else ()),
        )
    )
    return packed


def share_of(form: bytes) -> int:
    """Return the share of the digest that something with these bytes has."""
    return _number(blake2b(form, digest_size=HASH_BYTES).digest(), "big")


def resting_share(placed: bytes) -> int:
    """Return the share of the digest that a znode has which rests: its bytes begin with the hash of the others."""
    return _number(placed[:HASH_BYTES], "big")


def may_rest(node: Znode) -> bool:
    """Return whether a znode may rest: nothing but what its form says belongs to it."""
    return (
        node.children is None and node.acl is OPEN_ACL and node.ephemeral_owner == 0 and node.lifetime is None
    )


def awake(placed: Znode | bytes) -> Znode:
    """Return the znode of what a table holds; the table goes on holding what it did."""
    if not isinstance(placed, bytes):
        return placed
    fields: tuple[Any, ...] = _unpack(memoryview(placed)[HASH_BYTES:], use_list=False)
    _, _, data, _, czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, _ = fields
    node = Znode(data, OPEN_ACL, czxid, ctime, 0)
    # Equal numbers stay one object, as they were: 32 bytes of memory each.
    if mzxid != czxid:
        node.mzxid = mzxid
    if pzxid != czxid:
        node.pzxid = pzxid
    if mtime != ctime:
        node.mtime = mtime
    node.version, node.creates, node.aversion = version, creates, aversion
    node.folded = resting_share(placed)
    return node


SHARD_COUNT: Final = 256
SHARD_SHIFT: Final = 20
"""A shard is chosen by bits of the hash that its own dict does not use, or all its keys would collide."""


class NodeTable:
    """Znodes by path, in many small dicts: growing one dict of a million entries would stall apply for 70 ms.

    `shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1]` is part of the interface for the hot path only; where that finds
    bytes, `get` has the znode. The order of iteration, and what rests, differs between servers and must not decide anything.
    """

    __slots__ = ("data_bytes", "shards")

    def __init__(self) -> None:
        self.data_bytes = 0
        """Bytes of all paths and data, what `approximate_data_size` shows; whoever replaces data adjusts it."""
        self.shards: list[dict[str, Znode | bytes]] = [{} for _ in range(SHARD_COUNT)]
        """Znodes, and the bytes of those that rest."""

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def __contains__(self, path: str) -> bool:
        return path in self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1]

    def get(self, path: str) -> Znode | None:
        """Return the znode at a path, or None."""
        placed = self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1].get(path)
        return self.wake(path, placed) if isinstance(placed, bytes) else placed

    def wake(self, path: str, placed: bytes) -> Znode:
        """Return the znode that rests at a path as these bytes; from now on it is awake."""
        self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1][path] = node = awake(placed)
        return node

    def insert(self, path: str, node: Znode) -> None:
        """Add a znode at a path that has none."""
        self.put(path, node)
        self.data_bytes += len(path) + node.data_length

    def put(self, path: str, placed: Znode | bytes) -> None:
        """Put a znode, awake or not, where there is one or where its bytes were counted."""
        self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1][path] = placed

    def remove(self, path: str) -> Znode:
        """Take away the znode at a path that has one."""
        node = awake(self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1].pop(path))
        self.data_bytes -= len(path) + node.data_length
        return node

    def replace(self, other: NodeTable) -> None:
        """Hold the znodes of `other` instead, which is used up. `shards` stays the same list."""
        self.shards[:] = other.shards
        self.data_bytes = other.data_bytes

    def items(self) -> Iterator[tuple[str, Znode]]:
        """Iterate over all paths and znodes, in no order. What rests goes on resting."""
        for shard in self.shards:
            for path, placed in shard.items():
                yield path, awake(placed)

    def below(self, path: str) -> Iterator[Znode]:
        """Iterate over the znodes below a path that is not the root: one look at every path, 0.1 us each."""
        prefix = path + "/"
        for shard in self.shards:
            for other, placed in shard.items():
                if other.startswith(prefix):
                    yield awake(placed)


ZOOKEEPER: Final = "/zookeeper"
CONFIG: Final = "/zookeeper/config"
BORN: Final = ("/", ZOOKEEPER, "/zookeeper/quota", CONFIG)
"""Every cluster has these, and they cannot be deleted."""


def table_at_birth() -> NodeTable:
    """Return the znodes every cluster is born with; their stats are all zero but for two numbers.

    ZooKeeper sets data and ACL of its configuration past the count, so both versions read -1 in an ensemble.
    """
    table = NodeTable()
    config = Znode(b"", ((1, "world", "anyone"),), 0, 0, 0)
    config.version = config.aversion = -1
    zookeeper = Znode(b"", OPEN_ACL, 0, 0, 0)
    zookeeper.children = {"/zookeeper/quota": None, CONFIG: None}
    root = Znode(b"", OPEN_ACL, 0, 0, 0)
    root.children = {ZOOKEEPER: None}
    table.insert("/", root)
    table.insert(ZOOKEEPER, zookeeper)
    table.insert("/zookeeper/quota", Znode(b"", OPEN_ACL, 0, 0, 0))
    table.insert(CONFIG, config)
    return table
