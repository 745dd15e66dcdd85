"""Runs of ordinary commands: what nearly every batch consists of, each kind in one loop.

A loop decides and carries out commands as `Tree.set_data`, `put` and `Tree.create` do one at a time, as long as they are
of its kind, succeed, and touch nothing special: no ACL but the open one, no ephemeral, no lifetime, no quota, no znode
that somebody watches. The first other command ends it and is executed by itself. Where a loop ends may differ between
servers, since each knows its own watchers; what comes of the commands may not. `tests/unit/tree/test_ordinary.py`
compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from zraft.tree.children import SPLIT_AT, ManyChildren
from zraft.tree.node import SHARD_COUNT, SHARD_SHIFT, ZOOKEEPER, Znode
from zraft.tree.paths import NO_NAMES, ROOT
from zraft.tree.quota import QUOTA_NAMES
from zraft.tree.znodes import Tree
from zraft_core.znodes.acl import OPEN_ACL
from zraft_core.znodes.stat import INT32_MAX
from zraft_core.znodes.txn import CREATE, CREATE2, FLAG_SEQUENTIAL, PUT, SET_DATA, Command

Watched = tuple[Container[str], Container[str]]
"""Paths at which somebody watches the data, and paths at which somebody watches the children."""

UNWATCHED: Final[Watched] = ((), ())
"""Nobody watches anything."""

_SHARD_MASK: Final = SHARD_COUNT - 1
_ANY: Final = -1


def set_data(
    tree: Tree, watched: Watched, commands: Sequence[Command], zxid: int, results: list[Any] | None
) -> int:
    """Execute SET_DATA or PUT commands on znodes that exist, from the first one on; return how many were executed.

    Args:
        zxid: that of the first command.
        results: gets the fields of each znode's `Stat` as its command left it; None if nobody is answered.
    """
    kind = commands[0][0]
    shards, wake = tree.nodes.shards, tree.nodes.wake
    largest = tree.settings.data_bytes_max
    now_ms = tree.wall_time
    watched_data = watched[0]
    before = tree.digest.before_node
    growth = done = 0
    for command in commands:
        try:
            opcode, path, data, version = command
            if command.__class__ is not tuple or path.__class__ is not str or data.__class__ is not bytes:
                break
            placed: Any = shards[hash(path) >> SHARD_SHIFT & _SHARD_MASK][path]
        except (TypeError, ValueError, KeyError):
            break
        node: Znode = placed if placed.__class__ is Znode else wake(path, placed)
        size = len(data)
        old_version = node.version
        if version.__class__ is int:
            if version != old_version and (version != _ANY or kind != SET_DATA):
                break
        elif version is not None or kind != PUT:
            break
        if (
            opcode != kind
            or size > largest
            or node.acl is not OPEN_ACL
            or node.lifetime is not None
            or not -2 < old_version < INT32_MAX
            or path in watched_data
        ):
            break
        if before is not None:
            before(path)
        old = node.data
        growth += size - len(old) if old else size
        node.data = data
        node.mzxid = zxid
        node.mtime = now_ms
        node.version = version = old_version + 1
        if results is not None:
            children = node.children
            results.append(
                (
                    node.czxid,
                    zxid,
                    node.ctime,
                    now_ms,
                    version,
                    node.creates * 2 if children is None else node.cversion,
                    node.aversion,
                    node.ephemeral_owner,
                    size,
                    0 if children is None else len(children),
                    node.pzxid,
                )
            )
        zxid += 1
        done += 1
    tree.nodes.data_bytes += growth
    tree.digest.dirty_nodes |= {command[1] for command in commands[:done]}
    return done


def create(
    tree: Tree, watched: Watched, commands: Sequence[Command], zxid: int, results: list[Any] | None
) -> int:
    """Execute CREATE or CREATE2 commands for persistent znodes, from the first one on; return how many were executed.

    Args:
        zxid: that of the first command.
        results: gets (path, znode) of each; None if nobody is answered. None of them is changed by a later command of
            the run: nothing is created below them.
    """
    kind = commands[0][0]
    shards = tree.nodes.shards
    largest = tree.settings.data_bytes_max
    now_ms = tree.wall_time
    mark, take_new = tree.digest.dirty_nodes.add, tree.digest.take_new
    watched_data, watched_children = watched
    first_zxid = zxid
    growth = done = 0
    directory: str | None = None
    prefix: str | None = None  # the path of the sequential znode before, up to its number
    for command in commands:
        try:
            opcode, path, data, acl, flags, _ = command
        except (TypeError, ValueError):
            break
        if (
            opcode != kind
            or command.__class__ is not tuple
            or path.__class__ is not str
            or acl is not None
            or flags.__class__ is not int
            or (flags and flags != FLAG_SEQUENTIAL)
        ):
            break
        size = 0
        if data is not None:
            if data.__class__ is not bytes:
                break
            size = len(data)
            if size > largest:
                break
        goes_on = flags and path == prefix
        if not goes_on:
            above, slash, name = path.rpartition("/")
            prefix = path if flags else None
            if not (name.isascii() and name.isprintable()) or (
                not flags and (name in NO_NAMES or name in QUOTA_NAMES)
            ):
                break
        if above != directory:
            directory = above
            if not slash or above == ROOT or (above or ROOT) in watched_children:
                break
            found = _directory(tree, above or ROOT, first_zxid)
            if found is None:
                break
            parent = found
            mark(above or ROOT)
            creates = parent.creates
            siblings = parent.children
            many = siblings if isinstance(siblings, ManyChildren) else None
            few = siblings if isinstance(siblings, dict) else {}
            room = SPLIT_AT - len(few) if many is None else 0
        if flags:
            path += f"{creates:010d}"
        # With room for one, the dict of siblings is about to be split.
        if room == 1 or creates == INT32_MAX or path in watched_data:
            break
        if many is None:
            if path in few:
                break
            few[path] = None
        elif flags and creates >= 0:
            if not many.add_numbered(creates, path):
                break
        elif path in many:
            break
        else:
            many.add(path)
        node = Znode(data, OPEN_ACL, zxid, now_ms, 0)
        shards[hash(path) >> SHARD_SHIFT & _SHARD_MASK][path] = take_new(path, node)
        growth += len(path) + size
        room -= 1
        creates += 1
        parent.children = few if many is None else many
        parent.creates = creates
        parent.pzxid = zxid
        if results is not None:
            results.append((path, node))
        zxid += 1
        done += 1
    tree.nodes.data_bytes += growth
    return done


def _directory(tree: Tree, path: str, first_zxid: int) -> Znode | None:
    """Return a znode below which this run may create others without looking further; None if it may not."""
    parent = tree.nodes.get(path)
    if parent is None or parent.acl is not OPEN_ACL or parent.ephemeral_owner or parent.czxid >= first_zxid:
        return None
    if path == ZOOKEEPER or path in tree.topic_acls.guarded:
        return None  # not everybody may
    return parent


Loop = Callable[[Tree, Watched, Sequence[Command], int, list[Any] | None], int]

LOOPS: Final[Mapping[int, Loop]] = {SET_DATA: set_data, PUT: set_data, CREATE: create, CREATE2: create}
"""The loop of each kind of command that has one."""
