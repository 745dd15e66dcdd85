"""A server's status as the console's overview, with what is wrong of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zraft.admin.console.encoding import shown
from zraft.admin.console.values import (
    Alarm,
    Counts,
    DiskNumbers,
    Histogram,
    MemberRow,
    Overview,
    TreeNumbers,
)
from zraft.monitoring.statistics import Distribution
from zraft.server.operators.status import MemberStatus, Status
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

SILENT_MS: Final = 2_000
"""A follower that says nothing for so long is told of; it answers heartbeats every 50 ms."""
LAG_ENTRIES: Final = 1_000
"""A follower so far behind is told of: more than what is usually under way."""
FREE_SHARE_MIN: Final = 0.05
CERTIFICATE_DAYS: Final = 14
DAY_S: Final = 86_400
PORT_MAX: Final = 65_535


def overview_of(status: Status, at_ms: int, wall_s: float, admin_port: int) -> Overview:
    """Return the overview.

    Args:
        status: the server's.
        at_ms: of the clock by which the page counts.
        wall_s: in s since 1970.
        admin_port: where this server's console is.
    """
    statistics, durations, clients = status.statistics, status.durations, status.clients
    pages = pages_of(status, admin_port)
    leader = next((one.server for one in status.members if one.leads and not one.is_me), None)
    snapshot = status.snapshot
    return Overview(
        at_ms=at_ms,
        server=status.server,
        version=status.version,
        address=status.address,
        cluster=status.cluster,
        mode=None if statistics is None else statistics.mode.value,
        ready=status.ready,
        leader_page=None if leader is None else pages[leader],
        alarms=tuple(alarms_of(status, wall_s)),
        members=tuple([_member(one, status, pages[one.server]) for one in status.members]),
        counts=Counts(
            clients.packets_received_total,
            durations.writes.count,
            durations.reads.count,
            0 if statistics is None else int(statistics.metrics.get("partitions_led_records_total", 0)),
            clients.events_total,
            clients.bytes_received_total,
            clients.bytes_sent_total,
        ),
        times=(
            _histogram("Writes", "arrival to answer", durations.writes),
            _histogram("Reads", "reads and pings, arrival to answer", durations.reads),
            _histogram("fsync", "write and sync of a frame", durations.fsync),
            _histogram("Loop lag", "how late heartbeats are", durations.loop_lag),
        ),
        tree=None
        if statistics is None
        else TreeNumbers(
            shown(statistics.zxid),
            statistics.node_count,
            statistics.ephemerals_count,
            statistics.approximate_data_size,
            statistics.watch_count,
            statistics.global_sessions,
        ),
        disk=DiskNumbers(
            status.log_bytes,
            status.snapshots_bytes,
            status.data_free_bytes,
            status.data_size_bytes,
            None if snapshot is None else snapshot.index,
            None if snapshot is None else snapshot.taken_ms,
        ),
        raft=status.raft,
        clients=clients,
        topics=status.topics,
    )


def pages_of(status: Status, admin_port: int) -> dict[int, str | None]:
    """Return where each member's console probably is: as far from its port of clients as this server's is from its own."""
    here = _address(status.address)
    found: dict[int, str | None] = {}
    for member in status.members:
        address = _address(member.address)
        port = 0 if here is None or address is None else address.port + admin_port - here.port
        found[member.server] = (
            f"http://{Address(address.host, port)}/" if address is not None and 0 < port <= PORT_MAX else None
        )
    return found


def _address(text: str) -> Address | None:
    try:
        return parse_address(text, "address")
    except ConfigError:
        return None


def _member(one: MemberStatus, status: Status, page: str | None) -> MemberRow:
    raft = status.raft
    if one.leads:
        role = "leader"
    elif one.part not in ("voter", "unknown"):
        role = one.part
    else:
        role = raft.role if one.is_me and raft is not None else "follower"
    sent, size = one.snapshot_sent_bytes, one.snapshot_bytes
    return MemberRow(
        one.server,
        one.address,
        role,
        one.leads,
        one.is_me,
        None if one.is_me else page,
        one.match_index,
        one.lag_entries,
        one.inflight_bytes,
        one.silent_ms,
        None if sent is None or not size else 100 * sent // size,
    )


def alarms_of(status: Status, wall_s: float) -> Iterator[Alarm]:
    """Yield what an operator should look at, the worst first."""
    for reason in status.reasons:
        yield Alarm(reason, bad=True)
    if status.disk_full:
        yield Alarm("the disk is full: nothing is acknowledged until there is room", bad=True)
    for member in status.members:
        if member.silent_ms is not None and member.silent_ms >= SILENT_MS:
            yield Alarm(f"server {member.server} has said nothing for {member.silent_ms // 1000} s", bad=True)
    for problem in status.partition_problems.items:
        since = "" if problem.for_ms is None else f" (for {problem.for_ms // 1000} s)"
        yield Alarm(f"partition {problem.topic}/{problem.partition}: {problem.reason}{since}", bad=True)
    if status.partition_problems.left_out:
        yield Alarm(f"and {status.partition_problems.left_out} more partitions", bad=True)
    for member in status.members:
        if member.lag_entries is not None and member.lag_entries >= LAG_ENTRIES:
            yield Alarm(f"server {member.server} is {member.lag_entries} entries behind", bad=False)
        if member.needs_snapshot:
            yield Alarm(f"server {member.server} needs a snapshot before it can follow", bad=False)
    if status.data_size_bytes and status.data_free_bytes < FREE_SHARE_MIN * status.data_size_bytes:
        free = 100 * status.data_free_bytes // status.data_size_bytes
        yield Alarm(f"{free} % of the disk is free", bad=False)
    if status.certificate_ends_s is not None:
        days = int((status.certificate_ends_s - wall_s) // DAY_S)
        if days < CERTIFICATE_DAYS:
            yield Alarm(f"the certificate for clients ends in {days} days", bad=days < 0)
    if status.settings_differ:
        names = ", ".join(status.settings_differ)
        yield Alarm(f"configured, but not in force: {names} (zraft settings)", bad=False)


def _histogram(name: str, about: str, seconds: Distribution) -> Histogram:
    return Histogram(
        name,
        about,
        tuple([round(bound * 1000, 6) for bound in seconds.bounds]),
        seconds.counts,
        round(seconds.mean * 1000, 3),
        round(seconds.quantile(0.5) * 1000, 3),
        round(seconds.quantile(0.99) * 1000, 3),
        round(seconds.largest * 1000, 3),
    )
