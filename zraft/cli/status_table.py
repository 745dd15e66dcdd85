"""What `zraft status` prints, as a table or as JSON. It is a module of its own because only it needs rich."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import partial
from typing import Final, TextIO

from attrs import asdict
from rich.console import Console
from rich.table import Column, Table

from zraft.cli.status import (
    LEADING_MODES,
    NeedsTlsError,
    Problem,
    ServerStatus,
    UnreachableError,
    ask,
    parse_mntr,
    parse_problems,
    problems_left_out,
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


class Health(IntEnum):
    """What `zraft status` found, as its exit code. 2 and 3 are those of other commands: wrong usage, unknown outcome."""

    WELL = 0
    NO_LEADER = 1
    PARTITIONS_IN_TROUBLE = 4
    """A server leads, so znodes are served, but partitions of topics do not take or do not deliver messages."""


PROBLEMS_SHOWN: Final = 20
"""Partitions in trouble that people are shown; JSON has all that servers name."""
PLAIN_WIDTH: Final = 140
"""Columns when the output is no terminal: wide enough that no cell is cut in a log or a pipe."""


def show_status(
    addresses: Sequence[Address],
    out: TextIO,
    tls: ssl.SSLContext | None = None,
    *,
    as_json: bool = False,
    rate_s: float = RATE_S,
) -> Health:
    """Ask all servers at once and print what they say: a table, a line about topics if there are any, and troubles.

    Args:
        as_json: print one object of JSON instead.
        rate_s: seconds between the two looks from which the rate of records follows; without topics, one look is enough.

    Returns:
        Whether one of the servers leads (or stands alone), and whether all partitions work.
    """
    # There is one thread per server, so that an unreachable machine costs one timeout, not one per machine.
    with ThreadPoolExecutor(max_workers=len(addresses)) as pool:
        answers = list(pool.map(partial(_ask, tls=tls), addresses))
        first: list[Mapping[str, str]] = [
            answer[1] if isinstance(answer, tuple) else {} for answer in answers
        ]
        later = first
        if not as_json and any(_count(numbers, "topic_partitions") for numbers in first):
            time.sleep(rate_s)
            later = list(pool.map(partial(_numbers, tls=tls), addresses))
    leads = any(isinstance(answer, tuple) and answer[0].mode in LEADING_MODES for answer in answers)
    told = [answer[1] for answer in answers if isinstance(answer, tuple)]
    problems, left_out = parse_problems(told), problems_left_out(told)
    health = Health.PARTITIONS_IN_TROUBLE if problems or left_out else Health.WELL
    if not leads:
        health = Health.NO_LEADER
    if as_json:
        servers = [_as_json(address, answer) for address, answer in zip(addresses, answers, strict=True)]
        found = {
            "leads": leads,
            "servers": servers,
            "partition_problems": [asdict(problem) for problem in problems],
            "partition_problems_left_out": left_out,
        }
        out.write(json.dumps(found) + "\n")
        return health
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
    if not leads:
        console.print("none of these servers leads")
    _show_problems(console, problems, left_out)
    return health


def _show_problems(console: Console, problems: Sequence[Problem], left_out: int) -> None:
    """Print which partitions do not take or deliver messages, and why; nothing if there are none."""
    if not problems:
        return
    table = Table(
        Column("partition", no_wrap=True),
        Column("for", justify="right", no_wrap=True),
        Column("why", overflow="fold"),
    )
    for one in problems[:PROBLEMS_SHOWN]:
        for_s = "-" if one.for_ms is None else f"{one.for_ms // 1000} s"
        table.add_row(f"{one.topic}/{one.partition}", for_s, one.reason)
    console.print("partitions that do not take or do not deliver messages:")
    console.print(table)
    left_out += max(0, len(problems) - PROBLEMS_SHOWN)
    if left_out:
        console.print(f"and {left_out} more")


def _as_json(address: Address, answer: Answer) -> dict[str, object]:
    found: dict[str, object] = {"address": str(address)}
    match answer:
        case (ServerStatus() as status, numbers):
            found |= {**asdict(status), "term": _number(numbers, "raft_term")}
            found |= {"sessions": _number(numbers, "global_sessions")}
        case UnreachableError():
            found |= {"mode": None, "error": str(answer)}
        case None:
            found |= {"mode": None, "error": "not serving"}
    return found


def _number(numbers: Mapping[str, str], name: str) -> int | None:
    text = numbers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


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
