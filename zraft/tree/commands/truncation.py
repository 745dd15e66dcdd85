"""TRUNCATE: the beginning of a log directory goes at once, and out of memory bit by bit (D-20)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zraft.tree.children import ManyChildren, in_order, without_child
from zraft.tree.commands.upsert import put
from zraft.tree.paths import ROOT, is_valid_path, parent_of
from zraft.tree.quota_usage import count_usage
from zraft_core.errors import Code
from zraft_core.znodes.acl import DELETE, permits
from zraft_core.znodes.events import NODE_CHILDREN_CHANGED, NODE_DELETED
from zraft_core.znodes.txn import PUT, Command

if TYPE_CHECKING:
    from zraft.tree.node import Znode
    from zraft.tree.znodes import Tree

REMOVED_PER_ENTRY_MAX: Final = 1_000
"""Hidden znodes that each entry takes out of memory: about 3 ms."""

_ZOOKEEPER: Final = "/zookeeper"


def truncate(tree: Tree, command: Command, zxid: int) -> Code:
    """Execute [TRUNCATE, directory, first, origin path, origin data]: children with a number below `first` go.

    The number is what the last ten characters of a name say, if they are digits; children without one stay. In the same
    step the origin, what a reader needs instead of them, is written as by PUT, unless its path is nil: if it cannot be
    written nothing happens. `delete` on the directory is needed, whatever the ACLs of the children.

    Returns:
        BAD_ARGUMENTS if `first` is lower than it was or higher than the directory's next number, if the origin would be
        gone as well, and for the znodes that are the server's own.
    """
    try:
        _, path, first, origin, data = command
    except ValueError:
        return Code.MARSHALLING_ERROR
    if path.__class__ is not str or first.__class__ is not int:
        return Code.MARSHALLING_ERROR
    node = tree.find(path)
    if node is None:
        return Code.NO_NODE if is_valid_path(path) else Code.BAD_ARGUMENTS
    if not permits(node.acl, DELETE, tree.ids):
        return Code.NO_AUTH
    if path == _ZOOKEEPER or path.startswith(_ZOOKEEPER + "/"):
        return Code.BAD_ARGUMENTS
    children = node.children
    begin = children.first if isinstance(children, ManyChildren) else 0
    if not begin <= first <= node.creates:
        return Code.BAD_ARGUMENTS
    if origin is not None:
        if origin.__class__ is str and _goes_too(path, origin, first):
            return Code.BAD_ARGUMENTS
        written = put(tree, (PUT, origin, data, None), zxid)
        if isinstance(written, Code):
            return written
    if first > begin:
        _hide(tree, path, node, first, zxid)
    return Code.OK


def _goes_too(path: str, origin: str, first: int) -> bool:
    top = path if path != ROOT else ""
    return origin.startswith(top + "/") and ManyChildren((), first).is_gone(
        origin[len(top) + 1 :].partition("/")[0]
    )


def _hide(tree: Tree, path: str, node: Znode, first: int, zxid: int) -> None:
    tree.digest.dirty_nodes.add(path)
    children = node.children
    if not isinstance(children, ManyChildren):
        node.children = children = ManyChildren(children or ())
    if children.truncate(first):
        tree.hidden[path] = children
        node.pzxid = zxid
        tree.events.append((NODE_CHILDREN_CHANGED, path, node.acl))


def drain(tree: Tree) -> None:
    """Take up to `REMOVED_PER_ENTRY_MAX` hidden znodes out of memory, the lowest paths and numbers first; watchers are told.

    Called as an entry begins, so what is left is the same on all servers. A quota counts them until they are out.
    """
    drained = _Drain(tree, REMOVED_PER_ENTRY_MAX)
    for directory in sorted(tree.hidden):
        children = tree.hidden.get(directory)
        if children is not None:  # otherwise it was inside of one that went before it
            drained.empty(directory, children)
        if not drained.left:
            break
    drained.finish()


def forget_hidden(tree: Tree, path: str) -> None:
    """Take one hidden znode without children out of memory: the session that it belongs to has ended."""
    one = _Drain(tree, 1)
    one.remove(path)
    one.finish()


class _Drain:
    """One round. `left` is how many znodes it may still remove."""

    def __init__(self, tree: Tree, limit: int) -> None:
        self._tree = tree
        self.left = limit
        self._usage: dict[str, tuple[int, int]] = {}

    def empty(self, directory: str, children: ManyChildren) -> None:
        """Remove hidden children, each after all that is below it."""
        stack: list[tuple[str, list[str]]] = [(directory, children.hidden_paths(self.left)[::-1])]
        while stack and self.left:
            above, waiting = stack[-1]
            if not waiting:
                stack.pop()
                if stack:
                    # All that was below it fitted in the round, or `left` is used up.
                    self.remove(above)
                continue
            path = waiting.pop()
            below = self._below(path)
            if below:
                stack.append((path, below[::-1]))
            else:
                self.remove(path)

    def _below(self, path: str) -> list[str]:
        """Return the paths of children in memory, whether hidden by themselves or not."""
        tree = self._tree
        node = tree.nodes.get(path)
        assert node is not None, f"{path} is to be removed and not there"
        hidden = tree.hidden.get(path)
        found = [] if hidden is None else hidden.hidden_paths(self.left)
        return found + in_order(node.children, self.left - len(found)) if node.children else found

    def remove(self, path: str) -> None:
        """Take a znode out of memory that has nothing below it."""
        tree = self._tree
        parent_path = parent_of(path)
        tree.digest.dirty_nodes.add(path)
        node = tree.nodes.remove(path)
        siblings = tree.hidden.get(parent_path)
        if siblings is not None and siblings.is_gone(path):
            siblings.remove(path)
            if not siblings.hidden_count:
                del tree.hidden[parent_path]
        else:
            parent = tree.nodes.get(parent_path)
            assert parent is not None, f"{path} has no parent"
            parent.children = without_child(parent.children, path)
        if node.ephemeral_owner:
            owner = tree.sessions.get(node.ephemeral_owner)
            if owner is not None:
                owner.ephemerals.discard(path)
        tree.acls.release(node.acl)
        tree.mortal.discard(path)
        if tree.quotas.limited:
            top = tree.quotas.above(path)
            if top is not None:
                count, size = self._usage.get(top, (0, 0))
                self._usage[top] = count + 1, size + node.data_length
        tree.digest.total -= node.folded
        tree.events.append((NODE_DELETED, path, node.acl))
        self.left -= 1

    def finish(self) -> None:
        for top, (count, size) in self._usage.items():
            count_usage(self._tree, top, -count, -size)
