"""Events of the tree for watchers, and kinds of watches; the numbers are ZooKeeper's."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from zraft_core.znodes.acl import Acl

NODE_CREATED: Final = 1
NODE_DELETED: Final = 2
NODE_DATA_CHANGED: Final = 3
NODE_CHILDREN_CHANGED: Final = 4

Event = tuple[int, str, Acl]
"""(type, path, the ACL that governed the path at that moment): who lacks READ there is not told."""


class AddWatchMode(IntEnum):
    """The modes of addWatch, in ZooKeeper's numbers."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatcherType(IntEnum):
    """Kinds of watches that checkWatches and removeWatches look for, in ZooKeeper's numbers."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5
