"""Which image of a group a leader offers to a follower that its log no longer reaches."""

from __future__ import annotations

from zraft.groups.snapshots.sending import OFFER_INTERVAL_MS, GroupSender
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.transport.messages import SnapshotOffer, SnapshotRequest
from zraft_core.ids import GroupId, Instance, ServerId

GROUP, FOLLOWER = GroupId(7), ServerId(2)


def info(index: int) -> SnapshotInfo:
    meta = SnapshotMeta(index, 1, index + 1, b"")
    header = SnapshotHeader(
        GROUP, meta, b"c" * 16, ServerId(1), Instance(bytes(16)), bytes([index] * 16), 1, 0
    )
    return SnapshotInfo(header, "/snap", 100, 1, 0, 0)


class Leader:
    """A sender, the image that is the newest, and what it offers."""

    def __init__(self) -> None:
        self.newest = info(10)
        self.sender = GroupSender(1 << 20, lambda group: self.newest, lambda group: None)

    def offered(self, now_ms: int, match: int) -> list[int]:
        found = self.sender.offers([(GROUP, FOLLOWER)], lambda group: 1, lambda group, server: match, now_ms)
        return [offer.index for _, offer in found if isinstance(offer, SnapshotOffer)]


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
