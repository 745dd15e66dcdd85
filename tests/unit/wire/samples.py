"""A znode and requests that several tests of the wire share; the znode's 68 bytes are written out by hand."""

from __future__ import annotations

from attrs import define, frozen

from zraft_core.znodes.txn import CHECK, CLOSE_SESSION, CREATE, CREATE2, DELETE, MULTI, SET_DATA, Command


@define
class SampleZnode:
    """Every field has another value, so that no two can be swapped unnoticed."""

    data: bytes | None = b"abc"
    czxid: int = 0x0102030405060708
    mzxid: int = 0x1112131415161718
    pzxid: int = 0x2122232425262728
    ctime: int = 0x3132333435363738
    mtime: int = 0x4142434445464748
    version: int = 0x51525354
    cversion: int = 0x61626364
    aversion: int = 0x71727374
    ephemeral_owner: int = -2
    children: set[str] | None = None

    def stat(self) -> tuple[int, ...]:
        """As the parts of a multi carry it: a tuple in wire order."""
        return (
            *(self.czxid, self.mzxid, self.ctime, self.mtime),
            *(self.version, self.cversion, self.aversion, self.ephemeral_owner),
            *(len(self.data or b""), len(self.children or ()), self.pzxid),
        )


@frozen
class Failure:
    """A failed multi: one code per operation."""

    results: tuple[int, ...]


SAMPLE_STAT_HEX = (
    "0102030405060708"  # czxid
    "1112131415161718"  # mzxid
    "3132333435363738"  # ctime
    "4142434445464748"  # mtime
    "51525354"  # version
    "61626364"  # cversion
    "71727374"  # aversion
    "fffffffffffffffe"  # ephemeralOwner
    "00000003"  # dataLength
    "00000000"  # numChildren
    "2122232425262728"  # pzxid
)

DIGEST_ACL = ((31, "digest", "bob:x"), (1, "world", "anyone"))

COMMANDS: tuple[Command, ...] = (
    (CREATE, "/a", b"data", None, 0, 0),
    (CREATE, "/a", None, None, 3, 0),
    (CREATE, "/a", b"", DIGEST_ACL, 1, 0),
    (CREATE2, "/ä/b-", b"\x00\xff", (), 2, 0),
    (DELETE, "/a", -1),
    (SET_DATA, "/a", b"data", 7),
    (SET_DATA, "/a", None, -1),
    (SET_DATA, "/a", b"", -(2**31)),
    (MULTI, ()),
    (
        MULTI,
        (
            (CHECK, "/a", 3),
            (CREATE, "/a/b", b"x", None, 0, 0),
            (CREATE2, "/a/c", None, DIGEST_ACL, 2, 0),
            (SET_DATA, "/a/b", None, 0),
            (DELETE, "/a/b", 1),
        ),
    ),
    (CLOSE_SESSION,),
)
"""One or more of each write: null and empty data, both forms of ACL, all that a multi may hold."""
