"""Usage of quotas in the tree, and refusals by hard limits; `zraft.tree.quota` has the texts."""

from __future__ import annotations

from typing import Protocol

from zraft.tree.digest import TreeDigest
from zraft.tree.journal import Undo
from zraft.tree.node import NodeTable, Znode
from zraft.tree.quota import LIMITS, QUOTA_ROOT, STATS, Quota, Quotas, is_over, limited_path, usage_text
from zraft.tree.settings import Settings


class LimitedTree(Protocol):
    """Parts of the tree (`zraft.tree.znodes`) that quotas are counted in."""

    nodes: NodeTable
    digest: TreeDigest
    journal: list[Undo] | None
    quotas: Quotas
    settings: Settings


def is_refused(tree: LimitedTree, path: str, more_znodes: int, more_bytes: int) -> bool:
    """Return whether this change would exceed a hard limit that is enforced.

    Any other excess is only remembered for the log.
    """
    top = tree.quotas.above(path)
    if top is None:
        return False
    limits, stats = (
        tree.nodes.get(f"{QUOTA_ROOT}{top}/{LIMITS}"),
        tree.nodes.get(f"{QUOTA_ROOT}{top}/{STATS}"),
    )
    if limits is None or stats is None:
        return False
    limit, used = Quota.parse(limits.data), Quota.parse(stats.data)
    refused = False
    for over, is_hard in (
        is_over(used.count, more_znodes, limit.count, limit.count_hard),
        is_over(used.size, more_bytes, limit.size, limit.size_hard),
    ):
        if over:
            tree.quotas.report(top)
            refused |= is_hard
    return refused and tree.settings.quota_enforced == 1


def count_usage(tree: LimitedTree, path: str, more_znodes: int, more_bytes: int) -> None:
    """Bring the usage up to date. It moves neither version nor zxid, and no watch is told, as in ZooKeeper."""
    top = tree.quotas.above(path)
    if top is None:
        return
    stats_path = f"{QUOTA_ROOT}{top}/{STATS}"
    stats = tree.nodes.get(stats_path)
    if stats is None:
        return
    used = Quota.parse(stats.data)
    _set_usage(tree, stats_path, stats, used.count + more_znodes, used.size + more_bytes)


def _set_usage(tree: LimitedTree, path: str, stats: Znode, count: int, size: int) -> None:
    tree.digest.dirty_nodes.add(path)
    if tree.journal is not None:
        tree.journal.append((_undo_usage, (tree, stats, stats.data)))
    text = usage_text(count, size)
    tree.nodes.data_bytes += len(text) - stats.data_length
    stats.data = text


def quota_made(tree: LimitedTree, quota_path: str, name: str, node: Znode) -> None:
    """Take note that a znode below the quota's root was created: a limit takes effect, or usage is to be counted."""
    top = limited_path(quota_path)
    if top is None:
        return
    if name == LIMITS:
        if top not in tree.quotas.limited:
            tree.quotas.limited.add(top)
            if tree.journal is not None:
                tree.journal.append((tree.quotas.limited.remove, (top,)))
    elif name == STATS:
        _set_usage(tree, f"{quota_path}/{name}", node, *_usage_below(tree, top))


def recount(tree: LimitedTree) -> None:
    """Count the usage of every quota anew: of a tree that was not made by commands alone."""
    for top in sorted(tree.quotas.limited):
        path = f"{QUOTA_ROOT}{top}/{STATS}"
        stats = tree.nodes.get(path)
        if stats is not None:
            _set_usage(tree, path, stats, *_usage_below(tree, top))


def limits_gone(tree: LimitedTree, quota_path: str) -> None:
    """Take note that the limits of a quota were deleted."""
    top = limited_path(quota_path)
    if top in tree.quotas.limited:
        tree.quotas.limited.remove(top)
        if tree.journal is not None:
            tree.journal.append((tree.quotas.limited.add, (top,)))


def _usage_below(tree: LimitedTree, top: str) -> tuple[int, int]:
    """Return (znodes, bytes of data) of a subtree, its top included: one look at every znode, 0.1 us each."""
    node = tree.nodes.get(top)
    if node is None:
        return 0, 0
    count, size = 1, node.data_length
    if node.children:
        for below in tree.nodes.below(top):
            count += 1
            size += below.data_length
    return count, size


def _undo_usage(tree: LimitedTree, stats: Znode, data: bytes | None) -> None:
    tree.nodes.data_bytes += (len(data) if data else 0) - stats.data_length
    stats.data = data
