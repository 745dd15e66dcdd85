"""Znodes that go away by themselves once they are empty: containers, and those with a time to live.

Time is log time (D-12), so a leader whose clock is a day ahead removes nothing early. Whether a znode is due is
judged at apply, from the state alone. Source: ZooKeeper's `ContainerManager`, `EphemeralType` and `CreateMode`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from zraft.tree.node import Lifetime, Znode
from zraft.tree.settings import Settings
from zraft_core.errors import Code
from zraft_core.znodes.txn import CREATE_CONTAINER, CREATE_TTL, FLAG_EPHEMERAL, FLAG_SEQUENTIAL

TTL_MS_MAX: Final = 2**40 - 1

CONTAINER: Final = 0
"""The `ttl_ms` of a container."""

_FLAG_CONTAINER: Final = 4
_FLAG_TTL: Final = 5
_FLAG_TTL_SEQUENTIAL: Final = 6


class ZnodeKind(NamedTuple):
    """Kind of znode that a create makes: ephemeral and sequential flags, and a time to live (None: it stays)."""

    flags: int
    ttl_ms: int | None


def requested_kind(opcode: int, flags: int, ttl_ms: Any, settings: Settings) -> ZnodeKind | Code:
    """Return the kind of znode that an unusual create asks for.

    The opcode decides, as in ZooKeeper, not the flag.

    Flag 4 makes a container only with createContainer, which makes one with every flag; flags 5 and 6 need a
    time to live, which only createTTL carries.
    """
    if not 0 <= flags <= _FLAG_TTL_SEQUENTIAL:
        return Code.BAD_ARGUMENTS
    with_ttl = flags >= _FLAG_TTL
    if (with_ttl or opcode == CREATE_TTL) and not settings.ttl_nodes_enabled:
        return Code.UNIMPLEMENTED
    sequential = FLAG_SEQUENTIAL if flags in (2, 3, _FLAG_TTL_SEQUENTIAL) else 0
    if opcode == CREATE_TTL:
        if ttl_ms.__class__ is not int:
            return Code.MARSHALLING_ERROR
        if with_ttl and 0 < ttl_ms <= TTL_MS_MAX:
            return ZnodeKind(sequential, ttl_ms)
        if with_ttl or ttl_ms >= 0:
            return Code.BAD_ARGUMENTS
        # Flags of another kind, and a time below 0, which says that there is none.
    if with_ttl:
        return Code.BAD_ARGUMENTS
    if opcode == CREATE_CONTAINER:
        return ZnodeKind(sequential, CONTAINER)
    return ZnodeKind(sequential | (FLAG_EPHEMERAL if flags in (1, 3) else 0), None)


def is_due(node: Znode, lifetime: Lifetime, log_time_ms: int, settings: Settings) -> bool:
    """Return whether this znode may be removed now.

    What happens below it does not renew a time to live; setData does.
    """
    if node.children:
        return False
    age = log_time_ms - lifetime.since_ms
    if lifetime.ttl_ms != CONTAINER:
        return age > lifetime.ttl_ms
    if node.creates:
        return True
    return 0 < settings.container_never_used_ms_max < age
