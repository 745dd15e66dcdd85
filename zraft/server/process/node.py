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
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog
import uvloop

from zraft.config.server import ServerConfig
from zraft.groups.digests import DivergedError
from zraft.groups.hosted_groups import Hosting
from zraft.groups.identity import Identity
from zraft.groups.recovery import recover, restore_machine
from zraft.groups.server_statistics import ProcessStatistics
from zraft.groups.snapshots.tasks import Result, Task
from zraft.monitoring import four_letter
from zraft.monitoring.statistics import Metric
from zraft.operator.requests import OperatorReply, OperatorRequest
from zraft.program.limited_log import LimitedLog, kind_of
from zraft.program.listening import cannot_listen
from zraft.raft.role import Role
from zraft.server.clients.audit import AuditTap, denied_line, server_line
from zraft.server.clients.turn_share import LONG_TURN_MS
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.engine.registry_coordination import RegistryCoordination
from zraft.server.operators.administration import Administration
from zraft.server.operators.journaling import Journaling
from zraft.server.operators.report import ServerReport
from zraft.server.partitions.delivery_reading import ReadTask
from zraft.server.partitions.machine import mark_of_image
from zraft.server.partitions.partitions import Partitions
from zraft.server.process.admin_listener import AdminListener
from zraft.server.process.announcements import PROGRESS_INTERVAL_S, Announcements
from zraft.server.process.audit_file import AuditFile
from zraft.server.process.client_protocol import ClientProtocol, prepare_listener
from zraft.server.process.collector import Collector
from zraft.server.process.configured import (
    delivery_settings,
    driver_settings,
    partition_settings,
    sasl_users,
    wal_settings,
)
from zraft.server.process.deadlines import Deadlines
from zraft.server.process.group_shell import GroupFiles, GroupShell
from zraft.server.process.listening_sockets import ListeningSockets, bound
from zraft.server.process.memory import MemoryReturn, malloc_trim, resident_memory
from zraft.server.process.operators import OperatorStreams
from zraft.server.process.peers import Peers
from zraft.server.process.security.certificates import utc_now
from zraft.server.process.security.client_tls import ClientTls
from zraft.server.process.security.cluster_keys import cluster_keys
from zraft.server.process.security.reloading import Polled, keep_fresh
from zraft.server.process.service_manager import READY, STOPPING, service_manager
from zraft.server.process.snapshot_thread import SnapshotThread
from zraft.server.process.surroundings import Surroundings
from zraft.server.process.sync_pace import SyncPace
from zraft.server.process.wal_writer import WalWriter
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import names_if_there
from zraft.storage.errors import DiskFullError
from zraft.storage.filesystem import FileSystem
from zraft.storage.journal import JournalHeader, JournalNote, JournalWriter
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.transport.messages import Sender
from zraft.tree.machine import Machine
from zraft_core.errors import ConfigError, ZraftError
from zraft_core.ids import COORDINATION_GROUP

if TYPE_CHECKING:
    from zraft.server.operators.inner_clients import InnerClients
    from zraft.server.operators.partitions import PartitionsReport

CHORES_MS: Final = 50
"""Time between two looks at what no turn is for: deadlines of connections, what is to be logged, garbage."""

IDLE_CHORES_MS: Final = 200
"""The same of a server whose clients wait for nothing."""

RESTING_CHORES_MS: Final = 1_000
"""The same of one that has no clients, and for which nothing is under way."""

SOON_MS: Final = 10
"""The same of a server that has chores left: it folds digests, or leaves."""

PUT_OFF_MS: Final = 250
"""An alarm that would ring within this time is put off by who heard its leader; half of the heartbeats are answered."""

TURNS_AT_ONCE: Final = 2
"""What a frame made durable is told in the turn after it; then clients and other servers are heard again."""

LATE_MS: Final = 5
"""An alarm that is later than this looks into the sockets first; nothing waits there for longer than an alarm is late.

So does the loop after a sync of its own that took as long: what came meanwhile has arrived, so it counts before the
time that has passed.
"""

OPEN_FILES_MACOS: Final = 10_240
"""OPEN_MAX in <sys/syslimits.h> of macOS."""

NEVER: Final = 1 << 62
"""Milliseconds: no alarm is set."""

IDLE_FOLD_ITEMS: Final = 200
"""Changed items hashed per idle tick: less than a millisecond."""

LISTEN_BACKLOG: Final = 4096

BEGIN_ANEW: Final = -1
"""No exit code: the directory is condemned, and the same process goes on with an empty one (D-26)."""

LEAVE_MARGIN_S: Final = 0.1
"""Beyond the time that Raft takes to hand over, for what is on its way."""

CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that counts the time in which the machine sleeps.

Sources: CLOCK_BOOTTIME in clock_getres(2) of Linux; CLOCK_MONOTONIC in clock_gettime(3) of macOS, which has no other.
"""

log = structlog.get_logger()


def now_ms() -> int:
    """Return the milliseconds of a clock that counts sleep, so that a nap of the machine is noticed (D-14)."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000


def now_ms_exactly() -> float:
    """Return the milliseconds of `now_ms` with fractions, for what is measured."""
    return time.clock_gettime_ns(CLOCK) / 1e6


class Node:
    """One running server."""

    def __init__(
        self, config: ServerConfig, sockets: ListeningSockets, surroundings: Surroundings | None = None
    ) -> None:
        """Assemble the parts.

        `sockets` are those of `config`, which serve from `run` on; who opened them closes them. Without `surroundings`
        the server has its process for itself.

        Raises:
            ConfigError: something of the configuration cannot be used; the data directory was not touched then.
            StorageError: the data directory cannot be used.
        """
        self.config = config
        self._started = now_ms()
        self._sockets = sockets
        surroundings = surroundings if surroundings is not None else Surroundings()
        self._owns_process = surroundings.owns_process
        self._manager = surroundings.manager
        self._process = ProcessStatistics()
        # Whatever a person may have to mend comes before the data directory: a start that fails makes none, and counts
        # no boot (D-1).
        self._words = four_letter.allowed_words(config.client.four_letter_words)
        self._tls = ClientTls(config, time.perf_counter) if config.tls.certificate is not None else None
        self._users = sasl_users(config)
        keys = cluster_keys(config.key_files)
        settings = driver_settings(config, self._users)
        self._fs = surroundings.fs
        _refuse_to_wait_alone(self._fs, config)
        self._directory = DataDirectory.open(self._fs, str(config.data), server=config.id, entropy=os.urandom)
        directory = self._directory
        recovery = recover(
            self._fs,
            directory,
            wal_settings(config),
            self._restore,
        )
        self._wal = wal = recovery.wal
        self._snapshot_store = recovery.stores[COORDINATION_GROUP]
        files = GroupFiles(self._fs, directory, delivery_settings(config), recovery)
        partitions = Partitions(
            RegistryCoordination(lambda: self.driver), self._read_deliveries, partition_settings(config)
        )
        self.driver = Driver(
            settings=settings,
            identity=Identity(
                config.id, directory.instance, directory.boot, directory.boot_id, directory.cluster
            ),
            peers=tuple(sorted(config.cluster)),
            stored=recovery.coordination,
            rng=random.Random(os.urandom(16)),
            entropy=os.urandom,
            four_letter_word=self._four_letter_word,
            now_ms=self._started,
            addresses={server: str(address) for server, address in config.cluster.items()},
            hosting=Hosting(partitions, recovery.groups, mark_of_image, partitions.topics),
            work_s=time.thread_time,
        )

        def partitions_report() -> PartitionsReport:
            """Return a reporter, whose module is imported when somebody asks first."""
            from zraft.server.operators.partitions import PartitionsReport

            return PartitionsReport(self.driver, partitions, config, lambda: time.time_ns() // 1_000_000)

        self.administration = Administration(self.driver, lambda groups: partitions_report().replicas(groups))
        self._audit = self._open_audit(config)
        self._journaling = Journaling()
        self._journal = JournalWriter(
            self._fs,
            directory.path,
            JournalHeader(config.id, directory.instance, directory.boot),
            on_error=_log_journal_error,
        )
        self._journal.add(self._journaling.opened(self.driver.raft, time.time_ns() // 1_000_000))
        self._stop = asyncio.Event()
        self._killed = False
        self._ends = False  # whether `_stop` is set, which each turn asks
        self._peers = Peers(
            config,
            Sender(config.id, directory.instance, directory.boot),
            self.driver,
            OperatorStreams(self._administer),
            self._stop,
            keys=keys,
            now_ms=now_ms_exactly,
            on_arrived=self._on_arrived,
            on_answered=self._on_answered,
            on_failed=self._fail,
            endpoint=surroundings.endpoint,
            dial=surroundings.dial,
        )
        self.report = ServerReport(
            driver=self.driver,
            config=config,
            process=self._process,
            started_ms=self._started,
            listen_backlog=LISTEN_BACKLOG,
            now=now_ms,
            wall_now=lambda: time.time_ns() // 1_000_000,
            traffic=self._peers.traffic,
            further_metrics=self._further_metrics,
            certificate_ends_s=lambda: None if self._tls is None else self._tls.certificate_ends_s,
            troubles=partitions.troubles,
            partitions=lambda: partitions_report().status(),
        )
        self._loop = asyncio.get_running_loop()
        self._paused: set[ClientProtocol] = set()
        self._deadlines: Deadlines[ClientProtocol] = Deadlines(config.client.handshake_timeout_ms / 1000)
        self._scheduled = False
        self._asked = False  # whether the scheduled turn was asked for by others than clients
        self._leave_by: float | None = None
        self._servers: list[asyncio.Server] = []
        self._admin: AdminListener | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        # The restored state is out of the collector's sight from here on, too.
        self._collector = Collector(self._started) if self._owns_process else None
        self._memory = MemoryReturn(malloc_trim(), resident_memory()) if self._owns_process else None
        self._wake_at = self._alarm_at = NEVER
        self._chores_at = 0
        self._chores_left = False
        self._chores_done = 0
        self._applied_before = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._role, self._leader = self.driver.role, self.driver.leader
        self._limited = LimitedLog(time.monotonic)
        self._announcements = Announcements(
            self.driver,
            config,
            directory,
            self._process,
            self._peers.set_members,
            self._limited,
            time.monotonic(),
        )
        self._wal_writer = WalWriter(
            wal,
            SyncPace(config.wal.loop_sync_us / 1e6),
            on_written=lambda seconds: self._from_thread(self._on_written, seconds),
            on_full=lambda error: self._from_thread(self._on_full, error),
            on_failed=lambda error: self._from_thread(self._fail, error),
        )
        self._snapshot_thread = SnapshotThread(
            files.snapshots,
            on_performed=lambda done: self._from_thread(self._on_performed, done),
            on_failed=lambda error: self._from_thread(self._fail, error),
        )
        self._groups = GroupShell(
            config,
            files,
            self.driver,
            partitions,
            wal=self._wal_writer,
            from_thread=self._from_thread,
            on_arrived=self.schedule,
            on_failed=self._fail,
        )
        if directory.put_aside is not None:
            log.warning(
                "the state of this server differed from the majority's: its files are kept aside, it begins anew",
                kept=directory.put_aside,
            )
        report = recovery.recovered.report
        if report.torn_tail is not None:
            torn = report.torn_tail
            log.warning(
                "an interrupted write was cut off; it was never acknowledged",
                file=torn.file,
                offset=torn.offset,
                bytes=torn.size,
            )
        if report.unrecorded is not None:
            log.info(
                "how long the log's last file was made is not recorded (by the release that wrote it, or because this file "
                "system cannot reserve space): that it was cut could not be told from an interrupted write",
                file=report.unrecorded,
            )
        log.info(
            "server starting",
            server=config.id,
            instance=directory.instance.hex(),
            boot=directory.boot,
            entries=report.entries,
            segments=report.segments,
        )

    def _read_deliveries(self, task: ReadTask) -> None:
        self._groups.read(task)

    def _restore(self, store: SnapshotStore, newest: SnapshotInfo) -> Machine:
        """Return the state of the newest snapshot. It takes seconds if that is large, so it says so."""
        # Collections over a growing heap of a million znodes find nothing, at a third of the time; see `Collector`.
        if self._owns_process:
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
        self.driver.clients.tell_denied = lambda denial: file.write(
            denied_line(denial, time.time_ns() // 1_000_000)
        )
        file.write(server_line("serverStart", time.time_ns() // 1_000_000))
        return file

    async def run(self) -> int:
        """Serve until a signal or a fatal error; the process's exit code, or `BEGIN_ANEW`.

        Whatever ends it, also a start that fails halfway, all files, threads and sockets of the server are closed then.
        uvloop needs that: it aborts the process if a socket is closed that it still watches.

        Raises:
            Exception: a fatal error that is no `ZraftError`. It is logged like these.
        """
        try:
            await self._serve()
        except Exception as error:
            self._fail(error)
        finally:
            await self._close()
        if self._failure is None:
            return 0
        if isinstance(self._failure, DivergedError):
            return BEGIN_ANEW
        log.error("server failed", server=self.config.id, error=str(self._failure))
        if not isinstance(self._failure, ZraftError):
            raise self._failure
        return 1

    async def _serve(self) -> None:
        """Open everything to the network and wait until something stops the server."""
        config = self.config
        loop = self._loop
        loop.set_exception_handler(self._on_unhandled)
        addresses = await self._peers.open(self._sockets.peers)
        for one in self._sockets.clients:
            self._servers.append(await self._listen("address", one, plain=not config.tls.required))
        for one in self._sockets.tls:
            self._servers.append(await self._listen("tls.address", one, plain=False))
        if config.admin is not None:
            self._admin = AdminListener(
                config.admin,
                self.report,
                self._fail,
                config.admin_hosts,
                (config.admin_console, config.admin_console_token),
                self._inner_clients,
            )
            await self._admin.open(self._sockets.admin)
        if self._owns_process:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._on_stop_signal)
        self._keepers.append(loop.create_task(addresses.keep_fresh()))
        reloadings: list[Polled] = [
            *([self._tls.certificates] if self._tls is not None else ()),
            *([self._users] if self._users is not None else ()),
            *([self._peers.keys] if self._peers.keys is not None else ()),
        ]
        hangup = asyncio.Event()
        if reloadings:
            self._keepers.append(loop.create_task(keep_fresh(reloadings, hangup, self._remind)))
        if self._owns_process and (reloadings or self._audit is not None or self._manager is not None):
            # Tools that replace certificates or rotate logs expect this, and so does `systemctl reload`; by default a
            # hang-up would end the process.
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup, hangup)
        log.info(
            "listening",
            server=config.id,
            address=str(config.address),
            sealed=bool(config.key_files),
            tls=_tls_shown(config),
            udp_receive_buffer_bytes=self._peers.receive_buffer_bytes,
            open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
        self._announcements.begin(time.monotonic())
        self._tell_manager()
        self.schedule()
        await self._stop.wait()

    async def _close(self) -> None:
        """Let the clients go, end all threads, and close what `__init__` and `_serve` have opened so far."""
        # A start that fails comes here directly, and no turn may follow.
        self._end()
        log.info("server stopping", server=self.config.id)
        diverged = isinstance(self._failure, DivergedError)
        if not diverged:
            self._tell_manager()  # else the process goes on, and who was told that it stops would end it
        for keeper in self._keepers:
            keeper.cancel()
        for server in self._servers:
            server.close()
        if self._admin is not None:
            await self._admin.stop()
        if diverged or self._killed:
            # Nothing more may be said: what a state computed that differs from the majority's (D-26) least of all.
            for connection in self.driver.clients.connections:
                if connection.handle is not None:
                    connection.handle.abort()
        else:
            self.driver.clients.close_all()
            self._write_outputs()
        self._peers.close()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._audit is not None:
            self._audit.write(server_line("serverStop", time.time_ns() // 1_000_000))
            self._audit.stop()
        self._groups.stop()
        self._snapshot_thread.stop()
        self._wal_writer.stop()
        self._wal.close()
        self._journal.add(self._journaling.closed(self.driver.raft, time.time_ns() // 1_000_000))
        self._journal.close()
        if diverged:
            log.error("state differs from the majority's", server=self.config.id, problem=str(self._failure))
            self._directory.condemn(str(self._failure), time.time_ns() // 1_000_000)
        self._directory.close()

    async def _listen(self, knob: str, bound: socket.socket, *, plain: bool) -> asyncio.Server:
        try:
            prepare_listener(bound)
            bound.listen(LISTEN_BACKLOG)  # uvloop would not tell that it could not
            return await self._loop.create_server(
                lambda: ClientProtocol(self, self._on_client, self._tls, plain=plain),
                sock=bound,
                backlog=LISTEN_BACKLOG,
            )
        except OSError as error:
            # Two that were bound at the same moment: the first to listen has the port.
            raise ConfigError(f"{knob}: cannot listen for clients: {cannot_listen(error)}") from error

    # -- the turn

    def schedule(self) -> None:
        """Schedule a turn in this iteration of the loop, one for all that arrives in it."""
        self._asked = True
        self._on_client()

    def _on_client(self) -> None:
        """Schedule a turn for what a client said or did, if it turns out that this gives a turn something to do."""
        if not self._scheduled:
            self._scheduled = True
            self.driver.clients.arrived = now_ms_exactly()
            self._loop.call_soon(self._turn)

    def _on_arrived(self, at_ms: float) -> None:
        """Do what follows from what other servers said, which arrived then; schedule a turn if that takes one."""
        if not self._scheduled:
            if not (self._paused or self._ends) and self._settle(at_ms):
                return
            self._scheduled = True
            self.driver.clients.arrived = at_ms
            self._loop.call_soon(self._turn)
        self._asked = True

    def _settle(self, at_ms: float, *, is_second: bool = False) -> bool:
        """Write, apply and answer without a turn, if no more has to be done; return whether none has to follow."""
        driver = self.driver
        try:
            effects = driver.settle()
        except ZraftError as error:
            self._fail(error)
            return True
        if effects is None:
            return False
        if effects.sends or effects.outputs:
            self._say(effects)
        ended = now_ms_exactly()
        if driver.latencies.waiting:
            driver.latencies.answered(ended)
        again, stalled_ms = False, ended - at_ms
        if effects.write is not None:
            seconds = self._wal_writer.submit(effects.write)
            if seconds is not None:
                stalled_ms += seconds * 1000
                again = self._on_durable(seconds)
                if seconds * 1000 >= LATE_MS:
                    again = True  # heartbeats may wait in the socket, which a turn looks into
                elif again and not is_second:
                    # What is durable may be applied now, and that may be all.
                    return self._settle(at_ms, is_second=True)
        if stalled_ms > self._process.stall_ms_max:
            self._process.stall_ms_max = stalled_ms
        now = driver.clock.now
        if again or effects.wake_at <= now:
            return False
        self._wake(effects.wake_at, now)
        return True

    def _say(self, effects: Effects) -> None:
        """Tell other servers and clients what a turn says to them."""
        for to, messages in effects.sends:
            self._peers.send(to, messages)
        for connection, data, close in effects.outputs:
            protocol = connection.handle
            if protocol is not None:
                protocol.write(data, close=close)

    def _wake(self, at_ms: int, now_ms: int) -> None:
        """Be woken at `at_ms`, or sooner: an alarm that is set for an earlier moment finds that out and is set again.

        One that would soon ring in vain is put off, so that a follower which hears its leader is woken by nothing else.
        """
        self._wake_at = at_ms
        if self._alarm is not None:
            left_ms = self._alarm_at - now_ms
            if at_ms >= self._alarm_at:
                if 3 * left_ms > 2 * (at_ms - now_ms):
                    return
                # How late it is by now tells of the loop, as if it had rung.
                self._process.add_lag(-left_ms / 1000 if left_ms < 0 else 0.0)
            self._alarm.cancel()
        self._alarm_at = at_ms
        self._alarm = self._loop.call_later((at_ms - now_ms) / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        """Have a turn if one is due: time has passed in which nothing arrived, or nothing that was worth a turn."""
        if self._ends:
            return
        now = now_ms()
        late = now - self._alarm_at
        self._process.add_lag(late / 1000 if late > 0 else 0.0)
        self._alarm_at, self._alarm = NEVER, None
        if late >= LATE_MS:
            # Heartbeats may wait in the socket: they have arrived, so they count first.
            self._peers.drain()
        if self._scheduled:
            # What clients said may give a turn nothing to do, but it has to set the alarm again.
            self._asked = True
        elif now < self._wake_at:
            self._wake(self._wake_at, now)
        else:
            beat = None if self._chores_left else self.driver.beat(now)
            if beat is None:
                self._scheduled = self._asked = True
                self._turn()
                return
            sends, wake_at = beat
            for to, message in sends:
                self._peers.send(to, (message,))
            self._wake(wake_at, now)

    def _on_answered(self) -> None:
        """Put the alarm off if it would ring before the next such answer: a leader was heard, and nothing followed."""
        now = self.driver.clock.now
        if self._alarm_at - now < PUT_OFF_MS and not self._scheduled:
            self._wake(self.driver.put_off(), now)

    def _do_chores(self, now_ms: int) -> None:
        """Do what is looked at a few times a second, whether or not anything happened."""
        self._chores_done += 1
        now = time.monotonic()
        if self._deadlines:
            for protocol in self._deadlines.due(now):
                protocol.on_deadline()
        driver = self.driver
        if self._leave_by is not None:
            self._leave(now, self._leave_by)
        self._announcements.show(now)
        self._groups.show(now)
        self._note()
        self._tell_manager()
        self._peers.hold_streams()
        if self.administration.awaited:
            self.administration.turn()
        idle = driver.origin.idle
        if self._collector is not None:
            self._collector.step(now_ms, idle=idle, leads=driver.role is Role.LEADER)
        if self._memory is not None:
            self._memory.step(now_ms, driver.clients.sums.held, len(driver.clients), driver.retention.written)
        # While entries come, what is changed again soon would be hashed again and again, also on servers without clients.
        applied, before = driver.applied_index, self._applied_before
        self._applied_before = applied
        folds = idle and applied == before and bool(driver.machine.undigested)
        if folds:
            driver.machine.fold_digest(IDLE_FOLD_ITEMS)
        self._chores_left = folds or self._leave_by is not None or self.administration.awaited
        if self._chores_left:
            in_ms = SOON_MS
        elif not idle:
            in_ms = CHORES_MS
        elif driver.clients.connections or self._deadlines or not driver.rests_until:
            in_ms = IDLE_CHORES_MS
        else:
            in_ms = RESTING_CHORES_MS
        self._chores_at = now_ms + in_ms

    def _turn(self) -> None:
        """Do one batch, and the next one at once if the loop itself made a frame durable for which somebody waits."""
        for _ in range(TURNS_AT_ONCE):
            if not self._batch():
                return
        self.schedule()

    def _batch(self) -> bool:
        """Do one batch: decide, then send, write and answer; return whether the next one is due at once."""
        asked, self._asked, self._scheduled = self._asked, False, False
        if self._ends:
            return False
        if self._tls is not None and self._tls.handshakes.ready:
            self._tls.handshakes.run()
            asked = True
        driver = self.driver
        if not (asked or self._paused or driver.on_clients()):
            return False
        began = now_ms_exactly()
        try:
            now = int(began)
            effects = driver.turn(now, time.time_ns() // 1_000_000)
        except ZraftError as error:
            self._fail(error)
            return False
        if effects.sends or effects.outputs:
            self._say(effects)
        if self._paused:
            for protocol in list(self._paused):
                protocol.maybe_resume()
        ended = now_ms_exactly()
        seconds = None
        if effects.write is not None:
            # Last: while this disk works, the other servers and the clients have what this turn says to them.
            seconds = self._wal_writer.submit(effects.write)
        if effects.tasks or effects.deliveries or effects.group_compactions or effects.compact_to is not None:
            self._carry_out(effects)
        if driver.latencies.waiting:
            driver.latencies.answered(ended)
        self._process.turns.add((ended - began) / 1000)
        stalled_ms = ended - began if seconds is None else ended - began + seconds * 1000
        if ended - began > LONG_TURN_MS:
            driver.clients.turn.lasted(int(ended - began))
        if stalled_ms > self._process.stall_ms_max:
            # Alarms may be too far apart to tell of it.
            self._process.stall_ms_max = stalled_ms
        coordination = driver.coordination
        raft = coordination.raft
        if coordination.leader != self._leader or (raft is not None and raft.role is not self._role):
            self._on_leadership()
        again = False
        if seconds is not None:
            # After that, because a vote that is durable may change the role once more.
            if seconds * 1000 >= LATE_MS:
                self._peers.drain()
                now = now_ms()
            again = self._on_durable(seconds) and not self._scheduled
        # A server that rested has its chores soon after something happened, such as an election: its journal is one of them.
        if now >= self._chores_at or (self._chores_at - now > IDLE_CHORES_MS and not driver.rests_until):
            self._do_chores(now)
        if again:
            self._asked = True
            return True
        wake_at = effects.wake_at
        if wake_at <= now or (self._tls is not None and self._tls.handshakes.ready):
            self.schedule()
        else:
            self._wake(min(wake_at, self._chores_at) if self._chores_left else wake_at, now)
        return False

    def _carry_out(self, effects: Effects) -> None:
        """Give the threads what a turn asks of them beside the frame, as few turns do."""
        if effects.compact_to is not None:
            self._wal_writer.compact(COORDINATION_GROUP, effects.compact_to)
        for task in effects.tasks:
            self._snapshot_thread.submit(task)
        self._groups.carry_out(effects)

    def _on_leadership(self) -> None:
        """Note that another server leads, or this one.

        What is measured and written down of elections has to be exact.
        """
        now, role = time.monotonic(), self.driver.role
        if role is not self._role:
            self._role = role
            self._announcements.role_changed(now * 1000)
        self._leader = self.driver.leader
        self._announcements.show(now)
        self._note()

    def _note(self) -> None:
        """Write down what audits want to know of this server, if there is something."""
        driver, wall_ms = self.driver, time.time_ns() // 1_000_000
        if driver.raft is not None:
            self._write_down(self._journaling.look(driver.raft, driver.machine.digests, wall_ms))
        if driver.groups is None:
            return
        for group in driver.groups.take_touched():
            replica = driver.groups.host.groups.get(group)
            if replica is None:
                self._journaling.forget(group)
                continue
            if not self._write_down(self._journaling.look(replica.raft, replica.digests, wall_ms)):
                driver.groups.touch_again(group)

    def _write_down(self, notes: Iterator[JournalNote]) -> bool:
        """Return whether the disk took all notes; what it refused, and what would follow, is looked at again."""
        return all(map(self._journal.add, notes))

    def _write_outputs(self) -> None:
        for connection, data, close in self.driver.clients.flush(now_ms()):
            protocol = connection.handle
            if protocol is not None:
                protocol.write(data, close=close)

    # -- what arrives

    def on_stream(self, transport: asyncio.Transport, data: bytes) -> None:
        """Give a connection to the port of clients that is another server's, or an operator's, to the streams."""
        self._peers.on_stream(transport, data)

    def _from_thread(self, function: object, argument: object) -> None:
        # The loop may be closing while the last frame is written.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]

    def _on_written(self, seconds: float) -> None:
        self._wal_writer.took(seconds)
        if self._on_durable(seconds) and not self._scheduled:
            self._scheduled = self._asked = True
            self._turn()

    def _on_durable(self, seconds: float) -> bool:
        """Take note that a frame is durable, and tell other servers what waited for it; return whether a turn is due."""
        self._process.fsync.add(seconds)
        if self._ends:
            # Nothing more may be said if the state differs from the majority's (D-26).
            return False
        self.driver.persisted()
        sends, wants_turn = self.driver.acknowledge()
        for to, messages in sends:
            self._peers.send(to, messages)
        return wants_turn

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
        """Stop after an exception that nobody expected, in any callback: half a step may have been taken (D-5).

        The loop would log it and go on, with an entry applied in part, or twice.
        """
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            # Trouble of one socket, already closed by the loop.
            message = str(context.get("message", ""))
            self._limited.warn(
                "trouble of a socket", kind=kind_of(message), message=message, error=repr(error)
            )
        else:
            self._fail(error)

    def end(self) -> None:
        """End this server as if its process were killed: nobody is told anything more, and nothing is handed over.

        What it had acknowledged is kept.
        """
        self._killed = True
        self._end()

    def _end(self) -> None:
        """Let this server end: no turn follows."""
        self._ends = True
        self._stop.set()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._end()

    # -- what protocols report

    def on_protocol_paused(self, protocol: ClientProtocol) -> None:
        """Note a connection that does not read for now."""
        self._paused.add(protocol)

    def on_protocol_closed(self, protocol: ClientProtocol) -> None:
        """Stop looking at a connection that is closed, or reads again."""
        self._paused.discard(protocol)

    def on_protocol_lost(self, protocol: ClientProtocol) -> None:
        """Forget a connection whose socket is gone."""
        if protocol in self._paused:
            self._paused.remove(protocol)
        self._deadlines.stop(protocol)

    def on_waiting(self, protocol: ClientProtocol) -> None:
        """Start the deadline of a client that must ask for a session, or take the rest of an answer and go."""
        self._deadlines.start(protocol, time.monotonic())

    def _on_stop_signal(self) -> None:
        """Let another server lead and the clients go, then stop; a second signal stops at once (SIGTERM or SIGINT)."""
        driver = self.driver
        if self._leave_by is not None or not driver.serving:
            self._end()
            return
        self._process.leaving = True
        for server in self._servers:
            server.close()
        timeouts = 2 if driver.hand_over() else 1
        self._leave_by = (
            time.monotonic() + timeouts * driver.settings.raft.election_timeout_ticks / 1000 + LEAVE_MARGIN_S
        )
        log.info("server leaves", server=self.config.id, leads=driver.role is Role.LEADER)
        self._chores_at = 0
        self.schedule()

    def _leave(self, now: float, leave_by: float) -> None:
        """Answer what clients have asked and let them go, once another server leads; stop when all are gone."""
        driver = self.driver
        raft = driver.raft
        if now >= leave_by or raft is None:
            self._end()
        elif driver.leader is not None and not raft.transferring:
            driver.leave()
            if driver.left:
                self._end()
            else:
                self.schedule()

    def _on_hangup(self, certificates: asyncio.Event) -> None:
        """Read files again that were replaced, and open those that were renamed (SIGHUP)."""
        certificates.set()
        if self._audit is not None:
            self._audit.reopen()

    def on_too_many_connections(self, address: str) -> None:
        """Log, now and then, that a client was refused because of a bound of connections."""
        knob = self.driver.clients.full_knob
        self._limited.warn(
            f"connection refused, {knob} is reached",
            kind=knob,
            address=address,
            connections=len(self.driver.clients),
        )

    # -- what operators see

    def _tell_manager(self) -> None:
        """Tell whoever started this process that the server is ready, whether it serves, and that it stops."""
        if self._manager is None:
            return
        if self._ends or self._leave_by is not None:
            self._manager.tell(STOPPING, "stopping")
        else:
            self._manager.tell(READY, _condition(self.report.reasons(), self.driver.leader, self.config.id))

    def _remind(self) -> None:
        """Do what is due every few seconds."""
        if self._tls is not None:
            self._tls.remind(utc_now())
        self._peers.take_keys()

    def _administer(self, request: OperatorRequest, reply: Callable[[OperatorReply], None]) -> None:
        self.administration.handle(request, reply)
        self.schedule()

    def _inner_clients(self) -> InnerClients:
        """Return the console's way into this server, whose module is imported with the console's."""
        from zraft.server.operators.inner_clients import InnerClients

        return InnerClients(self.driver, self.schedule)

    def _four_letter_word(self, word: str, argument: bytes) -> bytes:
        return four_letter.answer(word, self.report, self._words, argument)

    def _further_metrics(self) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {}
        if self._tls is not None:
            metrics |= self._tls.metrics
        metrics |= self._peers.metrics()
        driver = self.driver
        metrics["disk_full"] = int(self._process.disk_full)
        metrics["syncs_by_loop_total"] = self._wal_writer.by_loop_total
        metrics["leaderships_handed_on_total"] = driver.pace.handovers_total
        metrics["replay_seconds"] = round(driver.snapshots.keeper.restart_s, 3)
        metrics["snapshots_taken_total"] = driver.snapshots.keeper.taken_total
        metrics["snapshots_failed_total"] = driver.snapshots.keeper.failed_total
        metrics["snapshots_restored_total"] = driver.snapshots.restored_total
        if driver.leadership is not None:
            metrics["digest_alarms_total"] = driver.leadership.members.digests.alarms_total
        metrics |= self._groups.metrics()
        if self._audit is not None:
            metrics["audit_lines_dropped_total"] = self._audit.dropped
        return metrics


def _refuse_to_wait_alone(fs: FileSystem, config: ServerConfig) -> None:
    """Refuse a server that founds no cluster and knows no other server: it would wait for ever.

    Raises:
        ConfigError: this is one; its directory is as it was.
    """
    data = str(config.data)
    if not config.founds and len(config.cluster) == 1 and "meta" not in names_if_there(fs, data):
        raise ConfigError(
            f"founds: is false, the default beside data of a ZooKeeper (version-2), {data} is empty, and there is no other "
            "server whose cluster this one could join. Put ZooKeeper's tree there first: `zraft import --config FILE "
            "--from HOST:PORT` (docs/how-to/migration.md). Clients would find an empty tree otherwise; to begin with that "
            "all the same, pass --set founds=true, or write zraft.founds=true into a zoo.cfg"
        )


def _condition(reasons: Sequence[str], leader: int | None, server: int) -> str:
    """Return what `systemctl status` shows of a server."""
    if reasons:
        return f"not serving: {reasons[0]}"
    if leader is None:
        return "serving, no leader is known at this moment"
    return "serving, as the leader" if leader == server else f"serving, server {leader} leads"


def _log_journal_error(error: OSError | None) -> None:
    if error is not None:
        log.warning("journal cannot be written, its notes are lost", error=str(error))
    else:
        log.info("journal is written again")


def _log_audit_error(error: OSError | None) -> None:
    if error is not None:
        log.error("audit log cannot be written, its lines wait and then are dropped", error=str(error))
    else:
        log.info("audit log is written again")


def _tls_shown(config: ServerConfig) -> str:
    tls = config.tls
    if tls.certificate is None:
        return "off"
    return ("required" if tls.required else "on") + (f", only TLS at {tls.address}" if tls.address else "")


def _raise_file_limit() -> None:
    """Take as many files as the system allows without asking an administrator: every client is a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        # macOS says that there is no limit, and takes no more than this.
        if soft < OPEN_FILES_MACOS:
            resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_MACOS, hard))


def run_server(config: ServerConfig) -> NoReturn:
    """Run one server until SIGTERM or SIGINT, and end the process.

    Raises:
        ZraftError: it cannot start.
    """
    _raise_file_limit()
    surroundings = Surroundings(manager=service_manager(os.environ))

    async def serve() -> int:
        with bound(config) as sockets:
            return await Node(config, sockets, surroundings).run()

    while True:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(serve())
            if code != BEGIN_ANEW:
                _end_process(code)
        # The collected objects of the server before must not outlive it for long: a million znodes are
        # gigabytes.
        gc.unfreeze()
        gc.collect()


def _end_process(code: int) -> NoReturn:
    """End the process at once: all files are closed, and all is said.

    What an interpreter does at its end takes up to seconds, in which the server's successor waits for its ports: it frees
    znodes one by one, and waits for threads that load a module or look up a name.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
