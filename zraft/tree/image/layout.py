"""The layout of an image: the whole state as a stream of MessagePack arrays, each beginning with its kind.

    [HEAD, FORMAT, feature_level, last_zxid, position, log_time, wall_time, index, term, faults, {setting: value}]
    [ROW, server, instance, boot, seq, boot_id]
    [MEMBER, server, votes, address]
    [SESSION, id, password, timeout_ms, [server, instance, boot], attach_position, write_position]
    [SESSION, ... as above, kept, will]    since feature level 3, of a session that has either; nil what it has not
        kept = [floor, [[seq, Outcome as packed], ...]], in order; will = [parent, prefix, data|nil, [[scheme, id], ...]]
    [ACL, number, [[bits, scheme, id], ...]]
    [ZNODE, path, data|nil, acl number, czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, whose]
    [ZNODE, ... as above, first]           since feature level 3, of a truncated directory: children below it are hidden
    [GHOST, path, first]                   since feature level 3: there is no such znode, but hidden children of it
    [REGISTRY, piece]                      since feature level 4, all in order: docs/explanation/topics.md, "Formats"
    [END, znodes, sessions, digest]

The head comes first and the end last; an ACL comes before the first znode that has it, and number 0 needs none: it
is everybody may do everything. `whose` is the session of an ephemeral, 0 if there is none, or [ttl_ms, since_ms] of
a znode with a lifetime. Children and the ephemerals of sessions follow from the znodes, which come in any order, so
files of two servers differ while their digests, 16 bytes at the end, are equal (D-26).
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from zraft.tree.node import HASH_BYTES
from zraft_core.znodes.acl import OPEN_ACL

FORMAT: Final = 1

HEAD: Final = 0
ROW: Final = 1
SESSION: Final = 2
ACL: Final = 3
ZNODE: Final = 4
END: Final = 5
MEMBER: Final = 6
GHOST: Final = 7
REGISTRY: Final = 8

DIGEST_BYTES: Final = 16

_FIELDS_AT: Final = HASH_BYTES + len(msgpack.packb([]) + msgpack.packb("node"))
"""The path begins here in the bytes of a znode that rests."""
_RECORD_BEGIN: Final = msgpack.packb((ZNODE, *(None,) * 12))[:2]
_OPEN: Final = msgpack.packb(OPEN_ACL)
_OPEN_NUMBER: Final = msgpack.packb(0)


def record_of(placed: bytes) -> bytes:
    """Return the record of a znode that rests: its form differs from it in how it begins, and in the ACL.

    Only numbers follow the ACL, of at most nine bytes each, so that nothing there can look like it.
    """
    at = placed.rindex(_OPEN)
    return b"".join((_RECORD_BEGIN, placed[_FIELDS_AT:at], _OPEN_NUMBER, placed[at + len(_OPEN) :]))


def shown(value: Any) -> str:
    """Return a value for a message: short, whatever it is."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
