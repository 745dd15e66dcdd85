"""A znode's 68-byte Stat: what a znode must offer to be described, and the client's view of it."""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import Final, Protocol

from zraft_core.wire.jute import JuteReader
from zraft_core.znodes.stat import Stat as Stat

STAT_FIELDS: Final = "qqqqiiiqiiq"
"""czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength numChildren pzxid."""

STAT: Final = Struct(">" + STAT_FIELDS)
assert STAT.size == 68, "ZooKeeper's Stat has 68 bytes"


class Znode(Protocol):
    """What the encoders read of a znode. They read it at once and keep nothing, so it may change afterwards.

    Times are milliseconds since 1970; `cversion` is the wire value (creates + deletes of children);
    `ephemeral_owner` is a signed 64-bit session id, 0 for none; versions are signed 32-bit.
    """

    @property
    def data(self) -> bytes | None: ...
    @property
    def czxid(self) -> int: ...
    @property
    def mzxid(self) -> int: ...
    @property
    def pzxid(self) -> int: ...
    @property
    def ctime(self) -> int: ...
    @property
    def mtime(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def cversion(self) -> int: ...
    @property
    def aversion(self) -> int: ...
    @property
    def ephemeral_owner(self) -> int: ...
    @property
    def children(self) -> Collection[str] | None: ...


def encode_stat(node: Znode) -> bytes:
    """The 68 bytes."""
    data = node.data
    children = node.children
    return STAT.pack(
        node.czxid,
        node.mzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.cversion,
        node.aversion,
        node.ephemeral_owner,
        0 if data is None else len(data),
        0 if children is None else len(children),
        node.pzxid,
    )


def decode_stat(reader: JuteReader) -> Stat:
    """Raises MarshallingError."""
    return Stat(*reader.read_struct(STAT))
