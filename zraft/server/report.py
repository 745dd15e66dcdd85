"""One server's numbers at one moment, in the form that the four-letter words print."""

from __future__ import annotations

from typing import Final

from zraft.raft.role import Role
from zraft.server.connection import Phase
from zraft.server.driver import Driver
from zraft.wire.four_letter import ConnectionStatistics, LeaderStatistics, Mode, ServerStatistics

DIGEST_ITEMS_MAX: Final = 2_000
"""About 8 ms of hashing; a server without load has fewer left after a few ticks."""

BUILT_ON: Final = "2026-11-21 00:00 UTC"


def server_statistics(
    driver: Driver,
    *,
    uptime_ms: int,
    open_file_descriptors: int,
    max_file_descriptors: int,
    metrics: dict[str, int | float | str],
) -> ServerStatistics | None:
    """The numbers, or None while this server does not serve its clients."""
    raft = driver.raft
    if raft is None or not driver.serving:
        return None
    machine = driver.machine
    voters = len(raft.membership.members)
    leads = raft.role is Role.LEADER
    mode = Mode.STANDALONE if voters == 1 else Mode.LEADER if leads else Mode.FOLLOWER
    connections = tuple(
        ConnectionStatistics(c.address, len(c.queue), c.received, c.sent)
        for c in driver.clients.connections
        if c.phase is not Phase.CLOSED
    )
    numbers = raft.statistics()
    leader = None
    if mode is Mode.LEADER:
        synced = sum(1 for f in numbers.followers if f.match_index >= raft.commit_index)
        leader = LeaderStatistics(
            learners=voters - 1,
            synced_followers=synced,
            pending_syncs=0,
            quorum_size=voters,
            leader_uptime_ms=driver.leader_uptime_ms,
            last_proposal_size=driver.proposals.last,
            min_proposal_size=driver.proposals.smallest,
            max_proposal_size=driver.proposals.largest,
        )
    return ServerStatistics(
        built_on=BUILT_ON,
        mode=mode,
        latency_min_ms=driver.latencies.min_ms,
        latency_avg_ms=driver.latencies.mean_ms,
        latency_max_ms=driver.latencies.max_ms,
        received=driver.clients.received_total,
        sent=driver.clients.sent_total,
        connections=connections,
        outstanding=sum(c.queued for c in connections),
        zxid=machine.last_zxid,
        # One more than there are: ZooKeeper counts its root twice, as "" and as "/".
        node_count=len(machine.nodes) + 1,
        watch_count=driver.clients.watches.watch_count(),
        ephemerals_count=sum(len(s.ephemerals) for s in machine.sessions.values()),
        approximate_data_size=machine.nodes.data_bytes,
        global_sessions=len(machine.sessions),
        open_file_descriptors=open_file_descriptors,
        max_file_descriptors=max_file_descriptors,
        uptime_ms=uptime_ms,
        leader=leader,
        metrics={
            "raft_term": raft.term,
            "raft_last_index": raft.log.last_index,
            "raft_commit_index": raft.commit_index,
            "raft_applied_index": driver.applied_index,
            "raft_campaigns_total": numbers.campaigns_total,
            "raft_leader_changes_total": driver.leader_changes,
            "raft_peer_mistakes_total": driver.peer_mistakes,
            **_digest(driver),
            **metrics,
        },
    )


def _digest(driver: Driver) -> dict[str, int | float | str]:
    """The state digest if it is cheap to have now; while the tree changes fast it would stop the loop."""
    machine = driver.machine
    if machine.undigested > DIGEST_ITEMS_MAX:
        return {"state_digest_pending": machine.undigested}
    return {"state_digest": f"{machine.digest():032x}", "state_digest_index": driver.applied_index}
