"""A `Status` and `AdminReports` made up for tests."""

from __future__ import annotations

from attrs import define

from tests.unit.wire.reports import LEADER, FakeReports, distribution
from zraft.groups.statistics import FollowerState
from zraft.server.operators.status import (
    ClientTraffic,
    ConsumerLag,
    Durations,
    MemberStatus,
    PartitionsStatus,
    PartitionStatus,
    PeerTraffic,
    RaftStatus,
    Status,
)
from zraft.server.partitions.statistics import Delivered, PartitionState
from zraft_core.ids import GroupId, ServerId

DURATIONS = Durations(
    fsync=distribution(3, 2, 1),
    writes=distribution(5, 0, 0),
    reads=distribution(0, 7, 0),
    turns=distribution(1, 1, 1),
    loop_lag=distribution(9, 0, 0),
    elections=distribution(0, 0, 1),
    entry_commands=distribution(2, 2, 0, bounds=(1, 2)),
    entry_bytes=distribution(2, 2, 0, bounds=(64, 256)),
)

STATUS = Status(
    server=1,
    version="3.9.5-zraft-0",
    address="127.0.0.1:2181",
    cluster="00ff",
    uptime_ms=9_500,
    ready=True,
    reasons=(),
    raft=RaftStatus(
        role="leader",
        term=7,
        leader=1,
        first_index=1,
        last_index=120,
        durable_index=119,
        commit_index=118,
        applied_index=117,
        uncommitted_bytes=5,
        pending_reads=2,
        campaigns_total=3,
        leader_changes_total=4,
        messages_ignored_total=0,
        proposals_refused_total=0,
        reads_dropped_total=1,
        peer_mistakes_total=0,
    ),
    members=(
        MemberStatus(1, "127.0.0.1:2181", leads=True, is_me=True, part="voter"),
        MemberStatus(2, "127.0.0.1:2182", False, False, "voter", 118, 2, 1, 90, True, silent_ms=30),
        MemberStatus(3, "[::1]:2183", False, False, "voter", 20, 100, 0, 0, False, silent_ms=61_000),
    ),
    clients=ClientTraffic(
        connections=2,
        sessions_attached=1,
        connections_total=8,
        rejected_total=1,
        attaches_waiting=5,
        output_bytes=61,
        input_bytes=62,
        unfinished_bytes=63,
        evicted_total=64,
        refused_total=65,
        denied_total=66,
        packets_received_total=101,
        packets_sent_total=102,
        bytes_received_total=3_000,
        bytes_sent_total=4_000,
        events_total=6,
        outstanding_bytes=77,
        outstanding_bytes_max=16_777_216,
        sessions_expired_total=9,
    ),
    peers=PeerTraffic(
        datagrams_sent=11,
        datagrams_received=12,
        bytes_sent=1_100,
        bytes_received=1_200,
        messages_sent=21,
        messages_received=22,
        messages_not_understood=0,
        refused={"replayed": 2, "unauthentic": 3},
        errors={("send", "ENOBUFS"): 4},
    ),
    durations=DURATIONS,
    loop_stall_max_ms=12.5,
    disk_full=False,
    undigested=13,
    settings_differ=("tick_time_ms",),
    data_free_bytes=1_000,
    data_size_bytes=9_000,
    certificate_ends_s=1_800_000_000.0,
    statistics=LEADER,
)


OF_TOPICS = PartitionsStatus(
    partitions=(
        PartitionStatus(
            "orders",
            0,
            PartitionState(
                group=GroupId(300),
                term=4,
                leader=ServerId(1),
                leads=True,
                first=10,
                end=50,
                stored_bytes=4_096,
                oldest_ms=1_000,
                problem="",
                delivered=Delivered(7, 40, 2_000),
                followers=(
                    FollowerState(ServerId(2), 0, 20, True),
                    FollowerState(ServerId(3), 12, 9_000, False),
                ),
                too_few=True,
            ),
            61_500,
        ),
        PartitionStatus(
            "orders",
            1,
            PartitionState(
                group=GroupId(301),
                term=2,
                leader=None,
                leads=False,
                first=0,
                end=0,
                stored_bytes=0,
                oldest_ms=None,
                problem="",
                delivered=Delivered(),
                followers=(),
                too_few=False,
            ),
            None,
        ),
    ),
    partitions_left_out=5,
    consumers=(ConsumerLag("orders", b'bill"ing\xff', 33),),
    consumers_left_out=2,
)


@define
class FakeAdminReports(FakeReports):
    """The same with what only the admin server asks."""

    current: Status = STATUS
    of_topics: PartitionsStatus = OF_TOPICS

    def status(self) -> Status:
        return self.current

    def partitions(self) -> PartitionsStatus:
        return self.of_topics

    def reasons(self) -> tuple[str, ...]:
        return self.current.reasons

    def knobs(self) -> tuple[tuple[str, str], ...]:
        return (("id", "1"), ("client.jute_maxbuffer", "1048575"))

    def cluster_text(self) -> str:
        return "1=127.0.0.1:2181\n"
