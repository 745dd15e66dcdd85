"""The shortest schedules that make planted bugs visible which hardly any seed shows, mostly in the words of `Scene`.

Each is named like its plant (tests/simulation/planted.py), breaks no promise without it, and says by its decorator which
promise is seen broken with it.
"""

from __future__ import annotations

from tests.simulation import directed_consensus, directed_members, directed_sessions
from tests.simulation.directed_registry import DIRECTED, Directed

__all__ = ["DIRECTED", "Directed", "directed_consensus", "directed_members", "directed_sessions"]
