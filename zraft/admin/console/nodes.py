"""Znodes as the console shows them. Pure."""

from __future__ import annotations

from typing import Final

from zraft.admin.console.encoding import shown
from zraft.admin.console.values import AclEntry, Node, StatShown
from zraft.server.operators.inner_clients import LookedAt
from zraft_core.znodes.acl import ADMIN, CREATE, DELETE, READ, WRITE, Acl
from zraft_core.znodes.stat import Stat

_LETTERS: Final = ((CREATE, "c"), (DELETE, "d"), (READ, "r"), (WRITE, "w"), (ADMIN, "a"))


def node_of(path: str, found: LookedAt) -> Node:
    """Return a znode as it is shown."""
    return Node(path, stat_of(found.stat), found.data, None if found.acl is None else entries_of(found.acl))


def stat_of(stat: Stat) -> StatShown:
    """Return a stat whose zxids and owner are text."""
    return StatShown(
        shown(stat.czxid),
        shown(stat.mzxid),
        shown(stat.pzxid),
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        stat.aversion,
        shown(stat.ephemeral_owner) if stat.ephemeral_owner else None,
        stat.data_length,
        stat.num_children,
    )


def entries_of(acl: Acl) -> tuple[AclEntry, ...]:
    """Return the entries of an ACL with their rights as letters."""
    return tuple(
        [
            AclEntry("".join([letter for bit, letter in _LETTERS if bits & bit]), scheme, who)
            for bits, scheme, who in acl
        ]
    )
