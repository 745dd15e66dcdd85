"""Genuineness on real servers: messages to some of many topics, and what they touched, by logs and by traffic.

Messages go one at a time, so that nothing shares an entry with another message. Groups are replicated once,
unless told otherwise, so that most servers have nothing to do with them. What is counted for a server is what
it sent and received for groups; what is counted for a group is what stands in its log.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from zraft_bench.cluster import LocalCluster
from zraft_bench.multicast.client import TopicsClient
from zraft_bench.multicast.counts import COUNTERS, RECEIVED, server_values
from zraft_bench.multicast.load import TopicError
from zraft_bench.multicast.logs import Footprint, footprint, longest, read_logs
from zraft_bench.multicast.plan import Cell, Payloads
from zraft_bench.multicast.results import GenuineResult, TouchedServer
from zraft_bench.processes import ServerError

TOPICS: Final = 10
FANOUTS: Final = (1, 2, 5)
MESSAGES: Final = 50
SETTLE_S: Final = 1.0
"""Seconds after the last message, in which groups tell each other what is settled."""

SENT: Final = COUNTERS["bundles"]

Values = Mapping[str, Mapping[str, str]]


async def run_genuine(cluster: LocalCluster, messages: int = MESSAGES) -> list[GenuineResult]:
    """Send for each number of destinations, then stop the cluster and read its logs.

    What goes wrong is in the results.
    """
    cell = Cell(name="genuine", topics=TOPICS, producers=1, fanout=max(FANOUTS), window=1, value_bytes=100)
    prefix = f"bench-{secrets.randbits(32):08x}-"
    try:
        async with TopicsClient(cluster.hosts, prefix, cell) as topics:
            await topics.create()
            groups = await topics.groups()
            replicas = await topics.replicas()
            sent = [await _send(topics, cell, fanout, messages, cluster.hosts) for fanout in FANOUTS]
        await asyncio.to_thread(cluster.stop)
        logs = longest([await asyncio.to_thread(read_logs, path) for path in cluster.directories()])
    except (TopicError, ServerError) as error:
        return [GenuineResult(topics=TOPICS, fanout=k, messages=0, reason=str(error)) for k in FANOUTS]
    names = {group: f"{prefix}{n}" for n, group in enumerate(groups)}
    results = []
    for fanout, (producer, before, after) in zip(FANOUTS, sent, strict=True):
        addressed = {group: names[group] for group in groups[:fanout]}
        hosts = {server for group in addressed for server in replicas[group]}
        found = footprint(logs, producer, addressed, names)
        servers = [
            touched(number, number in hosts, before.get(str(address), {}), after.get(str(address), {}))
            for number, address in cluster.addresses.items()
        ]
        results.append(judged(fanout, messages, found, servers))
    return results


async def _send(
    topics: TopicsClient, cell: Cell, fanout: int, messages: int, hosts: str
) -> tuple[int, Values, Values]:
    """Send one message after the other to the first `fanout` topics.

    Return the producer's id, and servers' counts around it.
    """
    payloads = Payloads(cell, secrets.randbits(32))
    async with topics.sender() as sender:
        await asyncio.sleep(SETTLE_S)
        before = await asyncio.to_thread(server_values, hosts)
        for number in range(messages):
            await (await sender.send(tuple(range(fanout)), payloads.make(0, number, 0)))
        await asyncio.sleep(SETTLE_S)
        return sender.id, before, await asyncio.to_thread(server_values, hosts)


def touched(number: int, hosts: bool, before: Mapping[str, str], after: Mapping[str, str]) -> TouchedServer:
    """Return a server's group traffic between two readings; -1 if it does not tell."""

    def grown(name: str) -> int:
        try:
            return int(after[name]) - int(before[name])
        except (KeyError, ValueError):
            return -1

    return TouchedServer(name=f"server {number}", hosts=hosts, sent=grown(SENT), received=grown(RECEIVED))


def judged(fanout: int, messages: int, found: Footprint, servers: Sequence[TouchedServer]) -> GenuineResult:
    """Return the result, with everything that is not genuine or not minimal."""
    bound = fanout * (fanout - 1) + fanout
    per_message = found.exchanged / messages
    reasons = []
    if found.messages != messages:
        reasons.append(f"{messages} messages were delivered, the logs show {found.messages}")
    if found.strangers:
        reasons.append(f"logged where it was not addressed to: {', '.join(found.strangers)}")
    bystanders = [one.name for one in servers if not one.hosts and (one.sent > 0 or one.received > 0)]
    if bystanders:
        reasons.append(
            f"group traffic of servers that have no replica of a destination: {', '.join(bystanders)}"
        )
    if any(one.sent < 0 or one.received < 0 for one in servers):
        reasons.append(f"a server does not tell {SENT} or {RECEIVED}")
    if per_message > bound:
        reasons.append(f"{per_message:.2f} messages between groups for each, expected at most {bound}")
    return GenuineResult(
        topics=TOPICS,
        fanout=fanout,
        messages=messages,
        reason="; ".join(reasons),
        groups=tuple(found.groups),
        servers=tuple(servers),
        per_message=per_message,
        bound=bound,
        commits=found.commits,
    )
