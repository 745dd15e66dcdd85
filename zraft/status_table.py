"""The table that `zraft status` prints. Apart from `zraft.status` because it is all that needs rich."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table

from zraft.address import Address
from zraft.status import LEADING_MODES, ServerStatus, UnreachableError, server_status

TIMEOUT_S: Final = 2.0
COLUMNS: Final = ("server", "mode", "zxid", "nodes", "connections", "version")
PLAIN_WIDTH: Final = 120
"""Columns when the output is no terminal: wide enough that no cell is cut in a log or a pipe."""


def show_status(addresses: Sequence[Address], out: TextIO, tls: ssl.SSLContext | None = None) -> bool:
    """Ask all servers at once and print the table. True if one of them leads (or stands alone)."""
    # One thread per server, so that an unreachable machine costs one timeout, not one per machine.
    with ThreadPoolExecutor(max_workers=len(addresses)) as pool:
        answers = list(pool.map(partial(_ask, tls=tls), addresses))
    table = Table(*COLUMNS)
    reasons = []
    for address, answer in zip(addresses, answers, strict=True):
        match answer:
            case ServerStatus():
                table.add_row(
                    str(address),
                    answer.mode,
                    f"{answer.zxid:#x}",
                    str(answer.node_count),
                    str(answer.connections),
                    answer.version,
                )
            case UnreachableError():
                table.add_row(str(address), "unreachable", *["-"] * 4)
                reasons.append(str(answer))
            case None:
                table.add_row(str(address), "not serving", *["-"] * 4)
    console = Console(file=out, width=None if out.isatty() else PLAIN_WIDTH, highlight=False)
    console.print(table)
    for reason in reasons:
        console.print(reason, markup=False)
    leads = any(isinstance(answer, ServerStatus) and answer.mode in LEADING_MODES for answer in answers)
    if not leads:
        console.print("none of these servers leads")
    return leads


def _ask(address: Address, *, tls: ssl.SSLContext | None) -> ServerStatus | UnreachableError | None:
    try:
        return server_status(address, TIMEOUT_S, tls)
    except UnreachableError as error:
        return error
