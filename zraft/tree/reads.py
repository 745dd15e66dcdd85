"""Reads of the applied state by clients.

Order of checks: ZooKeeper's `FinalRequestProcessor`.

Paths of reads are hardly validated there: what cannot exist is simply not found. The znodes returned are
live: encode the reply before the next command is executed.
"""

from __future__ import annotations

from typing import Final

from zraft.tree.children import ManyChildren
from zraft.tree.hiding import is_hidden
from zraft.tree.machine import Machine
from zraft.tree.node import SHARD_COUNT, Znode
from zraft.tree.paths import ROOT
from zraft_core.errors import Code
from zraft_core.znodes.acl import ADMIN, READ, Acl, Ids, permits, user_of

_DIGEST_MASK: Final = "x"

_LENGTH_BYTES: Final = 4
"""Each name of a listing has its length before it, in so many bytes."""

SHARDS_PER_STEP: Final = 8
"""Of the 256 of the tree: with a million znodes a step takes about 3 ms."""


def exists(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    """Return the znode; NO_NODE leaves the caller to register the watch, NO_AUTH (only if it exists) does not.

    Alone among the reads it refuses a path with NUL (BAD_ARGUMENTS), as in ZooKeeper.
    """
    return Code.BAD_ARGUMENTS if "\0" in path else _readable(machine, path, ids)


def get_data(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    """Return the znode with `data`; on NO_NODE no watch is registered."""
    return _readable(machine, path, ids)


def get_children(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    """Return the znode with `children` (None if there are none, no order); on NO_NODE no watch is registered."""
    return _readable(machine, path, ids)


def get_acl(machine: Machine, path: str, ids: Ids) -> tuple[Acl, Znode] | Code:
    """Return the ACL to show, and the znode. Without the ADMIN right the hashes of passwords are masked."""
    node = _find(machine, path)
    if node is None:
        return Code.NO_NODE
    if not permits(node.acl, READ | ADMIN, ids):
        return Code.NO_AUTH
    if permits(node.acl, ADMIN, ids):
        return node.acl, node
    return tuple(
        (bits, scheme, f"{user_of(scheme, who)}:{_DIGEST_MASK}" if scheme == "digest" else who)
        for bits, scheme, who in node.acl
    ), node


def get_ephemerals(machine: Machine, session_id: int, prefix: str) -> list[str]:
    """Return the session's ephemerals whose path starts with `prefix`, as strings: "/a" also finds "/ab".

    Sorted.
    """
    session = machine.sessions.get(session_id)
    if session is None:
        return []
    hidden = machine.hidden
    return sorted(
        path
        for path in session.ephemerals
        if path.startswith(prefix) and not (hidden and is_hidden(hidden, path))
    )


class DescendantCount:
    """Count of the znodes below a path, in steps: a subtree may hold everything there is.

    What is created or deleted between two steps may or may not be counted, as in ZooKeeper.
    """

    __slots__ = ("_machine", "_prefix", "_shard", "number")

    def __init__(self, machine: Machine, path: str) -> None:
        self._machine = machine
        self._prefix = path + "/"
        self._shard = 0
        self.number = 0
        if path in ("", ROOT):
            # The root is not below itself; but ZooKeeper has it under both names, and finds "/" below "".
            root = 1 if path == ROOT else 0
            if not machine.hidden:
                self.number = len(machine.nodes) - root
                self._shard = SHARD_COUNT
            else:
                self._prefix = ROOT
                self.number = -root
            return
        node = machine.find(path)
        if node is None or not node.children:
            self._shard = SHARD_COUNT

    def step(self, shards: int = SHARDS_PER_STEP) -> bool:
        """Count in that many more of the table's shards; True when all are done."""
        prefix = self._prefix
        stop = min(SHARD_COUNT, self._shard + shards)
        hidden = self._machine.hidden
        for shard in self._machine.nodes.shards[self._shard : stop]:
            if hidden:
                self.number += sum(path.startswith(prefix) and not is_hidden(hidden, path) for path in shard)
            else:
                self.number += sum([path.startswith(prefix) for path in shard])
        self._shard = stop
        return stop == SHARD_COUNT


def countable(machine: Machine, path: str, ids: Ids) -> Code:
    """Return whether this caller may count the descendants of `path`: OK, NO_NODE or NO_AUTH."""
    node = _readable(machine, path, ids)
    return node if isinstance(node, Code) else Code.OK


def listing_bytes(path: str, node: Znode) -> int:
    """Return at least how long a listing of the children of the znode at `path` is.

    Large directories know it without being walked.
    """
    children = node.children
    if not children:
        return 0
    above = path if path != ROOT else ""
    if isinstance(children, ManyChildren):
        return children.path_bytes + len(children) * (_LENGTH_BYTES - len(above.encode()) - 1)
    return sum(map(len, children)) + len(children) * (_LENGTH_BYTES - len(above) - 1)


def _find(machine: Machine, path: str) -> Znode | None:
    node = machine.find(path)
    if node is None and not path:
        return machine.nodes.get(ROOT)  # ZooKeeper keeps the root under both names
    return node


def _readable(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    node = _find(machine, path)
    if node is None:
        return Code.NO_NODE
    return node if permits(node.acl, READ, ids) else Code.NO_AUTH
