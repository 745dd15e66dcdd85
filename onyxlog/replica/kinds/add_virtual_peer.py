"""Entry add-virtual-peer: a worker offers itself; it waits as an orphan until its group is in."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import PeerId
from onyxlog.replica.commands import AddVirtualPeer, Entry
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.replica import Replica, VirtualPeer
from onyxlog.replica.rescheduling import rescheduled


@frozen
class Added:
    """A worker that offers itself."""

    peer: PeerId
    orphan: bool


def apply(replica: Replica, entry: Entry, command: AddVirtualPeer) -> Replica:
    """Return the replica with the worker, as an orphan if its group has not joined."""
    if command.group in replica.left or command.peer in replica.peers or command.peer in replica.orphans:
        return replica
    new = {command.peer: VirtualPeer(command.group, command.site, command.tags)}
    if command.group not in replica.groups:
        return evolve(replica, orphans=replica.orphans.update(new))
    return rescheduled(evolve(replica, peers=replica.peers.update(new)), entry.position)


def diff(old: Replica, new: Replica, command: AddVirtualPeer) -> Added | None:
    """Return the worker, or None if nothing changed."""
    if new.peers is old.peers and new.orphans is old.orphans:
        return None
    return Added(command.peer, command.peer in new.orphans)


KIND: Final = Kind[AddVirtualPeer, Added](apply, diff, no_reactions, no_effects)
