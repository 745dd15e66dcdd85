"""Ids. All are strings without '/', because they become names of znodes, and are ordered as strings."""

from __future__ import annotations

from typing import Final

GroupId = str
"""A peer group: one process that holds a session and plays the log. Its id is never used again after it left."""
PeerId = str
"""A virtual peer: a worker of a group, which runs at most one task."""
JobId = str
TaskName = str
Site = str
"""The address at which a group receives segments, "HOST:PORT". Colocation compares it too (see
docs/explanation/onyxlog.md).
"""
Position = int
"""An entry's position in the log: the number in the name of its znode."""

BEFORE_ALL: Final[Position] = -1
"""The position of the first origin."""
