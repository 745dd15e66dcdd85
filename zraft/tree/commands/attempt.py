"""A change of several steps that leaves no trace of itself unless all of them succeed."""

from __future__ import annotations

from zraft.tree.znodes import Tree


class Attempt:
    """Attempt that begins when it is made; `keep` or `undo` ends it.

    There is at most one at a time: a part of a multi needs none of its own.
    """

    __slots__ = ("_dirty", "_events", "_total", "_tree")

    def __init__(self, tree: Tree) -> None:
        assert tree.journal is None, "an attempt within an attempt"
        digest = tree.digest
        self._tree = tree
        self._events = len(tree.events)
        self._total = digest.total
        self._dirty, digest.dirty_nodes = digest.dirty_nodes, digest.new_marks()
        tree.journal = []

    def keep(self) -> None:
        """End the attempt, and keep what it changed."""
        tree = self._tree
        digest = tree.digest
        tree.journal = None
        self._dirty |= digest.dirty_nodes
        digest.dirty_nodes = self._dirty

    def undo(self) -> None:
        """End the attempt, and undo what it changed."""
        tree = self._tree
        journal, tree.journal = tree.journal, None
        assert journal is not None
        for inverse, arguments in reversed(journal):
            inverse(*arguments)
        del tree.events[self._events :]
        tree.digest.total, tree.digest.dirty_nodes = self._total, self._dirty
