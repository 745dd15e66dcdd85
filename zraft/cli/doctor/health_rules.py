"""Rules about whether the cluster works, and how far it is from its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from zraft.cli.doctor.findings import CLUSTER, Finding, Rule, Severity
from zraft.cli.doctor.sights import Disk, ServerSight, Sights, number_in
from zraft.cli.listings.listing import bytes_text

LEADING: Final = ("leader", "standalone")
NEAR: Final = 0.8
"""The part of a limit from which on it is close."""
DISK_LOW: Final = 0.1
DISK_EMPTY: Final = 0.02
MEMORY_PART: Final = 0.25
"""Bytes of znodes' data take several times as many of memory, and a snapshot some more for a while."""
LOG_PART: Final = 0.25
SLOW_SYNC_MS: Final = 50
STALL_MS: Final = 1_000
CLOCK_S: Final = 3.0
"""Seconds; the clocks are compared to a second, and an answer may take another one."""
VOLATILE: Final = frozenset({"tmpfs", "ramfs", "overlay"})


def reachable(sights: Sights) -> Iterator[Finding]:
    """Find servers that do not answer, or do not serve."""
    for server in sights.servers:
        if server.silent:
            yield Finding(
                Severity.ERROR,
                "unreachable",
                server.name,
                server.silent,
                "The others carry its part, and clients that know only this one are cut off.",
                "Start it, or see why it is not reached; if it is gone for good: `zraft member remove` or `move`.",
            )
        elif server.mode is None:
            yield Finding(
                Severity.ERROR,
                "not-serving",
                server.name,
                "It answers, but does not serve clients.",
                "It has no contact to a leader, or is still reading its log.",
                "See the reasons in its log or at /readyz of its admin server; `zraft status` shows the others.",
            )


def leadership(sights: Sights) -> Iterator[Finding]:
    """Find a cluster without a leader, or with several."""
    serving = [server for server in sights.servers if server.serves]
    leaders = [server.name for server in serving if server.mode in LEADING]
    if len(leaders) > 1:
        yield Finding(
            Severity.ERROR,
            "several-leaders",
            ", ".join(leaders),
            f"{len(leaders)} of these servers lead.",
            "They are not of one cluster, or a leadership changed just now.",
            "Look again; if it stays, name the servers of one cluster only, and compare `zraft member list` of each.",
        )
    if not leaders and sights.servers and len(serving) >= _members(sights):
        yield Finding(
            Severity.ERROR,
            "no-leader",
            CLUSTER,
            "None of the servers leads.",
            "No write succeeds.",
            "A majority of the voters must run and reach each other by UDP at the ports of their addresses.",
        )


def quorum(sights: Sights) -> Iterator[Finding]:
    """Find a cluster that stops when one more server does, and an even number of voters."""
    newest = _newest(sights)
    voters = int(newest.number("raft_voters") or 0) if newest is not None else 0
    members = _members(sights)
    if not voters:
        return
    asked = len(sights.servers)
    if voters == 1:
        yield Finding(
            Severity.NOTE,
            "one-voter",
            CLUSTER,
            "One server votes.",
            "When it stops, everything stops; when its disk is lost, so are the data.",
            "For more than development run three: `zraft member add`, or found a cluster of three.",
        )
        return
    if voters % 2 == 0:
        yield Finding(
            Severity.WARNING,
            "even-voters",
            CLUSTER,
            f"{voters} servers vote.",
            f"They bear the loss of {(voters - 1) // 2}, as {voters - 1} would, and more of them can fail.",
            "Add one, or make one an observer: `zraft member add`, `zraft member remove`.",
        )
    if asked < members:
        yield Finding(
            Severity.NOTE,
            "not-all-asked",
            CLUSTER,
            f"{asked} of {members} members were asked.",
            "Nothing is known of the others.",
            "Name all of them with --connect.",
        )
        return
    up = sum(server.serves and server.mode != "observer" for server in sights.servers)
    spare = up - (voters // 2 + 1)
    if spare == 0 and up < voters:
        yield Finding(
            Severity.ERROR,
            "no-spare",
            CLUSTER,
            f"{up} of {voters} voters run.",
            "The next one that stops stops all writes.",
            "Start the missing ones before anything else, and take none down.",
        )


def followers(sights: Sights) -> Iterator[Finding]:
    """Find followers that are behind."""
    for server in sights.servers:
        synced, learners = server.number("synced_followers"), server.number("learners")
        if synced is not None and learners is not None and synced < learners:
            yield Finding(
                Severity.WARNING,
                "behind",
                server.name,
                f"{int(synced)} of this leader's {int(learners)} followers have everything that is committed.",
                "Until the others have, fewer losses are borne.",
                "Look again; if it stays, `zraft member list` shows who is behind: see its disk and its network.",
            )


def disks(sights: Sights) -> Iterator[Finding]:
    """Find disks that are full or nearly so, that forget, or that are slow."""
    for server in sights.servers:
        if server.number("disk_full") or server.number("deliveries_disk_full"):
            yield Finding(
                Severity.ERROR,
                "disk-full",
                server.name,
                "Its disk is full.",
                "It takes no more writes.",
                "Make room on the disk of its `data`; it goes on by itself.",
            )
        elif server.disk is not None:
            yield from _room(server.name, server.disk)
        if (
            server.log_bytes is not None
            and server.disk is not None
            and server.log_bytes > LOG_PART * (server.disk.free + server.log_bytes)
        ):
            yield Finding(
                Severity.WARNING,
                "log-large",
                server.name,
                f"Its log has {bytes_text(server.log_bytes)}, and {bytes_text(server.disk.free)} are free.",
                "A log that grows like this has no snapshot behind it, or keeps much for a follower that is behind.",
                "See `zraft status` for who is behind; snapshot.log_bytes_min and snapshot.retain_bytes_max bound it.",
            )
        slow = server.number("p99_fsynctime")
        if slow is not None and slow > SLOW_SYNC_MS:
            yield Finding(
                Severity.WARNING,
                "disk-slow",
                server.name,
                f"One of a hundred writes to its disk takes {slow:g} ms.",
                "Each write of a client waits for the disks of a majority.",
                "Give the log a disk of its own, or a faster one.",
            )
    for file in sights.files:
        if file.disk is not None:
            yield from _room(file.name, file.disk)
            if file.disk.kind in VOLATILE:
                yield Finding(
                    Severity.ERROR if file.disk.kind != "overlay" else Severity.WARNING,
                    "data-volatile",
                    file.name,
                    f"`data` is on {file.disk.kind}.",
                    "What a restart of the machine or the container takes away was promised to clients to be safe.",
                    "Set data to a directory on a disk, or on a volume of its own.",
                )


def _room(where: str, disk: Disk) -> Iterator[Finding]:
    part = disk.free / disk.size if disk.size else 1.0
    if part < DISK_LOW:
        yield Finding(
            Severity.ERROR if part < DISK_EMPTY else Severity.WARNING,
            "disk-low",
            where,
            f"{part:.0%} of the disk of its data is free: {bytes_text(disk.free)} of {bytes_text(disk.size)}.",
            "A server whose disk is full takes no more writes.",
            "Make room, or keep less: snapshot.keep, snapshot.retain_bytes_max, `zraft topic alter --retain-size`.",
        )


@frozen
class Limit:
    """A number that grows towards a limit: both by their names, the limit as a number of `mntr` or a knob."""

    what: str
    number: str
    limit: str
    knob: bool = True


LIMITS: Final = (
    Limit("connections", "num_alive_connections", "client.connections_max"),
    Limit("open files", "open_file_descriptor_count", "max_file_descriptor_count", knob=False),
    Limit("bytes of replies that wait", "client_output_bytes", "client.output_bytes_sum_max"),
    Limit("bytes of requests that wait", "client_input_bytes", "client.input_bytes_sum_max"),
    Limit("bytes of incomplete requests", "client_unfinished_bytes", "client.unfinished_bytes_sum_max"),
    Limit("topics", "topics", "topics.topics_max"),
    Limit("partitions of all topics", "topic_partitions", "topics.groups_max"),
    Limit("producers", "topic_producers", "topics.producers_max"),
)


def limits(sights: Sights) -> Iterator[Finding]:
    """Find numbers that are close to a limit, and clients that one was enforced on."""
    for server in sights.servers:
        for one in LIMITS:
            now = server.number(one.number)
            bound = number_in(server.knobs, one.limit) if one.knob else server.number(one.limit)
            if now is not None and bound and now >= NEAR * bound:
                raising = (
                    f"Raise {one.limit}"
                    if one.knob
                    else "Raise the limit of open files (`ulimit -n`, LimitNOFILE=)"
                )
                yield Finding(
                    Severity.WARNING,
                    "limit-near",
                    server.name,
                    f"{now:,.0f} {one.what}, of {bound:,.0f} at most.",
                    "What comes beyond the limit is refused, or its connections are closed.",
                    f"{raising}, or see who needs so many: `zraft shell four-letter cons`.",
                )
        for name, what in (
            ("connection_rejected", "connections were refused"),
            (
                "connections_evicted_total",
                "connections were closed because their clients held too much memory",
            ),
        ):
            count = server.number(name)
            if count:
                yield Finding(
                    Severity.WARNING,
                    "limit-reached",
                    server.name,
                    f"{count:,.0f} {what} since it started.",
                    "A limit was reached, and clients saw errors.",
                    "See its log for which limit, and docs/reference/configuration.md, section client, for its knob.",
                )


def memory(sights: Sights) -> Iterator[Finding]:
    """Find trees that are large for the machine's memory; `os.memory.max` is of `envi`, in MB."""
    for server in sights.servers:
        data, machine = server.number("approximate_data_size"), server.number("os.memory.max")
        if data is not None and machine and data > MEMORY_PART * machine * 2**20:
            yield Finding(
                Severity.WARNING,
                "memory",
                server.name,
                f"Its znodes have {bytes_text(int(data))} of data; the machine has {machine:,.0f} MB of memory.",
                "All of it is in memory, several times as large, and a snapshot takes more for a while.",
                "Store large data elsewhere and their place here; `zraft shell setquota` bounds a subtree.",
            )


def alarms(sights: Sights) -> Iterator[Finding]:
    """Find what servers count that should never happen, and partitions that do not work."""
    for server in sights.servers:
        if server.number("digest_alarms_total") or server.number("groups_digest_alarms_total"):
            yield Finding(
                Severity.ERROR,
                "states-differ",
                server.name,
                "Its state differs from that of others.",
                "It may answer clients wrongly.",
                "Follow docs/how-to/recovery.md now, and keep the logs of all servers.",
            )
        failed = (server.number("snapshots_failed_total") or 0) + (
            server.number("groups_snapshots_failed_total") or 0
        )
        if failed:
            yield Finding(
                Severity.WARNING,
                "snapshots-fail",
                server.name,
                f"{failed:g} snapshots failed since it started.",
                "The log grows until one succeeds.",
                "See its log for the reason; most often the disk is full.",
            )
        stall = server.number("loop_stall_ms_max")
        if stall is not None and stall > STALL_MS:
            yield Finding(
                Severity.NOTE,
                "stalls",
                server.name,
                f"It stood still for {stall:,.0f} ms once since it started.",
                "Longer than an election timeout, that costs its leadership.",
                "Give the machine free CPU and memory without swap.",
            )
    newest = _newest(sights)
    if newest is None:
        return
    trouble = newest.number("topic_partitions_in_trouble")
    if trouble:
        yield Finding(
            Severity.ERROR,
            "partitions-in-trouble",
            CLUSTER,
            f"{trouble:g} partitions of topics do not take or do not deliver messages.",
            "Their producers and consumers wait.",
            "`zraft status` names them and says why.",
        )
    fewer = sum(server.number("partitions_under_replicated") or 0 for server in sights.servers)
    if fewer:
        yield Finding(
            Severity.WARNING,
            "under-replicated",
            CLUSTER,
            f"{fewer:g} partitions of topics have too few replicas in sync.",
            "They bear fewer losses than they should.",
            "`zraft topic describe NAME` says which replicas, and for how long.",
        )


def clocks(sights: Sights) -> Iterator[Finding]:
    """Find clocks that differ."""
    ahead = {
        server.name: server.clock_ahead_s for server in sights.servers if server.clock_ahead_s is not None
    }
    ahead |= {"this machine": 0.0} if ahead else {}
    if ahead and max(ahead.values()) - min(ahead.values()) > CLOCK_S:
        first, last = max(ahead, key=lambda one: ahead[one]), min(ahead, key=lambda one: ahead[one])
        yield Finding(
            Severity.WARNING,
            "clocks",
            f"{first}, {last}",
            f"Their clocks differ by {ahead[first] - ahead[last]:.0f} s.",
            "Times of znodes and records, retention by age and certificates go by clocks. Consensus and sessions do not.",
            "Let them follow one source: `timedatectl`, chrony.",
        )


def releases(sights: Sights) -> Iterator[Finding]:
    """Find servers of several releases."""
    versions = sorted({server.version for server in sights.servers if server.version})
    if len(versions) > 1:
        yield Finding(
            Severity.WARNING,
            "releases",
            CLUSTER,
            f"The servers have different releases: {', '.join(versions)}.",
            "What the newer ones can do more is off until all can.",
            "Finish the upgrade, then `zraft settings raise-features` (docs/how-to/upgrades.md).",
        )


HEALTH_RULES: Final[tuple[Rule, ...]] = (
    reachable,
    leadership,
    quorum,
    followers,
    disks,
    alarms,
    limits,
    memory,
    clocks,
    releases,
)


def _newest(sights: Sights) -> ServerSight | None:
    """Return the server that has applied most, which knows best; None if none tells."""
    told = [server for server in sights.servers if server.number("raft_applied_index") is not None]
    return max(told, key=lambda server: server.number("raft_applied_index") or 0, default=None)


def _members(sights: Sights) -> int:
    newest = _newest(sights)
    return (
        len(sights.servers) if newest is None else int(newest.number("raft_members") or len(sights.servers))
    )
