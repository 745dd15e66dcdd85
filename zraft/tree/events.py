"""What a change of the tree tells watchers; the numbers are ZooKeeper's event types."""

from __future__ import annotations

from typing import Final

from zraft.tree.acl import Acl

NODE_CREATED: Final = 1
NODE_DELETED: Final = 2
NODE_DATA_CHANGED: Final = 3
NODE_CHILDREN_CHANGED: Final = 4

Event = tuple[int, str, Acl]
"""(type, path, the ACL that governed the path at that moment): who lacks READ there is not told."""
