"""Sums of what all clients of a server hold: who may hold more, who waits for room, and who has to go.

Source: docs/how-to/security.md, "Sums".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zraft.server.clients.budget import Bound, Budget, Excess
from zraft.server.clients.connection import (
    BACKLOG_BYTES_MAX,
    BEGUN_BYTES,
    UNCOUNTED_BYTES,
    ClientConnection,
    Phase,
)
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.turn_share import TurnShare


class Sums:
    """Three budgets of bytes, and the connections that wait for room in the first.

    Attributes:
        output: answers and events that their clients do not take.
        input: complete requests that wait for their turn.
        unfinished: requests without their ends.
        is_wide: whether much may be read at once of what a client sends.
        overdrawn: whether a bound of `output` is passed, so that `relieve_output` is due.
        waiting: connections whose next answer is large and waits for room, in the order in which they began to, with its
            size in bytes.
    """

    __slots__ = (
        "_give_up",
        "_looked_at",
        "_turn",
        "input",
        "is_wide",
        "output",
        "overdrawn",
        "unfinished",
        "waiting",
    )

    def __init__(
        self, settings: ClientSettings, turn: TurnShare, give_up: Callable[[ClientConnection, str], None]
    ) -> None:
        """Begin with nothing held. `give_up` ends a connection at once, and tells the operator why."""
        self._turn = turn
        self._give_up = give_up
        self.output: Budget[ClientConnection] = Budget(
            "bytes of answers and events that its client does not take",
            per_address=Bound("client.output_bytes_per_address_max", settings.output_bytes_per_address_max),
            together=Bound("client.output_bytes_sum_max", settings.output_bytes_sum_max),
        )
        self.input: Budget[ClientConnection] = Budget(
            "bytes of requests that wait for their turn",
            per_address=Bound("client.input_bytes_per_address_max", settings.input_bytes_per_address_max),
            together=Bound("client.input_bytes_sum_max", settings.input_bytes_sum_max),
        )
        self.unfinished: Budget[ClientConnection] = Budget(
            "bytes of a request without its end",
            per_address=Bound(
                "client.unfinished_bytes_per_address_max", settings.unfinished_bytes_per_address_max
            ),
            together=Bound("client.unfinished_bytes_sum_max", settings.unfinished_bytes_sum_max),
        )
        self.is_wide = True
        self.overdrawn = False
        self.waiting: dict[ClientConnection, int] = {}
        self._looked_at = -1
        """The bytes that `output` held when there was no room for those that wait."""

    @property
    def held(self) -> int:
        """Bytes that all connections hold together, of all three kinds."""
        return self.output.held + self.input.held + self.unfinished.held

    @property
    def evicted_total(self) -> int:
        """Connections that were closed for what all of them together may hold."""
        return self.output.evicted_total + self.input.evicted_total + self.unfinished.evicted_total

    # -- what connections call

    def may_read(self, connection: ClientConnection, unfinished: int, waiting: int) -> bool:
        """Return whether more is read from a connection.

        `unfinished` are the bytes of an unfinished request, `waiting` those of complete ones.
        """
        if waiting > UNCOUNTED_BYTES and (waiting >= BACKLOG_BYTES_MAX or self.input.is_pressed(connection)):
            return False
        return not UNCOUNTED_BYTES < unfinished <= BEGUN_BYTES or not self.unfinished.is_pressed(connection)

    def count_input(self, connection: ClientConnection, unfinished: int, waiting: int) -> None:
        """Count what a connection keeps of what its client sent.

        `unfinished` are the bytes of an unfinished request, `waiting` those of complete ones.
        """
        if connection.phase is Phase.CLOSED:
            return
        counts = (self.unfinished, unfinished), (self.input, waiting)
        connection.counted = unfinished > UNCOUNTED_BYTES or waiting > UNCOUNTED_BYTES
        over = [
            budget
            for budget, size in counts
            if budget.hold(connection, size if size > UNCOUNTED_BYTES else 0, self._turn.now)
        ]
        for budget in over:
            self._relieve(budget.excess(self._turn.now))
        self.is_wide = self.unfinished.wide and self.input.wide

    def count_output(self, connection: ClientConnection) -> None:
        """Count what is to be written to a connection, or is not taken by its client."""
        size = connection.unsent + connection.out_bytes + connection.due_bytes
        if not connection.cut and self.output.hold(connection, size, self._turn.now):
            self.overdrawn = True

    # -- what the table of connections calls

    def wait(self, connection: ClientConnection, size: int) -> None:
        """Take note that the next answer, of `size` bytes, waits until others have taken theirs."""
        self.waiting[connection] = size
        self._looked_at = -1

    def relieve_output(self) -> None:
        """Close whoever must go for the bounds of `output` to hold again."""
        self.overdrawn = False
        self._relieve(self.output.excess(self._turn.now))

    def relieve_unfinished(self) -> None:
        """Close whoever keeps others waiting with a request that does not end.

        Whoever has sent less waits for the others, not they for it; see `may_read`.
        """
        self._relieve(self.unfinished.overdue(self._turn.now, above=BEGUN_BYTES))

    def make_room(self) -> list[ClientConnection]:
        """Close whoever kept large answers waiting for too long; those for whom there is room now, who wait no longer."""
        self._relieve(self.output.overdue(self._turn.now))
        if self.output.held == self._looked_at:
            return []
        self._looked_at = self.output.held
        promised = 0
        found = []
        for connection, size in list(self.waiting.items()):
            if self.output.has_room(connection, promised + size):
                promised += size
                del self.waiting[connection]
                found.append(connection)
        return found

    def release(self, connection: ClientConnection) -> None:
        """Count a connection that is over as holding nothing but what is still to be sent."""
        if connection in self.waiting:
            del self.waiting[connection]
        connection.due_bytes = 0
        if connection.counted:
            connection.counted = False
            self.unfinished.hold(connection, 0, self._turn.now)
            self.input.hold(connection, 0, self._turn.now)
            self.is_wide = self.unfinished.wide and self.input.wide

    def forget(self, connection: ClientConnection) -> None:
        """Count a connection whose socket is closed as holding nothing."""
        connection.unsent = 0
        if self.output.held:
            self.output.hold(connection, 0, self._turn.now)

    def _relieve(self, gone: Sequence[Excess[ClientConnection]]) -> None:
        for excess in gone:
            self._give_up(excess.one, excess.why)
