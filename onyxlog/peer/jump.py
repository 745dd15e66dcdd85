"""What a group has to do after entries were truncated that it had not read: found by comparing two replicas. Pure.

Garbage collection leaves the replica that the entries led to. Whatever they would have asked of this group is either
done, or stands in that replica still: as a join that waits for it, a task that it was given, or its own absence.
"""

from __future__ import annotations

from collections.abc import Iterator

from onyxlog.ids import GroupId, PeerId
from onyxlog.replica.commands import AcceptJoin, AddVirtualPeer, Command, JoinDirect, NotifyJoin, PrepareJoin
from onyxlog.replica.effects import (
    AppendLater,
    DetectFailure,
    Effect,
    RestartGroup,
    RestartPeer,
    StartTask,
    StopDetecting,
    StopTask,
    WatchNobody,
    WatchPulse,
)
from onyxlog.replica.kind import Viewer
from onyxlog.replica.replica import JoinMode, Replica


def after_jump(
    old: Replica, new: Replica, viewer: Viewer, waiting: frozenset[Command]
) -> tuple[tuple[Command, ...], tuple[Effect, ...]]:
    """Commands to append and effects to carry out. `waiting`: own commands that are still to come in the log."""
    group = viewer.group
    if group is None:
        return (), ()
    if _is_out(old, new, group, waiting):
        return (), (RestartGroup(),)
    commands: list[Command] = []
    effects: list[Effect] = []
    if new.parameters.join is JoinMode.RING:
        for command, effect in _ring(new, group, viewer.join_once):
            if command is not None and command not in waiting:
                commands.append(command)
            if effect is not None:
                effects.append(effect)
    effects += _tasks(old, new, viewer, waiting)
    return tuple(commands), tuple(effects)


def _is_out(old: Replica, new: Replica, group: GroupId, waiting: frozenset[Command]) -> bool:
    if group in new.groups or group in new.aborted:
        return False
    if group in new.left or group in old.groups:
        return True
    if any(group in helped for helped in (new.prepared.values(), new.accepted.values())):
        return False
    # Neither in nor joining, and no request of its own under way: the log has forgotten it.
    return PrepareJoin(group) not in waiting and JoinDirect(group) not in waiting


def _ring(
    new: Replica, group: GroupId, join_once: bool
) -> Iterator[tuple[Command | None, Effect | None]]:
    if group in new.groups:
        yield None, StopDetecting()
        joiner = new.prepared.get(group)
        if joiner is not None:
            yield NotifyJoin(joiner, group), WatchPulse(joiner)
        else:
            watched = new.accepted.get(group) or new.pairs.get(group)
            yield None, WatchNobody() if watched is None else WatchPulse(watched)
        return
    for helper, joiner in new.accepted.items():
        if joiner == group:
            subject = new.pairs.get(helper, helper)
            yield None, StopDetecting()
            yield AcceptJoin(group, helper, subject), WatchPulse(subject)
            return
    for helper, joiner in new.prepared.items():
        if joiner == group:
            yield None, DetectFailure(helper)
            return
    if group in new.aborted and not join_once:
        yield None, AppendLater(PrepareJoin(group))


def _tasks(old: Replica, new: Replica, viewer: Viewer, waiting: frozenset[Command]) -> Iterator[Effect]:
    offered = {command.peer for command in waiting if isinstance(command, AddVirtualPeer)}
    before, after = tasks_of(old, viewer.peers), tasks_of(new, viewer.peers)
    for peer in sorted(viewer.peers):
        had, has = before.get(peer), after.get(peer)
        if has is not None:
            if has != had:
                yield has
        elif had is not None:
            yield StopTask(peer, had.job, _why(new, had, peer))
        if peer not in new.peers and peer not in new.orphans and peer not in offered:
            yield RestartPeer(peer)


def tasks_of(replica: Replica, peers: frozenset[PeerId]) -> dict[PeerId, StartTask]:
    """What these virtual peers run, as what had to be done to begin it."""
    return {
        peer: StartTask(
            peer,
            job,
            task,
            replica.slots.get((job, task, peer), 0),
            replica.allocation_versions.get(job, replica.version),
        )
        for (job, task), workers in replica.allocations.items()
        for peer in workers
        if peer in peers
    }


def _why(new: Replica, had: StartTask, peer: PeerId) -> str:
    if peer not in new.peers:
        return "left"
    if had.job in new.killed:
        return "killed"
    if had.job in new.completed:
        return "completed"
    # A job that the collection has forgotten as well was killed or completed; which of both is gone with it.
    return "reallocated" if had.job in new.jobs else "completed"
