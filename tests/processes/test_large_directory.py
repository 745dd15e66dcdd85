"""A directory of a million children: made, counted, listed up to the limit and beyond it, and deleted again.

Figures are printed (`-s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import MarshallingError, RolledBackError

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(900)]

CHILDREN: Final = 1_000_000
PER_TRANSACTION: Final = 500
IN_FLIGHT: Final = 8


def in_transactions(client: KazooClient, what: str) -> float:
    """`create` or `delete` all children, some transactions at a time; seconds."""
    started = time.monotonic()
    waiting = []
    for first in range(0, CHILDREN, PER_TRANSACTION):
        transaction = client.transaction()
        for number in range(first, first + PER_TRANSACTION):
            path = f"/large/{number:07}"
            if what == "create":
                transaction.create(path)
            else:
                transaction.delete(path)
        waiting.append(transaction.commit_async())
        if len(waiting) >= IN_FLIGHT:
            check(waiting.pop(0).get(timeout=60))
    for left in waiting:
        check(left.get(timeout=60))
    return time.monotonic() - started


def check(results: list[object]) -> None:
    assert len(results) == PER_TRANSACTION
    assert not [result for result in results if isinstance(result, RolledBackError | Exception)]


def stall_ms_max(cluster: Cluster) -> dict[int, str]:
    """By server; the start and every election since are in it."""
    return {number: (cluster.mntr(number) or {}).get("loop_stall_ms_max", "?") for number in cluster.servers}


def test_a_million_children_are_created_counted_listed_and_deleted(
    start_cluster: Callable[..., Cluster], open_sessions: Callable[[Cluster], Sessions]
) -> None:
    cluster = start_cluster()
    sessions = open_sessions(cluster)
    client = sessions.open()
    client.create("/large")
    created_s = in_transactions(client, "create")
    stat = client.exists("/large")
    assert (stat.numChildren, stat.cversion) == (CHILDREN, CHILDREN)
    with pytest.raises(MarshallingError):
        client.get_children("/large")
    # The connection goes on: no reconnect loop, and a subtree of that size can still be looked at.
    assert client.create("/large/one-more", b"x") == "/large/one-more"
    client.delete("/large/one-more")
    wait_until(
        lambda: any("client.reply_bytes_max" in server.log_text() for server in cluster.servers.values()),
        "a server to name the knob",
    )
    deleted_s = in_transactions(client, "delete")
    client.delete("/large")
    print(
        f"\na million children: created in {created_s:.0f} s, deleted in {deleted_s:.0f} s; "
        f"longest stall of the loops {stall_ms_max(cluster)} ms"
    )


def test_a_million_children_are_listed_where_the_limit_is_raised(
    start_cluster: Callable[..., Cluster], open_sessions: Callable[[Cluster], Sessions]
) -> None:
    cluster = start_cluster(ZRAFT_CLIENT__REPLY_BYTES_MAX="67108864")
    client = open_sessions(cluster).open()
    client.create("/large")
    in_transactions(client, "create")
    started = time.monotonic()
    names = client.get_children("/large")
    print(f"\na million children listed in {time.monotonic() - started:.1f} s")
    assert set(names) == {f"{number:07}" for number in range(CHILDREN)}
