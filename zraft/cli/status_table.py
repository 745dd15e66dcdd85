"""Output of `zraft status`, as a table or as JSON."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import partial
from typing import Final

from attrs import asdict

from zraft.cli.listings.listing import Column, Grid, Listing
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
    Column("server"),
    Column("mode"),
    Column("in\nsync", right=True, spare=1),
    Column("term", right=True, spare=4),
    Column("zxid"),
    Column("nodes", right=True),
    Column("sessions", right=True, spare=2),
    Column("clients", right=True),
    Column("latency\nms", right=True, spare=3),
    Column("version", spare=5),
)


class Health(IntEnum):
    """The verdict of `zraft status`, as its exit code. Other commands use 2 for wrong usage, 3 for an unknown outcome."""

    WELL = 0
    NO_LEADER = 1
    PARTITIONS_IN_TROUBLE = 4
    """A server leads, so znodes are served, but partitions of topics do not take or do not deliver messages."""


PROBLEMS_SHOWN: Final = 20
"""Partitions in trouble that people are shown; JSON has all that servers name."""


def status_listing(
    addresses: Sequence[Address],
    tls: ssl.SSLContext | None = None,
    *,
    rate_s: float = RATE_S,
    timeout_s: float = TIMEOUT_S,
) -> Listing:
    """Ask all servers at once: a table, a line about topics if there are any, and troubles. The exit code is a `Health`.

    Args:
        addresses: of the servers.
        tls: the context, if they speak TLS.
        rate_s: seconds between the two looks from which the rate of records follows; without topics, one look is enough.
        timeout_s: for one question to one server.
    """
    # There is one thread per server, so that an unreachable machine costs one timeout, not one per machine.
    with ThreadPoolExecutor(max_workers=len(addresses)) as pool:
        answers = list(pool.map(partial(_ask, tls=tls, timeout_s=timeout_s), addresses))
        first: list[Mapping[str, str]] = [
            answer[1] if isinstance(answer, tuple) else {} for answer in answers
        ]
        later = first
        if any(_count(numbers, "topic_partitions") for numbers in first):
            time.sleep(rate_s)
            later = list(pool.map(partial(_numbers, tls=tls, timeout_s=timeout_s), addresses))
    leads = any(isinstance(answer, tuple) and answer[0].mode in LEADING_MODES for answer in answers)
    told = [answer[1] for answer in answers if isinstance(answer, tuple)]
    problems, left_out = parse_problems(told), problems_left_out(told)
    health = Health.PARTITIONS_IN_TROUBLE if problems or left_out else Health.WELL
    if not leads:
        health = Health.NO_LEADER
    value = {
        "leads": leads,
        "servers": [_as_json(address, answer) for address, answer in zip(addresses, answers, strict=True)],
        "partition_problems": [asdict(problem) for problem in problems],
        "partition_problems_left_out": left_out,
    }
    rows = []
    parts: list[Grid | str] = []
    for address, answer in zip(addresses, answers, strict=True):
        rows.append(_row(address, answer))
        if isinstance(answer, UnreachableError):
            parts.append(str(answer))
    parts.insert(0, Grid(COLUMNS, tuple(rows)))
    line = topics_line(first, later)
    if line:
        parts.append(line)
    if not leads:
        silent = all(isinstance(answer, UnreachableError) for answer in answers)
        parts.append("none of these servers leads" + ("; --connect names others" if silent else ""))
    parts += _problems_shown(problems, left_out)
    return Listing((value,), tuple(parts), exit_code=health)


def _row(address: Address, answer: Answer) -> tuple[str, ...]:
    match answer:
        case (ServerStatus() as status, numbers):
            return (
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
        case _:
            mode = "not serving"
    return (str(address), mode, *["-"] * (len(COLUMNS) - 2))


def _problems_shown(problems: Sequence[Problem], left_out: int) -> list[Grid | str]:
    """Return which partitions do not take or deliver messages, and why; nothing if there are none."""
    if not problems:
        return []
    rows = tuple(
        (
            f"{one.topic}/{one.partition}",
            "-" if one.for_ms is None else f"{one.for_ms // 1000} s",
            one.reason,
        )
        for one in problems[:PROBLEMS_SHOWN]
    )
    grid = Grid((Column("partition"), Column("for", right=True), Column("why", folds=True)), rows)
    shown: list[Grid | str] = ["partitions that do not take or do not deliver messages:", grid]
    left_out += max(0, len(problems) - PROBLEMS_SHOWN)
    return [*shown, f"and {left_out} more"] if left_out else shown


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


def _ask(address: Address, *, tls: ssl.SSLContext | None, timeout_s: float) -> Answer:
    try:
        status = server_status(address, timeout_s, tls)
    except UnreachableError as error:
        return error
    # The answer to srvr is worth showing without that to mntr.
    return None if status is None else (status, _numbers(address, tls=tls, timeout_s=timeout_s))


def _numbers(address: Address, *, tls: ssl.SSLContext | None, timeout_s: float) -> Mapping[str, str]:
    """Return what a server tells of itself; nothing if it cannot be asked."""
    try:
        return parse_mntr(ask(address, "mntr", timeout_s, tls))
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
