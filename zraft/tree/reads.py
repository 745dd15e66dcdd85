"""What clients may read of the applied state. Order of checks: ZooKeeper's `FinalRequestProcessor`.

Paths of reads are hardly validated there: what cannot exist is simply not found. The znodes returned are
live: encode the reply before the next command is executed.
"""

from __future__ import annotations

from typing import Final

from zraft.errors import Code
from zraft.tree.acl import ADMIN, READ, Acl, Ids, permits, user_of
from zraft.tree.machine import Machine
from zraft.tree.node import Znode
from zraft.tree.paths import ROOT

_DIGEST_MASK: Final = "x"


def exists(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    """The znode; NO_NODE leaves the caller to register the watch, NO_AUTH (only if it exists) does not."""
    return _readable(machine, path, ids)


def get_data(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    """The znode with `data`; on NO_NODE no watch is registered."""
    return _readable(machine, path, ids)


def get_children(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    """The znode with `children` (None if there are none, no order); on NO_NODE no watch is registered."""
    return _readable(machine, path, ids)


def get_acl(machine: Machine, path: str, ids: Ids) -> tuple[Acl, Znode] | Code:
    """The ACL to show, and the znode. Without the ADMIN right the hashes of passwords are masked."""
    if "\0" in path:
        return Code.BAD_ARGUMENTS
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
    """The session's ephemerals whose path starts with `prefix`, as strings: "/a" also finds "/ab". Sorted."""
    session = machine.sessions.get(session_id)
    if session is None:
        return []
    return sorted(path for path in session.ephemerals if path.startswith(prefix))


def count_descendants(machine: Machine, path: str, ids: Ids) -> int | Code:
    """How many znodes are below `path`. Costs a walk over all of them, unless it is the root."""
    node = _readable(machine, path, ids)
    if isinstance(node, Code):
        return node
    if path in ("", ROOT):
        return len(machine.nodes) - 1
    count = 0
    pending = [(path, node)]
    while pending:
        parent_path, parent = pending.pop()
        for name in parent.children or ():
            count += 1
            child_path = f"{parent_path}/{name}"
            child = machine.nodes.get(child_path)
            assert child is not None, f"{parent_path} names a child {name} that does not exist"
            if child.children:
                pending.append((child_path, child))
    return count


def _find(machine: Machine, path: str) -> Znode | None:
    node = machine.nodes.get(path)
    if node is None and not path:
        return machine.nodes.get(ROOT)  # ZooKeeper keeps the root under both names
    return node


def _readable(machine: Machine, path: str, ids: Ids) -> Znode | Code:
    node = _find(machine, path)
    if node is None:
        return Code.BAD_ARGUMENTS if "\0" in path else Code.NO_NODE
    return node if permits(node.acl, READ, ids) else Code.NO_AUTH
