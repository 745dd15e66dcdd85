"""One value or more of each kind of record that goes over a wire or stands in a file, with its bytes.

`SAMPLES` has a name for each; `records.txt` beside this file has their bytes as releases write them. Run this module to
print the lines of that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.gossip import codec as gossip
from onyxlog.gossip import messages as g
from onyxlog.peer import recording
from onyxlog.replica.codec import encode_origin, encode_record
from onyxlog.replica.commands import KillJob, PrepareJoin, Record, SignalReady, SubmitJob
from onyxlog.replica.digests import CHAIN_START
from tests.onyxlog.replica.scripts import job, worker
from tests.onyxlog.replica.test_jobs_in_the_log import fleet
from tests.unit.claims.samples import ANSWERS as CLAIM_ANSWERS
from tests.unit.claims.samples import COMMANDS as CLAIM_COMMANDS
from tests.unit.claims.samples import rich_scene
from tests.unit.claims.scene import G
from tests.unit.topics.groups import VIEW, A, B, P, message
from tests.unit.topics.test_codec import (
    COMMANDS,
    DISKS,
    EDGE,
    FULL,
    MESSAGES,
    REGISTRY,
    state_with_everything,
)
from zraft.operator import protocol as operators
from zraft.operator import requests as o
from zraft.raft import messages as r
from zraft.storage import journal
from zraft.topics import entries
from zraft.topics.image import partition_image, state_digest
from zraft.topics.registry import Registry
from zraft.topics.registry_image import registry_image
from zraft.transport import codec as peers
from zraft.transport import messages as t
from zraft_core.claims import codec as claims
from zraft_core.claims.snapshot import encode_snapshot
from zraft_core.ids import GroupId, Instance, ProducerId, ServerId
from zraft_core.topics import codec as topics
from zraft_core.topics.commands import Batch, Stage, Start
from zraft_core.topics.message import Message, Round
from zraft_core.topics.registry_commands import (
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    TopicChanged,
)
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import MessageId

ONE, TWO = Instance(b"1" * 16), Instance(b"2" * 16)
GROUP = GroupId(300)
ENTRIES = (
    r.Entry(71, 4, r.EntryKind.NOOP, 900, 0, b""),
    r.Entry(72, 4, r.EntryKind.COMMANDS, 900, 3, b"three commands"),
    r.Entry(73, 5, r.EntryKind.MEMBERSHIP, 903, 0, b"members"),
)
PEER_MESSAGES: Final[tuple[t.PeerMessage, ...]] = (
    r.PreVote(GROUP, 6, 73, 5),
    r.PreVoteReply(GROUP, 6, True),
    r.RequestVote(GROUP, 6, 73, 5),
    r.RequestVote(GROUP, 6, 73, 5, transfer=True),
    r.RequestVoteReply(GROUP, 6, False),
    r.AppendEntries(GROUP, 5, 70, 4, 69, ENTRIES),
    r.AppendEntriesReply(GROUP, 5, True, 73),
    r.AppendEntriesReply(GROUP, 5, False, 0, 70, 66, 3),
    r.Heartbeat(GROUP, 5, 2**40, 73),
    r.HeartbeatReply(GROUP, 5, 2**40, 72),
    r.ReadIndex(GROUP, 5, 17),
    r.ReadIndexReply(GROUP, 5, 17, 73),
    r.TimeoutNow(GROUP, 5),
    t.Hello(None, None, True),
    t.Hello(b"cluster", ((ServerId(1), ONE), (ServerId(254), TWO)), False),
    t.OriginBatch(GROUP, 3, 9, 2, b"a batch"),
    t.TouchReport(3, 9, ((-5, 0), (2**64 - 1, 40_000))),
    t.TouchAck(5, 3, 9, (-(2**63), 7)),
    t.Join(b"", "server-1.example:2888", 6),
    t.Join(b"cluster", "[::1]:2888", 0),
    t.Welcome(b"cluster", 73, b"members"),
    t.NotMember(b"cluster", 73),
    t.SnapshotOffer(GROUP, 5, 60, 4, b"s" * 16, 1_000_000),
    t.SnapshotRequest(GROUP, 5, b"s" * 16, 65_536, 1_048_576),
    t.SnapshotChunk(GROUP, 5, b"s" * 16, 65_536, b"a chunk"),
    t.MemberReport(6, ((4096, 2**128 - 1), (8192, 0))),
    t.Verdict(((4096, 5),)),
    t.SharedHeartbeat(4, 5, 3, ((GROUP, 5, 73), (GroupId(301), 1, 0))),
    t.SharedHeartbeatReply(4, 5, (GROUP, GroupId(301))),
    t.Bundle(GROUP, b"a bundle", passed=True),
    t.Edge(b"an edge"),
    t.GroupLeader(GROUP, 5, ServerId(2)),
    t.DeliveryListRequest(GROUP, b"s" * 16),
    t.DeliveryList(GROUP, b"s" * 16, b"a manifest"),
    t.DeliveryRequest(GROUP, b"segment.", 65_536, 1_000),
    t.DeliveryPiece(GROUP, b"segment.", 65_536, b"a piece"),
    t.GroupDigests(((GROUP, 4096, 2**127),)),
    t.GroupVerdict(((GROUP, 4096, 1), (GroupId(301), 8192, 2))),
)
REQUESTS: Final[tuple[o.OperatorRequest, ...]] = (
    o.MemberList(),
    o.MemberAdd(ServerId(4), "server-4:2888", True),
    o.MemberMove(ServerId(4), "server-5:2888"),
    o.MemberRemove(ServerId(4)),
    o.MemberPromote(ServerId(4)),
    o.Transfer(None),
    o.Transfer(ServerId(2)),
    o.SnapshotTake(),
    o.SnapshotRead(b"s" * 16, 65_536, 1_048_576),
    o.SettingsShow(),
    o.SettingsSet("snapshot.entries", -1),
    o.FeatureRaise(None),
    o.FeatureRaise(6),
    o.TopicList(""),
    o.TopicDescribe("orders", 2),
    o.TopicCreate("orders", 3, 2**40, None),
    o.TopicAlter("orders", 4),
    o.TopicRetain("orders", None, 60_000),
    o.TopicDelete("orders"),
    o.TopicReplicas((300, 301)),
)
REPLIES: Final[tuple[o.OperatorReply, ...]] = (
    o.MemberListing(
        b"cluster",
        73,
        5,
        True,
        (
            o.MemberLine(ServerId(1), "a:2888", "voter", ONE, True, 73, None, 6),
            o.MemberLine(ServerId(2), "", "observer", Instance(b""), False, None, 250, None),
        ),
    ),
    o.Done("added"),
    o.SnapshotFile(ServerId(1), b"s" * 16, 1_000_000, 60, -1),
    o.SnapshotPart(65_536, b"a part"),
    o.SettingsListing((o.SettingLine("snapshot.entries", 5, None), o.SettingLine("x", -1, 7)), 6, 6),
    o.TopicListing((o.TopicLine("orders", 1, 3, 3, 4, 2**40, None),), True, 7, 9),
    o.TopicDescription(
        *("orders", 1, 3, None, 60_000),
        (o.PartitionLine(0, 300, ServerId(1), (ServerId(1), ServerId(2)), "serving"),),
        False,
    ),
    o.Refused("no"),
    o.Refused("not here", "b:2888", True),
    o.ReplicaListing(
        ServerId(1),
        (
            o.ReplicaLine(
                *(300, 5, ServerId(1), True, 10, 2**40, 4_096, 60_000, ""),
                (o.FollowerLine(ServerId(2), 3, 250, True), o.FollowerLine(ServerId(3), None, None, False)),
            ),
            o.ReplicaLine(301, 5, None, False, 0, 0, 0, None, "damaged", ()),
        ),
    ),
)
EVENT = g.Event(7, b"entry", b"\x01" * 4, 3, "a")
GOSSIP: Final[tuple[g.Message, ...]] = (
    g.PoolEvent(EVENT, 2, 1, 0, 1),
    g.Seen(3, (1, 2)),
    g.RumourEvent(EVENT, 1, 4, (1, 2), 3),
    g.Known(7),
    g.TreeEvent(EVENT, 2),
    g.IHave(((7, 1), (8, 2))),
    g.Graft(7, 1),
    g.Prune(),
    g.Join(),
    g.ForwardJoin("a", 6),
    g.Neighbour(True),
    g.NeighbourReply(False),
    g.Disconnect(),
    g.Alive(),
    g.Shuffle("a", ("b", "c"), 3),
    g.ShuffleReply(("a",)),
    g.Heartbeat(7, b"\x01" * 4, 250, False),
    g.Want(7, 9),
    g.Found((EVENT,), 3),
)
BIRTH = entries.BirthEntry(1_700_000_000_000, 5, VIEW, PartitionSettings(128, 1024), True, 3_000)
RECORDS: Final = (
    Record(KillJob("count", 0, "bad"), "client", 7, 1_700_000_000_000),
    Record(worker("a", "a1", tags=("gpu",)), "a", None, 1),
    Record(PrepareJoin("a"), "a", None, 1),
    Record(SubmitJob(job()), "client", None, 2),
    Record(SignalReady("a1", 7), "a", 7, 3),
)
NOTES: Final = (
    journal.JournalNote(journal.NoteKind.OPENED, 0, 5, 73, 1_700_000_000_000),
    journal.JournalNote(journal.NoteKind.BECAME_LEADER, 300, 5, 73, 1_700_000_000_000, (1, 2)),
    journal.JournalNote(journal.NoteKind.DIGEST, 0, 5, 4096, 1_700_000_000_000, (), b"d" * 16),
)


MORE_COMMANDS: Final = (
    Stage(message(4, A, B), 2, 1),
    Start(Message(MessageId(P, 9), (A, B), b"", round=Round(5, 8)), 2, 1),
)


def registry() -> Registry:
    """A registry with something in each of its tables."""
    made = Registry()
    for at, command in enumerate(REGISTRY, 5):
        made.apply(command, at)
    made.apply(CreateTopic("t", 2), 40)
    made.apply(CreateGroup(40, DISKS), 41)
    made.apply(CreateGroup(40, DISKS), 42)
    made.apply(TopicChanged(40), 50)
    made.apply(CreateTopic("u", 1), 51)
    made.apply(CreateGroup(51, DISKS, ServerId(2)), 52)
    made.apply(DeleteTopic("t"), 53)
    made.apply(CloseProducer(ProducerId(5)), 54)
    return made


def samples() -> Iterator[tuple[str, bytes]]:
    """Each sample's name and bytes."""
    for at, peer in enumerate(PEER_MESSAGES):
        yield f"peer/{at}/{type(peer).__name__}", peers.encode(peer)
    for at, request in enumerate(REQUESTS):
        yield f"operator/request/{at}/{type(request).__name__}", operators.encode_request(7, request)
    for at, reply in enumerate(REPLIES):
        yield f"operator/reply/{at}/{type(reply).__name__}", operators.encode_reply(7, reply)
    for at, command in enumerate((*COMMANDS, *MORE_COMMANDS)):
        batch = Batch(12_345, (command,))
        yield f"topics/command/{at}/{type(command).__name__}", topics.encode_batch(batch)
    for at, between in enumerate(MESSAGES):
        (bundle,) = topics.encode_bundles(A, [between])
        yield f"topics/message/{at}/{type(between).__name__}", bundle
    for at, edge in enumerate(EDGE):
        yield f"topics/edge/{at}/{type(edge).__name__}", topics.encode_edge(edge)
    for at, entry in enumerate(REGISTRY):
        yield f"topics/registry/{at}/{type(entry).__name__}", topics.encode_registry(entry)
    yield "topics/delivery", topics.encode_message(FULL)
    whole = Batch(12_345, COMMANDS)
    yield "topics/entry/batch", entries.encode_entry(entries.BatchEntry(7, whole, CLAIM_COMMANDS))
    yield "topics/entry/birth", entries.encode_entry(BIRTH)
    state = state_with_everything()
    for at, piece in enumerate(partition_image(state)):
        yield f"topics/partition/{at}", piece
    yield "topics/partition/digest", state_digest(state)
    known = registry()
    for at, piece in enumerate(registry_image(known)):
        yield f"topics/registry/piece/{at}", piece
    yield "topics/registry/digest", known.digest.value().to_bytes(16)
    for at, claim in enumerate(CLAIM_COMMANDS):
        yield f"claims/command/{at}/{type(claim).__name__}", claims.encode_command(claim)
    for at, answer in enumerate(CLAIM_ANSWERS):
        yield f"claims/answer/{at}/{type(answer).__name__}", claims.encode_answer(answer)
    held = rich_scene().claims
    yield "claims/view", claims.encode_view(held.view(G))
    yield "claims/snapshot", encode_snapshot(held)
    tag = gossip.tenancy_tag("golden")
    for at, spread in enumerate(GOSSIP):
        yield f"gossip/{at}/{type(spread).__name__}", gossip.encode(spread, tag)
    for at, record in enumerate(RECORDS):
        yield f"onyxlog/entry/{at}/{type(record.command).__name__}", encode_record(record)
    log = fleet("abc", workers=2)
    log.write(SubmitJob(job()), "client")
    yield "onyxlog/origin", encode_origin(log.replica, CHAIN_START)
    yield "journal/heading", journal.encode_header(journal.JournalHeader(1, ONE, 3))
    for at, note in enumerate(NOTES):
        yield f"journal/note/{at}", journal.encode_note(at, note)
    yield "recording/heading", recording._sealed({"format": 1, "tenancy": "t", "group": "a"})
    yield "recording/record", recording._sealed((5, 1, 1_700_000_000_000, "gap", 7, 2))


if __name__ == "__main__":
    for each, data in samples():
        print(each, data.hex())
