"""One server's values as operators see them, read from its parts at the moment of asking. Decides nothing.

Lists end at `LISTED_MAX` items, so that no question stops the loop; what is merely counted is counted in full.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import asdict

from zraft.config.server import ServerConfig, settings_in_force
from zraft.groups.server_statistics import ProcessStatistics
from zraft.monitoring.monitor import summary_values
from zraft.monitoring.statistics import (
    FULL_VERSION,
    LISTED_MAX,
    Configuration,
    ConnectionStatistics,
    Dump,
    LeaderStatistics,
    ListedMember,
    Listing,
    Metric,
    ServerMode,
    ServerStatistics,
    SessionConnection,
    SessionExpiries,
    WatchesByPath,
    WatchesBySession,
    WatchSummary,
)
from zraft.raft.core import Raft
from zraft.raft.messages import MemberRole
from zraft.raft.progress import ProgressState
from zraft.raft.role import Role
from zraft.raft.statistics import FollowerStatistics
from zraft.server.clients.connection import ClientConnection, Phase
from zraft.server.engine.driver import Driver
from zraft.server.operators.environment import environment, memory
from zraft.server.operators.status import (
    NO_PROBLEMS,
    ClientTraffic,
    Durations,
    MemberStatus,
    PartitionProblem,
    PartitionsStatus,
    PeerTraffic,
    RaftStatus,
    SnapshotStatus,
    Status,
)
from zraft.transport.link import LinkStatistics
from zraft.transport.udp import UdpStatistics
from zraft_core.ids import COORDINATION_GROUP, ServerId

if TYPE_CHECKING:
    from zraft.server.partitions.troubles import Trouble

DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")
"""The directory of this process's open files: of Linux, and of macOS."""

DIGEST_ITEMS_MAX: Final = 2_000
"""About 8 ms of hashing; a server without load has fewer left after a few ticks."""

ROLE_NAMES: Final = {
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "pre-candidate",
    Role.CANDIDATE: "candidate",
    Role.LEADER: "leader",
}

TRACE_MASK_AT_START: Final = 0x132
"""ZooKeeper's own. Kept and told, because tools ask; there is no trace log that it could filter."""

T = TypeVar("T")
K = TypeVar("K")


class ServerReport:
    """The `AdminReports` of one running server.

    `now` and `wall_now` give ms, the first on the driver's clock; `traffic` what the peers' socket and links
    counted, None before they are open; `certificate_ends_s` when the certificate for clients ends; `troubles` what
    keeps partitions of this server from their work; `partitions` what there is of topics.
    """

    def __init__(
        self,
        *,
        driver: Driver,
        config: ServerConfig,
        process: ProcessStatistics,
        started_ms: int,
        listen_backlog: int,
        now: Callable[[], int],
        wall_now: Callable[[], int],
        traffic: Callable[[], tuple[UdpStatistics, LinkStatistics] | None],
        further_metrics: Callable[[], Mapping[str, Metric]],
        certificate_ends_s: Callable[[], float | None],
        partitions: Callable[[], PartitionsStatus],
        troubles: Callable[[], Sequence[Trouble]] = tuple,
    ) -> None:
        self._driver = driver
        self._config = config
        self._process = process
        self._started = started_ms
        self._listen_backlog = listen_backlog
        self._now = now
        self._wall_now = wall_now
        self._traffic = traffic
        self._further_metrics = further_metrics
        self._certificate_ends_s = certificate_ends_s
        self._troubles = troubles
        self._partitions = partitions
        self._environment = environment()
        self._trace_mask = TRACE_MASK_AT_START

    # -- values of the four-letter words

    @property
    def serving(self) -> bool:
        """True if clients are served, at least with reads."""
        return self._driver.serving or self.read_only

    @property
    def read_only(self) -> bool:
        """True if only reads are served, without contact with a quorum."""
        return self._driver.clients.sessions.is_read_only

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the properties of the process, its machine and its memory."""
        return self._environment + memory()

    def trace_mask(self) -> int:
        """Return the mask that was set last; it has no effect."""
        return self._trace_mask

    def set_trace_mask(self, mask: int) -> None:
        """Keep a mask, which has no effect."""
        self._trace_mask = mask

    def reset_server(self) -> None:
        """Count packets, latencies, sizes and durations anew."""
        self._driver.clients.reset_statistics()
        self._driver.latencies.reset()
        self._driver.proposals.reset()
        self._process.reset()

    def reset_connections(self) -> None:
        """Reset the counts of all connections."""
        self._driver.clients.reset_connection_statistics()

    def server(self) -> ServerStatistics | None:
        """Return the numbers of `srvr` and `mntr`, or None while this server does not serve its clients."""
        driver = self._driver
        raft = driver.raft
        if raft is None or not self.serving:
            return None
        mode = ServerMode.READ_ONLY if self.read_only else _mode(raft, self._config.id)
        machine, clients = driver.machine, driver.clients
        writes, reads = driver.latencies.writes.view(), driver.latencies.reads.view()
        observed = [one for one in (writes, reads) if one.count]
        count = writes.count + reads.count
        return ServerStatistics(
            mode=mode,
            latency_min_ms=round(min((one.smallest for one in observed), default=0.0) * 1000),
            latency_avg_ms=(writes.total + reads.total) / count * 1000 if count else 0.0,
            latency_max_ms=round(max((one.largest for one in observed), default=0.0) * 1000),
            received=clients.received_total,
            sent=clients.sent_total,
            connection_count=len(clients),
            outstanding=sum([len(c.queue) for c in clients.connections]),
            zxid=machine.last_zxid,
            # One more than there are: ZooKeeper counts its root twice, as "" and as "/".
            node_count=len(machine.nodes) + 1,
            watch_count=clients.watches.watch_count(),
            ephemerals_count=sum([len(s.ephemerals) for s in machine.sessions.values()]),
            approximate_data_size=machine.nodes.data_bytes,
            global_sessions=len(machine.sessions),
            open_file_descriptors=_open_files(),
            max_file_descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            uptime_ms=self._now() - self._started,
            leader=self._leader(raft) if mode is ServerMode.LEADER else None,
            metrics=self._metrics(raft),
        )

    def _leader(self, raft: Raft) -> LeaderStatistics:
        members = raft.membership.members
        voters = raft.membership.voters
        synced = {f.server for f in raft.statistics().followers if f.match_index >= raft.commit_index}
        sizes = self._driver.proposals.sizes
        return LeaderStatistics(
            learners=len(members) - 1,
            synced_followers=sum(server in voters for server in synced),
            synced_non_voting_followers=sum(
                server in members and members[server].role is MemberRole.LEARNER for server in synced
            ),
            synced_observers=sum(
                server in members and members[server].role is MemberRole.OBSERVER for server in synced
            ),
            pending_syncs=0,
            quorum_size=len(voters),
            leader_uptime_ms=self._driver.coordination.leader_uptime_ms,
            last_proposal_size=sizes.last,
            min_proposal_size=sizes.smallest,
            max_proposal_size=sizes.largest,
        )

    def _metrics(self, raft: Raft) -> dict[str, Metric]:
        """Return what `mntr` lists beyond ZooKeeper's fixed part: its counters that we can fill, then our own."""
        from zraft.server.operators.topics import topic_metrics

        driver, process = self._driver, self._process
        clients = driver.clients
        campaigns = raft.statistics().campaigns_total
        return {
            "connection_request_count": clients.connections_total,
            "connection_rejected": clients.rejected_total,
            "bytes_received_count": clients.bytes_received_total,
            "response_bytes": clients.bytes_sent_total,
            "looking_count": campaigns,
            "commit_count": raft.commit_index,
            "stale_sessions_expired": clients.expired_total,
            "native_connections_total": clients.native_connections_total,
            "native_subscriptions": len(clients.feeds),
            "client_output_bytes": clients.sums.output.held,
            "client_input_bytes": clients.sums.input.held,
            "client_unfinished_bytes": clients.sums.unfinished.held,
            "connections_evicted_total": clients.sums.evicted_total,
            "connections_refused_total": clients.refused_total,
            "requests_denied_total": clients.denied_total,
            **summary_values("updatelatency", driver.latencies.writes.view()),
            **summary_values("readlatency", driver.latencies.reads.view()),
            **summary_values("fsynctime", process.fsync.view()),
            **summary_values("election_time", process.elections.view()),
            "feature_level": driver.machine.feature_level,
            **topic_metrics(driver.machine.registry),
            **_problem_metrics(self.partition_problems()),
            "raft_members": len(raft.membership.members),
            "raft_voters": len(raft.membership.voters),
            "raft_term": raft.term,
            "raft_last_index": raft.log.last_index,
            "raft_commit_index": raft.commit_index,
            "raft_applied_index": driver.applied_index,
            "raft_campaigns_total": campaigns,
            "raft_leader_changes_total": driver.coordination.leader_changes,
            "raft_peer_mistakes_total": driver.peer_mistakes,
            **self._digest(),
            "loop_turns_total": process.turns.view().count,
            "loop_stall_ms_max": round(process.stall_ms_max, 1),
            **self._further_metrics(),
        }

    def _digest(self) -> dict[str, Metric]:
        """Return the state digest if it is cheap to have now; while the tree changes fast it would stop the loop."""
        found = self.digest()
        if found is None:
            return {"state_digest_pending": self._driver.machine.undigested}
        return {"state_digest": found[1], "state_digest_index": self._driver.applied_index}

    def digest(self) -> tuple[int, str] | None:
        """Return (zxid, digest in hexadecimal), None if too much is left to hash, or it would be of no whole entry."""
        machine = self._driver.machine
        if machine.undigested > DIGEST_ITEMS_MAX or self._driver.applier.halfway:
            return None
        return machine.last_zxid, f"{machine.digest():032x}"

    def connections(self) -> Listing[ConnectionStatistics]:
        """Return the statistics of connections, up to a bound."""
        clients = self._driver.clients
        shift = self._wall_now() - self._now()
        found = [c for c in clients.connections if c.phase is not Phase.CLOSED]
        return Listing(
            tuple([_connection(one, shift) for one in found[:LISTED_MAX]]),
            len(found),
        )

    def configuration(self) -> Configuration:
        """Return the configuration in force."""
        config = self._config
        settings = self._driver.machine.settings
        sizes = _sizes(config.data)
        return Configuration(
            server=config.id,
            client_port=config.address.port,
            connections_per_address_max=config.client.connections_per_address_max,
            secure_client_port=-1 if config.tls.address is None else config.tls.address.port,
            data=str(config.data),
            data_size=sum(sizes),
            log_size=sizes[1],
            tick_time_ms=settings.tick_time_ms,
            session_timeout_ms_min=settings.session_timeout_ms_min,
            session_timeout_ms_max=settings.session_timeout_ms_max,
            listen_backlog=self._listen_backlog,
            members=tuple(
                ListedMember(server, address, part == MemberRole.OBSERVER.name.lower())
                for server, address, part in self._listed(self._driver.raft)
            ),
        )

    def dump(self) -> Dump:
        """Return sessions, their ephemeral znodes and connections, up to a bound."""
        driver = self._driver
        sessions = driver.machine.sessions
        connections, counted = self._connection_deadlines()
        listed = islice(sessions.values(), LISTED_MAX)
        owners = [one for one in sessions.values() if one.ephemerals]
        return Dump(
            sessions=Listing(tuple((one.id, one.timeout_ms) for one in listed), len(sessions)),
            expiries=self._expiries(),
            owners=len(owners),
            ephemerals=Listing(
                _first((one.id, one.ephemerals) for one in owners), sum(len(one.ephemerals) for one in owners)
            ),
            connections=connections,
            connection_count=counted,
        )

    def _expiries(self) -> SessionExpiries | None:
        """Return a leader's view: when each session ends if nothing more is heard of it."""
        leadership = self._driver.leadership
        if leadership is None:
            return None
        sessions = self._driver.machine.sessions
        ends = [
            (leadership.expiry.left_ms(one.id, one), one.id) for one in islice(sessions.values(), LISTED_MAX)
        ]
        return SessionExpiries(self._by_time(ends), len(sessions))

    def _connection_deadlines(self) -> tuple[tuple[tuple[int, tuple[tuple[str, int], ...]], ...], int]:
        driver = self._driver
        now = self._now()
        found = [c for c in driver.clients.connections if c.phase is not Phase.CLOSED]
        shortest = driver.machine.settings.session_timeout_ms_min
        ends = []
        for one in found[:LISTED_MAX]:
            heard = driver.touches.heard(one.session) if one.session else None
            left = (one.established if heard is None else heard) + (one.timeout_ms or shortest) - now
            ends.append((left, (one.address, one.session)))
        return self._by_time(ends), len(found)

    def _by_time(self, ends: Iterable[tuple[int, T]]) -> tuple[tuple[int, tuple[T, ...]], ...]:
        """Return what ends in so many ms, by the wall-clock tick at which that is."""
        tick = self._driver.machine.settings.tick_time_ms
        wall = self._wall_now()
        by_time: defaultdict[int, list[T]] = defaultdict(list)
        for left, what in ends:
            by_time[((wall + left) // tick + 1) * tick].append(what)
        return tuple((at, tuple(by_time[at])) for at in sorted(by_time))

    def watch_summary(self) -> WatchSummary:
        """Return the counts of watchers, paths and watches."""
        watches = self._driver.clients.watches
        return WatchSummary(watches.watcher_count(), watches.path_count(), watches.watch_count())

    def watches_by_session(self) -> WatchesBySession:
        """Return the watched paths of each session, up to a bound."""
        watches = self._driver.clients.watches
        found = _first((connection.session, paths) for connection, paths in watches.by_watcher())
        return Listing(found, self._watchings(sum(len(paths) for _, paths in found)))

    def watches_by_path(self) -> WatchesByPath:
        """Return the watching sessions of each path, up to a bound."""
        watches = self._driver.clients.watches
        found = _first((path, (one.session for one in watchers)) for path, watchers in watches.by_path())
        return Listing(found, self._watchings(sum(len(sessions) for _, sessions in found)))

    def _watchings(self, listed: int) -> int:
        """Return how many (session, path) there are: exact while all are listed, else at most this."""
        return listed if listed < LISTED_MAX else self._driver.clients.watches.watch_count()

    # -- beyond ZooKeeper's words

    def status(self) -> Status:
        """Return the numbers of all parts of the server."""
        from zraft.server.operators.topics import topics_status

        driver, process = self._driver, self._process
        config = self._config
        reasons = self.reasons()
        sizes = _sizes(config.data)
        room = os.statvfs(config.data)
        return Status(
            server=config.id,
            version=FULL_VERSION,
            address=str(config.address),
            cluster=None if driver.cluster is None else driver.cluster.hex(),
            uptime_ms=self._now() - self._started,
            ready=not reasons,
            reasons=reasons,
            raft=None if driver.raft is None else self._raft(driver.raft),
            members=self._members(driver.raft),
            clients=self._client_traffic(),
            peers=_peer_traffic(self._traffic()),
            durations=Durations(
                fsync=process.fsync.view(),
                writes=driver.latencies.writes.view(),
                reads=driver.latencies.reads.view(),
                turns=process.turns.view(),
                loop_lag=process.loop_lag.view(),
                elections=process.elections.view(),
                entry_commands=driver.proposals.commands.view(),
                entry_bytes=driver.proposals.bytes.view(),
            ),
            loop_stall_max_ms=process.stall_ms_max,
            disk_full=process.disk_full,
            undigested=driver.machine.undigested,
            settings_differ=tuple(driver.coordination.settings_differ),
            feature_level=driver.machine.feature_level,
            topics=topics_status(driver.machine.registry),
            partition_problems=self.partition_problems(),
            snapshot=self._snapshot(),
            snapshot_received=driver.snapshots.receiver.progress_of(COORDINATION_GROUP),
            log_bytes=sizes[1],
            snapshots_bytes=sizes[2],
            data_free_bytes=room.f_bavail * room.f_frsize,
            data_size_bytes=room.f_blocks * room.f_frsize,
            certificate_ends_s=self._certificate_ends_s(),
            statistics=self.server(),
        )

    def partition_problems(self) -> Listing[PartitionProblem]:
        """Return the partitions that do not take or deliver messages, as far as this server knows, up to a bound."""
        registry = self._driver.machine.registry
        if not registry.groups and not registry.topics:
            return NO_PROBLEMS
        from zraft.server.operators.partition_problems import coordinator_of, partition_problems

        return partition_problems(registry, self._config.id, self._troubles(), coordinator_of(self._driver))

    def _snapshot(self) -> SnapshotStatus | None:
        newest = self._driver.snapshots.keeper.newest
        if newest is None:
            return None
        header = newest.header
        return SnapshotStatus(
            index=header.meta.index,
            zxid=newest.zxid,
            taken_ms=header.wall_time_ms,
            items=newest.items,
            size_bytes=newest.size,
        )

    def partitions(self) -> PartitionsStatus:
        """Return the partitions of topics here and their consumers."""
        return self._partitions()

    def knobs(self) -> tuple[tuple[str, str], ...]:
        """Return the settings in force by name."""
        return settings_in_force(self._config)

    def cluster_text(self) -> str:
        """Return the configured servers, one a line."""
        return "".join(f"{server}={address}\n" for server, address in sorted(self._config.cluster.items()))

    def reasons(self) -> tuple[str, ...]:
        """Return the reasons for which clients are better served elsewhere now."""
        driver = self._driver
        reasons = []
        if driver.coordination.problem is not None:
            reasons.append(driver.coordination.problem)
        elif driver.serving:
            pass  # true also for the moment without a leader that an election takes: nobody's request fails by it
        elif driver.raft is None:
            reasons.append(
                driver.coordination.waiting
                or "the cluster is not founded yet: more of its servers must be reachable"
            )
        elif driver.leader is None:
            reasons.append("no leader is known: a majority of the servers must be reachable")
        else:
            reasons.append(f"no contact with a quorum through leader {driver.leader} for too long")
        if driver.clients.availability.leaving and not self._process.leaving:
            reasons.append("this server is to be removed next: it takes no new clients")
        if self._process.leaving:
            reasons.append(
                "this server was asked to stop: it takes no new clients, and ends when another leads"
            )
        if self._process.disk_full:
            reasons.append("the disk is full: no write is acknowledged until there is room")
        return tuple(reasons)

    def _raft(self, raft: Raft) -> RaftStatus:
        numbers = raft.statistics()
        return RaftStatus(
            role=ROLE_NAMES[numbers.role],
            term=numbers.term,
            leader=numbers.leader,
            first_index=numbers.first_index,
            last_index=numbers.last_index,
            durable_index=numbers.durable_index,
            commit_index=numbers.commit_index,
            applied_index=self._driver.applied_index,
            uncommitted_bytes=numbers.uncommitted_bytes,
            pending_reads=numbers.pending_reads,
            campaigns_total=numbers.campaigns_total,
            leader_changes_total=self._driver.coordination.leader_changes,
            messages_ignored_total=numbers.messages_ignored_total,
            proposals_refused_total=numbers.proposals_refused_total,
            reads_dropped_total=numbers.reads_dropped_total,
            peer_mistakes_total=self._driver.peer_mistakes,
        )

    def _members(self, raft: Raft | None) -> tuple[MemberStatus, ...]:
        leads = raft is not None and raft.role is Role.LEADER
        followers = {f.server: f for f in raft.statistics().followers} if raft is not None and leads else {}
        last = 0 if raft is None else raft.log.last_index
        silences = raft.silences if raft is not None and leads else {}
        return tuple(
            [
                self._member(*one, followers.get(one[0]), last, silences.get(one[0]))
                for one in self._listed(raft)
            ]
        )

    def _listed(self, raft: Raft | None) -> list[tuple[ServerId, str, str]]:
        """Return (server, address, part): who belongs; who is to; before that is known, who is configured."""
        driver = self._driver
        members = {} if raft is None else raft.membership.members
        if not members:
            return [
                (server, str(address), "unknown") for server, address in sorted(self._config.cluster.items())
            ]
        listed = {
            server: (member.address or driver.coordination.address_of(server) or "", member.role.name.lower())
            for server, member in members.items()
        }
        for server, wish in driver.machine.members.items():
            listed.setdefault(server, (wish.address, "wanted"))
        return [(server, *listed[server]) for server in sorted(listed)]

    def _member(
        self,
        server: ServerId,
        address: str,
        part: str,
        follower: FollowerStatistics | None,
        last: int,
        silent_ms: int | None,
    ) -> MemberStatus:
        is_me = server == self._config.id
        leads = server == self._driver.leader
        if follower is None:
            return MemberStatus(server, address, leads, is_me, part)
        sending = self._driver.snapshots.sender.progress_of(COORDINATION_GROUP, server)
        return MemberStatus(
            server,
            address,
            leads=False,
            is_me=is_me,
            part=part,
            match_index=follower.match_index,
            lag_entries=last - follower.match_index,
            inflight_messages=follower.inflight_messages,
            inflight_bytes=follower.inflight_bytes,
            replicating=follower.state is ProgressState.REPLICATE,
            needs_snapshot=follower.needs_snapshot,
            snapshot_sent_bytes=None if sending is None else sending[0],
            snapshot_bytes=None if sending is None else sending[1],
            silent_ms=self._driver.coordination.leader_uptime_ms if silent_ms is None else silent_ms,
        )

    def _client_traffic(self) -> ClientTraffic:
        clients = self._driver.clients
        return ClientTraffic(
            connections=len(clients),
            sessions_attached=len(clients.sessions),
            connections_total=clients.connections_total,
            rejected_total=clients.rejected_total,
            attaches_waiting=len(clients.sessions.waiting),
            packets_received_total=clients.received_total,
            packets_sent_total=clients.sent_total,
            bytes_received_total=clients.bytes_received_total,
            bytes_sent_total=clients.bytes_sent_total,
            events_total=clients.events_total,
            outstanding_bytes=self._driver.origin.outstanding,
            outstanding_bytes_max=self._config.client.outstanding_bytes_max,
            output_bytes=clients.sums.output.held,
            input_bytes=clients.sums.input.held,
            unfinished_bytes=clients.sums.unfinished.held,
            evicted_total=clients.sums.evicted_total,
            refused_total=clients.refused_total,
            denied_total=clients.denied_total,
            sessions_expired_total=clients.expired_total,
        )


def _mode(raft: Raft, me: ServerId) -> ServerMode:
    members = raft.membership.members
    if len(members) == 1:
        return ServerMode.STANDALONE
    if raft.role is Role.LEADER:
        return ServerMode.LEADER
    mine = members.get(me)
    return ServerMode.FOLLOWER if mine is None or mine.voter else ServerMode.OBSERVER


def _problem_metrics(problems: Listing[PartitionProblem]) -> dict[str, Metric]:
    """Return how many partitions are in trouble and, if any are, a line of JSON that names them."""
    metrics: dict[str, Metric] = {"topic_partitions_in_trouble": problems.total}
    if problems.items:
        rows = [asdict(problem) for problem in problems.items]
        metrics["topic_partition_problems"] = json.dumps(rows, ensure_ascii=True)
    return metrics


def _connection(one: ClientConnection, shift_ms: int) -> ConnectionStatistics:
    session = None
    if one.session:
        latency = one.latency
        session = SessionConnection(
            session=one.session,
            last_operation=one.last_operation,
            established_ms=one.established + shift_ms,
            timeout_ms=one.timeout_ms,
            last_cxid=one.last_number,
            last_zxid=latency.zxid,
            last_response_ms=latency.answered_at,
            last_latency_ms=round(latency.last),
            min_latency_ms=round(latency.smallest),
            avg_latency_ms=round(latency.total / latency.count) if latency.count else 0,
            max_latency_ms=round(latency.largest),
        )
    return ConnectionStatistics(
        one.address,
        len(one.queue),
        one.received,
        one.sent,
        reading=one.wants_read and not one.closing,
        secure=getattr(one.handle, "secure", False),
        session=session,
    )


def _peer_traffic(traffic: tuple[UdpStatistics, LinkStatistics] | None) -> PeerTraffic | None:
    if traffic is None:
        return None
    udp, links = traffic
    errors = {("send", name): count for name, count in udp.send_errors.items()}
    errors |= {("receive", name): count for name, count in udp.receive_errors.items()}
    return PeerTraffic(
        datagrams_sent=udp.datagrams_sent,
        datagrams_received=udp.datagrams_received,
        bytes_sent=udp.bytes_sent,
        bytes_received=udp.bytes_received,
        messages_sent=links.messages_sent,
        messages_received=links.messages_received,
        messages_not_understood=links.messages_not_understood,
        refused=links.rejected,
        errors=errors,
    )


def _first(lists: Iterable[tuple[K, Iterable[T]]]) -> tuple[tuple[K, tuple[T, ...]], ...]:
    """Return the first `LISTED_MAX` items of several lists, each under the name of its own."""
    found: list[tuple[K, tuple[T, ...]]] = []
    left = LISTED_MAX
    for name, items in lists:
        taken = tuple(islice(items, left))
        found.append((name, taken))
        left -= len(taken)
        if not left:
            break
    return tuple(found)


def _sizes(data: Path) -> tuple[int, int, int]:
    """Return the bytes of a data directory: of files of its own, of its log, of its snapshots.

    These are a few dozen calls that do not wait.
    """
    return _folder_bytes(data), _folder_bytes(data / "wal"), _folder_bytes(data / "groups" / "0" / "snap")


def _folder_bytes(folder: Path) -> int:
    """Return the bytes of a folder.

    A file may go while they are counted: the log and the snapshots are cut by threads.
    """
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file():
                    total += entry.stat().st_size
    return total


def _open_files() -> int:
    """Return how many descriptors this process has open. Linux and macOS list them in different places."""
    return len(os.listdir(next(filter(os.path.isdir, DESCRIPTORS), DESCRIPTORS[-1])))
