"""Directed schedules of clients, their sessions and what they wrote; see `tests.simulation.directed_schedules`."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from tests.simulation import jute
from tests.simulation.clients import SimulatedClient
from tests.simulation.directed import Held, Scene, raft_of
from tests.simulation.directed_registry import breaks
from tests.simulation.process import Process
from tests.simulation.profile import ELECTION_TIMEOUT_MS
from zraft.raft.messages import AppendEntriesReply, EntryKind, HeartbeatReply
from zraft.transport.messages import OriginBatch, SnapshotOffer, TouchAck
from zraft_core.znodes import txn

SLICE_BYTES_MAX: Final = 1_000_000


@frozen
class _Starved:
    """A server with a client that lacks so many entries that only a snapshot helps; both are kept from it."""

    leader: Process
    worker: SimulatedClient
    server: Process
    client: SimulatedClient
    entries: Held
    offers: Held


def _starve(scene: Scene) -> _Starved:
    leader, _, third = scene.found()
    worker, client = scene.clients
    scene.connect(worker, leader)
    scene.connect(client, third)
    offers = scene.hold(SnapshotOffer, to=third)
    return _Starved(leader, worker, third, client, scene.starve(third, leader), offers)


@breaks("snapshot clients:")
def snapshot_says_more() -> None:
    """A server has not been in touch since it woke up, so it holds an answer back; then a snapshot replaces its state."""
    with Scene(clients=2, retain_bytes_max=0) as scene:
        starved = _starve(scene)
        third, reader = starved.server, starved.client
        scene.release(starved.offers)
        scene.until(lambda: scene.receives(third), "the snapshot is on its way")
        acknowledged = scene.hold(TouchAck, to=third)
        third.stop(scene.schedule.now_ms + 2 * ELECTION_TIMEOUT_MS)
        reader.read(jute.GET_DATA, "/k0", watch=False)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(acknowledged, lose=True)
        scene.release(starved.entries, lose=True)
        scene.heal()


@breaks("snapshot batches:")
def uncovered_batches_dropped() -> None:
    """A client writes at a server that is behind; the write is lost on the way, then a snapshot replaces the state."""
    with Scene(clients=2, retain_bytes_max=0) as scene:
        starved = _starve(scene)
        third, writer = starved.server, starved.client
        batches = scene.hold(OriginBatch, sender=third)
        writer.create("/a", 0)
        scene.until(lambda: len(batches.messages) > 0, "the write leaves")
        scene.release(starved.offers)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(batches, lose=True)
        scene.release(starved.entries, lose=True)
        scene.until(lambda: third.adoptions.repeated > 0, "the write leaves again")
        scene.heal()


@breaks("snapshot batches:")
def covered_batches_kept() -> None:
    """A client writes at a server that gets no entries; the snapshot that replaces its state has the write."""
    # One batch in flight would be that of another client of the server, which lacks the entry that it is in.
    with Scene(clients=2, retain_bytes_max=0, batches_in_flight=4) as scene:
        starved = _starve(scene)
        third, writer = starved.server, starved.client
        writer.create("/a", 0)
        scene.until(lambda: "/a" in scene.simulation.history.nodes, "the write is done")
        scene.work(20, [starved.worker])
        scene.snapshot(starved.leader)
        scene.run(500)
        scene.release(starved.offers)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(starved.entries, lose=True)
        scene.heal()


@breaks("expiry:")
def expiry_on_waking() -> None:
    """Everything sleeps for longer than a session lives; on waking, the clients take a moment longer."""
    with Scene(clients=2) as scene:
        leader, *_ = scene.found()
        for client in scene.clients:
            scene.connect(client, leader)
        confirmed = raft_of(leader).quorum_round
        scene.until(lambda: raft_of(leader).quorum_round > confirmed, "all have just heard of each other")
        scene.sleep(4_000)
        assert leader.leads, "whoever leads anew gives every session its full time"
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


def _has_proposed(leader: Process, opcode: int) -> bool:
    """Whether the leader's log has a command of this kind that is not committed."""
    raft = raft_of(leader)
    if raft.commit_index == raft.log.last_index:
        return False
    entries = raft.log.slice(raft.commit_index + 1, raft.log.last_index + 1, SLICE_BYTES_MAX)
    return any(
        command[0] == opcode
        for entry in entries
        if entry.kind is EntryKind.COMMANDS
        for batch in txn.unpack_entry(entry.payload)[2]
        for _, _, commands in batch[4]
        for command in commands
    )


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
        client.set("/a", -1)
        scene.until(lambda: _has_proposed(leader, txn.REAP), "the write and the end are in the log")
        scene.release(commits)
        client.set("/a", -1)
        scene.until(lambda: client.idle, "it is written to again")
        scene.heal()


@breaks("snapshot clients:")
def snapshot_keeps_clients() -> None:
    """A server that has clients gets no entries for long, then the state as a whole."""
    with Scene(clients=2, retain_bytes_max=0) as scene:
        starved = _starve(scene)
        third = starved.server
        scene.release(starved.offers)
        scene.until(lambda: scene.restored(third), "it takes the snapshot over")
        assert third.adoptions.silenced, "its client stayed until then"
        scene.release(starved.entries, lose=True)
        scene.heal()


@breaks("watch:")
def silent_readers() -> None:
    """A server whose reports nobody acknowledges serves a reader, and goes on applying what the others write."""
    with Scene(clients=1, read_only_mode=True) as scene:
        leader, _, third = scene.found()
        worker, reader = scene.clients
        scene.connect(worker, leader)
        scene.work(10, [worker])
        acks = scene.hold(TouchAck, to=third)
        scene.until(lambda: third.driver is not None and not third.driver.serving, "it is not in touch")
        scene.connect(reader, third)
        assert reader.read_only
        scene.work(80, [worker, reader])
        scene.release(acks, lose=True)
        scene.heal()
