"""ACLs of topics and of names of consumers: which znodes have them, and what they are.

From feature level 6 on, only the super user may create or delete these znodes or change their ACLs, as otherwise anybody
could take a topic away from its users. Operators, who hold the cluster's key, do it as the super user.
"""

from __future__ import annotations

from zraft.tree.node import NodeTable
from zraft_core.topics.access import DIRECTORIES, Guarded, consumer_path, topic_path
from zraft_core.znodes.acl import CREATE, DELETE, OPEN_ACL, WRITE, Acl


class TopicAcls:
    """The znodes that have the ACLs. It is derived from the tree, and no part of the state.

    Attributes:
        guarded: the two directories, whether they exist or not, and all znodes below them. Only the super user may
            create or delete one of these, create one below them, or change an ACL. It is empty before the feature level.
        exist: whether any of these znodes exists. While none does, everything is open.
        revision: another number after each change.
    """

    __slots__ = ("_nodes", "exist", "guarded", "revision")

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.guarded: set[str] = set()
        self.exist = False
        self.revision = 0

    def begin(self, *, in_force: bool) -> None:
        """Look at the whole tree, which is another one, or at a feature level at which the ACLs count."""
        self.guarded.clear()
        if in_force:
            self.guarded |= DIRECTORIES
            waiting = list(DIRECTORIES)
            while waiting:
                path = waiting.pop()
                node = self._nodes.get(path)
                below = list((node and node.children) or ())
                self.guarded.update(below)
                waiting += below
        self.changed()

    def changed(self) -> None:
        """Take note that one of the ACLs is there, gone, or another one."""
        self.revision += 1
        self.exist = bool(self.guarded) and any(directory in self._nodes for directory in DIRECTORIES)

    def made(self, path: str) -> None:
        """Take note that a znode was created that only the super user may create."""
        self.guarded.add(path)
        self.changed()

    def removed(self, path: str) -> None:
        """Take note that one of `guarded` was deleted."""
        if path not in DIRECTORIES:
            self.guarded.discard(path)
        self.changed()

    def of_topic(self, name: str) -> Acl | None:
        """Return the ACL of a topic: that of its own znode, or else the default; None if nobody has set either."""
        return self._of(topic_path(name), Guarded.TOPICS)

    def of_consumer(self, name: bytes) -> Acl | None:
        """Return the ACL of a consumer's name in the same way."""
        return self._of(consumer_path(name), Guarded.CONSUMERS)

    def _of(self, path: str, kind: Guarded) -> Acl | None:
        node = self._nodes.get(path) or self._nodes.get(kind.value)
        return None if node is None else node.acl


def default_acl(kind: Guarded, root: Acl) -> Acl:
    """Return the default ACL under which nothing changes when it is first written down.

    Until then the rights on the root decide who may create, change and delete topics.
    """
    if kind is Guarded.CONSUMERS or root is OPEN_ACL:
        return OPEN_ACL
    everything = (~(CREATE | DELETE) & 31, "world", "anyone")
    rights = [(_rights(bits), scheme, who) for bits, scheme, who in root]
    return (everything, *[one for one in rights if one[0]])


def _rights(bits: int) -> int:
    return (bits & CREATE) | (DELETE if bits & (DELETE | WRITE) == DELETE | WRITE else 0)
