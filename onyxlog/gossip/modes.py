"""The ways of spreading events by name."""

from __future__ import annotations

from random import Random

from onyxlog.gossip.pool_spreading import PoolSpreading
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.spreading import Mode, Spreading
from onyxlog.gossip.streams import View
from onyxlog.ids import GroupId


def spreading_for(me: GroupId, settings: GossipSettings, view: View, random: Random) -> Spreading:
    match settings.mode:
        case Mode.POOL:
            return PoolSpreading(me, settings.spreading, view)
        case _:
            raise NotImplementedError
