"""What a leader takes for lost, by the way that its messages go (D-22)."""

from __future__ import annotations

from zraft.raft.log import Log
from zraft.raft.replication import Replication
from zraft.raft.settings import RaftSettings
from zraft_core.ids import GroupId, ServerId


def test_d22_on_a_path_that_loses_datagrams_smaller_messages_count_as_bulk_ones() -> None:
    """A heartbeat that overtakes an append in a stream must not take it for lost."""
    replication = Replication(GroupId(0), RaftSettings(), Log())
    replication.set_bulk_bytes_min(ServerId(2), 1_000)
    replication.lead(1, [ServerId(2), ServerId(3)])
    for server, misses in ((2, False), (3, True)):
        progress = replication.followers[ServerId(server)]
        progress.sent(1, 10, 0, 0)
        progress.accepted(1, 0)
        progress.sent(2, 2_000, 10, 0)
        progress.beat_next = progress.next_index
        assert progress.misses(1, 20) is misses
    progress = replication.followers[ServerId(2)]
    replication.set_bulk_bytes_min(ServerId(2), 100_000)
    progress.accepted(2, 30)
    progress.sent(3, 2_000, 40, 0)
    progress.beat_next = progress.next_index
    assert progress.misses(2, 50), "the path is well again, and what was under way is counted off"
