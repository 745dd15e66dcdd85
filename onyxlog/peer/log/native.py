"""The log over zraft's own protocol: tail subscription, exactly-once appends, truncation in one step, wills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from onyxlog.access import NOBODY, Access, Acl
from onyxlog.ids import GroupId, Position
from onyxlog.peer.log.entries import overtaken
from onyxlog.peer.log.layout import LogLayout
from onyxlog.peer.log.parts import PART_BYTES, Head, encode_head
from onyxlog.peer.log.port import LogBounds, OpenPort, Silence
from onyxlog.peer.log.stored import LogCounters, StoredLog
from onyxlog.replica.codec import encode_record
from onyxlog.replica.commands import Entry, Record
from zraft_client import requests
from zraft_client.client import Client, Hosts
from zraft_client.errors import (
    BadArgumentsError,
    ClientError,
    ClosedError,
    DeadlineError,
    FailedError,
    NoNodeError,
    SessionExpiredError,
)
from zraft_client.subscriptions import RESUBSCRIBED, Subscription
from zraft_client.values import ConnectionState, Created, LogEntry, Owners, Stat, Znode
from zraft_core.address import parse_address
from zraft_core.errors import Code, ConfigError
from zraft_core.fleets import ENTRY_PREFIX, TOP

__all__ = ["native_ports"]

S = TypeVar("S", bound=Subscription[Any])

SESSION_TIMEOUT_S: Final = 10.0
PAGE_ENTRIES: Final = 1_000
RETRY_S: Final = 0.2
LEADER_TIMEOUT_S: Final = 2.0
"""The time to ask the leader itself, whose address may not be reachable from here."""
_NOT_TOLD: Final = (Code.NO_NODE, Code.BAD_ARGUMENTS, Code.MARSHALLING_ERROR)
"""There are no pulses, or more than a server looks at for this, or its release does not know the request."""


class NativeLog(StoredLog):
    """A `LogPort`. It owns `client`, which must have been made with `renew_session=False` and be connected."""

    def __init__(
        self, client: Client, tenancy: str, *, part_bytes: int = PART_BYTES, acl: Acl | None = None
    ) -> None:
        counters = LogCounters()
        super().__init__(LogLayout(tenancy), NativeZnodes(client, counters, acl), counters, part_bytes)
        self._client = client
        self._acl = acl
        self._subscriptions: set[Subscription[Any]] = set()
        self._watches: set[asyncio.Task[None]] = set()
        self._unlisten = client.add_listener(self._entered)

    def _entered(self, state: ConnectionState) -> None:
        if state is ConnectionState.EXPIRED:
            # The client would wait for a new session; for the owner of this one it is over.
            for subscription in self._subscriptions:
                subscription.refused(_expired())

    @contextmanager
    def _kept(self, subscription: S) -> Iterator[S]:
        """Keep something while it is used, so that it is told of the session's end."""
        self._subscriptions.add(subscription)
        try:
            if self._client.state is ConnectionState.EXPIRED:
                raise _expired()
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()

    # -- entries

    async def _send(self, records: Sequence[bytes]) -> list[Position]:
        stem, position = self.layout.entry_stem, self.layout.position
        if len(records) == 1:
            return [
                position((await self._client.create(stem, records[0], sequential=True, acl=self._acl)).path)
            ]
        made = await self._client.multi(
            [requests.create(stem, data, sequential=True, acl=self._acl) for data in records]
        )
        return [position(one.path) for one in made if isinstance(one, Created)]

    async def tail(self, first: Position) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield the entries from `first` on, as the server pushes them.

        Raises:
            OvertakenError: the log begins behind `first` by now.
            ClosedError: the port was closed.
        """
        self._counters.watches += 1
        with self._kept(self._client.subscribe_log(self.layout.log, ENTRY_PREFIX, first)) as subscription:
            async for push in subscription:
                self._counters.pushes += 1
                if push.first > first:
                    raise overtaken(self.layout, first, push.first)
                entries = await self._entries_of(_rows(push.entries), first, push.next)
                first = push.next
                if entries:
                    yield entries
            raise ClosedError("the port was closed")

    async def read(self, first: Position, end: Position) -> tuple[Entry, ...]:
        """Return the entries from `first` up to `end`, without it.

        Raises:
            OvertakenError: the log begins behind `first` by now.
        """
        found: list[Entry] = []
        while first < end:
            self._counters.reads += 1
            page = await self._client.log(
                self.layout.log, ENTRY_PREFIX, first, limit=min(end - first, PAGE_ENTRIES)
            )
            if page.first > first:
                raise overtaken(self.layout, first, page.first)
            found += await self._entries_of(_rows(page.entries), first, page.next)
            first = page.next
            if first >= page.end:
                break
        return tuple(found)

    async def bounds(self) -> LogBounds:
        """Return the positions at which the log begins and ends."""
        self._counters.reads += 1
        page = await self._client.log(self.layout.log, ENTRY_PREFIX, 0, limit=1, bytes_max=1)
        return LogBounds(max(page.first, await self._first()), page.end)

    async def _switch_origin(self, position: Position, head: Head) -> bool:
        try:
            await self._client.truncate(
                self.layout.log,
                position + 1,
                origin_path=self.layout.origin,
                origin_data=encode_head(head),
            )
        except BadArgumentsError:
            newest = await self._large.head(self.layout.origin)
            if newest is not None and newest.order > position:
                return False  # the log begins behind it already
            raise
        return True

    # -- pulses and the will

    async def _owns(self, path: str) -> bool:
        stat = await self._znodes.exists(path)
        session = self._client.session
        return stat is not None and session is not None and stat.ephemeral_owner == session.id

    async def silences(self) -> Mapping[GroupId, Silence]:
        """Return how long the service has not heard of each group, if the server can tell."""
        path = self.layout.pulses
        self._counters.reads += 1
        try:
            found = await self._client.ask(requests.owners(path))
        except FailedError as error:
            if error.code in _NOT_TOLD:
                return {}
            raise
        if not found.leads:
            found = await self._told_by_leader(path) or found
        return {name: Silence(one.silent_s, one.timeout_s) for name, one in found.by_name.items()}

    async def _told_by_leader(self, path: str) -> Owners | None:
        """Return what the leader says; None if there is no leader, or none that can be reached from here."""
        leader = next((member for member in await self._client.members() if member.leader), None)
        if leader is None:
            return None
        try:
            asked = self._client.sibling(parse_address(leader.address, "members"))
        except ConfigError:
            return None  # its address is not known yet
        try:
            await asked.connect(LEADER_TIMEOUT_S)
            return await asked.ask_within(requests.owners(path), LEADER_TIMEOUT_S)
        except ClientError:
            return None
        finally:
            await asked.close()

    async def watch_pulse(self, group: GroupId, gone: Callable[[], None]) -> Callable[[], None]:
        """Call `gone` once when a group's pulse is gone, and return a function that ends the watch.

        Raises:
            DeadlineError: the server did not accept the watch in time.
        """
        path = self.layout.pulse(group)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(
            self._watch(path, gone, started), name=f"watch of {path}"
        )
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        try:
            async with asyncio.timeout(self._client.timeout_s):
                await started
        except BaseException as error:
            task.cancel()
            if isinstance(error, TimeoutError):
                raise DeadlineError(f"no server took the watch of {path} in time") from None
            raise

        def stop() -> None:
            task.cancel()

        return stop

    async def _watch(self, path: str, gone: Callable[[], None], started: asyncio.Future[None]) -> None:
        self._counters.watches += 1
        try:
            with self._kept(self._client.subscribe_path(path)) as subscription:
                await subscription.started()
                started.set_result(None)
                absent = await self._is_absent(path)
                while not absent:
                    event = await anext(subscription)
                    absent = event.kind == "deleted" or (
                        event.kind == RESUBSCRIBED and await self._is_absent(path)
                    )
        except (StopAsyncIteration, ClientError) as error:
            # The port is closed, or its session is over.
            if not started.done():
                started.set_exception(
                    error if isinstance(error, ClientError) else ClosedError("the port was closed")
                )
            return
        gone()

    async def _is_absent(self, path: str) -> bool:
        """Ask whether a znode is absent until there is an answer: a watch outlives any time without servers."""
        while True:
            try:
                return await self._znodes.exists(path) is None
            except ClientError as error:
                if not getattr(error, "retriable", False):
                    raise
                await asyncio.sleep(RETRY_S)

    async def set_will(self, record: Record | None) -> None:
        """Let the service append the record when this session ends; None takes it back."""
        if record is None:
            await self._client.will(None)
        else:
            await self._client.will(self.layout.log, ENTRY_PREFIX, encode_record(record))

    async def close(self) -> None:
        """End the session, and with it the group's pulse."""
        self._unlisten()
        watches = list(self._watches)
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await self._appender.close()
        await self._client.close()


class NativeZnodes:
    """`Znodes` by the client; every write happens exactly once."""

    def __init__(self, client: Client, counters: LogCounters, acl: Acl | None = None) -> None:
        self._client = client
        self._counters = counters
        self._acl = acl

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Create a znode, open to the program's ids alone."""
        # Other tenancies, with other ids, stand below the top.
        await self._client.create(path, data, ephemeral=ephemeral, acl=None if path == TOP else self._acl)

    async def read(self, path: str) -> Znode | None:
        """Return the znode, or None if it does not exist."""
        self._counters.reads += 1
        try:
            return await self._client.read(path)
        except NoNodeError:
            return None

    async def exists(self, path: str) -> Stat | None:
        """Return the znode's stat, or None if it does not exist."""
        self._counters.reads += 1
        return await self._client.exists(path)

    async def set(self, path: str, data: bytes, version: int) -> None:
        """Set the data of the znode if it has this version."""
        await self._client.set(path, data, version=version)

    async def remove(self, path: str) -> None:
        """Remove the znode."""
        await self._client.remove(path)

    async def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children, none if the znode does not exist."""
        self._counters.reads += 1
        try:
            return (await self._client.children(path)).names
        except NoNodeError:
            return ()


def _rows(entries: Iterable[LogEntry]) -> Iterator[tuple[Position, bytes]]:
    return ((entry.position, entry.data) for entry in entries)


def _expired() -> SessionExpiredError:
    return SessionExpiredError("the session expired: open another port", Code.SESSION_EXPIRED)


def native_ports(
    hosts: Hosts,
    tenancy: str,
    *,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    timeout_s: float = 30.0,
    access: Access = NOBODY,
) -> OpenPort:
    """Return what opens ports to a cluster; times are those of `zraft_client.Client`. An open port is connected.

    Raises:
        ConfigError: the tenancy's name, or a file that `access` names, cannot be used.
    """
    tls = access.context()
    layout = LogLayout(tenancy)  # a wrong name is reported before there is a connection

    async def opened() -> NativeLog:
        client = Client(
            hosts,
            session_timeout_s=session_timeout_s,
            timeout_s=timeout_s,
            renew_session=False,
            auth=access.auth,
            tls=tls,
        )
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
        return NativeLog(client, layout.tenancy, acl=access.acl)

    return opened
