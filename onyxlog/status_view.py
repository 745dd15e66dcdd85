"""A fleet's status as a listing: tables that fit a terminal for people, and one object for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from onyxlog.replica.replica import JoinMode, PeerState
from onyxlog.status import Agreement, FleetStatus, GroupRow, JobRow, TaskRow, as_json
from zraft.cli.listings.listing import Column, Grid, Listing, bytes_text
from zraft_core.fleets import AuditReport, GossipReport

EXIT_DIFFERENT: Final = 4
"""The exit code if the fleet can be seen, and a group has another replica than the log gives."""
ROWS_SHOWN: Final = 60
"""Rows of one table that people are shown; JSON has all."""
AGREEMENTS: Final = {Agreement.SAME: "same", Agreement.DIFFERENT: "DIFFERS", Agreement.UNKNOWN: "-"}

WATCHES: Final = Column("watches", spare=3, folds=True)
"""The group whose pulse a group watches, where groups join by the ring."""
GROUPS: Final = (
    Column("group", folds=True),
    Column("heard"),
    Column("peers\nbusy", right=True),
    Column("position", right=True),
    Column("behind", right=True),
    Column("replica"),
    WATCHES,
    Column("digest", spare=4),
    Column("sites", spare=5, folds=True),
)
GOSSIP: Final = (
    Column("group", folds=True),
    Column("from\npeers", right=True),
    Column("from\nservers", right=True),
    Column("own", right=True, spare=2),
    Column("redundant", right=True),
    Column("reads", right=True, spare=3),
    Column("received", right=True),
    Column("sent", right=True, spare=1),
)
JOBS: Final = (
    Column("job", folds=True),
    Column("state"),
    Column("since"),
    Column("coordinator", spare=1, folds=True),
    Column("waits for", folds=True),
)
TASKS: Final = (
    Column("job", folds=True),
    Column("task", folds=True),
    Column("peers", right=True),
    Column("since"),
    Column("segments", right=True, spare=2),
    Column("rate/s", right=True),
    Column("read", right=True),
    Column("of", right=True, spare=1),
    Column("left", right=True),
)
WORKERS: Final = (
    Column("peer", folds=True),
    Column("job", folds=True),
    Column("task", folds=True),
    Column("slot", right=True),
    Column("state"),
)


def listing_of(status: FleetStatus, now_ms: int) -> Listing:
    """Return what `onyxlog status` prints. `now_ms`: this machine's clock, in ms since 1970."""
    return Listing(
        (as_json(status),),
        tuple(_parts(status, now_ms)),
        exit_code=0 if status.agreed else EXIT_DIFFERENT,
    )


def _parts(status: FleetStatus, now_ms: int) -> Iterator[Grid | str]:
    yield from _head(status)
    if status.groups:
        watching = status.join is JoinMode.RING
        columns = tuple(column for column in GROUPS if watching or column is not WATCHES)
        yield from _table(columns, [_group(row, watching=watching) for row in status.groups])
    gossip = [(row.group, row.gossip) for row in status.groups if row.gossip is not None]
    if gossip:
        yield ""
        yield _savings([one for _, one in gossip])
        yield from _table(GOSSIP, [_gossip(group, one) for group, one in gossip])
    if status.jobs:
        yield ""
        yield from _table(JOBS, [_job(row, now_ms) for row in status.jobs])
    tasks = [(row, task) for row in status.jobs for task in row.tasks if task.workers]
    if tasks:
        yield ""
        yield from _table(TASKS, [_task(row, task, now_ms) for row, task in tasks])
        yield ""
        yield from _table(WORKERS, [worker for row, task in tasks for worker in _workers(row, task)])
    if status.audit is not None:
        yield ""
        yield _audit(status.audit, now_ms)


def _table(columns: tuple[Column, ...], rows: list[tuple[str, ...]]) -> Iterator[Grid | str]:
    yield Grid(columns, tuple(rows[:ROWS_SHOWN]))
    if len(rows) > ROWS_SHOWN:
        yield f"… and {len(rows) - ROWS_SHOWN} more; --output json has all"


def _head(status: FleetStatus) -> Iterator[str]:
    entries = f"{status.first}…{status.end - 1}" if status.end > status.first else "empty"
    joins = "joins directly"
    if status.join is not JoinMode.DIRECT:
        joins = "ring closed" if status.ring_closed else "RING OPEN"
    yield f"log {entries}, chain {status.chain.hex()[:16] or '-'}, {joins}"
    joining = f" and {len(status.joining)} joining" if status.joining else ""
    orphans = f", {status.orphans} of groups that have not joined" if status.orphans else ""
    yield f"{len(status.groups)} groups{joining}, {status.peers} virtual peers, {status.idle} idle{orphans}"
    silent = sum(row.silent for row in status.groups)
    if silent:
        yield f"{silent} SILENT, perhaps dead"
    different = sum(row.agreement is Agreement.DIFFERENT for row in status.groups)
    if different:
        yield f"REPLICAS DIFFER: {different} computed something else from the same log"


def _group(row: GroupRow, *, watching: bool) -> tuple[str, ...]:
    return (
        row.group,
        _heard(row),
        f"{row.working}/{row.peers}",
        "-" if row.published is None else str(row.published),
        "-" if row.behind is None else str(row.behind),
        AGREEMENTS[row.agreement],
        *([row.watches or "-"] if watching else []),
        "-" if row.chain is None else row.chain.hex()[:12],
        ", ".join(row.sites) or "-",
    )


def _heard(row: GroupRow) -> str:
    """Return when the service last heard of the group and, if that is long ago, after how long the group is out."""
    silence = row.silence
    if silence is None or silence.silent_s is None:
        return "-"
    return f"{silence.silent_s:.1f} s" + (f" of {silence.timeout_s:g}" if row.silent else " ago")


def _savings(found: list[GossipReport]) -> str:
    peers, servers = sum(one.from_peers for one in found), sum(one.from_servers for one in found)
    share = f"{100 * peers / (peers + servers):.0f} % of " if peers + servers else ""
    redundant = sum(one.redundant for one in found)
    return f"gossip: {share}{peers + servers:,} entries came from peers; {redundant:,} redundant copies"


def _gossip(group: str, one: GossipReport) -> tuple[str, ...]:
    counts = (one.from_peers, one.from_servers, one.own, one.redundant, one.reads)
    return (group, *map(str, counts), bytes_text(one.received_bytes), bytes_text(one.sent_bytes))


def _job(row: JobRow, now_ms: int) -> tuple[str, ...]:
    return (row.job, row.state.value, _since(row, now_ms), row.coordinator or "-", row.reason or "-")


def _since(row: JobRow, now_ms: int) -> str:
    """Return the time, or the position where nobody remembers it: the entry was truncated."""
    return f"entry {row.since}" if row.since_ms is None else moment(row.since_ms, now_ms)


def _task(row: JobRow, task: TaskRow, now_ms: int) -> tuple[str, ...]:
    since = "-" if task.since_ms is None else moment(task.since_ms, now_ms)
    made = task.progress
    if made is None:
        return (row.job, task.task, str(len(task.workers)), since, *["-"] * 5)
    return (
        row.job,
        task.task,
        str(len(task.workers)),
        since,
        f"{made.segments:,}",
        f"{made.per_s:,.0f}" if made.per_s >= 10 else f"{made.per_s:.1f}",
        "-" if made.done is None or made.total is None else _percent(made.done, made.total),
        "-" if made.total is None else f"{made.total:,}",
        "-" if made.left_s is None else span(made.left_s),
    )


def _percent(done: int, total: int) -> str:
    return f"{100 * done // total if total else 100} %"


def _workers(row: JobRow, task: TaskRow) -> Iterable[tuple[str, ...]]:
    for peer, slot, state in sorted(task.workers, key=lambda worker: worker[1]):
        shown = PeerState.ACTIVE.value if state is PeerState.ACTIVE else state.value
        yield (peer, row.job, task.task, str(slot), shown)


def _audit(audit: AuditReport, now_ms: int) -> str:
    broken = [rule.rule for rule in audit.rules if rule.verdict == "broken"]
    judged = sum(rule.verdict != "no data" for rule in audit.rules)
    verdict = f"BROKEN: {', '.join(broken)}" if broken else audit.verdict
    return (
        f"last audit {moment(audit.at_ms, now_ms)}: {verdict}; {judged} of {len(audit.rules)} rules had data"
    )


def moment(at_ms: int, now_ms: int) -> str:
    """Return a time in UTC: only the time of a moment of today, only the day and minutes of an earlier one."""
    try:
        at, now = (datetime.fromtimestamp(one / 1000, UTC) for one in (at_ms, now_ms))
    except (OverflowError, OSError, ValueError):  # somebody's clock is beyond the calendar
        return f"{at_ms} ms"
    if at.date() == now.date():
        return f"{at:%H:%M:%S}Z"
    return f"{at:%m-%d %H:%M}Z" if at.year == now.year else f"{at:%Y-%m-%d}"


def span(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min" if whole < 86_400 else f"{whole // 86_400} d"
