"""A fleet's status as tables for a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onyxlog.replica.replica import JoinMode
from onyxlog.status import Agreement, FleetStatus, GroupRow, JobRow

GROUPS_SHOWN: Final = 60
WORKERS_SHOWN: Final = 6
STYLES: Final = {Agreement.SAME: "green", Agreement.DIFFERENT: "bold red", Agreement.UNKNOWN: "dim"}


def view(status: FleetStatus) -> RenderableType:
    """Return all tables, one below the other."""
    return Group(_head(status), _groups(status), _jobs(status))


def _head(status: FleetStatus) -> Text:
    text = Text()
    text.append(f"log {status.first}…{status.end - 1}" if status.end > status.first else "log empty")
    text.append(f"   chain {status.chain.hex()[:16] or '-'}   ")
    if status.join is JoinMode.DIRECT:
        text.append("joins directly")
    elif status.ring_closed:
        text.append("ring closed", style="green")
    else:
        text.append("ring open", style="yellow")
    text.append(f"   {len(status.groups)} groups")
    if status.joining:
        text.append(f" + {len(status.joining)} joining", style="yellow")
    text.append(f"   {status.peers} virtual peers, {status.idle} idle")
    if status.orphans:
        text.append(f", {status.orphans} orphans", style="yellow")
    silent = sum(row.silent for row in status.groups)
    if silent:
        text.append(f"   {silent} silent", style="bold yellow")
    if not status.agreed:
        text.append("   REPLICAS DIFFER", style="bold red")
    return text


def _groups(status: FleetStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("GROUP", "HEARD", "WATCHES", "PEERS", "WORKING", "POSITION", "BEHIND", "DIGEST", "SITES"):
        table.add_column(
            name, justify="right" if name in ("PEERS", "WORKING", "POSITION", "BEHIND") else "left"
        )
    for row in status.groups[:GROUPS_SHOWN]:
        table.add_row(
            row.group,
            _heard(row),
            row.watches or "-",
            str(row.peers),
            str(row.working),
            "-" if row.published is None else str(row.published),
            "-" if row.behind is None else str(row.behind),
            Text("-" if row.chain is None else row.chain.hex()[:12], style=STYLES[row.agreement]),
            ", ".join(row.sites) or "-",
        )
    if len(status.groups) > GROUPS_SHOWN:
        table.add_row(f"… and {len(status.groups) - GROUPS_SHOWN} more")
    return table


def _heard(row: GroupRow) -> Text:
    """Return when the service last heard of the group and, if that is long ago, after how long the group is out."""
    silence = row.silence
    if silence is None or silence.silent_s is None:
        return Text("-")
    text = f"{silence.silent_s:.1f} s ago"
    return (
        Text(f"{text} (timeout {silence.timeout_s:g} s)", style="bold yellow") if row.silent else Text(text)
    )


def _jobs(status: FleetStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("JOB", "STATE", "SINCE", "TASK", "WORKERS"):
        table.add_column(name, justify="right" if name == "SINCE" else "left")
    for row in status.jobs:
        first = (row.job, row.state, str(row.since))
        if row.reason:
            table.add_row(*first, "-", Text(row.reason, style="yellow"))
            continue
        if not row.tasks:
            table.add_row(*first, "-", "-")
        for number, task in enumerate(row.tasks):
            table.add_row(*(first if number == 0 else ("", "", "")), task.task, _workers(row, number))
    return table


def _workers(row: JobRow, number: int) -> str:
    workers = row.tasks[number].workers
    shown = [
        f"{slot}:{peer}{'*' if peer == row.coordinator else ''}"
        + ("" if state.value == "active" else f" ({state.value})")
        for peer, slot, state in sorted(workers, key=lambda worker: worker[1])[:WORKERS_SHOWN]
    ]
    if len(workers) > WORKERS_SHOWN:
        shown.append(f"… {len(workers)} in all")
    return ", ".join(shown) or "-"
