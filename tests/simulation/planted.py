"""Bugs planted into the shipped code, each of which the checkers must notice: the test of the tests.

This module has them all, by importing those that have a few each.
"""

from __future__ import annotations

from tests.simulation import (
    planted_clients,
    planted_consensus,
    planted_members,
    planted_sessions,
    planted_snapshots,
    planted_topics,
)
from tests.simulation.planted_members import differing
from tests.simulation.planted_registry import PLANTS, Plant, planted

__all__ = [
    "PLANTS",
    "Plant",
    "differing",
    "planted",
    "planted_clients",
    "planted_consensus",
    "planted_members",
    "planted_sessions",
    "planted_snapshots",
    "planted_topics",
]
