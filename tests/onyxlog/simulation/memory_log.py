"""The log in memory: one `MemoryLog` for any number of ports, with the contract of `LogPort`, deterministic.

There is no clock: nothing happens but by calls, and what waits is woken in the order in which it began to wait. What a
cluster does to a client is done by the test: `hold` and `release` (no server is connected), `expire` (the session's end).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from attrs import define, field

from onyxlog.errors import EntryError, OvertakenError
from onyxlog.ids import BEFORE_ALL, GroupId, JobId, Position
from onyxlog.peer.log.port import (
    LogBounds,
    LogStatistics,
    Origin,
    Silence,
    check_parameters,
    first_origin,
)
from onyxlog.replica.commands import Entry, Record
from onyxlog.replica.replica import Parameters
from zraft_client.errors import ClientError, ClosedError, NodeExistsError, NoNodeError, SessionExpiredError
from zraft_core.errors import Code

BATCH_ENTRIES_MAX = 1_000
"""Of a tail: as a server pushes no more than its page at a time."""


@define(eq=False)
class MemoryLog:
    """One tenancy's log, origin, pulses, jobs and state. Its attributes may be looked at; change it through ports.

    Args:
        copy: applied to every record that is appended: a codec's round trip, so that what cannot be encoded is noticed.
        batch: entries that a tail hands out at a time, at most.
        delay_s: how long a request takes to the log.
    """

    copy: Callable[[Record], Record] | None = None
    batch: int = BATCH_ENTRIES_MAX
    delay_s: float = 0.0
    newest_origin: Origin | None = None
    entries: list[Entry] = field(factory=list)
    """From the origin on."""
    end: Position = 0
    pulses: dict[GroupId, MemoryPort] = field(factory=dict)
    jobs: dict[JobId, bytes] = field(factory=dict)
    states: dict[str, bytes] = field(factory=dict)
    ports: list[MemoryPort] = field(factory=list)
    _changed: list[asyncio.Future[None]] = field(factory=list)

    @property
    def first(self) -> Position:
        """Of the log as it was truncated last."""
        return 0 if self.newest_origin is None else self.newest_origin.position + 1

    def open(self) -> MemoryPort:
        """A port with a session of its own."""
        port = MemoryPort(self)
        self.ports.append(port)
        return port

    async def opened(self) -> MemoryPort:
        """`open` as an `OpenPort`."""
        return self.open()

    def hold(self, port: MemoryPort) -> None:
        """From now on the port is not connected: its calls, tails and watches wait."""
        port._held = True

    def release(self, port: MemoryPort) -> None:
        port._held = False
        self.wake()

    def expire(self, port: MemoryPort) -> None:
        """End the port's session. If the port is held, it learns of it when it is released."""
        self.end_session(port, SessionExpiredError("the session expired", Code.SESSION_EXPIRED))

    # -- called by ports

    def append(self, record: Record) -> Position:
        entry = Entry(self.end, record if self.copy is None else self.copy(record))
        self.end += 1
        self.entries.append(entry)
        self.wake()
        return entry.position

    def truncate(self, origin: Origin) -> None:
        assert origin.position < self.end, f"an origin at {origin.position}, and the log ends at {self.end}"
        self.entries = self.slice(origin.position + 1, self.end)
        self.newest_origin = origin
        self.wake()

    def slice(self, first: Position, end: Position) -> list[Entry]:
        """Entries from `first` on, in front of `end`. Raises OvertakenError."""
        if first < self.first:
            raise OvertakenError(f"entry {first}: gone, the log begins at {self.first}; begin at the origin")
        return self.entries[first - self.first : max(end, first) - self.first]

    def end_session(self, port: MemoryPort, why: ClientError) -> None:
        if port.ended is not None:
            return
        port.ended = why
        self.pulses = {group: owner for group, owner in self.pulses.items() if owner is not port}
        self.ports.remove(port)
        will, port.will = port.will, None
        if will is not None:
            self.append(will)
        self.wake()

    def wake(self) -> None:
        """Let everything that waits look again."""
        waiting, self._changed = self._changed, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def wait_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(future)
        await future


class MemoryPort:
    """A `LogPort`. `will` is what is appended when its session ends, `ended` why it did, None before."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.will: Record | None = None
        self.ended: ClientError | None = None
        self._held = False
        self._order = asyncio.Lock()
        self._watches: set[asyncio.Task[None]] = set()
        self._appends = self._reads = self._pushes = self._watched = 0

    async def begin(self, parameters: Parameters) -> Origin:
        await self._asked()
        if self.log.newest_origin is None:
            self.log.newest_origin = first_origin(parameters)
        check_parameters(self.log.newest_origin.replica.parameters, parameters)
        return self.log.newest_origin

    async def origin(self) -> Origin:
        self._reads += 1
        await self._asked()
        return self._begun()

    async def bounds(self) -> LogBounds:
        self._reads += 1
        await self._asked()
        self._begun()
        return LogBounds(self.log.first, self.log.end)

    async def append(self, record: Record) -> Position:
        async with self._order:  # fair: whoever asked first while the port was held is first afterwards
            self._appends += 1
            await self._asked()
            self._begun()
            return self.log.append(record)

    async def tail(self, first: Position) -> AsyncIterator[tuple[Entry, ...]]:
        self._watched += 1
        while True:
            await self._connected()
            found = tuple(self.log.slice(first, min(self.log.end, first + self.log.batch)))
            if found:
                self._pushes += 1
                first = found[-1].position + 1
                yield found
            else:
                await self.log.wait_change()

    async def read(self, first: Position, end: Position) -> tuple[Entry, ...]:
        self._reads += 1
        await self._asked()
        return tuple(self.log.slice(first, end))

    async def store_origin(self, origin: Origin) -> bool:
        await self._asked()
        if origin.position <= self._begun().position:
            return False
        self.log.truncate(origin)
        return True

    async def show_pulse(self, group: GroupId) -> None:
        await self._asked()
        if self.log.pulses.setdefault(group, self) is not self:
            raise NodeExistsError(f"pulse/{group}: another session has it", Code.NODE_EXISTS)

    async def is_alive(self, group: GroupId) -> bool:
        self._reads += 1
        await self._asked()
        return group in self.log.pulses

    async def silences(self) -> Mapping[GroupId, Silence]:
        self._reads += 1
        await self._asked()
        return dict.fromkeys(self.log.pulses, Silence(0.0, 1.0))

    async def watch_pulse(self, group: GroupId, gone: Callable[[], None]) -> Callable[[], None]:
        self._watched += 1
        await self._asked()

        async def watch() -> None:
            await self._connected()
            while group in self.log.pulses:
                await self.log.wait_change()
                await self._connected()
            gone()

        task = asyncio.get_running_loop().create_task(watch(), name=f"watch of {group}")
        self._watches.add(task)
        task.add_done_callback(self._watch_ended)

        def stop() -> None:
            task.cancel()

        return stop

    def _watch_ended(self, task: asyncio.Task[None]) -> None:
        self._watches.discard(task)
        if not task.cancelled() and task.exception() is not None and self.ended is None:
            raise AssertionError(f"{task.get_name()} failed") from task.exception()

    async def set_will(self, record: Record | None) -> None:
        await self._asked()
        self.will = record

    async def put_job(self, job: JobId, parts: bytes) -> None:
        await self._asked()
        if self.log.jobs.setdefault(job, parts) != parts:
            raise EntryError(
                f"jobs/{job}: another job is stored there; submit this one under an id of its own"
            )

    async def job(self, job: JobId) -> bytes:
        self._reads += 1
        await self._asked()
        found = self.log.jobs.get(job)
        if found is None:
            raise NoNodeError(f"jobs/{job}: there is no such job", Code.NO_NODE)
        return found

    async def forget_job(self, job: JobId) -> None:
        await self._asked()
        self.log.jobs.pop(job, None)

    async def put_state(self, path: str, data: bytes) -> None:
        await self._asked()
        self.log.states[path] = data

    async def state(self, path: str) -> bytes | None:
        self._reads += 1
        await self._asked()
        return self.log.states.get(path)

    async def states(self, path: str) -> tuple[str, ...]:
        self._reads += 1
        await self._asked()
        above = f"{path}/" if path else ""
        below = {name[len(above) :].partition("/")[0] for name in self.log.states if name.startswith(above)}
        return tuple(sorted(below))

    async def remove_state(self, path: str) -> None:
        await self._asked()
        for name in [name for name in self.log.states if name == path or name.startswith(f"{path}/")]:
            del self.log.states[name]

    def statistics(self) -> LogStatistics:
        return LogStatistics(self._appends, self._reads, self._pushes, self._watched)

    async def close(self) -> None:
        self.log.end_session(self, ClosedError("the port was closed"))
        self._held = False
        for task in tuple(self._watches):
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def _begun(self) -> Origin:
        found = self.log.newest_origin
        if found is None:
            raise NoNodeError("origin: the log was not begun", Code.NO_NODE)
        assert found.position >= BEFORE_ALL
        return found

    async def _asked(self) -> None:
        """A request travels: others may come first."""
        await asyncio.sleep(self.log.delay_s)
        await self._connected()

    async def _connected(self) -> None:
        while self._held:
            await self.log.wait_change()
        if self.ended is not None:
            raise self.ended
