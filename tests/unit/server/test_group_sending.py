"""What a leader offers to followers that its log no longer reaches, and how fast it reads for them."""

from __future__ import annotations

from zraft.groups.snapshots.pull import CHUNK_BYTES
from zraft.groups.snapshots.sending import OFFER_INTERVAL_MS, SnapshotSender
from zraft.groups.snapshots.tasks import ReadSnapshot
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.transport.messages import DeliveryRequest, SnapshotRequest
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId

GROUP, FOLLOWER = GroupId(7), ServerId(2)


def info(index: int, group: GroupId = GROUP) -> SnapshotInfo:
    meta = SnapshotMeta(index, 1, index + 1, b"")
    header = SnapshotHeader(
        group, meta, b"c" * 16, ServerId(1), Instance(bytes(16)), bytes([index] * 16), 1, 0
    )
    return SnapshotInfo(header, "/snap", 100, 1, 0, 0)


class Leader:
    """A sender, the image that is the newest, and what it offers."""

    def __init__(self) -> None:
        self.newest = info(10)
        self.sender = SnapshotSender(1 << 20)

    def offered(self, now_ms: int, match: int) -> list[int]:
        offer = self.sender.offer(GROUP, FOLLOWER, self.newest, term=1, match=match, now_ms=now_ms)
        return [] if offer is None else [offer.index]


def test_a_follower_that_is_pulling_is_left_in_peace_with_the_image_it_pulls() -> None:
    leader = Leader()
    assert leader.offered(0, match=4) == [10]
    leader.newest = info(20)
    request = SnapshotRequest(GROUP, 1, info(10).id, 0, 100)
    leader.sender.on_request(FOLLOWER, request, 100)
    assert leader.offered(150, match=4) == []
    assert leader.offered(100 + OFFER_INTERVAL_MS, match=4) == [10]


def test_a_follower_that_fell_behind_again_is_not_offered_what_it_has() -> None:
    """It would ask for nothing, and the log of all groups would be kept behind it until the offer is given up."""
    leader = Leader()
    assert leader.offered(0, match=4) == [10]
    leader.newest = info(20)
    assert leader.offered(1_000, match=12) == [20]
    assert leader.offered(1_000 + OFFER_INTERVAL_MS, match=12) == [20]
    assert leader.offered(1_001 + OFFER_INTERVAL_MS, match=12) == []


def test_who_no_longer_needs_a_snapshot_is_read_nothing_for() -> None:
    leader = Leader()
    sender = leader.sender
    assert leader.offered(0, match=4) == [10]
    assert sender.offer(COORDINATION_GROUP, FOLLOWER, info(5), term=1, match=0, now_ms=0) is not None
    for group, index in ((GROUP, 10), (COORDINATION_GROUP, 5)):
        sender.on_request(FOLLOWER, SnapshotRequest(group, 1, info(index).id, 0, 100), 0)
    sender.forget(GROUP, but=[FOLLOWER])
    assert [read.group for read in sender.waiting] == [GROUP, COORDINATION_GROUP]
    sender.forget(GROUP)
    assert sender.progress_of(GROUP, FOLLOWER) is None
    assert sender.oldest_index(GROUP) is None
    assert sender.oldest_index(COORDINATION_GROUP) == 5
    assert [read.group for read in sender.reads(1_000)[0]] == [COORDINATION_GROUP]


def test_all_groups_of_a_leader_share_one_budget_and_none_waits_for_the_others_to_end() -> None:
    sender = SnapshotSender(bytes_per_s=4 * CHUNK_BYTES)
    groups = (COORDINATION_GROUP, GROUP)
    for group in groups:
        sender.offer(group, FOLLOWER, info(10, group), term=1, match=0, now_ms=0)
    read = dict.fromkeys((*groups, "deliveries"), 0)
    for now in range(0, 10_000, 10):
        for group in groups:
            sender.on_request(FOLLOWER, SnapshotRequest(group, 1, info(10).id, now, CHUNK_BYTES), now)
        sender.on_request(FOLLOWER, DeliveryRequest(GROUP, b"segment", now, CHUNK_BYTES), now)
        pieces, segments = sender.reads(now)
        assert all(isinstance(piece, ReadSnapshot) for piece in pieces)
        for piece in pieces:
            read[piece.group] += piece.length
        read["deliveries"] += sum(segment.length for segment in segments)
    assert 35 * CHUNK_BYTES <= sum(read.values()) <= 42 * CHUNK_BYTES, (
        "ten seconds at four a second, and a start"
    )
    assert max(read.values()) - min(read.values()) <= 3 * CHUNK_BYTES
