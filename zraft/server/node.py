"""One server process: sockets, clock, disk thread and signals around a `Driver`.

The loop's turn is `Node._turn`, the only place where decisions meet I/O: everything that arrived since the last
turn is already in the driver; its effects are carried out here, one write per client, one list of datagrams per
peer, one frame for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
import uvloop

from zraft.address import Address as ListenAddress
from zraft.address import parse_address
from zraft.config import ServerConfig
from zraft.errors import ConfigError, ZraftError
from zraft.ids import COORDINATION_GROUP, ServerId
from zraft.operator.requests import OperatorReply, OperatorRequest
from zraft.raft.membership import Membership
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.server.addresses import PeerAddresses, Strangers
from zraft.server.admin_listener import AdminListener
from zraft.server.administration import Administration
from zraft.server.audit import AuditTap, server_line
from zraft.server.audit_file import AuditFile
from zraft.server.authentication import AuthSettings
from zraft.server.bulk import BulkStreams
from zraft.server.certificates import utc_now
from zraft.server.client_protocol import ClientProtocol
from zraft.server.client_tls import ClientTls
from zraft.server.clients import ClientSettings
from zraft.server.cluster_keys import cluster_keys
from zraft.server.collector import Collector
from zraft.server.connection import Connection
from zraft.server.deadlines import Deadlines
from zraft.server.divergence import DivergedError
from zraft.server.driver import Driver
from zraft.server.driver_types import DriverSettings, Identity
from zraft.server.operators import OperatorStreams
from zraft.server.origin import OriginSettings
from zraft.server.rejections import Rejections
from zraft.server.reloading import Polled, Reloading, keep_fresh
from zraft.server.report import Report
from zraft.server.sasl_users import read_users
from zraft.server.snapshot_keeper import SnapshotSettings
from zraft.server.snapshot_tasks import Result, SnapshotDisk, Task
from zraft.server.snapshot_thread import SnapshotThread
from zraft.server.statistics import ProcessStatistics
from zraft.server.stored import restore_machine, stored_group
from zraft.server.wal_thread import WalThread
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import DiskFullError
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.settings import WalSettings
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.transport import codec, routing
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.link import LinkStatistics, PeerLinks
from zraft.transport.messages import PeerMessage, Sender
from zraft.transport.packing import UnsendableError
from zraft.transport.udp import Address, UdpEndpoint, UdpStatistics
from zraft.tree.machine import Machine
from zraft.tree.settings import Settings
from zraft.wire import four_letter
from zraft.wire.statistics import Metric

TICK_S: Final = 0.01
"""The loop's own heartbeat: sockets are drained, then timers judged, at least this often."""

IDLE_FOLD_ITEMS: Final = 200
"""Changed items hashed per idle tick: less than a millisecond."""

LISTEN_BACKLOG: Final = 4096

BEGIN_ANEW: Final = -1
"""No exit code: the directory is condemned, and the same process goes on with an empty one (D-26)."""

LEAVE_MARGIN_S: Final = 0.1
"""Beyond the time that Raft takes to hand over, for what is on its way."""

PROGRESS_INTERVAL_S: Final = 2.0
"""How often a long restore says how far it is."""

DATAGRAM_OVERHEAD_BYTES: Final = 60
"""Of a datagram, about, for its seal and the header of a fragment."""

QUOTA_LOG_INTERVAL_S: Final = 60.0
"""Soft limits of quotas are mentioned at most this often, however many writes exceed them."""

WAITING_LOG_INTERVAL_S: Final = 30.0
WAITING_LOG_AFTER_S: Final = 3.0
"""An empty server says what it waits for; servers that are started together take less."""

QUOTAS_SHOWN_MAX: Final = 20

log = structlog.get_logger()


def now_ms() -> int:
    """Milliseconds of a clock that counts sleep, so that a nap of the machine is noticed (D-14)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def now_ms_exactly() -> float:
    """The same with its fractions, for what is measured."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


class Node:
    """One running server."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.output_bytes_max = config.client.output_bytes_max
        self._fs = RealFileSystem()
        self._directory = DataDirectory.open(self._fs, str(config.data), server=config.id, entropy=os.urandom)
        self._started = now_ms()
        self._process = ProcessStatistics()
        self._words = four_letter.allowed_words(config.client.four_letter_words)
        self._tls = ClientTls(config, time.perf_counter) if config.tls.certificate is not None else None
        self._users = _sasl_users(config)
        settings = _driver_settings(config, self._users)
        directory = self._directory
        store = SnapshotStore.open(self._fs, directory, COORDINATION_GROUP)
        newest = store.newest
        wal, recovered = Wal.open(
            self._fs,
            directory,
            settings=WalSettings(
                segment_bytes_max=config.wal.segment_bytes_max, tail_bytes_max=config.wal.tail_bytes_max
            ),
            snapshots={COORDINATION_GROUP: newest.header.meta} if newest is not None else {},
        )
        self._wal = wal
        self._snapshot_store = store
        machine = self._restore(store, newest) if newest is not None else None
        self.driver = Driver(
            settings=settings,
            identity=Identity(
                config.id, directory.instance, directory.boot, directory.boot_id, directory.cluster
            ),
            peers=tuple(sorted(config.cluster)),
            stored=stored_group(wal, recovered, newest, machine),
            rng=random.Random(os.urandom(16)),
            entropy=os.urandom,
            four_letter_word=self._four_letter_word,
            now_ms=self._started,
            addresses={server: str(address) for server, address in config.cluster.items()},
        )
        self.administration = Administration(self.driver)
        self._audit = self._open_audit(config)
        self.report = Report(
            driver=self.driver,
            config=config,
            process=self._process,
            started_ms=self._started,
            listen_backlog=LISTEN_BACKLOG,
            now=now_ms,
            wall_now=lambda: time.time_ns() // 1_000_000,
            traffic=self._traffic,
            further_metrics=self._further_metrics,
        )
        me = Sender(config.id, directory.instance, directory.boot)
        peers = {server: config.peer.datagram_bytes for server in config.cluster if server != config.id}
        self._keys = cluster_keys(config.key_files)
        self._keys_in_force = self._keys.value if self._keys is not None else None
        self._links = PeerLinks(
            me=me,
            peers=peers,
            keys=self._keys_in_force,
            entropy=os.urandom,
            insecure=self._keys_in_force is None,
        )
        self._loop = asyncio.get_running_loop()
        self._rejections = Rejections("datagram", self._loop.time)
        self._strangers = Strangers(self._loop.time)
        self._streams = BulkStreams(
            me=me,
            ring=key_ring(self._keys_in_force, self._keys_in_force is None),
            peers=peers,
            address_of=lambda server: self._addresses.known.get(server) if self._addresses else None,
            on_messages=self._on_messages,
            operators=OperatorStreams(self._administer),
            operators_local=self._keys_in_force is None and not config.insecure_peers,
            entropy=os.urandom,
        )
        self._endpoint: UdpEndpoint | None = None
        self._addresses: PeerAddresses | None = None
        self._paused: set[ClientProtocol] = set()
        self._deadlines: Deadlines[ClientProtocol] = Deadlines(config.client.handshake_timeout_ms / 1000)
        self._scheduled = False
        self._stop = asyncio.Event()
        self._leave_by: float | None = None
        self._servers: list[asyncio.Server] = []
        self._failure: BaseException | None = None
        # What was restored is out of sight from here on, too.
        self._collector = Collector()
        self._quotas_logged = -QUOTA_LOG_INTERVAL_S
        self._waiting_log_at = time.monotonic() + WAITING_LOG_AFTER_S
        self._last_tick = time.monotonic()
        self._leaderless_since: float | None = time.monotonic()
        self._settings_compared = False
        self._shown: tuple[object, ...] = ()
        self._members_known: Membership | None = None
        self._snapshot_known = newest
        self._lossy: set[ServerId] = set()
        """Peers whose path loses so many datagrams that larger messages go by a stream (D-22)."""
        self._peers_met: dict[ServerId, tuple[ListenAddress, ...]] = {
            server: (address,) for server, address in config.cluster.items() if server != config.id
        }
        """Everybody who was a peer in this run, and where: as configured here, as replicated. At most 254."""
        self._wal_thread = WalThread(
            wal,
            on_written=lambda seconds: self._from_thread(self._on_written, seconds),
            on_full=lambda error: self._from_thread(self._on_full, error),
            on_failed=lambda error: self._from_thread(self._fail, error),
        )
        self._snapshot_thread = SnapshotThread(
            SnapshotDisk(store),
            on_performed=lambda done: self._from_thread(self._on_performed, done),
            on_failed=lambda error: self._from_thread(self._fail, error),
        )
        if directory.put_aside is not None:
            log.warning(
                "the state of this server differed from the majority's: its files are kept aside, it begins anew",
                kept=directory.put_aside,
            )
        if recovered.report.torn_tail is not None:
            torn = recovered.report.torn_tail
            log.warning(
                "an interrupted write was cut off; it was never acknowledged",
                file=torn.file,
                offset=torn.offset,
                bytes=torn.size,
            )
        log.info(
            "server starting",
            server=config.id,
            instance=directory.instance.hex(),
            boot=directory.boot,
            entries=recovered.report.entries,
            segments=recovered.report.segments,
        )

    def _restore(self, store: SnapshotStore, newest: SnapshotInfo) -> Machine:
        """The state of the newest snapshot; takes seconds if it is large, so it says so."""
        # Collections over a growing heap of a million znodes find nothing, at a third of the time; see `Collector`.
        gc.disable()
        began = time.monotonic()
        said = began

        def on_progress(items: int, of: int) -> None:
            nonlocal said
            if time.monotonic() - said >= PROGRESS_INTERVAL_S:
                said = time.monotonic()
                log.info("snapshot is being read", items=items, of=of)

        machine = restore_machine(store, newest, on_progress)
        log.info(
            "snapshot read",
            index=newest.header.meta.index,
            items=newest.items,
            seconds=round(time.monotonic() - began, 3),
        )
        return machine

    def _open_audit(self, config: ServerConfig) -> AuditFile | None:
        if config.audit.file is None:
            return None
        file = AuditFile(
            config.audit.file,
            file_bytes_max=config.audit.file_bytes_max,
            files_kept=config.audit.files_kept,
            pending_bytes_max=config.audit.pending_bytes_max,
            on_error=lambda error: self._from_thread(_log_audit_error, error),
        )
        self.driver.applier.audit = AuditTap(file.write)
        file.write(server_line("serverStart"))
        return file

    async def run(self) -> int:
        """Serve until a signal or a fatal error; the process's exit code, or `BEGIN_ANEW`."""
        config = self.config
        loop = self._loop
        loop.set_exception_handler(self._on_unhandled)
        self._endpoint = await UdpEndpoint.open(config.address.host, config.address.port, self._on_datagrams)
        self._addresses = PeerAddresses(self._peers_met, self._endpoint.family)
        await self._addresses.refresh()
        servers = self._servers
        servers.append(await self._listen("address", config.address, plain=not config.tls.required))
        if config.tls.address is not None:
            servers.append(await self._listen("tls.address", config.tls.address, plain=False))
        admin = None
        if config.admin is not None:
            admin = AdminListener(config.admin, self.report, self._fail)
            await admin.open()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        keepers = [loop.create_task(self._addresses.keep_fresh())]
        reloadings: list[Polled] = [
            *([self._tls.certificates] if self._tls is not None else ()),
            *([self._users] if self._users is not None else ()),
            *([self._keys] if self._keys is not None else ()),
        ]
        hangup = asyncio.Event()
        if reloadings:
            keepers.append(loop.create_task(keep_fresh(reloadings, hangup, self._remind)))
        if reloadings or self._audit is not None:
            # As tools that replace certificates or rotate logs expect; by default a hang-up would end the process.
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup, hangup)
        log.info(
            "listening",
            server=config.id,
            address=str(config.address),
            sealed=bool(config.key_files),
            tls=_tls_shown(config),
            udp_receive_buffer_bytes=self._endpoint.receive_buffer_bytes,
            open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
        self._last_tick = self._leaderless_since = time.monotonic()
        self._tick()
        await self._stop.wait()
        log.info("server stopping", server=config.id)
        for keeper in keepers:
            keeper.cancel()
        for server in servers:
            server.close()
        if admin is not None:
            await admin.stop()
        diverged = isinstance(self._failure, DivergedError)
        if diverged:
            # Not another word that is computed from this state (D-26).
            for connection in self.driver.clients.connections:
                if connection.handle is not None:
                    connection.handle.abort()
        else:
            self.driver.clients.close_all()
            self._write_outputs()
        self._streams.close()
        self._endpoint.close()
        await asyncio.gather(*keepers, return_exceptions=True)
        if self._audit is not None:
            self._audit.write(server_line("serverStop"))
            self._audit.stop()
        self._snapshot_thread.stop()
        self._wal_thread.stop()
        self._wal.close()
        if diverged:
            log.error("state differs from the majority's", server=config.id, problem=str(self._failure))
            self._directory.condemn(str(self._failure), time.time_ns() // 1_000_000)
        self._directory.close()
        if self._failure is not None:
            if diverged:
                return BEGIN_ANEW
            log.error("server failed", server=config.id, error=str(self._failure))
            if not isinstance(self._failure, ZraftError):
                raise self._failure
            return 1
        return 0

    async def _listen(self, knob: str, address: ListenAddress, *, plain: bool) -> asyncio.Server:
        try:
            return await self._loop.create_server(
                lambda: ClientProtocol(self, self.schedule, self._tls, plain=plain),
                address.host,
                address.port,
                backlog=LISTEN_BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise ConfigError(
                f"{knob}: cannot listen for clients at {address}: {error.strerror or error}; is another "
                f"server running there?"
            ) from error

    # -- the turn

    def schedule(self) -> None:
        """Something arrived: have a turn in this iteration of the loop, once for all that arrives in it."""
        if not self._scheduled:
            self._scheduled = True
            self.driver.clients.arrived = now_ms_exactly()
            self._loop.call_soon(self._turn)

    def _tick(self) -> None:
        if self._stop.is_set():
            return
        now = time.monotonic()
        self._process.add_lag(max(0.0, now - self._last_tick - TICK_S))
        self._last_tick = now
        self._loop.call_later(TICK_S, self._tick)
        # A timer may run late while heartbeats wait in the socket: they have arrived, so they count first.
        if self._endpoint is not None:
            self._endpoint.drain()
        if not self._scheduled:
            self._scheduled = True
            self._turn()
        if self._deadlines:
            for protocol in self._deadlines.due(now):
                protocol.on_deadline()
        driver = self.driver
        if self._leave_by is not None:
            self._leave(now, self._leave_by)
        self._show(driver)
        self.administration.turn()
        self._collector.step(now_ms(), idle=driver.origin.idle)
        if driver.origin.idle and driver.machine.undigested:
            driver.machine.fold_digest(IDLE_FOLD_ITEMS)

    def _turn(self) -> None:
        """One batch: decide, then send, write and answer."""
        self._scheduled = False
        if self._stop.is_set():
            return
        if self._tls is not None and self._tls.handshakes.ready:
            self._tls.handshakes.run()
        driver = self.driver
        began = now_ms_exactly()
        try:
            now = int(began)
            effects = driver.turn(now, time.time_ns() // 1_000_000)
        except ZraftError as error:
            self._fail(error)
            return
        for to, messages in effects.sends:
            self._send(to, messages)
        for connection, data, close in effects.outputs:
            protocol = connection.handle
            if protocol is not None:
                protocol.write(data, close=close)
        if self._paused:
            for protocol in list(self._paused):
                protocol.maybe_resume()
        if effects.write is not None:
            # Last: from here on the disk thread wants the interpreter, and the loop is about to wait for sockets.
            self._wal_thread.submit(effects.write)
        if effects.compact_to is not None:
            self._wal_thread.compact(COORDINATION_GROUP, effects.compact_to)
        for task in effects.tasks:
            self._snapshot_thread.submit(task)
        ended = now_ms_exactly()
        driver.latencies.answered(ended)
        self._process.turns.add((ended - began) / 1000)
        if effects.wake_at <= now or (self._tls is not None and self._tls.handshakes.ready):
            self.schedule()

    def _send(self, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        assert self._addresses is not None
        assert self._endpoint is not None
        address = self._addresses.known.get(to)
        if address is None:
            return
        links = self._links
        raft = self.driver.raft
        lossy = links.is_lossy(to)
        if raft is not None and lossy != (to in self._lossy):
            (self._lossy.add if lossy else self._lossy.discard)(to)
            raft.set_bulk_bytes_min(to, links.capacity(to, routing.datagrams_max(lossy=lossy)))
        try:
            small, large = routing.divide(
                [codec.encode(message) for message in messages],
                bytes_max=links.capacity(to, routing.datagrams_max(lossy=lossy)),
                stream=lambda: self._streams.offers(to),
            )
            datagrams = links.send_encoded(to, small)
            if large:
                self._streams.send(to, large)
        except UnsendableError as error:
            # Batches are bounded so that this cannot happen; were it to, Raft's repetition would find it again.
            log.error("message too large for a peer", peer=to, error=str(error))
            return
        for datagram in datagrams:
            self._endpoint.send(address, datagram)

    def _write_outputs(self) -> None:
        for connection, data, close in self.driver.clients.flush(now_ms()):
            protocol = connection.handle
            if protocol is not None:
                protocol.write(data, close=close)

    # -- what arrives

    def _on_datagrams(self, datagrams: list[tuple[bytes, Address]]) -> None:
        now = now_ms()
        for datagram, source in datagrams:
            received = self._links.receive(datagram, now)
            sender = received.sender
            if sender is not None and self._addresses is not None:
                self._addresses.heard(sender.server, source)
            for to, reply in received.replies:
                address = self._addresses.answer_to(to, source) if self._addresses is not None else None
                if address is not None and address != source:
                    self._strangers.note(to, source, address)
                if address is not None and self._endpoint is not None:
                    self._endpoint.send(address, reply)
            if received.rejection is not None:
                self._rejections.note(received.rejection, received.error or "")
            if received.sender is not None and received.messages:
                try:
                    self.driver.receive(received.sender, received.messages)
                except ZraftError as error:
                    self._fail(error)
                    return
        if self.driver.wants_turn:
            self.schedule()

    def _on_messages(self, sender: Sender, messages: list[PeerMessage]) -> None:
        """By a stream."""
        if self._stop.is_set():
            return
        try:
            self.driver.receive(sender, messages)
        except ZraftError as error:
            self._fail(error)
            return
        if self.driver.wants_turn:
            self.schedule()

    def on_stream(self, transport: asyncio.Transport, data: bytes) -> None:
        """A connection to the port of clients is another server's, or an operator's."""
        self._streams.accept(transport, data)

    def _from_thread(self, function: object, argument: object) -> None:
        # The loop may be closing while the last frame is written.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]

    def _on_written(self, seconds: float) -> None:
        self._process.fsync.add(seconds)
        self.driver.persisted()
        if not self._scheduled and self.driver.wants_turn:
            self._scheduled = True
            self._turn()

    def _on_performed(self, done: tuple[Task, Result]) -> None:
        self.driver.performed(*done)
        self.schedule()

    def _on_full(self, error: DiskFullError | None) -> None:
        self._process.disk_full = error is not None
        self.driver.disk_full(error is not None)
        if error is not None:
            log.error("disk is full, nothing is acknowledged until there is room", error=str(error))
        else:
            log.info("disk has room again")

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody expected, in any callback: half a step may have been taken, so stop (D-5).

        The loop would log it and go on, with an entry applied in part, or twice.
        """
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            # Trouble of one socket, already closed by the loop.
            loop.default_exception_handler(context)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stop.set()

    # -- what protocols report

    def on_protocol_paused(self, protocol: ClientProtocol) -> None:
        self._paused.add(protocol)

    def on_protocol_closed(self, protocol: ClientProtocol) -> None:
        """Closed, or reading again: no longer to be looked at."""
        self._paused.discard(protocol)

    def on_protocol_lost(self, protocol: ClientProtocol) -> None:
        """Its socket is gone."""
        self._paused.discard(protocol)
        self._deadlines.stop(protocol)

    def on_waiting(self, protocol: ClientProtocol) -> None:
        """Its client has to do something now: to ask for a session, or to take the rest of an answer and go."""
        self._deadlines.start(protocol, self._loop.time())

    def _on_stop_signal(self) -> None:
        """SIGTERM or SIGINT: let another server lead and the clients go, then stop; a second signal stops at once."""
        driver = self.driver
        if self._leave_by is not None or not driver.serving:
            self._stop.set()
            return
        self._process.leaving = True
        for server in self._servers:
            server.close()
        timeouts = 2 if driver.hand_over() else 1
        self._leave_by = (
            time.monotonic() + timeouts * driver.settings.raft.election_timeout_ticks / 1000 + LEAVE_MARGIN_S
        )
        log.info("server leaves", server=self.config.id, leads=driver.role is Role.LEADER)
        self.schedule()

    def _leave(self, now: float, leave_by: float) -> None:
        """Once another server leads, end the connections that wait for nothing; stop when all are gone."""
        driver = self.driver
        raft = driver.raft
        if now >= leave_by or raft is None:
            self._stop.set()
        elif driver.leader is not None and not raft.transferring:
            driver.clients.close_idle()
            if len(driver.clients):
                self.schedule()
            else:
                self._stop.set()

    def _on_hangup(self, certificates: asyncio.Event) -> None:
        """SIGHUP: files that were replaced are read, and those that were renamed are opened, again."""
        certificates.set()
        if self._audit is not None:
            self._audit.reopen()

    def on_too_many_connections(self, address: str) -> None:
        log.warning(
            f"connection refused, {self.driver.clients.full_knob} is reached",
            address=address,
            connections=len(self.driver.clients),
        )

    def on_output_overflow(self, connection: Connection | None) -> None:
        log.warning(
            "connection closed, its client leaves more unread than client.output_bytes_max",
            address=connection.address if connection is not None else None,
        )

    # -- what operators see

    def _remind(self) -> None:
        """Every few seconds."""
        if self._tls is not None:
            self._tls.remind(utc_now())
        if self._keys is not None and self._keys.value != self._keys_in_force:
            self._take_keys(self._keys.value)

    def _take_keys(self, keys: tuple[ClusterKey, ...]) -> None:
        """The files of the cluster key were changed: seal with the first of them from now on, open with all."""
        hellos = self._links.set_keys(keys)
        self._streams.set_keys(key_ring(keys, False))
        self._keys_in_force = keys
        for to, hello in hellos:
            address = self._addresses.known.get(to) if self._addresses is not None else None
            if address is not None and self._endpoint is not None:
                self._endpoint.send(address, hello)
        log.info(
            "cluster keys taken",
            seals=keys[0].key_id.hex(),
            opens=[key.key_id.hex() for key in keys],
        )

    def _show(self, driver: Driver) -> None:
        """Log what changed."""
        if driver.leader is None:
            if self._leaderless_since is None:
                self._leaderless_since = time.monotonic()
        elif self._leaderless_since is not None:
            self._process.elections.add(time.monotonic() - self._leaderless_since)
            self._leaderless_since = None
        shown = (driver.role, driver.leader, driver.problem, driver.cluster)
        if shown != self._shown:
            raft = driver.raft
            before, self._shown = self._shown, shown
            if driver.cluster is not None and (not before or before[3] is None):
                if self._directory.cluster is None:
                    self._directory.set_cluster(driver.cluster)
                log.info("member of cluster", cluster=driver.cluster.hex())
            if driver.problem is not None and (not before or before[2] != driver.problem):
                log.error("server stays out", problem=driver.problem)
            if raft is not None:
                if raft.role is Role.LEADER:
                    log.info("became leader", term=raft.term, last_index=raft.log.last_index)
                elif driver.leader is not None:
                    log.info("follows", leader=driver.leader, term=raft.term)
        if not self._settings_compared and driver.serving and driver.applied_index > 2:
            self._settings_compared = True
            for name, (ours, theirs) in driver.settings_differ.items():
                log.warning(
                    "a configured value is not in force: the cluster's is kept since it was founded",
                    setting=name,
                    configured=ours,
                    in_force=theirs,
                )
            level = driver.machine.feature_level
            if level > self.config.features_max:
                log.warning(
                    f"features_max={self.config.features_max} has no effect: the cluster works at feature level {level} "
                    "already, and that cannot be taken back"
                )
        known = driver.raft.membership if driver.raft is not None else driver.belonging.joining.members
        if known is not None and known is not self._members_known:
            self._members_known = known
            self._on_members(known)
        newest = driver.snapshots.keeper.newest
        if newest is not self._snapshot_known:
            self._snapshot_known = newest
            if newest is not None:
                log.info("snapshot", index=newest.header.meta.index, items=newest.items, bytes=newest.size)
        if self._last_tick >= self._waiting_log_at:
            self._waiting_log_at = self._last_tick + WAITING_LOG_INTERVAL_S
            if driver.waiting is not None:
                log.warning("waiting", reason=driver.waiting)
        while driver.pace.notices:
            log.warning("leadership is handed on", reason=driver.pace.notices.pop(0))
        while driver.snapshots.problems:
            log.error("snapshot failed", problem=driver.snapshots.problems.pop())
        if driver.leadership is not None:
            members = driver.leadership.members
            while members.notices:
                log.warning("members", notice=members.notices.pop(0))
            while members.digests.disagreements:
                log.error("states differ", problem=members.digests.disagreements.pop(0))
        while driver.mistakes:
            server, mistake = driver.mistakes.popleft()
            log.error("message dropped, no correct peer sends it", peer=server, error=mistake)
        while driver.clients.refusals:
            connection, why = driver.clients.refusals.popleft()
            log.warning("connection closed", address=connection.address, reason=why)
        while driver.clients.notices:
            connection, what = driver.clients.notices.popleft()
            log.warning("request refused", address=connection.address, reason=what)
        exceeded = driver.machine.quotas.exceeded
        if exceeded and self._last_tick >= self._quotas_logged + QUOTA_LOG_INTERVAL_S:
            self._quotas_logged = self._last_tick
            log.warning("quota exceeded", paths=sorted(exceeded)[:QUOTAS_SHOWN_MAX], count=len(exceeded))
            exceeded.clear()

    def _on_members(self, membership: Membership) -> None:
        """The configuration changed: speak to its members, wherever they are.

        A server may be where this server's own configuration says, or where the replicated membership does: see
        `PeerAddresses`.
        """
        mine = self.config.id
        # Also those that went: the leader goes on telling them that they were removed, and they may ask.
        peers = self._peers_met
        for server, member in membership.members.items():
            if server != mine and member.address:
                try:
                    address = parse_address(member.address, f"address of server {server}")
                except ConfigError as error:
                    log.error("member has no usable address", server=server, error=str(error))
                    continue
                configured = self.config.cluster.get(server)
                if address.is_wildcard:
                    # A server's own entry may be one, and it was the leader who wrote down the founders.
                    continue
                peers[server] = (address,) if configured in (None, address) else (configured, address)
        self._links.set_peers(dict.fromkeys(peers, self.config.peer.datagram_bytes))
        if self._addresses is not None:
            self._addresses.set_peers(peers)
        self._streams.set_peers(peers)

    def _administer(self, request: OperatorRequest, reply: Callable[[OperatorReply], None]) -> None:
        self.administration.handle(request, reply)
        self.schedule()

    def _four_letter_word(self, word: str, argument: bytes) -> bytes:
        return four_letter.answer(word, self.report, self._words, argument)

    def _further_metrics(self) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {}
        if self._tls is not None:
            metrics |= self._tls.metrics
        if self._keys is not None and self._keys_in_force is not None:
            metrics["cluster_key_sealing"] = self._keys_in_force[0].key_id.hex()
            metrics["cluster_keys_valid"] = len(self._keys_in_force)
            metrics["cluster_key_reloads_failed_total"] = self._keys.failures_total
        streams = self._streams.statistics()
        metrics["peer_streams"] = streams.streams
        metrics["peer_stream_messages_sent_total"] = streams.messages_sent
        metrics["peer_stream_messages_dropped_total"] = streams.messages_dropped
        metrics["peer_stream_bytes_sent_total"] = streams.bytes_sent
        metrics["peer_streams_refused_total"] = sum(streams.rejected.values())
        loss = self._links.statistics().loss
        metrics["peer_datagrams_lost_permille"] = round(1000 * max(loss.values(), default=0.0))
        metrics["operators_connected"] = streams.operators
        driver = self.driver
        metrics["disk_full"] = int(self._process.disk_full)
        metrics["leaderships_handed_on_total"] = driver.pace.handovers_total
        metrics["snapshots_taken_total"] = driver.snapshots.keeper.taken_total
        metrics["snapshots_failed_total"] = driver.snapshots.keeper.failed_total
        metrics["snapshots_restored_total"] = driver.snapshots.restored_total
        if driver.leadership is not None:
            metrics["digest_alarms_total"] = driver.leadership.members.digests.alarms_total
        if self._audit is not None:
            metrics["audit_lines_dropped_total"] = self._audit.dropped
        return metrics

    def _traffic(self) -> tuple[UdpStatistics, LinkStatistics] | None:
        if self._endpoint is None:
            return None
        return self._endpoint.statistics(), self._links.statistics()


def _log_audit_error(error: OSError | None) -> None:
    if error is not None:
        log.error("audit log cannot be written, its lines wait and then are dropped", error=str(error))
    else:
        log.info("audit log is written again")


def _sasl_users(config: ServerConfig) -> Reloading[Mapping[str, str]] | None:
    file = config.auth.sasl_users_file
    return Reloading("SASL users", [file], lambda _: read_users(file)) if file is not None else None


def _driver_settings(config: ServerConfig, users: Reloading[Mapping[str, str]] | None) -> DriverSettings:
    raft, auth = config.raft, config.auth
    return DriverSettings(
        raft=RaftSettings(
            election_timeout_ticks=raft.election_timeout_ticks,
            heartbeat_ticks=raft.heartbeat_ticks,
            append_bytes_max=raft.append_bytes_max,
            inflight_messages_max=raft.inflight_messages_max,
            inflight_bytes_max=raft.inflight_bytes_max,
            # Above it goes by a stream, which Raft gives more time and does not overtake (D-22).
            bulk_bytes_min=routing.DATAGRAMS_MAX * (config.peer.datagram_bytes - DATAGRAM_OVERHEAD_BYTES),
            uncommitted_bytes_max=raft.uncommitted_bytes_max,
        ),
        origin=OriginSettings(unapplied_bytes_max=config.client.outstanding_bytes_max),
        clients=ClientSettings(
            jute_maxbuffer=config.client.jute_maxbuffer,
            connections_max=config.client.connections_max,
            output_bytes_max=config.client.output_bytes_max,
            reply_bytes_max=config.client.reply_bytes_max,
            watches_per_connection_max=config.client.watches_per_connection_max,
            read_only_mode_enabled=config.client.read_only_mode_enabled,
            reconfig_enabled=config.client.reconfig_enabled,
            connections_per_address_max=config.client.connections_per_address_max,
            connects_per_second_max=config.client.connects_per_second_max,
            auth=AuthSettings(
                super_digest=auth.super_digest,
                super_user=auth.super_user,
                users=(lambda: users.value) if users is not None else None,
                required_schemes=frozenset(auth.required_schemes),
            ),
        ),
        tree=Settings(
            tick_time_ms=config.tick_time_ms,
            session_timeout_ms_min=config.session_timeout_ms_min,
            session_timeout_ms_max=config.session_timeout_ms_max,
            data_bytes_max=max(config.client.jute_maxbuffer, Settings().data_bytes_max),
            ttl_nodes_enabled=int(config.tree.ttl_nodes_enabled),
            quota_enforced=int(config.tree.quota_enforced),
            container_never_used_ms_max=config.tree.container_never_used_ms_max,
        ),
        reap_interval_ms=config.tree.reap_interval_ms,
        snapshots=SnapshotSettings(
            log_bytes_min=config.snapshot.log_bytes_min,
            log_ratio_percent=config.snapshot.log_ratio_percent,
            commands_min=config.snapshot.commands_min,
            keep=config.snapshot.keep,
            retain_bytes=config.snapshot.retain_bytes,
            retain_bytes_max=config.snapshot.retain_bytes_max,
            send_bytes_per_s=config.snapshot.send_bytes_per_s,
        ),
        slow_fsync_ms=config.wal.slow_fsync_ms,
        features=config.features_max,
        observers={server: str(config.cluster[server]) for server in sorted(config.observers)},
        entry_bytes_max=raft.batch_bytes_max,
    )


def _tls_shown(config: ServerConfig) -> str:
    tls = config.tls
    if tls.certificate is None:
        return "off"
    return ("required" if tls.required else "on") + (f", only TLS at {tls.address}" if tls.address else "")


def _raise_file_limit() -> None:
    """Every client is a file descriptor: take what the system allows without asking an administrator."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_server(config: ServerConfig) -> int:
    """Run one server until SIGTERM or SIGINT; the exit code of the process."""
    _raise_file_limit()

    async def serve() -> int:
        return await Node(config).run()

    while True:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(serve())
        if code != BEGIN_ANEW:
            return code
        # What was collected of the server before is not to outlive it for long: a million znodes are gigabytes.
        gc.unfreeze()
        gc.collect()
