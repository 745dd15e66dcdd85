"""Messages in a server's log about changes: roles, leaders, members, snapshots, refusals.

Looks several times a second at what the driver noted for it; each thing is said once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from zraft.config.server import ServerConfig
from zraft.groups.server_statistics import ProcessStatistics
from zraft.program.limited_log import LimitedLog, kind_of
from zraft.raft.membership.value import Membership
from zraft.raft.role import Role
from zraft.server.engine.driver import Driver
from zraft.server.operators.report import ROLE_NAMES
from zraft.storage.directory import DataDirectory
from zraft_core.address import Address
from zraft_core.ids import ServerId

QUOTA_LOG_INTERVAL_S: Final = 60.0
"""Soft limits of quotas are mentioned at most this often, however many writes exceed them."""

WAITING_LOG_INTERVAL_S: Final = 30.0
WAITING_LOG_AFTER_S: Final = 3.0
"""An empty server says what it waits for; servers that are started together take less."""

QUOTAS_SHOWN_MAX: Final = 20

PROGRESS_INTERVAL_S: Final = 2.0
"""The interval at which a long start says how far it is."""

log = structlog.get_logger()


class CatchingUp:
    """Messages of a server that has a long log to apply, as after a start: how far it is, until it is done."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = 0.0

    def show(self, now: float, *, behind: bool, applied: int, committed: int) -> None:
        """Log how far it is if it was `behind` for a while; `applied` and `committed` are indices of entries."""
        since = self._since
        if since is None:
            if behind:
                self._since = self._said = now
        elif not behind:
            self._since = None
            if self._said > since:
                log.info("log applied", index=applied, seconds=round(now - since, 3))
        elif now - self._said >= PROGRESS_INTERVAL_S:
            self._said = now
            log.info("log is being applied", index=applied, of=committed)


class Announcements:
    """Messages of one server. Times are seconds of a monotonic clock."""

    def __init__(
        self,
        driver: Driver,
        config: ServerConfig,
        directory: DataDirectory,
        process: ProcessStatistics,
        on_members: Callable[[Membership], None],
        limited: LimitedLog,
        now: float,
    ) -> None:
        """Begin with nothing said.

        `on_members` is told of every new configuration, as are the operators.

        What clients can cause any number of times goes through `limited`.
        """
        self._driver = driver
        self._config = config
        self._directory = directory
        self._process = process
        self._on_members = on_members
        self._limited = limited
        self._quotas_logged = -QUOTA_LOG_INTERVAL_S
        self._waiting_log_at = now + WAITING_LOG_AFTER_S
        self._leaderless_since: float | None = now
        self._settings_compared = False
        self._shown: tuple[object, ...] = ()
        self._members_known: Membership | None = None
        self._address_recorded = ""
        self._snapshot_known = driver.snapshots.keeper.newest
        self._catching_up = CatchingUp()

    def begin(self, now: float) -> None:
        """Begin: the server listens, and may find a leader from here on."""
        self._leaderless_since = now

    def show(self, now: float) -> None:
        """Log what changed."""
        driver = self._driver
        if driver.leader is None:
            if self._leaderless_since is None:
                self._leaderless_since = now
        elif self._leaderless_since is not None:
            self._process.elections.add(now - self._leaderless_since)
            self._leaderless_since = None
        self._show_role()
        self._compare_settings()
        known = (
            driver.raft.membership
            if driver.raft is not None
            else driver.coordination.belonging.joining.members
        )
        if known is not None and known is not self._members_known:
            self._members_known = known
            self._on_members(known)
            self._compare_address(known)
        newest = driver.snapshots.keeper.newest
        if newest is not self._snapshot_known:
            self._snapshot_known = newest
            if newest is not None:
                log.info("snapshot", index=newest.header.meta.index, items=newest.items, bytes=newest.size)
        if driver.raft is not None:
            self._catching_up.show(
                now,
                behind=driver.machine.behind,
                applied=driver.applied_index,
                committed=driver.raft.commit_index,
            )
        if now >= self._waiting_log_at:
            self._waiting_log_at = now + WAITING_LOG_INTERVAL_S
            if driver.coordination.waiting is not None:
                log.warning("waiting", reason=driver.coordination.waiting)
        self._show_notices()
        exceeded = driver.machine.quotas.exceeded
        if exceeded and now >= self._quotas_logged + QUOTA_LOG_INTERVAL_S:
            self._quotas_logged = now
            log.warning("quota exceeded", paths=sorted(exceeded)[:QUOTAS_SHOWN_MAX], count=len(exceeded))
            exceeded.clear()

    def role_changed(self, now_ms: float) -> None:
        """Log that a turn ended at `now_ms` in another role than the one before.

        Elections are measured by these lines, and one takes less than the time between two calls of `show`; the clock
        is one for all processes of a machine.
        """
        raft = self._driver.raft
        if raft is None or raft.role is Role.FOLLOWER:
            return
        at = round(now_ms, 3)
        if raft.role is Role.LEADER:
            log.info("became leader", term=raft.term, last_index=raft.log.last_index, monotonic_ms=at)
        else:
            log.info("stands for election", role=ROLE_NAMES[raft.role], term=raft.term, monotonic_ms=at)

    def _show_role(self) -> None:
        driver = self._driver
        joining = driver.coordination.belonging.joining.waiting
        shown = (driver.role, driver.leader, driver.coordination.problem, driver.cluster, joining)
        if shown != self._shown:
            raft = driver.raft
            before, self._shown = self._shown, shown
            if driver.cluster is not None and (not before or before[3] is None):
                if self._directory.cluster is None:
                    self._directory.set_cluster(driver.cluster)
                log.info("member of cluster", cluster=driver.cluster.hex())
            if driver.coordination.problem is not None and (
                not before or before[2] != driver.coordination.problem
            ):
                # A removal was somebody's wish, or another process says that it was.
                write = log.error if driver.coordination.removed is None else log.warning
                write("server stays out", problem=driver.coordination.problem)
            if joining is not None and (not before or before[4] != joining):
                log.info("joins a cluster", waiting=joining)
            if raft is not None and raft.role is Role.FOLLOWER and driver.leader is not None:
                log.info("follows", leader=driver.leader, term=raft.term)

    def _compare_address(self, known: Membership) -> None:
        server = self._config.id
        member = known.members.get(server)
        recorded = member.address if member is not None else ""
        if recorded != self._address_recorded:
            self._address_recorded = recorded
            differs = address_differs(server, self._config.cluster[server], recorded)
            if differs is not None:
                log.warning(differs)

    def _compare_settings(self) -> None:
        driver = self._driver
        if not self._settings_compared and driver.serving and driver.applied_index > 2:
            self._settings_compared = True
            for name, (ours, theirs) in driver.coordination.settings_differ.items():
                log.warning(
                    "a configured value is not in force: change the configuration, or use `zraft settings set`",
                    setting=name,
                    configured=ours,
                    in_force=theirs,
                )
            level = driver.machine.feature_level
            if level > self._config.features_max:
                log.warning(
                    f"features_max={self._config.features_max} has no effect: the cluster works at feature level {level} "
                    "already, and that cannot be taken back"
                )

    def _show_notices(self) -> None:
        driver = self._driver
        while driver.pace.notices:
            log.warning("leadership is handed on", reason=driver.pace.notices.pop(0))
        problems = driver.snapshots.work.problems
        while problems:
            log.error("snapshot failed", problem=problems.pop(0))
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
            self._limited.warn(
                "connection closed", kind=f"closed {kind_of(why)}", address=connection.address, reason=why
            )
        while driver.clients.notices:
            connection, what = driver.clients.notices.popleft()
            self._limited.warn(
                "request refused", kind=f"refused {kind_of(what)}", address=connection.address, reason=what
            )


def address_differs(server: ServerId, configured: Address, recorded: str) -> str | None:
    """Return what is wrong if a server's entry of --cluster differs from the members'; else None.

    Other servers and clients are sent to where the members say that it is, whatever its own configuration says.
    `recorded` is empty if they do not say.
    """
    if recorded in ("", str(configured)):
        return None
    if configured.is_wildcard and recorded.endswith(f":{configured.port}"):
        return None  # that only says where it listens
    return (
        f"this server starts at {configured} and is recorded at {recorded}, where other servers and clients look for it: if "
        f"it moved, `zraft member move {server} {configured}`; else correct its own entry of --cluster"
    )
