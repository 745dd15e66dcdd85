"""Directed schedules of changes of the members; see `tests.simulation.directed_schedules`."""

from __future__ import annotations

from tests.simulation.directed import Scene, joins, leaves, observes, raft_of
from tests.simulation.directed_registry import breaks
from zraft.raft.messages import (
    AppendEntries,
)
from zraft.server.coordination.membership_keeper import LEAVE_MS


@breaks("membership: S3 knows that")
def configuration_of_snapshot_ignored() -> None:
    """A member was added while a server was away, and the entry that did it is in nobody's log any more."""
    with Scene(retain_bytes_max=0) as scene:
        leader, second, third = scene.found()
        fourth = scene.spare[0]
        scene.connect(scene.clients[0], leader)
        scene.cut(third, [leader, second, fourth])
        scene.ask(leader, observes(fourth))
        scene.start(fourth)
        scene.until(lambda: scene.settled(but=third), "the fourth is a member")
        scene.leave_behind(third, leader)
        scene.join()
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        scene.heal()


@breaks("election:")
def joint_elects_one_half() -> None:
    """Two of five are to go; two of the three that stay learn of it and are alone from then on."""
    with Scene(servers=5) as scene:
        leader, first, second, third, fourth = scene.found()
        scene.ask(leader, leaves(first), leaves(second))
        scene.until(
            lambda: raft_of(third).membership.joint and raft_of(fourth).membership.joint,
            "both use the joint configuration",
        )
        scene.cut([third, fourth], [leader, first, second])
        scene.run(1_000)
        scene.join()
        scene.heal()


@breaks("commit:")
def learner_counts() -> None:
    """A leader can reach nobody but an observer, and somebody writes."""
    with Scene() as scene:
        leader, second, third = scene.found()
        fourth = scene.spare[0]
        client = scene.clients[0]
        scene.connect(client, leader)
        scene.ask(leader, observes(fourth))
        scene.start(fourth)
        scene.until(scene.settled, "the observer follows")
        scene.cut(leader, [second, third])
        client.create("/a", 0)
        scene.until(lambda: not leader.leads, "the leader hears of no quorum")
        scene.join()
        scene.heal()


@breaks("membership: S1 writes the configuration")
def final_too_early() -> None:
    """One of three loses its vote."""
    with Scene() as scene:
        leader, _, third = scene.found()
        scene.ask(leader, observes(third))
        scene.until(scene.settled, "it votes no more")
        scene.heal()


@breaks("membership: S1 writes the configuration")
def two_changes_at_once() -> None:
    """One is to go, another to come; for a while no disk but the leader's makes the first change durable."""
    with Scene() as scene:
        leader, second, third = scene.found()
        fourth, fifth, _ = scene.spare
        scene.ask(leader, observes(fourth))
        scene.start(fourth)
        scene.until(scene.settled, "the fourth is a member")
        scene.ask(leader, leaves(fourth), observes(fifth))
        scene.until(lambda: not raft_of(leader).membership_committed, "the first change begins")
        scene.stall_disks(second, third)
        scene.run(LEAVE_MS + 100)  # who is to go has a moment for its clients before the second change begins
        scene.stall_disks()
        scene.start(fifth)
        scene.until(scene.settled, "both are done")
        scene.heal()


@breaks("progress:")
def progress_of_lost_disk() -> None:
    """A disk is lost that had acknowledged everything; nothing is written, and no snapshot is due, afterwards."""
    with Scene() as scene:
        _, _, third = scene.found()
        scene.until(scene.settled, "it has everything")
        scene.replace_disk(third)
        scene.heal()


@breaks("membership: S1 has origin rows")
def row_of_lost_disk() -> None:
    """A disk is lost and replaced."""
    with Scene() as scene:
        _, _, third = scene.found()
        scene.replace_disk(third)
        scene.heal()


@breaks("membership: S4 votes from")
def promoted_blindly() -> None:
    """A new server is let in, and of the log it gets nothing for a while."""
    with Scene() as scene:
        leader, *_ = scene.found()
        fourth = scene.spare[0]
        scene.work(60)
        appends = scene.hold(AppendEntries, to=fourth)
        scene.ask(leader, joins(fourth))
        scene.start(fourth)
        scene.until(lambda: len(appends.messages) > 0, "it is a learner")
        scene.run(500)
        assert raft_of(fourth).log.last_index == 0
        scene.release(appends)
        scene.until(scene.settled, "it votes")
        scene.heal()


@breaks("membership: S3 works and is removed")
def removed_first() -> None:
    """A server that works is replaced by one that nobody has started yet."""
    with Scene() as scene:
        leader, _, third = scene.found()
        fourth = scene.spare[0]
        scene.run(2_000)
        scene.ask(leader, joins(fourth), leaves(third))
        scene.run(1_000)
        scene.start(fourth)
        scene.until(scene.settled, "the fourth votes, the third is gone")
        scene.heal()


@breaks("membership: S3 runs, is no member, and does not say so")
def removed_and_not_told() -> None:
    """A server is removed while it is down, and starts again."""
    with Scene() as scene:
        leader, _, third = scene.found()
        third.crash()
        scene.ask(leader, leaves(third))
        scene.until(scene.settled, "it is no member")
        scene.start(third)
        scene.heal()


@breaks("features:")
def feature_level_blindly_raised() -> None:
    """One of three servers is of an older release."""
    with Scene(features=(2, 2, 1)) as scene:
        scene.begin()
        scene.run(2_500)
        scene.heal()
