"""Owns what a server owes its clients when a snapshot replaces its state (D-4), and what it may send again (D-2).

Seen from outside: connections, what leaves on them, and the batches that leave for the leader. Checked here, each under
its name: `snapshot clients`, `snapshot batches`, `batch bytes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tests.simulation.broken import BrokenPromiseError
from zraft.server.clients.connection import ClientConnection, Phase
from zraft.server.engine.driver import Driver
from zraft.transport.messages import OriginBatch, PeerMessage
from zraft_core.ids import ServerId


class AdoptionChecks:
    """One boot of one server."""

    def __init__(self, server: ServerId) -> None:
        self._server = server
        self._restored = 0
        self._silent: set[ClientConnection] = set()
        """Connections of before the newest adoptions: nobody may hear anything on them any more."""
        self._batches: dict[int, bytes] = {}
        """Number and bytes of what left for a leader and was not seen applied here."""
        self._covered = 0
        self._again: set[int] = set()
        """Batches that the newest snapshot does not cover and that did not leave again yet."""
        self._leader_since: int | None = None
        """When a leader elsewhere was known first since that adoption, in the server's own time."""
        self.silenced = self.repeated = 0

    def turned(
        self,
        driver: Driver,
        sends: Iterable[tuple[ServerId, Sequence[PeerMessage]]],
        outputs: Iterable[tuple[ClientConnection, bytes, bool]],
        connections: Iterable[ClientConnection],
    ) -> None:
        """A turn ended with these effects; `connections` are those that it began with."""
        batches = [
            message for _, messages in sends for message in messages if isinstance(message, OriginBatch)
        ]
        for batch in batches:
            self._left(batch)
        self._demand_repetition(driver, {batch.seq for batch in batches})
        if driver.snapshots.restored_total != self._restored:
            self._restored = driver.snapshots.restored_total
            self._adopted(driver, connections)
        for connection, data, _ in outputs:
            if data and connection in self._silent:
                self._fail(
                    "snapshot clients",
                    f"took a snapshot over and says {len(data)} bytes more on a connection of before",
                )

    def kept(self, connections: Collection[ClientConnection]) -> None:
        """These connections are open after the turn."""
        kept = [connection for connection in connections if connection in self._silent]
        if kept:
            self._fail("snapshot clients", f"took a snapshot over and keeps connection {kept[0].address}")

    def _left(self, batch: OriginBatch) -> None:
        if batch.seq <= self._covered:
            self._fail(
                "snapshot batches",
                f"sends batch {batch.seq} again; its snapshot covers all to {self._covered}",
            )
        known = self._batches.setdefault(batch.seq, batch.blob)
        if known != batch.blob:
            self._fail("batch bytes", f"sends batch {batch.seq} with other bytes than before (D-2)")

    def _adopted(self, driver: Driver, connections: Iterable[ClientConnection]) -> None:
        self._silent |= {connection for connection in connections if connection.phase is not Phase.NEW}
        self.silenced += len(self._silent)
        self._covered = self._applied(driver)
        self._again = {seq for seq in self._batches if seq > self._covered}
        self._leader_since = None

    def _demand_repetition(self, driver: Driver, left: set[int]) -> None:
        """What a snapshot does not cover leaves again while a leader is known: by the next resending at the latest."""
        applied = self._applied(driver)
        for seq in [seq for seq in self._batches if seq <= applied]:
            del self._batches[seq]
        if driver.coordination.removed is not None:
            self._again.clear()  # nobody would take them from who is no member
        if not self._again:
            return
        self.repeated += len(self._again & left)
        self._again = {seq for seq in self._again - left if seq > applied}
        now = driver.clock.now
        if driver.leader == self._server:
            self._again.clear()  # what it says to itself takes no network
        elif driver.leader is None:
            self._leader_since = None
        elif self._leader_since is None:
            self._leader_since = now
        elif self._again and now - self._leader_since > driver.settings.origin.resend_ms:
            self._fail(
                "snapshot batches",
                f"took a snapshot over that covers its batches to {self._covered}, and does not send "
                f"{sorted(self._again)} again",
            )

    def _applied(self, driver: Driver) -> int:
        row = driver.machine.rows.get((self._server, driver.identity.instance))
        return row.seq if row is not None and row.boot == driver.identity.boot else 0

    def _fail(self, checker: str, found: str) -> None:
        raise BrokenPromiseError(checker, f"S{self._server} {found}")
