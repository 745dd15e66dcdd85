"""The reads of one native connection that are not answered yet: for a read index, for a floor, for room; no I/O.

Source: docs/reference/protocol-native.md, "Reads".
"""

from __future__ import annotations

from collections import deque
from typing import Final

from zraft.server.clients.connection import LARGE_BYTES
from zraft.server.clients.native.reads import answer, size_of
from zraft.server.clients.native.services import NativeSpeaker
from zraft_core.errors import Code
from zraft_core.wire.native.failures import encode_error
from zraft_core.wire.native.requests import Read

NO_CONTACT: Final = "this server has no contact with a quorum of its cluster; ask another one"


COSTLY_REQUESTS: Final = 1_024
"""Others have their turn after reads that took as long as so many small ones."""


class ReadBatch:
    """Linearizable reads of one connection that came in one turn."""

    __slots__ = ("connection", "reads")

    def __init__(self, connection: NativeSpeaker, reads: list[Read]) -> None:
        self.connection = connection
        self.reads = reads

    def complete_sync(self) -> None:
        """Answer the reads: all that was committed when they came is applied here."""
        self.connection.on_read_index(self.reads)


class PendingReads:
    """Reads of one connection that are not answered yet.

    Attributes:
        ready: reads whose turn it is, as soon as there is room for their answers.
        waiting: how many wait for a read index.
    """

    __slots__ = ("_connection", "_floors", "ready", "waiting")

    def __init__(self, connection: NativeSpeaker) -> None:
        self._connection = connection
        self.ready: deque[Read] = deque()
        self.waiting = 0
        self._floors: list[tuple[Read, int]] = []
        """(read, when it is given up) of those that wait for this server to have applied more."""

    def __len__(self) -> int:
        return self.waiting + len(self._floors) + len(self.ready)

    def clear(self) -> None:
        """Forget what waits, since nobody is there to be answered.

        What waits for a read index is dropped when it comes.
        """
        self.ready.clear()
        self._floors.clear()

    def sort(self, read: Read, batch: list[Read]) -> None:
        """Put a new read into `batch` if it needs a read index; otherwise answer or keep it."""
        connection = self._connection
        if not read.linearizable:
            self._ripe(read)
        elif connection.clients.availability.serving:
            batch.append(read)
        elif read.id is None:
            connection.clients.refuse(connection, NO_CONTACT)
        else:
            connection.write_answer(encode_error(read.id, Code.CONNECTION_LOSS, NO_CONTACT))

    def on_read_index(self, reads: list[Read]) -> None:
        """Answer reads: all that was committed when they came is applied here."""
        self.waiting -= len(reads)
        for read in reads:
            self._ripe(read)
        self.answer_ready()

    def _ripe(self, read: Read) -> None:
        """Answer a read that nothing but its floor can keep now, or let it wait."""
        clients = self._connection.clients
        if read.floor > clients.machine.last_zxid:
            self._floors.append((read, clients.turn.now + read.timeout_ms))
            clients.on_floor(self._connection)
        else:
            self.ready.append(read)

    def answer_floors(self) -> bool:
        """Answer reads that may be answered or waited too long; return False if none waits any more.

        Called once per turn.
        """
        clients = self._connection.clients
        zxid = clients.machine.last_zxid
        now = clients.turn.now
        floors, self._floors = self._floors, []
        for read, until in floors:
            if read.floor <= zxid:
                self.ready.append(read)
            elif now >= until:
                assert read.id is not None, "Zatt's messages have no floor"
                why = (
                    f"{read.kind}: this server has applied up to zxid {zxid:#x}, the floor is {read.floor:#x}, and "
                    f"timeout_ms = {read.timeout_ms} have passed"
                )
                self._connection.write_answer(encode_error(read.id, Code.OPERATION_TIMEOUT, why))
            else:
                self._floors.append((read, until))
        self.answer_ready()
        return bool(self._floors)

    def answer_ready(self) -> None:
        """Answer reads whose turn it is, as far as there is room."""
        ready, connection = self.ready, self._connection
        clients = connection.clients
        output = clients.sums.output
        turn = clients.turn
        before = connection.out_bytes
        began = turn.taken
        while ready and not connection.wants_flush and not connection.closing:
            if turn.taken - began > COSTLY_REQUESTS:
                turn.cut_short = True
                break
            read = ready[0]
            size = size_of(connection, read.query) if output.held else 0
            if size >= LARGE_BYTES and not output.has_room(connection, size):
                clients.on_no_room(connection, size)
                break
            ready.popleft()
            if read.id is None:
                connection.answer_zatt(read)
                continue
            found = answer(connection, read)
            if isinstance(found, bytes):
                connection.write_answer(found)
            else:
                connection.write_parts(found)
        turn.taken += connection.out_bytes - before >> 10
        if ready and connection.wants_flush:
            turn.cut_short = True
