"""Directed schedules of logs, disks, votes and leaders; see `tests.simulation.directed_schedules`."""

from __future__ import annotations

import random

from tests.simulation import jute
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.directed import Scene, raft_of
from tests.simulation.directed_registry import breaks
from tests.simulation.disk import Trouble
from zraft.groups.digests import DivergedError
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    Member,
    PreVoteReply,
    ReadIndexReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId


@breaks("sync:")
def read_index_without_quorum() -> None:
    """A leader orders another one to lead and is cut off; somebody writes there, and then a client syncs here."""
    with Scene(clients=2) as scene:
        leader, second, third = scene.found()
        reader, writer = scene.clients
        scene.connect(reader, leader)
        scene.connect(writer, second)
        scene.hand_over(leader, second)
        scene.until(lambda: raft_of(second).role is Role.CANDIDATE, "the order arrives")
        scene.cut(leader, [second, third])
        scene.until(lambda: second.leads, "its successor leads")
        writer.create("/a", 0)
        scene.until(lambda: writer.idle, "the write is acknowledged")
        assert leader.leads, "it knows nothing of that"
        reader.query(jute.SYNC, "/")
        scene.until(lambda: not leader.leads, "it steps down")
        scene.join()
        scene.heal()


@breaks("sync:")
def later_syncs_known() -> None:
    """A client syncs again while the leader's answer is on its way to a server that lacks what was written meanwhile."""
    with Scene(clients=2) as scene:
        leader, _, third = scene.found()
        reader, writer = scene.clients
        scene.connect(reader, third)
        scene.connect(writer, leader)
        answers = scene.hold(ReadIndexReply, to=third)
        reader.query(jute.SYNC, "/")
        scene.until(lambda: len(answers.messages) > 0, "the leader answers")
        entries = scene.hold(AppendEntries, to=third)
        writer.create("/a", 0)
        scene.until(lambda: writer.idle, "the write is acknowledged")
        reader.query(jute.SYNC, "/")
        assert third.driver is not None
        clients = third.driver.clients
        scene.until(lambda: any(one.backlog_bytes for one in clients.connections), "the second sync comes")
        scene.release(answers)
        scene.until(lambda: scene.simulation.client_checks.syncs > 0, "the first sync is answered")
        scene.release(entries)
        scene.heal()


@breaks("durable match:")
def restore_acknowledged_early() -> None:
    """A tail that a deposed leader sent is being written when the snapshot arrives that replaces it.

    On one core, its peers and its disk played by hand: the writes are the tail (1), the later term (2), the log that
    begins anew (3) and the entry after it (4).
    """
    one, two, three = ServerId(1), ServerId(2), ServerId(3)
    disks = {server: Instance(bytes([server]) * 16) for server in (one, two, three)}
    membership = Membership({server: Member(instance) for server, instance in disks.items()})

    def entries(term: int, first: int, last: int) -> tuple[Entry, ...]:
        indexes = range(first, last + 1)
        return tuple(Entry(index, term, EntryKind.COMMANDS, index, 1, b"") for index in indexes)

    raft = Raft(
        group=COORDINATION_GROUP,
        server=two,
        instance=disks[two],
        settings=RaftSettings(),
        hard_state=HardState(1),
        log=Log(entries=entries(1, 1, 2)),
        membership=membership,
        rng=random.Random(0),
    )
    raft.step(one, disks[one], AppendEntries(raft.group, 1, 2, 1, 2, entries(1, 3, 8)))
    raft.ready()
    raft.step(three, disks[three], Heartbeat(raft.group, 2, 1, 0))
    raft.ready()
    assert raft.restore(SnapshotMeta(5, 2, 6, membership.encode()))
    raft.ready()
    raft.persisted(1)
    raft.step(three, disks[three], AppendEntries(raft.group, 2, 5, 2, 5, entries(2, 6, 6)))
    raft.ready()
    for number in (2, 3, 4):
        raft.persisted(number)
        for to, message in raft.ready().messages:
            if isinstance(message, AppendEntriesReply) and message.accepted and number < 4:
                raise BrokenPromiseError(
                    "durable match", f"entry {message.match_index} is acknowledged to S{to}; it is in write 4"
                )
    assert raft.durable_index == 6


@breaks("snapshot:")
def position_lost() -> None:
    """An idle server took a state over, and an operator wants a snapshot of it before anything else is applied."""
    with Scene(retain_bytes_max=0) as scene:
        leader, _, third = scene.found()
        scene.connect(scene.clients[0], leader)
        scene.leave_behind(third, leader)
        scene.join()
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        scene.snapshot(third)
        scene.heal()


@breaks("recovery: S3 recovers")
def failed_fsync_ignored() -> None:
    """The fsync of one frame fails, and the power fails before anything else is written to the page."""
    with Scene() as scene:
        leader, _, third = scene.found()
        client = scene.clients[0]
        scene.connect(client, leader)
        scene.until(scene.settled, "nothing is being written")
        # The frame's write is the disk's next step, its fsync the one after; of its one page nothing is kept.
        third.image.disk.fail_at(2, Trouble.EIO, random.Random(0))
        client.create("/a", 0)
        boots = third.boots
        index = raft_of(leader).log.last_index + 1
        scene.until(
            lambda: not third.up or third.boots > boots or raft_of(third).durable_index >= index,
            "its disk is done with the frame",
        )
        third.crash(power=True)
        scene.start(third)
        scene.heal()


@breaks("transfer:")
def late_transfer() -> None:
    """An order to lead is late: its sender gave up, and handed over to somebody else."""
    with Scene() as scene:
        leader, second, third = scene.found()
        orders = scene.hold(TimeoutNow, to=second)
        scene.hand_over(leader, second)
        scene.until(lambda: len(orders.messages) > 0, "the order leaves")
        scene.until(lambda: not raft_of(leader).transferring, "the leader gives up")
        scene.hand_over(leader, third)
        scene.until(
            lambda: third.leads and raft_of(second).leader == third.server, "the second follows the third"
        )
        scene.release(orders)
        scene.run(100)
        assert third.leads
        scene.heal()


@breaks("the state of this server differs", DivergedError)
def one_differs() -> None:
    """Somebody writes, until the servers have compared what they computed."""
    with Scene() as scene:
        scene.found()
        scene.work(300)
        scene.heal()


@breaks("group 0: vote for", AssertionError)  # the log itself refuses to write it
def vote_forgotten() -> None:
    """Two stand for election in one term; the third votes for one of them, restarts, and is asked by the other."""
    with Scene(clients=0) as scene:
        voter, one, other = scene.found()
        grants = scene.hold(PreVoteReply)
        voter.crash()
        scene.until(
            lambda: {sender.server for sender, _, _ in grants.messages} >= {one.server, other.server},
            "each would be elected by the other",
        )
        asks_first = scene.hold(RequestVote, sender=one, to=voter)
        asks_later = scene.hold(RequestVote, sender=other, to=voter)
        between = [scene.hold(RequestVote, sender=a, to=b) for a, b in ((one, other), (other, one))]
        answers = scene.hold(RequestVoteReply, sender=voter)
        scene.release(grants)
        scene.start(voter)
        scene.until(lambda: len(asks_first.messages) > 0 and len(asks_later.messages) > 0, "both ask")
        scene.release(asks_first)
        scene.until(lambda: len(answers.messages) > 0, "it voted for the first")
        voter.crash()
        scene.start(voter)
        scene.release(asks_later)
        scene.run(100)
        for held in (*between, answers):
            scene.release(held, lose=True)
        scene.heal()
