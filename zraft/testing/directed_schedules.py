"""The shortest schedules that make planted bugs visible which hardly any seed shows, mostly in the words of `Scene`.

Each is named like its plant (zraft/testing/planted.py), breaks no promise without it, and says by its decorator which
promise is seen broken with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from attrs import frozen

from zraft.ids import COORDINATION_GROUP, Instance, ServerId
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Member,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.divergence import DivergedError
from zraft.testing import jute
from zraft.testing.broken import BrokenPromiseError
from zraft.testing.directed import Scene, joins, leaves, observes, raft_of
from zraft.testing.disk import Trouble
from zraft.testing.profile import ELECTION_TIMEOUT_MS
from zraft.transport.messages import OriginBatch, SnapshotOffer, TouchAck

Schedule = Callable[[], None]


@frozen
class Directed:
    """A schedule, and how it ends with the plant of its name in force."""

    schedule: Schedule
    raises: type[Exception]
    promise: str
    """How the message begins."""


DIRECTED: Final[dict[str, Directed]] = {}


def breaks(promise: str, raises: type[Exception] = BrokenPromiseError) -> Callable[[Schedule], Schedule]:
    def register(schedule: Schedule) -> Schedule:
        DIRECTED[schedule.__name__] = Directed(schedule, raises, promise)
        return schedule

    return register


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


@breaks("snapshot clients:")
def snapshot_says_more() -> None:
    """A server has not been in touch since it woke up, so it holds an answer back; then a snapshot replaces its state."""
    with Scene(clients=2, retain_bytes_max=0) as scene:
        leader, _, third = scene.found()
        worker, reader = scene.clients
        scene.connect(worker, leader)
        scene.connect(reader, third)
        offers = scene.hold(SnapshotOffer, to=third)
        appends = scene.leave_behind(third, leader, in_contact=True)
        assert appends is not None
        scene.release(offers)
        scene.until(lambda: scene.receives(third), "the snapshot is on its way")
        acknowledged = scene.hold(TouchAck, to=third)
        third.stop(scene.schedule.now_ms + 2 * ELECTION_TIMEOUT_MS)
        reader.read(jute.GET_DATA, "/k0", watch=False)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(acknowledged, lose=True)
        scene.release(appends, lose=True)
        scene.heal()


@breaks("snapshot batches:")
def uncovered_batches_dropped() -> None:
    """A client writes at a server that is behind; the write is lost on the way, then a snapshot replaces the state."""
    with Scene(clients=2, retain_bytes_max=0) as scene:
        leader, _, third = scene.found()
        worker, writer = scene.clients
        scene.connect(worker, leader)
        scene.connect(writer, third)
        offers = scene.hold(SnapshotOffer, to=third)
        appends = scene.leave_behind(third, leader, in_contact=True)
        assert appends is not None
        batches = scene.hold(OriginBatch, sender=third)
        writer.create("/a", 0)
        scene.until(lambda: len(batches.messages) > 0, "the write leaves")
        scene.release(offers)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(batches, lose=True)
        scene.release(appends, lose=True)
        scene.until(lambda: third.adoptions.repeated > 0, "the write leaves again")
        scene.heal()


@breaks("snapshot batches:")
def covered_batches_kept() -> None:
    """A client writes at a server that gets no entries; the snapshot that replaces its state has the write."""
    with Scene(clients=2, retain_bytes_max=0) as scene:
        leader, _, third = scene.found()
        worker, writer = scene.clients
        scene.connect(worker, leader)
        scene.connect(writer, third)
        offers = scene.hold(SnapshotOffer, to=third)
        appends = scene.leave_behind(third, leader, in_contact=True)
        assert appends is not None
        writer.create("/a", 0)
        scene.until(lambda: "/a" in scene.simulation.history.nodes, "the write is done")
        scene.work(20, [worker])
        scene.snapshot(leader)
        scene.run(500)
        scene.release(offers)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(appends, lose=True)
        scene.heal()


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
        scene.run(100)
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


@breaks("the state of this server differs", DivergedError)
def one_differs() -> None:
    """Somebody writes, until the servers have compared what they computed."""
    with Scene() as scene:
        scene.found()
        scene.work(300)
        scene.heal()


@breaks("expiry:")
def expiry_on_waking() -> None:
    """Everything sleeps for longer than a session lives; on waking, the clients take a moment longer."""
    with Scene(clients=2) as scene:
        leader, *_ = scene.found()
        for client in scene.clients:
            scene.connect(client, leader)
        scene.sleep(4_000)
        for client in scene.clients:
            scene.doze(client, 60)
        scene.run(1_000)
        scene.heal()


@breaks("expiry:")
def table_not_read_again() -> None:
    """A client that was silent for long asks again, while the leader asks its quorum whether it may end the session."""
    with Scene() as scene:
        leader, second, _ = scene.found()
        client = scene.clients[0]
        scene.connect(client, second)
        scene.doze(client, 4_000)
        scene.until(lambda: scene.is_suspected(leader, client.session), "the session is suspected")
        rounds = scene.hold(HeartbeatReply)
        client.wake()
        client.read(jute.GET_DATA, "/k0", watch=False)
        scene.until(lambda: client.idle, "it is answered")
        scene.release(rounds)
        scene.run(300)
        scene.heal()


@breaks("ended:")
def blind_expire() -> None:
    """A client resumes its session elsewhere; that is in the log, not yet committed, when the leader proposes its end."""
    with Scene(entries_in_flight=4) as scene:
        leader, second, third = scene.found()
        client = scene.clients[0]
        scene.connect(client, second)
        session = client.session
        scene.doze(client, 4_000)
        scene.until(lambda: scene.is_suspected(leader, session), "the session is suspected")
        rounds = scene.hold(HeartbeatReply)
        commits = scene.hold(AppendEntriesReply)
        end = raft_of(leader).log.last_index
        client.drop()
        client.stay_at(third)
        client.wake()
        scene.until(lambda: raft_of(leader).log.last_index > end, "it resumes, in the leader's log")
        scene.release(rounds)
        scene.until(lambda: scene.is_to_end(leader, session), "its end is proposed")
        scene.release(commits)
        scene.run(300)
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


@breaks("expiry:")
def touch_while_expiring() -> None:
    """A client that was silent for long asks again, when the end of its session is in the log and not committed."""
    with Scene() as scene:
        leader, second, _ = scene.found()
        client = scene.clients[0]
        scene.connect(client, second)
        session = client.session
        scene.doze(client, 4_000)
        scene.until(lambda: scene.is_to_end(leader, session), "its end is proposed")
        commits = scene.hold(AppendEntriesReply)
        client.wake()
        client.read(jute.GET_DATA, "/k0", watch=False)
        scene.run(80)
        scene.release(commits)
        scene.run(300)
        scene.heal()


@breaks("acknowledged:")
def blind_reap() -> None:
    """A znode with a time to live is written to; that is in the log, not committed, when the leader proposes its end."""
    with Scene(entries_in_flight=4) as scene:
        leader, *_ = scene.found()
        client = scene.clients[0]
        scene.connect(client, leader)
        client.create("/a", jute.FLAG_TTL, opcode=jute.CREATE_TTL, ttl_ms=600)
        scene.until(lambda: client.idle, "it is there")
        scene.run(450)
        commits = scene.hold(AppendEntriesReply)
        end = raft_of(leader).log.last_index
        client.set("/a", -1)
        scene.until(lambda: raft_of(leader).log.last_index >= end + 2, "the write and the end are in the log")
        scene.release(commits)
        client.set("/a", -1)
        scene.until(lambda: client.idle, "it is written to again")
        scene.heal()
