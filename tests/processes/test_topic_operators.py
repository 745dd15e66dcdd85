"""Topics for operators: their level rolls in, the command line changes them, members come and go (D-5, D-18)."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.processes.cluster import Cluster, wait_until
from tests.processes.members import GrowingCluster
from tests.processes.test_upgrade import RollingCluster
from zraft.cli.main import main as zraft
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.operator.requests import TopicDescribe, TopicDescription
from zraft_client import Client
from zraft_client.topics import Consumer, MergedConsumer, Record, Topics
from zraft_core.topics.registry_values import OFFSETS_SKIPPED

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

StartCluster = Callable[..., GrowingCluster]
BUSY = {"ZRAFT_RAFT__ELECTION_TIMEOUT_TICKS": "1000"}
"""One leader for all of a test, also on a machine that does much else."""


class TopicCluster(RollingCluster):
    """Servers that announce one level less than topics need."""

    def __init__(self, directory: Path, *, servers: int = 3, env: dict[str, str] | None = None) -> None:
        super().__init__(directory, servers=servers, env=env)
        self.settings = dict.fromkeys(self.settings, ("features_max=3",))

    def topic(self, *arguments: str) -> str:
        """What `zraft topic …` prints."""
        done = self.zraft("topic", *arguments, "--timeout", "60", timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def described(self, name: str) -> TopicDescription:
        return self.operate(TopicDescribe(name), TopicDescription)

    def holders(self, name: str) -> set[int]:
        """All servers that are to hold a partition; empty while any is on its way."""
        rows = self.described(name).partitions
        if any(row.state == "moving" for row in rows):
            return set()
        return {server for row in rows for server in row.servers}

    def groups(self, number: int) -> int:
        return int((self.mntr(number) or {}).get("groups", -1))


def test_d5_topics_come_with_their_level_and_operators_change_them(start_cluster: StartCluster) -> None:
    """Directories and snapshots of level 3 are read on; each server is upgraded by itself."""
    cluster = start_cluster(kind=TopicCluster, **BUSY)
    assert isinstance(cluster, TopicCluster)
    wait_until(lambda: cluster.level() == 3, "level 3")

    def certain() -> subprocess.CompletedProcess[str] | None:
        """Ask until the last answer comes before the time is up: otherwise the command says that it does not know."""
        found = cluster.zraft("topic", "create", "orders", "--timeout", "2")
        return None if found.returncode == 3 else found

    refused = wait_until(certain, "a certain answer")
    assert refused.returncode == 1
    assert "topics need feature level 4" in refused.stderr
    for number in list(cluster.servers):
        assert cluster.level() == 3
        cluster.roll(number)
    wait_until(lambda: cluster.level() == FEATURE_LEVEL_MAX, "the level to rise")
    assert cluster.setting("topics_replication") == 3

    printed = cluster.topic("create", "orders", "--partitions", "4", "--retain-age", "7d")
    assert printed.splitlines()[-1] == "4 partitions take messages"
    rows = cluster.described("orders").partitions
    assert [(row.number, row.servers) for row in rows] == [(n, (1, 2, 3)) for n in range(4)]
    assert {row.preferred for row in rows} == {1, 2, 3}, "leaders are spread"
    wait_until(lambda: all(cluster.groups(n) == 4 for n in cluster.servers), "replicas on all servers")

    # The change is itself a message to old and new partitions: it ends when all of them have delivered it.
    printed = cluster.topic("alter", "orders", "--partitions", "6", "--retain-size", "1GiB")
    assert printed.splitlines()[-1] == "6 partitions take messages"
    (line,) = [json.loads(one) for one in cluster.topic("list", "--json").splitlines()]
    assert (line["partitions"], line["retention_bytes"], line["retention_age_ms"]) == (6, 2**30, 604_800_000)
    assert "topic orders is deleted" in cluster.topic("delete", "orders")
    assert cluster.topic("list", "--json") == ""
    wait_until(lambda: all(cluster.groups(n) == 0 for n in cluster.servers), "the partitions to go")
    cluster.wait_equal_digests()


def test_d18_partitions_follow_the_members(start_cluster: StartCluster) -> None:
    """A server that joins takes its share; one that is removed gives its partitions away before it leaves."""
    cluster = start_cluster(kind=TopicCluster, **BUSY)
    assert isinstance(cluster, TopicCluster)
    for number in list(cluster.servers):
        cluster.roll(number)
    wait_until(lambda: cluster.level() == FEATURE_LEVEL_MAX, "the level to rise")
    cluster.topic("create", "t", "--partitions", "4")
    assert cluster.holders("t") == {1, 2, 3}

    cluster.settings[4] = ()
    cluster.place(4)
    cluster.add(4)
    cluster.start(4)
    wait_until(lambda: cluster.holders("t") == {1, 2, 3, 4}, "server 4 to take its share")
    wait_until(lambda: cluster.groups(4) == 3, "its replicas")

    leader = wait_until(cluster.leader, "a leader")
    leaving = next(n for n in (1, 2, 3) if n != leader)
    removed = cluster.zraft("member", "remove", str(leaving))
    assert removed.returncode == 0, removed
    first, last = removed.stdout.splitlines()
    assert f"server {leaving} leaves when the partitions of topics on its disk have moved" in first
    assert last == f"server {leaving} has left; stop it", "only then may its disk go"
    others = {1, 2, 3, 4} - {leaving}
    assert cluster.holders("t") == others
    assert leaving not in cluster.listing()
    assert all(row.servers == tuple(sorted(others)) for row in cluster.described("t").partitions)


def test_a_consumer_reads_on_while_the_replica_that_it_reads_leaves(start_cluster: StartCluster) -> None:
    cluster = start_cluster(kind=GrowingCluster)
    cluster.place(4)
    cluster.add(4)
    cluster.start(4)
    cluster.wait_roles(voters=[1, 2, 3, 4])

    async def read_on() -> None:
        async with Client(cluster.hosts(), timeout_s=60.0) as client, Topics(client) as topics:
            await topics.create("orders", 1)
            async with topics.producer() as producer, topics.consumer("orders") as consumer:
                await producer.send(("orders", 0), b"0")
                found = await consumer.poll(60.0)
                group = (await topics.metadata()).group("orders", 0)
                leaving = consumer._reader.server_of(group)
                removing = asyncio.create_task(
                    asyncio.to_thread(cluster.zraft, "member", "remove", str(leaving))
                )
                sent = 1
                while not removing.done() or sent < 50:
                    await producer.send(("orders", 0), b"%d" % sent)
                    sent += 1
                assert removing.result().returncode == 0, removing.result().stderr
                for _ in range(20):
                    await producer.send(("orders", 0), b"%d" % sent)
                    sent += 1
                while len(found) < sent:
                    more = await consumer.poll(20.0)
                    assert more, f"{len(found)} of {sent}, read at server {consumer._reader.server_of(group)}"
                    found += more
                assert [one.value for one in found] == [b"%d" % number for number in range(sent)]
                assert consumer._reader.server_of(group) != leaving

    asyncio.run(read_on())


def in_trouble(cluster: Cluster) -> dict[int, dict[str, str]]:
    """Return what `zraft status` says of partitions of the only topic: the reason by number and kind."""
    shown = CliRunner().invoke(zraft, ["status", "--json", "--connect", cluster.hosts()])
    found: dict[int, dict[str, str]] = {}
    for one in json.loads(shown.output)["partition_problems"]:
        found.setdefault(one["partition"], {})[one["kind"]] = one["reason"]
    return found


def test_status_names_partitions_without_a_majority_and_those_that_wait_for_them(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(kind=GrowingCluster, servers=5, **BUSY)
    assert in_trouble(cluster) == {}

    async def created() -> list[set[int]]:
        async with Client(cluster.hosts(), timeout_s=60.0) as client, Topics(client) as topics:
            partitions = (await topics.create("orders", 20)).partitions
            placements = (await topics.metadata()).placements
            return [{*map(int, placements[group].servers)} for group in partitions]

    places = asyncio.run(created())
    dead = {number for number, servers in enumerate(places) if {1, 2} <= servers}
    living = next(number for number, servers in enumerate(places) if not {1, 2} & servers)
    for number in (1, 2):
        cluster.kill(number)

    def named() -> bool:
        found = in_trouble(cluster)
        lost = {number for number, kinds in found.items() if "no_majority" in kinds}
        return lost == dead == found.keys()

    wait_until(named, f"partitions {dead} to be named")
    assert CliRunner().invoke(zraft, ["status", "--connect", cluster.hosts()]).exit_code == 4
    reason = in_trouble(cluster)[min(dead)]["no_majority"]
    assert "2 of its 3 replicas do not answer: server 1 (" in reason
    assert ", server 2 (" in reason

    waits = f"1 message waits for other partitions to agree on the order: 1 for orders/{min(dead)}"

    async def sent() -> None:
        async with Client(cluster.hosts(), timeout_s=60.0) as client, Topics(client) as topics:
            producer = topics.producer()
            await producer.open()
            sent = await producer.send_soon([("orders", living), ("orders", min(dead))], b"waits")
            found: dict[str, str] = {}
            while found.get("waiting") != waits:
                found = (await asyncio.to_thread(in_trouble, cluster)).get(living, {})
            assert f"orders/{min(dead)}: " in producer.why_waiting(sent)
            await producer.close(flush=False)

    asyncio.run(asyncio.wait_for(sent(), 60))


def _given_up(cluster: GrowingCluster, groups: list[int]) -> subprocess.CompletedProcess[str] | None:
    """Give up these groups; None if that is refused because a majority answers, as far as is known."""
    found = cluster.zraft("topic", "give-up", *map(str, groups), "--yes")
    if "a majority of its disks answers" in found.stderr:
        return None
    assert found.returncode == 0, found.stderr
    return found


def _nothing_deleting(cluster: GrowingCluster) -> bool:
    return all(
        (cluster.mntr(number) or {}).get("topic_partitions_deleting") == "0" for number in cluster.servers
    )


def test_partitions_of_a_deleted_topic_that_lost_their_disks_are_given_up_and_others_go_on(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(kind=GrowingCluster, servers=5, **BUSY)
    lost: list[int] = []

    async def waits() -> None:
        async with Client(cluster.hosts(), timeout_s=60.0) as client, Topics(client) as topics:
            places: dict[str, list[tuple[int, set[int]]]] = {}
            for name in ("orders", "audit"):
                partitions = (await topics.create(name, 20)).partitions
                placements = (await topics.metadata()).placements
                places[name] = [(int(g), {*map(int, placements[g].servers)}) for g in partitions]
            lost[:] = [group for group, servers in places["audit"] if {1, 2} <= servers]
            dead = next(n for n, (group, _) in enumerate(places["audit"]) if group == lost[0])
            living = next(n for n, (_, servers) in enumerate(places["orders"]) if not {1, 2} & servers)
            producer = topics.producer()
            await producer.open()
            refused = await asyncio.to_thread(cluster.zraft, "topic", "give-up", str(lost[0]), "--yes")
            assert "a majority of its disks answers" in refused.stderr
            for number in (1, 2):
                await asyncio.to_thread(cluster.kill, number)
            await asyncio.to_thread(wait_until, cluster.leader, "a leader")
            sent = await producer.send_soon([("orders", living), ("audit", dead)], b"waits")
            await sent.accepted()
            await topics.delete("audit")
            await asyncio.to_thread(
                wait_until, lambda: lost[0] in in_trouble(cluster), "the group to be named"
            )
            assert not sent.done()
            # A replica misses the others sooner than the leader of the coordination group, who is to judge.
            given_up = await asyncio.to_thread(
                wait_until, partial(_given_up, cluster, lost), "them to be given up"
            )
            assert f"group {lost[0]}: 2 of its 3 replicas do not answer: server 1 (" in given_up.stdout
            assert f"group {lost[0]} is given up" in given_up.stdout
            receipt = await asyncio.wait_for(sent, 30)
            assert receipt.offsets[("orders", living)] == 0
            await producer.close()
            assert (await topics.create("audit", 1)).partitions, "the name is free"

    asyncio.run(waits())
    for number in (1, 2):
        cluster.start(number)

    wait_until(partial(_nothing_deleting, cluster), "the deleted partitions to be gone everywhere")
    cluster.wait_equal_digests()


async def _until(consumer: Consumer | MergedConsumer, wanted: set[bytes]) -> list[Record]:
    """Read until all of these values came; return all records that came."""
    found: list[Record] = []
    async with asyncio.timeout(60):
        while not wanted.issubset(one.value for one in found):
            found += await consumer.poll(1.0)
    return found


def test_partitions_that_are_given_up_are_replaced_and_their_topic_goes_on(
    start_cluster: StartCluster,
) -> None:
    """Consumers of both kinds and producers that are there all the time need to know nothing of it."""
    cluster = start_cluster(kind=GrowingCluster, servers=5, **BUSY)
    count = 20
    lost: dict[int, int] = {}

    async def goes_on() -> None:
        async with Client(cluster.hosts(), timeout_s=60.0) as client, Topics(client) as topics:
            before = (await topics.create("orders", count)).partitions
            placements = (await topics.metadata()).placements
            lost.update({n: int(g) for n, g in enumerate(before) if {1, 2} <= set(placements[g].servers)})
            dead = min(lost)
            living = next(n for n in range(count) if n not in lost)
            async with (
                topics.producer() as producer,
                topics.consumer("orders") as plain,
                topics.merged("orders") as merged,
            ):
                first = {b"first %d" % number for number in range(count)}
                for number in range(count):
                    await producer.send(("orders", number), b"first %d" % number)
                assert {one.value for one in await _until(plain, first)} == first
                in_order = await _until(merged, first)
                early = merged.position()
                for number in (1, 2):
                    await asyncio.to_thread(cluster.kill, number)
                await asyncio.to_thread(wait_until, cluster.leader, "a leader")
                waiting = await producer.send_soon([("orders", living), ("orders", dead)], b"waits")
                await waiting.accepted()
                done = await asyncio.to_thread(
                    wait_until, partial(_given_up, cluster, list(lost.values())), "them to be given up"
                )
                assert f"It is partition {dead} of topic orders" in done.stdout
                assert (
                    f"group {lost[dead]} is given up: what waits for it goes on without it; an empty"
                    in done.stdout
                )
                assert (await asyncio.wait_for(waiting, 60)).offsets[("orders", living)] == 1
                second = {b"second %d" % number for number in range(count)}
                offsets = {}
                for number in range(count):
                    receipt = await producer.send(("orders", number), b"second %d" % number)
                    offsets[number] = receipt.offsets[("orders", number)]
                assert all(
                    (offset > OFFSETS_SKIPPED) == (number in lost) for number, offset in offsets.items()
                )
                for one in await _until(plain, second):
                    if one.value in second:
                        assert one.offset == offsets[one.partition]
                in_order += await _until(merged, second)
                assert [one.stamp for one in in_order] == sorted(one.stamp for one in in_order)
                assert [one.value for one in in_order].count(b"waits") == 1
                position = merged.position()
                await producer.send(("orders", dead), b"third")
            async with topics.merged("orders", position=position) as goes_on:
                assert [one.value for one in await _until(goes_on, {b"third"})] == [b"third"]
            for begin in (early, None):
                async with topics.merged("orders", position=begin) as other:
                    values = [one.value for one in await _until(other, {b"third"})]
                    assert second.issubset(values)
                    assert first.isdisjoint(values) == (begin is early)
            after = (await topics.describe("orders")).partitions
            assert [group for n, group in enumerate(after) if n not in lost] == [
                group for n, group in enumerate(before) if n not in lost
            ]

    asyncio.run(goes_on())
    for number in (1, 2):
        cluster.start(number)

    wait_until(partial(_nothing_deleting, cluster), "what was given up to be gone everywhere")
    wait_until(lambda: not in_trouble(cluster), "all partitions to be well")
    cluster.wait_equal_digests()
