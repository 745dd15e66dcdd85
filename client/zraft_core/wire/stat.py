"""A znode's 68-byte Stat: what a znode must offer to be described, and the client's view of it."""

from __future__ import annotations

from collections.abc import Sized
from struct import Struct
from typing import Final, Protocol

from zraft_core.wire.jute import JuteReader
from zraft_core.znodes.stat import Stat as Stat

STAT_FIELDS: Final = "qqqqiiiqiiq"
"""czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength numChildren pzxid."""

STAT: Final = Struct(">" + STAT_FIELDS)
assert STAT.size == 68, "ZooKeeper's Stat has 68 bytes"


class Znode(Protocol):
    """Interface of a znode to the encoders.

    They read it at once and keep nothing, so it may change afterwards.

    Times are milliseconds since 1970; `cversion` is the wire value (creates + deletes of children);
    `ephemeral_owner` is a signed 64-bit session id, 0 for none; versions are signed 32-bit.
    """

    @property
    def data(self) -> bytes | None:
        """The data, None if it was created with none."""

    @property
    def czxid(self) -> int:
        """The zxid of the creation."""

    @property
    def mzxid(self) -> int:
        """The zxid of the last change of the data."""

    @property
    def pzxid(self) -> int:
        """The zxid of the last change of the children."""

    @property
    def ctime(self) -> int:
        """The time of the creation."""

    @property
    def mtime(self) -> int:
        """The time of the last change of the data."""

    @property
    def version(self) -> int:
        """The number of changes of the data."""

    @property
    def cversion(self) -> int:
        """The number of creations and deletions of children."""

    @property
    def aversion(self) -> int:
        """The number of changes of the ACL."""

    @property
    def ephemeral_owner(self) -> int:
        """The session that the znode ends with, 0 if none."""

    @property
    def children(self) -> Sized | None:
        """The children, of which the number counts; None stands for no children."""


def encode_stat(node: Znode) -> bytes:
    """Return the 68 bytes."""
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
    """Read a stat.

    Raises:
        MarshallingError: the record is too short.
    """
    return Stat(*reader.read_struct(STAT))
