"""A znode, and the table that finds it by path. Source of the stat rules: ZooKeeper's `DataNode`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

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


SHARD_COUNT: Final = 256
SHARD_SHIFT: Final = 20
"""A shard is chosen by bits of the hash that its own dict does not use, or all its keys would collide."""


class NodeTable:
    """Znodes by path, in many small dicts: growing one dict of a million entries would stall apply for 70 ms.

    `shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1]` is part of the interface for the hot path only.
    The order of iteration differs between servers and must not decide anything.
    """

    __slots__ = ("data_bytes", "shards")

    def __init__(self) -> None:
        self.data_bytes = 0
        """Bytes of all paths and data, what `approximate_data_size` shows; whoever replaces data adjusts it."""
        self.shards: list[dict[str, Znode]] = [{} for _ in range(SHARD_COUNT)]

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def __contains__(self, path: str) -> bool:
        return path in self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1]

    def get(self, path: str) -> Znode | None:
        """Return the znode at a path, or None."""
        return self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1].get(path)

    def insert(self, path: str, node: Znode) -> None:
        """Add a znode at a path that has none."""
        self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1][path] = node
        self.data_bytes += len(path) + node.data_length

    def remove(self, path: str) -> Znode:
        """Take away the znode at a path that has one."""
        node = self.shards[hash(path) >> SHARD_SHIFT & SHARD_COUNT - 1].pop(path)
        self.data_bytes -= len(path) + node.data_length
        return node

    def replace(self, other: NodeTable) -> None:
        """Hold the znodes of `other` instead, which is used up. `shards` stays the same list."""
        self.shards[:] = other.shards
        self.data_bytes = other.data_bytes

    def items(self) -> Iterator[tuple[str, Znode]]:
        """Iterate over all paths and znodes, in no order."""
        for shard in self.shards:
            yield from shard.items()


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
