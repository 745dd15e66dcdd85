"""What `zraft status` prints, as a table or as JSON. It is a module of its own because only it needs rich."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
PROBLEMS_SHOWN: Final = 20
"""Partitions in trouble that people are shown; JSON has all that servers name."""
PLAIN_WIDTH: Final = 140
"""Columns when the output is no terminal: wide enough that no cell is cut in a log or a pipe."""


def show_status(
    addresses: Sequence[Address], out: TextIO, tls: ssl.SSLContext | None = None, *, as_json: bool = False
) -> bool:
    """Ask all servers at once and print what they say. Return True if one of them leads (or stands alone)."""
    # There is one thread per server, so that an unreachable machine costs one timeout, not one per machine.
    with ThreadPoolExecutor(max_workers=len(addresses)) as pool:
        answers = list(pool.map(partial(_ask, tls=tls), addresses))
    leads = any(isinstance(answer, tuple) and answer[0].mode in LEADING_MODES for answer in answers)
    told = [answer[1] for answer in answers if isinstance(answer, tuple)]
    problems, left_out = parse_problems(told), problems_left_out(told)
    if as_json:
        servers = [_as_json(address, answer) for address, answer in zip(addresses, answers, strict=True)]
        found = {
            "leads": leads,
            "servers": servers,
            "partition_problems": [asdict(problem) for problem in problems],
            "partition_problems_left_out": left_out,
        }
        out.write(json.dumps(found) + "\n")
        return leads
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
    if not leads:
        console.print("none of these servers leads")
    _show_problems(console, problems, left_out)
    return leads


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
    if status is None:
        return None
    try:
        return status, parse_mntr(ask(address, "mntr", TIMEOUT_S, tls))
    except UnreachableError:
        return status, {}  # the answer to srvr is worth showing without it


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
