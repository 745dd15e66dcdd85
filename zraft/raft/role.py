"""Roles of a server in its group."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """A learner is a follower that its membership does not count as a voter."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
