"""What things are called. All are strings without '/', as they become names of znodes; order is that of the strings."""

from __future__ import annotations

from typing import Final

GroupId = str
"""A peer group: one process that holds a session and plays the log. Never used again once it left."""
PeerId = str
"""A virtual peer: a worker of a group, which runs at most one task."""
JobId = str
TaskName = str
Site = str
"""Where a group is reached for segments, "HOST:PORT"; also what colocation compares (see docs/ONYXLOG.md)."""
Position = int
"""Of an entry in the log: the number in the name of its znode."""

BEFORE_ALL: Final[Position] = -1
"""The position of the first origin."""
