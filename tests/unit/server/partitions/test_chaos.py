"""Lossy bundles, repeated messages, leaders that change, servers that stand still: the shipped checks of multicast hold."""

from __future__ import annotations

import random

import pytest

from tests.simulation.multicast.checks import check_all
from tests.simulation.partitions.histories import Recorded, history_of
from tests.simulation.partitions.programs import Merging
from tests.unit.groups.hosts import S1, S2, S3
from tests.unit.server.partitions.cluster import Cluster
from tests.unit.server.partitions.programs import Producing
from zraft_core.ids import GroupId

CHAOS_MS = 2_000
MESSAGES = 120


def recorded(cluster: Cluster, group: GroupId) -> Recorded:
    one, other = (cluster.servers[server].hosted(group).machine.partition for server in (S1, S2))
    assert one is not None
    assert other is not None
    return Recorded.of(cluster.applied[group], one, other)


def strike(cluster: Cluster) -> str:
    """One of the faults, for a while."""
    rng = cluster.rng
    kind = rng.choice(("transfer", "transfer", "isolate", "stop", "lossy", "disk"))
    server = rng.choice((S1, S2, S3))
    match kind:
        case "transfer":
            group = rng.choice(cluster.groups)
            leader = cluster.leader(group)
            if leader is not None:
                cluster.servers[leader].host.transfer(group, server)
        case "isolate":
            cluster.isolate(server)
        case "stop" if not cluster.stopped:
            cluster.stopped.add(server)
        case "lossy":
            cluster.loss = rng.choice((0.05, 0.2, 0.4))
        case "disk":
            cluster.servers[server].disk_stopped = True
    return kind


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_lost_and_whoever_leads_the_promises_of_multicast_hold(seed: int) -> None:
    cluster = Cluster(2, 1, 1, seed=seed)
    cluster.rest()
    cluster.run(60)
    rng = cluster.rng
    producing = [Producing(cluster) for _ in range(3)]
    dice = random.Random(f"merging {seed}")
    merging = [Merging(cluster.groups, dice, cluster.services, cluster.now) for _ in range(2)]
    leaders = {group: {cluster.leader(group)} for group in cluster.groups}
    sent, struck, begin = 0, 0, cluster.now_ms
    cluster.run(60)

    programs: list[Producing | Merging] = [*producing, *merging]

    def turn() -> None:
        for program in programs:
            program.work()
        cluster.step()
        for group in cluster.groups:
            leaders[group].add(cluster.leader(group))

    while cluster.now_ms < begin + CHAOS_MS:
        if sent < MESSAGES and rng.random() < 0.15:
            one = rng.choice(producing)
            if one.producer.has_room:
                one.say(*rng.sample(cluster.groups, rng.choice((1, 1, 2, 3))))
                sent += 1
        if rng.random() < 0.015:
            struck += 1
            strike(cluster)
        elif rng.random() < 0.004:
            cluster.heal()
            for server in cluster.servers.values():
                server.disk_stopped = False
        turn()
    cluster.heal()
    for server in cluster.servers.values():
        server.disk_stopped = False

    def drained() -> bool:
        return all(not one.producer.undecided() for one in producing) and all(
            len(one.out) == sent for one in merging
        )

    for _ in range(12_000):
        if drained():
            break
        turn()
    assert drained(), cluster.describe()
    for _ in range(1_000):
        turn()
    assert sent > 60
    assert struck > 5
    assert any(len(seen - {None}) > 1 for seen in leaders.values()), "no leader ever changed"
    groups = {group: recorded(cluster, group) for group in cluster.groups}
    check_all(history_of(groups, producing, merging, window=1024))
    for group in cluster.groups:
        digests = {one.hosted(group).machine.digest() for one in cluster.servers.values()}
        assert len(digests) == 1, f"states of group {group} differ"
        disks = [cluster.payloads(group, server) for server in cluster.servers]
        assert disks[0] == disks[1] == disks[2]
        partition = cluster.servers[S1].hosted(group).machine.partition
        assert partition is not None
        assert not partition.settled, "what is delivered everywhere is forgotten"
