"""Playing the log: the replica after an entry, what a peer reacts with, and what it has to do.

All of it is pure. A group's process calls `play` once for an entry, `reactions` and `effects` for each viewer
in it, appends the reactions and carries out the effects. What follows from the replica alone (tasks to run,
pulses to watch, being out) is derived here for every kind alike, so that no kind can forget it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from attrs import evolve, frozen

from onyxlog.ids import PeerId
from onyxlog.replica import assignments, ring, watching
from onyxlog.replica.codec import encode_record
from onyxlog.replica.commands import AcceptJoin, Command, Entry, JoinDirect, NotifyJoin, PrepareJoin
from onyxlog.replica.digests import extended
from onyxlog.replica.effects import (
    DetectFailure,
    Effect,
    RestartGroup,
    RestartPeer,
    StartTask,
    StopDetecting,
    StopTask,
    UnwatchJoiner,
    WatchJoiner,
    WatchNobody,
    WatchPulse,
)
from onyxlog.replica.kind import Viewer
from onyxlog.replica.kinds import KINDS
from onyxlog.replica.membership import is_known
from onyxlog.replica.replica import JoinMode, Replica

DERIVED: Final = (
    StartTask,
    StopTask,
    WatchPulse,
    WatchNobody,
    WatchJoiner,
    UnwatchJoiner,
    DetectFailure,
    StopDetecting,
    RestartGroup,
    RestartPeer,
)
"""Effects that no kind has of its own: they follow from the replica, and would be returned twice."""


@frozen
class Step:
    """One entry, applied. `chain`: after it. `diff`: of the kind's own type, None if it changed nothing."""

    entry: Entry
    old: Replica
    replica: Replica
    chain: bytes
    diff: Any


def play(replica: Replica, entry: Entry, chain: bytes) -> Step:
    """Apply the entry that follows `replica`, whose chain's value is `chain`. Entries are played without gaps."""
    assert entry.position == replica.version + 1, f"entry {entry.position} played after {replica.version}"
    command = entry.command
    kind = KINDS[type(command)]
    new = evolve(kind.apply(replica, entry, command), version=entry.position)
    return Step(
        entry,
        replica,
        new,
        extended(chain, encode_record(entry.record), new),
        kind.diff(replica, new, command),
    )


def reactions(step: Step, viewer: Viewer) -> tuple[Command, ...]:
    """Return what this viewer appends because of the entry, in order."""
    kind = KINDS[type(step.entry.command)]
    return kind.reactions(step.old, step.replica, step.entry, step.diff, viewer)


def effects(step: Step, viewer: Viewer) -> tuple[Effect, ...]:
    """Return what this viewer has to do because of the entry, in order."""
    kind = KINDS[type(step.entry.command)]
    own = kind.effects(step.old, step.replica, step.entry, step.diff, viewer)
    assert not any(isinstance(effect, DERIVED) for effect in own), (
        f"{step.entry.command}: derives by itself: {own}"
    )
    return (*own, *_derived(step.old, step.replica, viewer))


def jump_effects(
    old: Replica, new: Replica, viewer: Viewer, offered: Collection[PeerId] = ()
) -> tuple[Effect, ...]:
    """Return the effects for a peer that goes from one replica to a later one without the entries between.

    That happens after garbage collection overtook it: `new` is the origin's replica. `offered`: those of the
    viewer's virtual peers whose add-virtual-peer the log accepted at or before `new`; one may have come and
    gone unseen.
    """
    group = viewer.group
    found = _derived(old, new, viewer)
    if group is not None and is_known(old, group) and not is_known(new, group) and group not in new.left:
        return (*found, RestartGroup())
    out = (peer for peer in offered if peer in viewer.peers and not _has(new, peer) and not _has(old, peer))
    return found if RestartGroup() in found else (*found, *(RestartPeer(peer) for peer in sorted(out)))


def owed(replica: Replica, viewer: Viewer) -> tuple[Command, ...]:
    """Return what this viewer's group has to append, going by the replica alone: at its start, and after a jump.

    If such an entry is on its way already, its second copy does nothing.
    """
    group = viewer.group
    if group is None or group in replica.left:
        return ()
    joiner = replica.prepared.get(group)
    if joiner is not None:
        return (NotifyJoin(joiner, group),)
    if group in replica.groups or ring.helper(replica.prepared, group) is not None:
        return ()
    if viewer.join_once and group in replica.aborted:
        return ()
    watcher = ring.helper(replica.accepted, group)
    if watcher is not None:
        return (AcceptJoin(group, watcher, ring.neighbour(replica, watcher)),)
    return (PrepareJoin(group) if replica.parameters.join is JoinMode.RING else JoinDirect(group),)


def _derived(old: Replica, new: Replica, viewer: Viewer) -> tuple[Effect, ...]:
    group = viewer.group
    found: tuple[Effect, ...] = assignments.changes(old, new, viewer.peers)
    if group is not None:
        found = (*found, *watching.changes(old, new, group))
        # not only when that becomes so: a peer may begin at an origin that has it
        if group in new.left:
            return (*found, RestartGroup())
    if viewer.peers and (old.peers is not new.peers or old.orphans is not new.orphans):
        out = [peer for peer in viewer.peers if _has(old, peer) and not _has(new, peer)]
        found = (*found, *(RestartPeer(peer) for peer in sorted(out)))
    return found


def _has(replica: Replica, peer: PeerId) -> bool:
    return peer in replica.peers or peer in replica.orphans
