"""What operators are told of each partition: who has what, which replicas are in sync, and how much was delivered."""

from __future__ import annotations

from tests.unit.groups.hosts import DISKS, S1, S2, S3
from tests.unit.server.partitions.cluster import Cluster
from tests.unit.server.partitions.programs import Producing
from zraft.groups.statistics import FollowerState
from zraft.server.partitions.delivery_tail import DeliveryTail
from zraft.server.partitions.settings import PartitionsSettings
from zraft.server.partitions.statistics import Delivered, PartitionState
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.storage.delivery.values import StoredDelivery
from zraft_core.ids import GroupId, ServerId

LONG_MS = 600
"""Longer than an election timeout."""


def started(settings: PartitionsSettings | None = None) -> tuple[Cluster, Producing, GroupId]:
    """One partition, which is led by the server that should lead it, and is to have all three replicas."""
    cluster = Cluster(1, settings=settings)
    cluster.rest()
    producing = Producing(cluster)
    (group,) = cluster.groups
    for server in cluster.servers.values():
        server.host.want_members(group, DISKS)
    cluster.run(100)
    return cluster, producing, group


def say(cluster: Cluster, producing: Producing, count: int, size: int = 100) -> None:
    for _ in range(count):
        producing.say(*cluster.groups, payload=cluster.rng.randbytes(size))
    cluster.run_until(lambda: not producing.producer.undecided())
    cluster.run(80)


def state(cluster: Cluster, group: GroupId, server: ServerId | None = None) -> PartitionState:
    server = cluster.leader(group) if server is None else server
    assert server is not None
    found = cluster.servers[server].partitions.state_of(group)
    assert found is not None
    return found


def follower(cluster: Cluster, group: GroupId, server: ServerId) -> FollowerState:
    (found,) = [one for one in state(cluster, group).followers if one.server == server]
    return found


def others(cluster: Cluster, group: GroupId) -> list[ServerId]:
    return [server for server in (S1, S2, S3) if server != cluster.leader(group)]


def test_a_leader_knows_its_followers_and_a_follower_its_leader() -> None:
    cluster, producing, group = started()
    say(cluster, producing, 20)
    leader = cluster.leader(group)
    mine = state(cluster, group)
    assert (mine.leads, mine.leader, mine.first, mine.end) == (True, leader, 0, 20)
    assert {one.server for one in mine.followers} == set(others(cluster, group))
    assert all(one.in_sync and one.behind == 0 for one in mine.followers)
    assert not mine.too_few
    for server in others(cluster, group):
        its = state(cluster, group, server)
        assert (its.leads, its.leader, its.end, its.followers) == (False, leader, 20, ())
    assert cluster.servers[S1].partitions.state_of(GroupId(999_999)) is None


def test_a_replica_that_is_cut_off_is_out_of_sync_until_it_is_back_also_while_nothing_is_sent() -> None:
    cluster, producing, group = started()
    say(cluster, producing, 5)
    cluster.run(LONG_MS)
    assert all(one.in_sync for one in state(cluster, group).followers), "a group that sleeps is in sync"
    away = others(cluster, group)[0]
    cluster.isolate(away)
    cluster.run(LONG_MS)
    found = follower(cluster, group, away)
    assert (found.in_sync, found.behind) == (False, 0), "it lacks nothing, but nobody knows of it"
    assert found.silent_ticks is not None
    assert found.silent_ticks >= LONG_MS - 200
    assert state(cluster, group).too_few
    assert cluster.leading(group).statistics().under_replicated == 1
    say(cluster, producing, 7)
    behind = follower(cluster, group, away).behind
    assert behind is not None
    assert behind > 0
    assert follower(cluster, group, others(cluster, group)[1]).in_sync
    cluster.heal()
    cluster.run_until(lambda: follower(cluster, group, away).in_sync)
    assert not state(cluster, group).too_few
    assert cluster.leading(group).statistics().under_replicated == 0


def test_a_leader_does_not_guess_how_far_one_is_that_never_answered_it() -> None:
    cluster, producing, group = started()
    say(cluster, producing, 5)
    first, away = cluster.leader(group), others(cluster, group)[0]
    assert first is not None
    cluster.stopped |= {first, away}
    cluster.run(LONG_MS)
    cluster.stopped.discard(away)
    cluster.run_until(lambda: cluster.leader(group) not in (None, first))
    found = follower(cluster, group, first)
    assert (found.behind, found.silent_ticks, found.in_sync) == (None, None, False)


def test_what_was_delivered_counts_at_the_leader_of_the_moment_and_once() -> None:
    cluster, producing, group = started()
    say(cluster, producing, 10)
    first = cluster.leader(group)
    assert first is not None
    mine = state(cluster, group).delivered
    assert (mine.messages, mine.records) == (10, 10)
    assert 10 * 100 <= mine.bytes <= 10 * 200
    assert all(state(cluster, group, server).delivered == Delivered() for server in others(cluster, group))
    target = others(cluster, group)[0]
    for server in cluster.servers.values():
        server.host.prefer(group, target)
    cluster.run_until(lambda: cluster.leader(group) == target)
    say(cluster, producing, 4)
    assert state(cluster, group, first).delivered == mine, "it stays what it was"
    assert sum(state(cluster, group, server).delivered.messages for server in DISKS) == 14
    totals = [cluster.servers[server].partitions.statistics() for server in DISKS]
    assert sum(one.led_messages_total for one in totals) == sum(one.led_records_total for one in totals) == 14


def test_a_deposed_leader_does_not_count_what_its_successor_delivered() -> None:
    cluster, producing, group = started()
    say(cluster, producing, 3)
    first = cluster.leader(group)
    assert first is not None
    cluster.isolate(first)
    cluster.run_until(lambda: cluster.leader(group) not in (None, first))
    say(cluster, producing, 20)
    cluster.heal()
    cluster.run(LONG_MS)
    assert [state(cluster, group, server).end for server in DISKS] == [23] * 3
    assert sum(state(cluster, group, server).delivered.messages for server in DISKS) == 23


def test_records_of_a_batch_count_each_and_the_batch_is_one_message() -> None:
    cluster, producing, group = started()
    for _ in range(3):
        message = producing.producer.multicast([group], b"a batch", records=5)
        producing._say(message)
    cluster.run_until(lambda: not producing.producer.undecided())
    cluster.run(80)
    found = state(cluster, group)
    assert (found.end, found.delivered.messages, found.delivered.records) == (15, 3, 15)


def test_bytes_and_the_age_of_the_oldest_are_those_of_the_disk_and_retention_moves_them() -> None:
    cluster, producing, group = started(PartitionsSettings(retain_interval_ms=100, tail_bytes_max=2_000))
    assert (state(cluster, group).stored_bytes, state(cluster, group).oldest_ms) == (0, None)
    say(cluster, producing, 40)
    before = state(cluster, group)
    assert before.leader is not None
    log = cluster.servers[before.leader].hosted(group).log
    assert log is not None
    assert before.stored_bytes > 40 * 100
    assert before.oldest_ms is not None
    assert 0 <= before.oldest_ms - log.read(0)[0].time <= 20, "to within a frame"
    cluster.run(2_000)
    say(cluster, producing, 80)
    most = state(cluster, group)
    assert most.oldest_ms == before.oldest_ms
    cluster.coordinator.retained[group] = DeliveryRetention(bytes_min=2_000)
    cluster.run_until(lambda: state(cluster, group).first > 40)
    after = state(cluster, group)
    assert after.oldest_ms is not None
    assert after.oldest_ms >= before.oldest_ms + 2_000
    assert 2_000 <= after.stored_bytes < most.stored_bytes


def test_totals_stay_when_a_partition_is_gone() -> None:
    cluster, producing, group = started()
    say(cluster, producing, 6)
    partitions = cluster.leading(group)
    before = partitions.statistics().led_messages_total
    partitions.closed(group)
    assert partitions.statistics().led_messages_total == before == 6


def test_a_tail_knows_how_much_was_ever_appended_whatever_it_forgets() -> None:
    tail = DeliveryTail(7)
    offset = 7
    for at in range(50):
        span = at % 3 + 1
        one = StoredDelivery(offset, (at + 1, 1, 0, 0), 1, at + 1, bytes(10), at + 1, 0, span)
        tail.append([one], at + 1)
        tail.wrote(at + 1)
        tail.shrink(700)
        offset = one.end
        if at == 30:
            offset += 100
            tail.restart(offset)
    spans = sum(at % 3 + 1 for at in range(50))
    assert tail.appended() == Delivered(50, spans, 500)
