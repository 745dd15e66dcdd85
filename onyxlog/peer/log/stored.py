"""Base of the ports over servers: everything of a tenancy except the log itself, as plain znodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from attrs import define

from onyxlog.errors import EntryError
from onyxlog.ids import GroupId, JobId, Position
from onyxlog.peer.log.appender import Appender
from onyxlog.peer.log.entries import MissingEntryError, entries_of, overtaken
from onyxlog.peer.log.large_znodes import LargeZnodes, Znodes
from onyxlog.peer.log.layout import LogLayout, decode_parameters, encode_parameters
from onyxlog.peer.log.parts import PART_BYTES, Head, encode_head, head_of
from onyxlog.peer.log.port import LogStatistics, Origin, Silence, check_parameters, first_origin
from onyxlog.replica.codec import decode_origin, encode_origin, encode_record
from onyxlog.replica.commands import Entry, Record
from onyxlog.replica.replica import Parameters
from zraft_client.errors import NodeExistsError, NoNodeError
from zraft_core.errors import Code


@define
class LogCounters:
    """Counts of what was asked of the servers; see `LogStatistics`."""

    appends: int = 0
    reads: int = 0
    pushes: int = 0
    watches: int = 0


class StoredLog(ABC):
    """A `LogPort` without its ways to read, append, watch and truncate. `part_bytes`: how large a znode may be."""

    def __init__(
        self, layout: LogLayout, znodes: Znodes, counters: LogCounters, part_bytes: int = PART_BYTES
    ) -> None:
        self.layout = layout
        self._znodes = znodes
        self._large = LargeZnodes(znodes, part_bytes)
        self._counters = counters
        self._appender = Appender(self._send)
        self._part_bytes = part_bytes

    @abstractmethod
    async def _send(self, records: Sequence[bytes]) -> list[Position]:
        """Append these, all or none, exactly once."""

    @abstractmethod
    async def _switch_origin(self, position: Position, head: Head) -> bool:
        """Replace the origin's head and remove entries up to `position`; return False if there is a newer one."""

    @abstractmethod
    async def _owns(self, path: str) -> bool:
        """Return whether this session's ephemeral znode exists."""

    # -- the tenancy

    async def begin(self, parameters: Parameters) -> Origin:
        """Create the log if it does not exist, and return its origin.

        Raises:
            NoNodeError: something that belongs to the log was removed.
            ParametersError: the log was begun with other parameters.
        """
        layout = self.layout
        found = await self._znodes.read(layout.parameters)
        if found is None:
            for directory in layout.directories:
                await self._make(directory)
            # The first peer decides; the origin follows what is stored, not what this peer wanted.
            await self._make(layout.parameters, encode_parameters(parameters))
            found = await self._znodes.read(layout.parameters)
        if found is None:
            raise NoNodeError(f"{layout.parameters}: removed while it was read", Code.NO_NODE)
        check_parameters(decode_parameters(found.data, layout.parameters), parameters)
        first = first_origin(parameters)
        data = await self._large.read(layout.origin)
        if data is None:
            head = head_of(0, encode_origin(first.replica, first.chain), self._part_bytes)
            await self._make(layout.origin, encode_head(head))
            return await self.origin()
        return self._decoded(data)

    async def _make(self, path: str, data: bytes = b"") -> None:
        try:
            await self._znodes.create(path, data)
        except NodeExistsError:
            pass

    async def origin(self) -> Origin:
        """Return the origin.

        Raises:
            NoNodeError: the log was not begun.
        """
        data = await self._large.read(self.layout.origin)
        if data is None:
            raise not_begun(self.layout)
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Origin:
        replica, chain = decode_origin(data, self.layout.origin)
        return Origin(replica.version, replica, chain)

    async def _first(self) -> Position:
        """Return where the log begins, as the origin says."""
        head = await self._large.head(self.layout.origin)
        if head is None:
            raise not_begun(self.layout)
        return head.order

    async def store_origin(self, origin: Origin) -> bool:
        """Store an origin and truncate the log before it; return False if a later one is stored."""
        assert origin.position == origin.replica.version, f"{origin.position=} {origin.replica.version=}"
        path, order = self.layout.origin, origin.position + 1
        if await self._first() >= order:
            return False
        try:
            head = await self._large.prepare(path, order, encode_origin(origin.replica, origin.chain))
        except NoNodeError:
            return False  # the writer of a newer one removes these parts
        if not await self._switch_origin(origin.position, head):
            return False
        await self._large.clean(path, head)
        return True

    # -- entries

    async def append(self, record: Record) -> Position:
        """Append a record, and return its position."""
        self._counters.appends += 1
        return await self._appender.append(encode_record(record))

    async def _entries_of(
        self, rows: Iterable[tuple[Position, bytes]], first: Position, following: Position
    ) -> tuple[Entry, ...]:
        """Decode entries as `entries_of` does.

        One that is missing because of a truncation meanwhile is an OvertakenError. Truncating over
        ZooKeeper's protocol removes entries one by one, which readers on either kind of port may see half
        done.
        """
        try:
            return entries_of(self.layout, rows, first, following)
        except MissingEntryError as error:
            begins = await self._first()
            if begins > error.position:
                raise overtaken(self.layout, first, begins) from error
            raise

    # -- pulses

    async def show_pulse(self, group: GroupId) -> None:
        """Create the group's pulse, which ends with this session."""
        path = self.layout.pulse(group)
        try:
            await self._znodes.create(path, b"", ephemeral=True)
        except NodeExistsError:
            if not await self._owns(path):
                raise

    async def is_alive(self, group: GroupId) -> bool:
        """Return whether the group's pulse stands."""
        return await self._znodes.exists(self.layout.pulse(group)) is not None

    async def silences(self) -> Mapping[GroupId, Silence]:
        """Return nothing, since ZooKeeper cannot tell."""
        return {}  # ZooKeeper has no such request

    # -- jobs and state

    async def put_job(self, job: JobId, parts: bytes) -> None:
        """Store a job's description under its id.

        Raises:
            EntryError: another description is stored there.
        """
        path = self.layout.job(job)
        if not await self._large.write_once(path, parts):
            raise EntryError(f"{path}: another job is stored there; submit this one under an id of its own")

    async def job(self, job: JobId) -> bytes:
        """Return a job's description.

        Raises:
            NoNodeError: there is no such job.
        """
        path = self.layout.job(job)
        found = await self._large.read(path)
        if found is None:
            raise NoNodeError(f"{path}: there is no such job", Code.NO_NODE)
        return found

    async def forget_job(self, job: JobId) -> None:
        """Remove a job's description."""
        await self._large.remove(self.layout.job(job))

    async def put_state(self, path: str, data: bytes) -> None:
        """Store data under a path."""
        await self._large.write(self.layout.state(path), data)

    async def state(self, path: str) -> bytes | None:
        """Return the data that is stored under a path, or None."""
        return await self._large.read(self.layout.state(path))

    async def states(self, path: str) -> tuple[str, ...]:
        """Return the names below a path."""
        return await self._large.names(self.layout.state(path))

    async def remove_state(self, path: str) -> None:
        """Remove the data under a path, and all below it."""
        assert path, "all of a tenancy's state is removed by its names"
        await self._large.remove(self.layout.state(path))

    def statistics(self) -> LogStatistics:
        """Return counts of what was asked of the log."""
        counted = self._counters
        return LogStatistics(counted.appends, counted.reads, counted.pushes, counted.watches)


def not_begun(layout: LogLayout) -> NoNodeError:
    """Return the error for a log that was not begun."""
    return NoNodeError(f"{layout.root}: the log was not begun; begin it", Code.NO_NODE)
