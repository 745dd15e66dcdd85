"""Partitions on whole servers, with threads, files and sockets: what a start, a loss and a removal leave."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from tests.unit.server.nodes import Nodes, Sending, host_of
from zraft.admin.exposed import PREFIX
from zraft.admin.group_metrics import AGE_MS, GROUPS
from zraft.admin.metrics import families
from zraft.config.topics import DeliveriesConfig, GroupsConfig
from zraft.transport.messages import Edge
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.producer import Ending
from zraft_core.topics.registry_commands import DeleteTopic


def _files_of_groups(data: Path) -> list[Path]:
    """A directory that is removed while we look has none: `os.walk` passes over it."""
    return [
        Path(directory, name)
        for directory, _, names in os.walk(data / "groups")
        for name in names
        if Path(directory).relative_to(data).parts[1:2] not in ((), ("0",))
    ]


Scenario = Callable[[Nodes], Awaitable[None]]


async def test_what_is_produced_to_several_partitions_is_delivered_in_one_order_on_every_replica(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path) as nodes:
        groups = await nodes.create_topic("orders", 3)
        sending = await Sending.open(nodes)
        messages = [
            (groups[number % 3 : number % 3 + 1] if number % 2 else groups, b"%d" % number)
            for number in range(60)
        ]
        await sending.send(messages)
        assert {ended.ending for ended in sending.ended} == {Ending.DELIVERED}
        seen = {}
        for group in groups:
            seen[group] = [one.payload for one in await nodes.fetch(nodes.leader_of(group), group)]
            assert sorted(seen[group]) == sorted(payload for to, payload in messages if group in to)
            for node in nodes.nodes.values():
                await nodes.same(node, group, seen[group])
        shared = [[one for one in log if int(one) % 2 == 0] for log in seen.values()]
        assert shared[0] == shared[1] == shared[2]


async def test_d13_after_a_stop_of_all_servers_everything_that_was_delivered_is_there_and_producers_go_on(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path) as nodes:
        groups = await nodes.create_topic("orders", 2)
        sending = await Sending.open(nodes)
        await sending.send((groups, b"before %d" % number) for number in range(50))
        for server in tuple(nodes.nodes):
            await nodes.stop(server)
        for server in nodes.addresses:
            nodes.start(server)
        await nodes.until(lambda: all(nodes.leader_of(group) for group in groups))
        await sending.send((groups, b"after %d" % number) for number in range(10))
        expected = [b"before %d" % number for number in range(50)] + [
            b"after %d" % number for number in range(10)
        ]
        for group in groups:
            for node in nodes.nodes.values():
                await nodes.same(node, group, expected)


async def test_while_a_server_is_away_others_lead_its_partitions_and_it_catches_up_from_their_logs(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path) as nodes:
        groups = await nodes.create_topic("orders", 3)
        sending = await Sending.open(nodes)
        await sending.send((groups, b"%d" % number) for number in range(10))
        away = next(server for server, node in nodes.nodes.items() if node is not nodes.leader)
        await nodes.stop(away)
        await sending.send((groups, b"%d" % number) for number in range(10, 30))
        back = nodes.start(away)
        for group in groups:
            await nodes.same(back, group, [b"%d" % number for number in range(30)])
        await nodes.until(lambda: any(nodes.leader_of(group) is back for group in groups))


async def test_d18_a_deleted_topics_groups_leave_nothing_on_any_disk(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        groups = await nodes.create_topic("orders", 2)
        sending = await Sending.open(nodes)
        await sending.send((groups, b"%d" % number) for number in range(10))
        await nodes.command(DeleteTopic("orders"))
        await nodes.until(lambda: not any(host_of(node).groups for node in nodes.nodes.values()))
        # Once the log has forgotten the groups, durably.
        await nodes.until(lambda: not any(_files_of_groups(nodes.data(server)) for server in nodes.addresses))
        await nodes.until(
            lambda: all(
                [one.name for one in (nodes.data(server) / "groups").iterdir()] == ["0"]
                for server in nodes.addresses
            )
        )
        # A start takes the groups neither for living ones nor for damage.
        for server in tuple(nodes.nodes):
            await nodes.stop(server)
        for server in nodes.addresses:
            nodes.start(server)
        await nodes.until(lambda: nodes.leader.driver.serving)
        assert not any(host_of(node).groups for node in nodes.nodes.values())
        (fresh,) = await nodes.create_topic("orders", 1)
        assert fresh not in groups


_SMALL: dict[str, Any] = {
    "groups": GroupsConfig(
        snapshot_bytes=4_096, keep_log_bytes_max=1, wal_bytes_max=65_536, digest_interval=2
    ),
    "deliveries": DeliveriesConfig(segment_bytes_max=16_384, sync_interval_ms=50),
}
"""Snapshots after a few messages, and no log kept for who is away."""


async def test_d13_a_server_that_was_away_for_longer_than_the_log_takes_image_and_deliveries_from_the_leader(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path, **_SMALL) as nodes:
        groups = await nodes.create_topic("orders", 2)
        sending = await Sending.open(nodes)
        payloads = [bytes([number]) * 700 for number in range(150)]
        await sending.send((groups, payload) for payload in payloads[:20])
        away = next(server for server, node in nodes.nodes.items() if node is not nodes.leader)
        ends = {group: host_of(nodes.nodes[away]).groups[group].raft.log.last_index for group in groups}
        await nodes.stop(away)
        for at in range(20, len(payloads), 26):
            await sending.send((groups, payload) for payload in payloads[at : at + 26])

        def cut(group: GroupId) -> bool:
            log = host_of(nodes.leader_of(group)).groups[group].raft.log
            return bool(log.first_index > ends[group] + 1)

        for group in groups:
            await nodes.until(partial(cut, group))
        back = nodes.start(away)
        for group in groups:
            await nodes.same(back, group, payloads)
        assert back.driver.groups is not None
        assert back.driver.groups.installed_total >= 2
        # What was taken over is what a start finds.
        await nodes.stop(away)
        back = nodes.start(away)
        for group in groups:
            await nodes.same(back, group, payloads)
        for number in range(8):
            await sending.send([(groups, b"last %d" % number)])
        for group in groups:
            await nodes.same(back, group, [*payloads, *[b"last %d" % number for number in range(8)]])
        # D-26: a state that came as an image has the digest of one that never did; else a server would have stopped.
        hosted = [node.driver.groups for node in nodes.nodes.values()]
        assert sum(groups.digests.compared_total for groups in hosted if groups is not None) >= 2


async def test_d1_d18_a_replaced_disk_becomes_a_replica_of_its_servers_groups_with_all_their_deliveries(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path, **_SMALL) as nodes:
        groups = await nodes.create_topic("orders", 2)
        sending = await Sending.open(nodes)
        payloads = [bytes([number]) * 700 for number in range(60)]
        await sending.send((groups, payload) for payload in payloads)
        lost = next(server for server, node in nodes.nodes.items() if node is not nodes.leader)
        await nodes.stop(lost)
        nodes.wipe(lost)
        fresh = nodes.start(lost)
        for group in groups:
            await nodes.same(fresh, group, payloads)
        await nodes.until(lambda: all(host_of(fresh).groups[group].raft.is_voter for group in groups))
        await sending.send([(groups, b"last")])
        for group in groups:
            await nodes.same(fresh, group, [*payloads, b"last"])


async def test_messages_that_no_partition_sends_are_counted_for_operators_and_logged_once_in_a_while(
    tmp_path: Path,
) -> None:
    async def scenario(nodes: Nodes) -> None:
        (node,) = nodes.nodes.values()
        groups = node.driver.groups
        assert groups is not None
        with capture_logs() as logs:
            for number in range(20):
                groups.partitions.receive(ServerId(9), Edge(b"rubbish"))
                if number % 5 == 4:
                    for _ in range(2):
                        await nodes.until(
                            partial(lambda before: node._chores_done != before, node._chores_done)
                        )
        lines = [line for line in logs if line["event"].startswith("messages of partitions dropped")]
        assert [(line["peer"], line["count"], line["log_level"]) for line in lines] == [(9, 5, "error")]
        assert b"zk_partitions_mistakes_total\t20\n" in node._four_letter_word("mntr", b"")
        shown = {one.name: one for one in families(node.report.status())}
        assert shown["zraft_partitions_mistakes"].samples[0].value == 20

    async with Nodes(tmp_path, servers=1) as nodes:
        await scenario(nodes)


async def test_every_number_of_groups_that_mntr_shows_is_a_metric(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        shown = {name for node in nodes.nodes.values() for name in node._groups.metrics()}
        declared = {one.name.removeprefix(PREFIX) for one in GROUPS}
        assert shown == declared - {"groups_pending_age_seconds_max"} | {AGE_MS}

    async with Nodes(tmp_path, servers=1) as nodes:
        await scenario(nodes)
