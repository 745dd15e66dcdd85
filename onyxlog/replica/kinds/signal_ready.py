"""Entry signal-ready: a worker's task has started."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from onyxlog.replica.assignments import assignments
from onyxlog.replica.commands import Entry, SignalReady
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.kinds.states import StateChange, state_change
from onyxlog.replica.replica import PeerState, Replica


def apply(replica: Replica, entry: Entry, command: SignalReady) -> Replica:
    """Return the replica with the worker active, if it still has that task."""
    peer = command.peer
    if replica.peer_states.get(peer) is not PeerState.WARMING_UP:
        return replica
    # The entry may speak of a task that the worker has lost since.
    if assignments(replica, (peer,))[peer].version != command.allocation_version:
        return replica
    return evolve(replica, peer_states=replica.peer_states.set(peer, PeerState.ACTIVE))


def diff(old: Replica, new: Replica, command: SignalReady) -> StateChange | None:
    """Return the change of the worker's state, or None."""
    return state_change(old, new, command.peer)


KIND: Final = Kind[SignalReady, StateChange](apply, diff, no_reactions, no_effects)
