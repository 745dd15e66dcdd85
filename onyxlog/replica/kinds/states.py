"""Change of a worker's state by an entry."""

from __future__ import annotations

from attrs import frozen

from onyxlog.ids import PeerId
from onyxlog.replica.replica import PeerState, Replica


@frozen
class StateChange:
    """A worker whose state changed."""

    peer: PeerId
    before: PeerState
    after: PeerState


def state_change(old: Replica, new: Replica, peer: PeerId) -> StateChange | None:
    """Return the change of a worker's state, or None."""
    if new.peer_states is old.peer_states:
        return None
    return StateChange(peer, old.peer_states[peer], new.peer_states[peer])
