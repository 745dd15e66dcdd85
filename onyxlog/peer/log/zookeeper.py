"""The log over ZooKeeper's protocol, by kazoo: the same znodes, for services other than zraft, and beside native peers.

What it lacks, and what it does instead:

- No wills: `set_will` raises UnsupportedError; such a group joins by the ring.
- No truncation with the origin in one step: the origin is written first, then entries are removed from the lowest on.
  A crash in between leaves entries that the next truncation removes.
- No numbered writes: appends go in a transaction with a znode of the session's own, whose version tells after a lost
  connection whether they happened.
- No tail: a watch on the next entry's znode, and a look every 15 s in case that a wake-up was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError
from kazoo.security import ACL, Id

from onyxlog.access import NOBODY, OPEN_TO_ALL, Access, Acl
from onyxlog.errors import UnsupportedError
from onyxlog.ids import GroupId, Position
from onyxlog.peer.log.kazoo_session import RETRY_MAX_DELAY_S, KazooSession, translated
from onyxlog.peer.log.layout import LogLayout
from onyxlog.peer.log.parts import PART_BYTES, Head, decode_head, encode_head
from onyxlog.peer.log.port import LogBounds, OpenPort
from onyxlog.peer.log.stored import LogCounters, StoredLog, not_begun
from onyxlog.replica.commands import Entry, Record
from zraft_client.errors import (
    BadVersionError,
    ClientError,
    EncodingError,
    NoNodeError,
    UnknownOutcomeError,
)
from zraft_client.values import Stat, Znode
from zraft_core.errors import Code
from zraft_core.fleets import TOP

POLL_S: Final = 15.0
RETRY_S: Final = 0.2
PAGE_ENTRIES: Final = 256
"""The number of reads that are under way at a time."""
RECORD_BYTES_MAX: Final = 1_000_000
"""ZooKeeper closes the connection on a record that is longer than its jute.maxbuffer; it would be sent again for ever.
"""


class ZookeeperLog(StoredLog):
    """A `LogPort`. It owns `session`, which must be connected."""

    def __init__(
        self, session: KazooSession, tenancy: str, *, poll_s: float = POLL_S, part_bytes: int = PART_BYTES
    ) -> None:
        counters = LogCounters()
        super().__init__(LogLayout(tenancy), KazooZnodes(session, counters), counters, part_bytes)
        self._session = session
        self._poll_s = poll_s
        self._written: int | None = None
        """The version of this session's writer znode."""
        self._watches: set[asyncio.Task[None]] = set()

    # -- appending

    async def _send(self, records: Sequence[bytes]) -> list[Position]:
        for data in records:
            if len(data) > RECORD_BYTES_MAX:
                raise EncodingError(f"a record of {len(data)} bytes, expected {RECORD_BYTES_MAX} at most")
        writer = self.layout.writer(self._session.id)
        if self._written is None:
            self._written = await self._begin_writer(writer)
        while True:
            try:
                return await self._commit(writer, records, self._written)
            except (BadVersionError, UnknownOutcomeError):
                # A copy of it may have been carried out, or may yet be: then the next one is refused.
                stat = await self._fresh_stat(writer)
                if stat.version != self._written:
                    self._written = stat.version
                    return await self._positions(stat.mzxid, len(records))

    async def _begin_writer(self, writer: str) -> int:
        await self._make_ephemeral(writer)
        return (await self._fresh_stat(writer)).version

    async def _make_ephemeral(self, path: str) -> None:
        try:
            await self._znodes.create(path, b"", ephemeral=True)
        except NoNodeError:
            raise not_begun(self.layout) from None
        except ClientError:
            if not await self._owns(path):
                raise

    async def _fresh_stat(self, path: str) -> Stat:
        stat = await self._znodes.exists(path)
        if stat is None:
            raise NoNodeError(f"{path}: removed by somebody else; open another port", Code.NO_NODE)
        return stat

    async def _commit(self, writer: str, records: Sequence[bytes], version: int) -> list[Position]:
        def begin() -> Any:
            transaction = self._session.client.transaction()
            for data in records:
                transaction.create(self.layout.entry_stem, data, sequence=True)
            transaction.set_data(writer, b"", version)
            return transaction.commit_async()

        results = await self._session.once(begin)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                raise translated(result)
        assert self._written == version
        self._written = version + 1
        return [self.layout.position(path) for path in results[: len(records)]]

    async def _positions(self, zxid: int, count: int) -> list[Position]:
        """Find where the transaction of this zxid put its entries, from the end of the log backwards."""
        end = await self._end()
        while end > 0:
            first = max(0, end - PAGE_ENTRIES)
            stats = await asyncio.gather(
                *(self._znodes.exists(self.layout.entry(number)) for number in range(first, end))
            )
            numbered = list(zip(range(first, end), stats, strict=True))
            for number, stat in reversed(numbered):
                if stat is not None and stat.czxid == zxid:
                    return list(range(number - count + 1, number + 1))
            if any(stat is None or stat.czxid < zxid for stat in stats):
                break
            end = first
        raise UnknownOutcomeError(
            f"{count} records were appended while the connection was lost, and are truncated already",
            settled=True,
        )

    # -- reading

    async def _end(self) -> Position:
        """Return the number that the next entry gets: how often a child of the directory was created.

        ZooKeeper counts that, and shows it as twice the number less the existing children.
        """
        self._counters.reads += 1
        stat = await self._session.read(lambda: self._session.client.exists_async(self.layout.log))
        if stat is None:
            raise not_begun(self.layout)
        end: int = (stat.cversion + stat.numChildren) // 2
        return end

    async def _entries(self, first: Position, end: Position) -> tuple[Entry, ...]:
        self._counters.reads += end - first
        client, layout = self._session.client, self.layout

        async def data(position: Position) -> bytes | None:
            try:
                found = await self._session.read(lambda: client.get_async(layout.entry(position)))
            except NoNodeError:
                return None
            return bytes(found[0])

        rows = zip(
            range(first, end),
            await asyncio.gather(*(data(position) for position in range(first, end))),
            strict=True,
        )
        return await self._entries_of(
            ((position, found) for position, found in rows if found is not None), first, end
        )

    async def tail(self, first: Position) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield the entries from `first` on, and watch for the next one."""
        while True:
            end = await self._end()
            if first < end:
                entries = await self._entries(first, min(end, first + PAGE_ENTRIES))
                first += len(entries)
                yield entries
            else:
                await self._wait_entry(first)

    async def _wait_entry(self, position: Position) -> None:
        """Wait until the entry may exist."""
        created = asyncio.Event()
        await self._watched(self.layout.entry(position), created, until_there=True)

    async def _watched(self, path: str, changed: asyncio.Event, *, until_there: bool) -> None:
        """Wait until the znode exists, or is gone.

        kazoo keeps a set of functions to call, so all looks pass the same one.
        """
        session = self._session

        def told(_: object) -> None:
            session.soon(changed.set)

        while True:
            self._counters.watches += 1
            stat = await session.read(lambda: session.client.exists_async(path, watch=told))
            if (stat is not None) == until_there:
                return
            await session.wait(changed, self._poll_s)
            changed.clear()

    async def read(self, first: Position, end: Position) -> tuple[Entry, ...]:
        """Return the entries from `first` up to `end`, without it."""
        await self._znodes_of_kazoo.sync(self.layout.log)
        end = min(end, await self._end())
        found: list[Entry] = []
        while first < end:
            entries = await self._entries(first, min(end, first + PAGE_ENTRIES))
            found += entries
            first += len(entries)
        return tuple(found)

    async def bounds(self) -> LogBounds:
        """Return the positions at which the log begins and ends."""
        await self._znodes_of_kazoo.sync(self.layout.log)
        return LogBounds(await self._first(), await self._end())

    @property
    def _znodes_of_kazoo(self) -> KazooZnodes:
        assert isinstance(self._znodes, KazooZnodes)
        return self._znodes

    # -- truncating

    async def _switch_origin(self, position: Position, head: Head) -> bool:
        path = self.layout.origin
        while True:
            znode = await self._znodes.read(path)
            if znode is None:
                raise not_begun(self.layout)
            newest = decode_head(znode.data, path)
            if newest.order >= head.order:
                return False
            try:
                await self._znodes.set(path, encode_head(head), znode.stat.version)
            except BadVersionError:
                continue  # another origin, or an earlier copy of this write: the order tells
            await self._remove_entries(newest.order, position + 1)
            return True

    async def _remove_entries(self, first: Position, end: Position) -> None:
        for start in range(first, end, PAGE_ENTRIES):
            await self._remove(self.layout.entry(n) for n in range(start, min(end, start + PAGE_ENTRIES)))
        stat = await self._znodes.exists(self.layout.log)
        assert stat is not None
        if stat.num_children > (stat.cversion + stat.num_children) // 2 - end:
            # Remove the rest of an unfinished truncation.
            names = [n for n in await self._znodes.children(self.layout.log) if self.layout.position(n) < end]
            for start in range(0, len(names), PAGE_ENTRIES):
                await self._remove(f"{self.layout.log}/{n}" for n in names[start : start + PAGE_ENTRIES])

    async def _remove(self, paths: Any) -> None:
        async def remove(path: str) -> None:
            try:
                await self._znodes.remove(path)
            except NoNodeError:
                pass

        await asyncio.gather(*(remove(path) for path in paths))

    # -- pulses

    async def _owns(self, path: str) -> bool:
        stat = await self._znodes.exists(path)
        return stat is not None and stat.ephemeral_owner == self._session.id

    async def watch_pulse(self, group: GroupId, gone: Callable[[], None]) -> Callable[[], None]:
        """Call `gone` once when a group's pulse is gone, and return a function that ends the watch."""
        self._session.check()
        path = self.layout.pulse(group)
        await self._znodes_of_kazoo.sync(path)

        async def watch() -> None:
            while True:
                try:
                    await self._watched(path, asyncio.Event(), until_there=False)
                    break
                except ClientError as error:
                    if not getattr(error, "retriable", False):
                        return  # the port is closed, or its session is over
                    await asyncio.sleep(RETRY_S)
            gone()

        task = asyncio.get_running_loop().create_task(watch(), name=f"watch of {path}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

        def stop() -> None:
            task.cancel()

        return stop

    async def set_will(self, record: Record | None) -> None:
        """Accept None, which takes back nothing.

        Raises:
            UnsupportedError: a record is given, and ZooKeeper has no wills.
        """
        if record is not None:
            raise UnsupportedError(
                "a will needs zraft's own protocol; over ZooKeeper's, groups join by the ring (parameters.join)"
            )

    async def close(self) -> None:
        """End the session, and with it the group's pulse."""
        watches = list(self._watches)
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await self._appender.close()
        await self._session.close()


class KazooZnodes:
    """`Znodes` by kazoo. A read that decides something follows a `sync`, as a server may be behind otherwise."""

    def __init__(self, session: KazooSession, counters: LogCounters) -> None:
        self._session = session
        self._client = session.client
        self._counters = counters

    async def sync(self, path: str) -> None:
        """Let the connected server catch up with the leader."""
        self._counters.reads += 1
        await self._session.read(lambda: self._client.sync_async(path))

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Create a znode, open to the program's ids alone."""
        # Other tenancies, with other ids, stand below the top.
        acl = _kazoo_acl(OPEN_TO_ALL) if path == TOP else None
        await self._session.write(lambda: self._client.create_async(path, data, acl, ephemeral=ephemeral))

    async def read(self, path: str) -> Znode | None:
        """Return the znode after a sync, or None if it does not exist."""
        await self.sync(path)
        self._counters.reads += 1
        try:
            data, stat = await self._session.read(lambda: self._client.get_async(path))
        except NoNodeError:
            return None
        return Znode(data, Stat(*stat))

    async def exists(self, path: str) -> Stat | None:
        """Return the znode's stat after a sync, or None if it does not exist."""
        await self.sync(path)
        self._counters.reads += 1
        stat = await self._session.read(lambda: self._client.exists_async(path))
        return None if stat is None else Stat(*stat)

    async def set(self, path: str, data: bytes, version: int) -> None:
        """Set the data of the znode if it has this version."""
        await self._session.write(lambda: self._client.set_async(path, data, version))

    async def remove(self, path: str) -> None:
        """Remove the znode."""
        await self._session.write(lambda: self._client.delete_async(path))

    async def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children after a sync, none if the znode does not exist."""
        await self.sync(path)
        self._counters.reads += 1
        try:
            return tuple(sorted(await self._session.read(lambda: self._client.get_children_async(path))))
        except NoNodeError:
            return ()


def _kazoo_acl(acl: Acl) -> list[ACL]:
    return [ACL(rights, Id(scheme, id)) for rights, scheme, id in acl]


def zookeeper_ports(
    hosts: str,
    tenancy: str,
    *,
    session_timeout_s: float = 10.0,
    timeout_s: float = 30.0,
    poll_s: float = POLL_S,
    access: Access = NOBODY,
) -> OpenPort:
    """Return what opens ports to any service that speaks ZooKeeper's protocol."""
    options = access.kazoo_options()
    if access.acl is not None:
        options["default_acl"] = _kazoo_acl(access.acl)
    layout = LogLayout(tenancy)  # a wrong name is told before there is a connection

    async def opened() -> ZookeeperLog:
        retry = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": RETRY_MAX_DELAY_S}
        client = KazooClient(hosts=hosts, timeout=session_timeout_s, connection_retry=retry, **options)
        session = KazooSession(client, timeout_s)
        try:
            await session.connect()
        except BaseException:
            await session.close()
            raise
        return ZookeeperLog(session, layout.tenancy, poll_s=poll_s)

    return opened
