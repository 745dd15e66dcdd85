"""The ways of spreading events by name."""

from __future__ import annotations

from random import Random

from onyxlog.gossip.plumtree import Plumtree
from onyxlog.gossip.pool_spreading import PoolSpreading
from onyxlog.gossip.rumours import BlindCounter, Feedback
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.spreading import Mode, Spreading
from onyxlog.gossip.streams import View
from onyxlog.ids import GroupId


def spreading_for(
    me: GroupId, settings: GossipSettings, view: View, random: Random, now: int = 0
) -> Spreading:
    """Return the way of spreading that the settings name."""
    match settings.mode:
        case Mode.POOL:
            return PoolSpreading(me, settings.spreading, view)
        case Mode.PLUMTREE:
            return Plumtree(me, settings.spreading, random, now)
        case Mode.BLIND_COUNTER:
            return BlindCounter(me, settings.spreading, view, history=False)
        case Mode.VISITED_STREAMS:
            return BlindCounter(me, settings.spreading, view, history=True)
        case Mode.FEEDBACK:
            return Feedback(me, settings.spreading, random, view)
