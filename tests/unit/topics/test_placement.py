"""Where partitions are put: even load, one move at a time, leaders spread, disks that are gone replaced (D-18)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from zraft.topics.placement import (
    BALANCED_AT_ONCE,
    GROUPS_AT_ONCE,
    MOVES_AT_ONCE,
    Disk,
    PlacementSituation,
    decide,
)
from zraft.topics.registry import Registry
from zraft_core.ids import Instance, ServerId
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    Placed,
    PlaceGroup,
)
from zraft_core.topics.registry_values import RegistrySettings


def instance(server: int, disk: int = 0) -> Instance:
    return Instance(bytes((server, disk)) + bytes(14))


class Cluster:
    """Servers whose disks come and go, and a registry that takes what is decided."""

    def __init__(self, servers: int, replication: int = 3, settings: RegistrySettings | None = None) -> None:
        self.registry = Registry(settings)
        self.replication = replication
        self.disks = {ServerId(n): Disk(instance(n)) for n in range(1, servers + 1)}
        self.zxid = 100
        self.placed: list[PlaceGroup] = []

    def log(self, command: object) -> None:
        self.zxid += 1
        result = self.registry.apply(command, self.zxid)  # type: ignore[arg-type]
        assert result.refusal is None, (command, result)

    def topic(self, name: str, partitions: int) -> None:
        self.log(CreateTopic(name, partitions))
        self.settle()

    def look(self) -> list[object]:
        commands = decide(PlacementSituation(self.registry, self.disks, self.replication))
        assert commands == decide(PlacementSituation(self.registry, self.disks, self.replication)), "pure"
        for command in commands:
            self.log(command)
            if isinstance(command, PlaceGroup):
                self.placed.append(command)
        return list(commands)

    def arrive(self) -> bool:
        """Every group that is under way has got where it goes."""
        moving = [record for record in self.registry.groups.values() if not record.placed]
        for record in moving:
            self.log(Placed(record.group, record.wanted))
        return bool(moving)

    def settle(self, rounds: int = 500) -> None:
        for _ in range(rounds):
            if not self.look() and not self.arrive():
                return
        raise AssertionError("placement does not come to rest")

    @property
    def load(self) -> Counter[ServerId]:
        return Counter(server for record in self.registry.groups.values() for server, _ in record.wanted)

    @property
    def led(self) -> Counter[ServerId | None]:
        return Counter(record.preferred for record in self.registry.groups.values())


def test_partitions_are_created_on_the_least_loaded_disks_and_their_leaders_are_spread() -> None:
    cluster = Cluster(5)
    cluster.topic("t", 10)
    assert cluster.placed == [], "nothing had to be moved"
    assert set(cluster.load.values()) == {6}
    assert set(cluster.led.values()) == {2}
    for record in cluster.registry.groups.values():
        assert record.founders == record.wanted == tuple(sorted(record.wanted))
        assert record.preferred in dict(record.wanted)


def test_with_fewer_servers_than_replicas_each_holds_all() -> None:
    cluster = Cluster(2)
    cluster.topic("t", 4)
    assert cluster.load == {1: 4, 2: 4}
    cluster.disks[ServerId(3)] = Disk(instance(3))
    cluster.settle()
    assert cluster.load == {1: 4, 2: 4, 3: 4}
    assert max(cluster.led.values()) <= 2


def test_a_server_that_joins_takes_its_share_a_few_partitions_at_a_time() -> None:
    cluster = Cluster(3)
    cluster.topic("t", 8)
    cluster.disks[ServerId(4)] = Disk(instance(4))
    first = cluster.look()
    assert len([c for c in first if isinstance(c, PlaceGroup) and len(c.wanted) == 3]) >= 1
    assert sum(not record.placed for record in cluster.registry.groups.values()) == BALANCED_AT_ONCE
    assert [c for c in cluster.look() if isinstance(c, PlaceGroup)] == []
    cluster.settle()
    assert set(cluster.load.values()) == {6}
    assert set(cluster.led.values()) == {2}


def test_a_disk_that_was_replaced_gets_its_partitions_again() -> None:
    cluster = Cluster(5)
    cluster.topic("t", 10)
    before = {g: record.wanted for g, record in cluster.registry.groups.items()}
    cluster.disks[ServerId(2)] = Disk(instance(2, disk=1))
    cluster.settle()
    for group, wanted in before.items():
        now = dict(cluster.registry.groups[group].wanted)
        assert now.keys() == dict(wanted).keys()
        assert now.get(ServerId(2), instance(2, disk=1)) == instance(2, disk=1)


def test_others_stand_in_for_a_server_that_is_removed_or_dead() -> None:
    for how in ("removed", "dead"):
        cluster = Cluster(5)
        cluster.topic("t", 10)
        if how == "removed":
            del cluster.disks[ServerId(2)]
        else:
            cluster.disks[ServerId(2)] = Disk(instance(2), answers=False, dead=True)
        cluster.settle()
        assert cluster.load[ServerId(2)] == cluster.led[ServerId(2)] == 0, how
        assert all(len(record.wanted) == 3 for record in cluster.registry.groups.values())
        assert max(cluster.load.values()) - min(cluster.load[s] for s in (1, 3, 4, 5)) <= 1  # type: ignore[index]


def test_who_is_silent_for_a_moment_keeps_what_it_has_and_gets_nothing_new() -> None:
    cluster = Cluster(4)
    cluster.topic("t", 4)
    before = {g: (r.wanted, r.preferred) for g, r in cluster.registry.groups.items()}
    cluster.disks[ServerId(2)] = Disk(instance(2), answers=False)
    assert cluster.look() == []
    cluster.topic("u", 3)
    for group, record in cluster.registry.groups.items():
        if group in before:
            assert (record.wanted, record.preferred) == before[group]
        else:
            assert ServerId(2) not in dict(record.wanted)


def test_for_whom_nobody_can_stand_in_it_is_waited() -> None:
    cluster = Cluster(3)
    cluster.topic("t", 3)
    cluster.disks[ServerId(3)] = Disk(instance(3), answers=False, dead=True)
    cluster.settle()
    assert cluster.load == {1: 3, 2: 3, 3: 3}
    assert ServerId(3) not in cluster.led, "but others lead"
    cluster.disks[ServerId(3)] = Disk(instance(3))
    cluster.settle()
    assert set(cluster.led.values()) == {1}


def test_the_last_disk_of_a_group_is_never_given_up() -> None:
    """A group without disks that are known keeps the ones that it has: they may come back, and nothing else has its log."""
    cluster = Cluster(1, replication=1)
    cluster.topic("t", 1)
    cluster.disks = {ServerId(2): Disk(instance(2))}
    (record,) = cluster.registry.groups.values()
    cluster.look()
    assert cluster.registry.groups[record.group].holders >= set(record.wanted)


def test_replication_that_is_raised_or_lowered_is_followed() -> None:
    cluster = Cluster(5, replication=1)
    cluster.topic("t", 10)
    assert set(cluster.load.values()) == {2}
    cluster.replication = 5
    cluster.settle()
    assert set(cluster.load.values()) == {10}
    cluster.replication = 3
    cluster.settle()
    assert set(cluster.load.values()) == {6}
    assert all(len(record.wanted) == 3 for record in cluster.registry.groups.values())


def test_a_group_that_is_on_its_way_is_sent_elsewhere_only_if_a_disk_is_gone() -> None:
    cluster = Cluster(4)
    cluster.topic("t", 8)
    cluster.disks[ServerId(5)] = Disk(instance(5))
    cluster.look()
    moving = [record for record in cluster.registry.groups.values() if not record.placed]
    assert moving
    cluster.disks[ServerId(6)] = Disk(instance(6))
    cluster.replication = 2
    cluster.look()
    for record in moving:
        assert cluster.registry.groups[record.group].wanted == record.wanted
    del cluster.disks[ServerId(5)]
    cluster.look()
    for record in moving:
        now = cluster.registry.groups[record.group]
        assert ServerId(5) not in dict(now.wanted)
        assert now.holders > set(record.wanted), "whoever may have become a voter meanwhile still counts"


def test_moves_and_new_groups_are_bounded() -> None:
    cluster = Cluster(5)
    cluster.log(CreateTopic("t", 1000))
    assert len(cluster.look()) == GROUPS_AT_ONCE
    cluster.settle()
    assert len(cluster.registry.groups) == 1000
    del cluster.disks[ServerId(1)]
    cluster.look()
    assert sum(not record.placed for record in cluster.registry.groups.values()) == MOVES_AT_ONCE


def test_what_the_limit_of_groups_leaves_out_is_not_tried() -> None:
    cluster = Cluster(3, settings=RegistrySettings(groups_max=4))
    cluster.log(CreateTopic("t", 3))
    cluster.log(CreateTopic("u", 3))
    cluster.settle()
    assert len(cluster.registry.groups) == 4


def test_nothing_is_decided_without_disks_or_without_topics() -> None:
    assert Cluster(3).look() == []
    cluster = Cluster(3)
    cluster.log(CreateTopic("t", 1))
    cluster.disks = {}
    assert cluster.look() == []


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_it_comes_to_rest_evenly_and_no_move_loses_a_majority(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(rng.randint(1, 6), rng.choice((1, 2, 3, 3, 5)))
    names = 0
    for _ in range(60):
        match rng.randrange(8):
            case 0:
                names += 1
                cluster.log(CreateTopic(f"t{names}", rng.randint(1, 6)))
            case 1 if cluster.registry.names:
                topic = cluster.registry.topics[rng.choice(sorted(cluster.registry.names.values()))]
                if len(topic.partitions) == topic.wanted:
                    cluster.log(AlterTopic(topic.name, topic.wanted + 1))
            case 2 if cluster.registry.names:
                cluster.log(DeleteTopic(rng.choice(sorted(cluster.registry.names))))
            case 3:
                server = ServerId(rng.randint(1, 8))
                cluster.disks[server] = Disk(instance(server, rng.randint(0, 2)))
            case 4 if len(cluster.disks) > 1:
                del cluster.disks[rng.choice(sorted(cluster.disks))]
            case 5:
                server = rng.choice(sorted(cluster.disks))
                dead = rng.random() < 0.5
                cluster.disks[server] = Disk(cluster.disks[server].instance, answers=False, dead=dead)
            case 6:
                records = [record for record in cluster.registry.groups.values() if not record.placed]
                if records:
                    record = rng.choice(records)
                    cluster.log(Placed(record.group, record.wanted))
            case _:
                before = dict(cluster.registry.groups)
                cluster.look()
                for group, record in before.items():
                    now = cluster.registry.groups[group]
                    assert now.wanted
                    assert now.holders >= set(record.wanted), (
                        "who may vote keeps its replica until the move is reported"
                    )
                    there = all(
                        s in cluster.disks and cluster.disks[s].instance == i for s, i in record.wanted
                    )
                    if not record.placed and there:
                        assert now.wanted == record.wanted
    cluster.disks = {server: Disk(disk.instance) for server, disk in cluster.disks.items()}
    cluster.settle()
    count = min(cluster.replication, len(cluster.disks))
    for topic in cluster.registry.topics.values():
        assert len(topic.partitions) + len(topic.adding) == topic.wanted
    for group, record in cluster.registry.groups.items():
        assert len(record.wanted) == count
        assert all(cluster.disks[s].instance == i for s, i in record.wanted)
        assert group in cluster.registry.deleting or record.preferred in dict(record.wanted)
    if cluster.registry.groups and not cluster.registry.deleting:
        load = [cluster.load[server] for server in cluster.disks]
        assert max(load) - min(load) <= 1
        led = [cluster.led[server] for server in cluster.disks]
        assert max(led) - min(led) <= 2


def test_a_deleted_topic_gets_no_group_and_its_groups_move_for_no_balance() -> None:
    cluster = Cluster(3)
    cluster.topic("t", 6)
    cluster.log(DeleteTopic("t"))
    cluster.disks[ServerId(4)] = Disk(instance(4))
    assert cluster.look() == []
    assert [
        c
        for c in decide(PlacementSituation(cluster.registry, cluster.disks, 3))
        if isinstance(c, CreateGroup)
    ] == []
    assert len(cluster.registry.groups) == 6
