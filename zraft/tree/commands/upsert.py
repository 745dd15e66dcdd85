"""PUT and ADD: writes that make the znode, and the parents that it lacks, where there is none."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from zraft.tree.commands.attempt import Attempt
from zraft.tree.node import Znode
from zraft.tree.paths import is_valid_path, parent_of
from zraft.tree.znodes import Tree
from zraft_core.errors import Code
from zraft_core.znodes.acl import READ, permits
from zraft_core.znodes.txn import CREATE, SET_DATA, Command

MISSING_PARENTS_MAX: Final = 64
"""Parents that one command makes: what it costs is bounded, however long a path is."""

_ABSENT: Final = -1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_NUMBER_BYTES_MAX: Final = 9
_pack = msgpack.Packer().pack


def put(tree: Tree, command: Command, zxid: int) -> Znode | Code:
    """Execute [PUT, path, data, version]; return the znode as it is now.

    `version` nil creates or replaces; -1 creates (NODE_EXISTS); any other replaces that version (NO_NODE,
    BAD_VERSION). What is created is persistent, as are the parents that it lacks, and everybody may do everything
    with it. The rights: `create` on the deepest parent there is, or `write` on the znode.
    """
    try:
        _, path, data, version = command
    except ValueError:
        return Code.MARSHALLING_ERROR
    if path.__class__ is not str or (version is not None and version.__class__ is not int):
        return Code.MARSHALLING_ERROR
    if version != _ABSENT and tree.find(path) is not None:
        return tree.set_data((SET_DATA, path, data, -1 if version is None else version), zxid)
    if version is None or version == _ABSENT:
        return create_with_parents(tree, path, data, zxid)
    return Code.NO_NODE if is_valid_path(path) else Code.BAD_ARGUMENTS


def add(tree: Tree, command: Command, zxid: int) -> tuple[int, Znode] | Code:
    """Execute [ADD, path, prefix, amount]; return the number after it, and the znode.

    The data is `prefix` and then one MessagePack integer; where there is no znode it is 0. BAD_ARGUMENTS if the data
    is anything else, or the sum has more than 64 bits: then nothing changes. As the sum is told, `read` is needed
    beside what PUT needs.
    """
    try:
        _, path, prefix, amount = command
    except ValueError:
        return Code.MARSHALLING_ERROR
    if path.__class__ is not str or prefix.__class__ is not bytes or amount.__class__ is not int:
        return Code.MARSHALLING_ERROR
    node = tree.find(path)
    if node is None:
        value: int | None = 0
    elif not permits(node.acl, READ, tree.ids):
        return Code.NO_AUTH
    else:
        value = _number_after(prefix, node.data or b"")
    if value is None or not _INT64_MIN <= value + amount <= _INT64_MAX:
        return Code.BAD_ARGUMENTS
    value += amount
    data = prefix + _pack(value)
    if node is not None:
        changed = tree.set_data((SET_DATA, path, data, -1), zxid)
    else:
        changed = create_with_parents(tree, path, data, zxid)
    return changed if isinstance(changed, Code) else (value, changed)


def _number_after(prefix: bytes, data: bytes) -> int | None:
    """Return the number that follows `prefix`, if that is all there is."""
    if not data.startswith(prefix) or not len(prefix) < len(data) <= len(prefix) + _NUMBER_BYTES_MAX:
        return None
    try:
        value = msgpack.unpackb(data[len(prefix) :])
    except (ValueError, TypeError):  # no MessagePack, or more than one value
        return None
    return value if value.__class__ is int else None


def create_with_parents(tree: Tree, path: str, data: Any, zxid: int) -> Znode | Code:
    """Return the persistent znode `path`, and what it lacks of parents, empty; all of it or nothing.

    NO_NODE if it lacks more than `MISSING_PARENTS_MAX`.
    """
    parent = parent_of(path)
    if tree.find(parent) is not None:
        return _created(tree, path, data, zxid)
    if not is_valid_path(path):
        return Code.BAD_ARGUMENTS
    missing = [path]
    while tree.find(parent) is None:
        if len(missing) > MISSING_PARENTS_MAX:
            return Code.NO_NODE
        missing.append(parent)
        parent = parent_of(parent)
    # Within a multi the failure of this part undoes everything anyway.
    attempt = Attempt(tree) if tree.journal is None else None
    while True:
        one = missing.pop()
        result = _created(tree, one, b"" if missing else data, zxid)
        if missing and not isinstance(result, Code):
            continue
        if attempt is not None:
            if isinstance(result, Code):
                attempt.undo()
            else:
                attempt.keep()
        return result


def _created(tree: Tree, path: str, data: Any, zxid: int) -> Znode | Code:
    result = tree.create((CREATE, path, data, None, 0, None), zxid)
    return result if isinstance(result, Code) else result[1]
