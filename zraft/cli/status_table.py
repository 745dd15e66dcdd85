"""The table that `zraft status` prints. It is a module of its own because only it needs rich."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TextIO

from rich.console import Console
from rich.table import Column, Table

from zraft.cli.status import (
    LEADING_MODES,
    NeedsTlsError,
    ServerStatus,
    UnreachableError,
    ask,
    parse_mntr,
    server_status,
)
from zraft_core.address import Address

TIMEOUT_S: Final = 2.0
RATE_S: Final = 1.0
"""Seconds between two looks at servers from which a rate follows."""

COLUMNS: Final = (
    "server",
    "mode",
    "in sync",
    "term",
    "zxid",
    "nodes",
    "sessions",
    "clients",
    "latency ms",
    "version",
)
PLAIN_WIDTH: Final = 140
"""Columns when the output is no terminal: wide enough that no cell is cut in a log or a pipe."""


def show_status(
    addresses: Sequence[Address],
    out: TextIO,
    tls: ssl.SSLContext | None = None,
    *,
    rate_s: float = RATE_S,
) -> bool:
    """Ask all servers at once and print the table, and a line about topics if there are any.

    Args:
        rate_s: seconds between the two looks from which the rate of records follows; without topics, one look is enough.

    Returns:
        Whether one of the servers leads (or stands alone).
    """
    # There is one thread per server, so that an unreachable machine costs one timeout, not one per machine.
    with ThreadPoolExecutor(max_workers=len(addresses)) as pool:
        answers = list(pool.map(partial(_ask, tls=tls), addresses))
        first: list[Mapping[str, str]] = [
            answer[1] if isinstance(answer, tuple) else {} for answer in answers
        ]
        later = first
        if any(_count(numbers, "topic_partitions") for numbers in first):
            time.sleep(rate_s)
            later = list(pool.map(partial(_numbers, tls=tls), addresses))
    table = Table(*(Column(name, no_wrap=name in ("server", "mode")) for name in COLUMNS))
    reasons = []
    for address, answer in zip(addresses, answers, strict=True):
        match answer:
            case (ServerStatus() as status, numbers):
                table.add_row(
                    str(address),
                    status.mode,
                    _in_sync(numbers),
                    numbers.get("raft_term", "-"),
                    f"{status.zxid:#x}",
                    str(status.node_count),
                    numbers.get("global_sessions", "-"),
                    str(status.connections),
                    _latency(numbers),
                    status.version,
                )
            case UnreachableError():
                mode = "needs TLS" if isinstance(answer, NeedsTlsError) else "unreachable"
                table.add_row(str(address), mode, *["-"] * (len(COLUMNS) - 2))
                reasons.append(str(answer))
            case None:
                table.add_row(str(address), "not serving", *["-"] * (len(COLUMNS) - 2))
    # It is without markup, or `[fd00::1]` would be taken for some.
    width = None if out.isatty() else PLAIN_WIDTH
    console = Console(file=out, width=width, highlight=False, markup=False)
    console.print(table)
    for reason in reasons:
        console.print(reason)
    line = topics_line(first, later)
    if line:
        console.print(line, soft_wrap=True)
    leads = any(isinstance(answer, tuple) and answer[0].mode in LEADING_MODES for answer in answers)
    if not leads:
        console.print("none of these servers leads")
    return leads


Answer = tuple[ServerStatus, Mapping[str, str]] | UnreachableError | None


def _ask(address: Address, *, tls: ssl.SSLContext | None) -> Answer:
    try:
        status = server_status(address, TIMEOUT_S, tls)
    except UnreachableError as error:
        return error
    # The answer to srvr is worth showing without that to mntr.
    return None if status is None else (status, _numbers(address, tls=tls))


def _numbers(address: Address, *, tls: ssl.SSLContext | None) -> Mapping[str, str]:
    """Return what a server tells of itself; nothing if it cannot be asked."""
    try:
        return parse_mntr(ask(address, "mntr", TIMEOUT_S, tls))
    except UnreachableError:
        return {}


def topics_line(first: Sequence[Mapping[str, str]], later: Sequence[Mapping[str, str]]) -> str:
    """Return a line about the topics of the cluster; nothing if there are none.

    Args:
        first, later: the numbers of each server at two moments; empty of one that did not tell them.
    """
    answering = [numbers for numbers in first if "topic_partitions" in numbers]
    if not answering:
        return ""
    # The one that has applied most knows best how many topics there are.
    newest = max(answering, key=lambda numbers: _count(numbers, "raft_applied_index"))
    partitions = _count(newest, "topic_partitions")
    if not partitions and not _count(newest, "topics"):
        return ""
    led = sum(_count(numbers, "partitions_leading") for numbers in answering)
    too_few = sum(_count(numbers, "partitions_under_replicated") for numbers in answering)
    rate = sum(map(_records_per_s, first, later))
    everybody = len(answering) >= _count(newest, "raft_members")
    leaderless = "without a leader" if everybody else "led by none of the servers that answer"
    return (
        f"topics: {_count(newest, 'topics')}, partitions: {partitions}, records/s: {rate:,.0f}, {leaderless}: "
        f"{max(0, partitions - led)}, with too few replicas in sync: {too_few}"
    )


def _records_per_s(first: Mapping[str, str], later: Mapping[str, str]) -> float:
    """Return the rate of records between two looks at a server, by the server's own clock."""
    elapsed_ms = _count(later, "uptime") - _count(first, "uptime")
    records = _count(later, "partitions_led_records_total") - _count(first, "partitions_led_records_total")
    return records * 1000 / elapsed_ms if elapsed_ms > 0 and records > 0 else 0.0


def _count(numbers: Mapping[str, str], name: str) -> int:
    found = numbers.get(name, "")
    return int(found) if found.isascii() and found.isdigit() else 0


def _in_sync(numbers: Mapping[str, str]) -> str:
    """Return how many of a leader's followers have everything committed, of all of them."""
    synced, learners = numbers.get("synced_followers"), numbers.get("learners")
    return "-" if synced is None or learners is None else f"{synced}/{learners}"


def _latency(numbers: Mapping[str, str]) -> str:
    """Return mean and longest, `-` where nothing was measured or ZooKeeper's numbers are not available."""
    mean, longest = numbers.get("avg_latency"), numbers.get("max_latency")
    try:
        return "-" if mean is None or longest is None else f"{float(mean):.1f} / {longest}"
    except ValueError:
        return "-"
