"""Entry backpressure-off: a worker keeps up again."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from onyxlog.replica.commands import BackpressureOff, Entry
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.kinds.states import StateChange, state_change
from onyxlog.replica.replica import PeerState, Replica


def apply(replica: Replica, entry: Entry, command: BackpressureOff) -> Replica:
    """Return the replica with the worker active."""
    if replica.peer_states.get(command.peer) is not PeerState.BACKPRESSURE:
        return replica
    return evolve(replica, peer_states=replica.peer_states.set(command.peer, PeerState.ACTIVE))


def diff(old: Replica, new: Replica, command: BackpressureOff) -> StateChange | None:
    """Return the change of the worker's state, or None."""
    return state_change(old, new, command.peer)


KIND: Final = Kind[BackpressureOff, StateChange](apply, diff, no_reactions, no_effects)
