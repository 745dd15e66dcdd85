"""Statistics of a `Raft` for metrics and operators: frozen views of one moment."""

from __future__ import annotations

from attrs import frozen

from zraft.raft.progress import ProgressState
from zraft.raft.role import Role
from zraft_core.ids import ServerId


@frozen
class FollowerStatistics:
    """One follower as its leader sees it. `needs_snapshot`: its next entry is older than the leader's log."""

    server: ServerId
    state: ProgressState
    match_index: int
    next_index: int
    inflight_messages: int
    inflight_bytes: int
    needs_snapshot: bool


@frozen
class RaftStatistics:
    """A moment of one `Raft`; the `_total` fields count since it was made."""

    term: int
    role: Role
    leader: ServerId | None
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    uncommitted_bytes: int
    pending_reads: int
    messages_ignored_total: int
    proposals_refused_total: int
    reads_dropped_total: int
    campaigns_total: int
    followers: tuple[FollowerStatistics, ...]
