"""Functions for kinds without reactions, or without effects beside what follows from the replica for every kind."""

from __future__ import annotations

from typing import Any

from onyxlog.replica.commands import Command, Entry
from onyxlog.replica.effects import Effect
from onyxlog.replica.kind import Viewer
from onyxlog.replica.replica import Replica


def no_reactions(old: Replica, new: Replica, entry: Entry, diff: Any, viewer: Viewer) -> tuple[Command, ...]:
    """Return nothing."""
    return ()


def no_effects(old: Replica, new: Replica, entry: Entry, diff: Any, viewer: Viewer) -> tuple[Effect, ...]:
    """Return nothing."""
    return ()
