"""Gossip as a group's source of entries: the core (`onyxlog.gossip`) over datagrams and the group's own log port.

The core decides. This module sends and receives for it, reads the log when it asks, and wakes it when it is
due. Addresses of groups stand in names of znodes, `state/gossip/GROUP@HOST:PORT`: one read shows all of them.
A group that joins tells everybody by a heartbeat, whose sender's address is learned.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from onyxlog.errors import EntryError, OnyxlogError, OvertakenError
from onyxlog.gossip.buffer import TRUSTED, Ready
from onyxlog.gossip.codec import DatagramError, decode, encode, tenancy_tag
from onyxlog.gossip.messages import Carrier, Send
from onyxlog.gossip.messenger import Messenger
from onyxlog.gossip.modes import spreading_for
from onyxlog.gossip.outputs import BeginAgain, GossipCounters, LookAtEnd, Output, ReadLog, Tail
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.streams import Streams, View, view_of
from onyxlog.ids import GroupId, Position
from onyxlog.peer.entry_source import EntrySource, MakeSource
from onyxlog.peer.gossip.link import Link, OpenLink
from onyxlog.peer.gossip.seal import SALT_BYTES, Sealer
from onyxlog.peer.log.port import LogPort
from onyxlog.peer.recording import Recorder, Recordings
from onyxlog.replica.codec import decode_record, encode_record
from onyxlog.replica.commands import Entry
from onyxlog.replica.pool import STREAMS_MIN
from onyxlog.replica.replica import Replica
from zraft.transport.keys import ClusterKey
from zraft_client.errors import ClosedError, SessionExpiredError
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError, ZraftError

DIRECTORY: Final = "gossip"
LOOK_AGAIN_S: Final = 5.0
"""Seconds between looks for addresses that are not known; a group whose own datagrams arrive needs none."""
TAIL_AGAIN_S: Final = 1.0

log = structlog.get_logger()


class DivergedError(OnyxlogError):
    """Error of a group whose replica differs from the others'.

    The group begins again, from the origin and under a new id.
    """


class GossipSource:
    """The source of one incarnation of a group; it belongs to its event loop. `gossip_sources` makes it."""

    def __init__(
        self,
        port: LogPort,
        group: GroupId,
        sealer: Sealer,
        settings: GossipSettings,
        tenancy: str,
        dice: random.Random,
        recorder: Recorder | None = None,
    ) -> None:
        self._port = port
        self._recorder = recorder
        self._group = group
        self._sealer = sealer
        self._settings = settings
        self._tag = tenancy_tag(tenancy)
        self._random = dice
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._addresses: dict[GroupId, Address] = {}
        self._looked_at = float("-inf")
        self._messenger: Messenger | None = None
        self._replica: Replica | None = None
        self._view = View(Streams(STREAMS_MIN, {}))
        self._early: list[Entry] = []
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._tail: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._name = ""
        self.refused = 0
        """The number of datagrams that were not of this tenancy's groups, or came twice."""

    @property
    def counters(self) -> GossipCounters:
        """Counts of messages and entries so far."""
        return GossipCounters() if self._messenger is None else self._messenger.counters

    async def begin(self, open_link: OpenLink) -> None:
        """Listen, and publish the address, before the group joins. Nothing stays open if that fails."""
        self._link = await open_link(self._datagram)
        try:
            self._name = f"{DIRECTORY}/{self._group}@{self._link.address}"
            await self._port.put_state(self._name, b"")
            await self._look()
        except BaseException:
            self._link.close()
            raise

    # -- the group's side

    def entries(self, first: Position, chain: bytes) -> AsyncIterator[tuple[Entry, ...]]:
        """Begin to gossip, and return the entries from `first` on."""
        if self._messenger is None:
            self._messenger = Messenger(
                self._group,
                self._settings,
                spreading_for(self._group, self._settings, self._view, self._random, self._now()),
                self._random,
                applied=first - 1,
                chain=chain,
                view=self._view,
                now=self._now(),
            )
            if self._recorder is not None:
                self._messenger.on_arrived = self._recorder.received
            early, self._early = self._early, []
            for entry in early:
                self.appended(entry)
        else:
            self._failure = None
            self._messenger.begin(first - 1, chain, self._view, self._now())
            self._tail_from_here()
        return self._entries(self._messenger)

    async def _entries(self, messenger: Messenger) -> AsyncIterator[tuple[Entry, ...]]:
        while True:
            if self._failure is not None:
                raise self._failure
            ready = messenger.ready(self._now())
            self._pump()
            entry = None if ready is None else self._read(messenger, ready)
            if entry is None:
                self._news.clear()
                await self._news.wait()
            else:
                # One at a time: the chain after it decides whether the next one may follow.
                yield (entry,)

    def _read(self, messenger: Messenger, ready: Ready) -> Entry | None:
        where = f"entry {ready.event.position} of {ready.source.value}"
        try:
            entry = Entry(ready.event.position, decode_record(ready.event.payload, where))
            if self._recorder is not None:
                self._recorder.brought(entry.position, ready.source.value)
            return entry
        except EntryError as error:
            if ready.source in TRUSTED:
                raise
            log.warning("gossiped entry cannot be read", error=str(error), publisher=ready.event.publisher)
            messenger.refuse()
            self._pump()
            return None

    def appended(self, entry: Entry) -> None:
        """Spread an entry that this group has written."""
        if self._messenger is None:
            self._early.append(entry)
            return
        self._messenger.wrote(entry.position, encode_record(entry.record), self._now())
        self._changed()

    def applied(self, replica: Replica, chain: bytes) -> None:
        """Tell the messenger how far the group has applied, and who belongs to the pool now."""
        before = self._replica
        view = self._see(replica)
        messenger = self._messenger
        if messenger is None or replica.version != messenger.position + 1:
            return  # nothing was played: the group is over, or has not asked for entries yet
        messenger.applied(chain, view, self._now())
        if self._group in replica.groups and (before is None or self._group not in before.groups):
            messenger.greet(self._now())
        self._changed()

    def jumped(self, replica: Replica) -> None:
        """Learn who belongs to the pool now. The messenger hears of the origin when `entries` is called again.

        The origin may be just one entry ahead, which then was not played either.
        """
        self._see(replica)

    def _see(self, replica: Replica) -> View | None:
        """Keep the replica, and return its pool; None if that is the same as before."""
        before, self._replica = self._replica, replica
        if before is not None and replica.arcs is before.arcs and replica.streams == before.streams:
            return None
        self._view = view_of(replica.streams, replica.arcs, None if before is None else self._view)
        return self._view

    async def close(self) -> None:
        """Stop gossiping, and close the link."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._link is not None:
            self._link.close()
            with suppress(ZraftError, OSError, TimeoutError):
                await self._port.remove_state(self._name)

    # -- the network's side

    def _datagram(self, datagram: bytes, source: Address) -> None:
        try:
            sender, body = self._sealer.open(datagram)
            message = decode(body, self._tag)
        except DatagramError as error:
            self.refused += 1
            log.debug("datagram refused", source=str(source), error=str(error))
            return
        if sender == self._group:
            return
        self._addresses[sender] = source
        if self._messenger is not None:
            self._messenger.counters.received_bytes += len(datagram)
            self._messenger.receive(sender, message, self._now())
            self._changed()

    def _transmit(self, send: Send) -> None:
        assert self._link is not None
        if self._recorder is not None and isinstance(send.message, Carrier):
            self._recorder.sent(send.message, len(send.to))
        unknown = False
        datagram = self._sealer.seal(encode(send.message, self._tag))
        for group in send.to:
            address = self._addresses.get(group)
            if address is None:
                unknown = True
            else:
                self._link.send(address, datagram)
                self.counters.sent_bytes += len(datagram)
        if unknown and self._loop.time() - self._looked_at > LOOK_AGAIN_S:
            self._looked_at = self._loop.time()
            self._spawn(self._look_again())

    async def _look_again(self) -> None:
        try:
            await self._look()
        except (SessionExpiredError, ClosedError):
            raise
        except ZraftError as error:
            log.info("addresses of groups cannot be read for now", error=str(error))

    async def _look(self) -> None:
        """Learn all addresses; forget those of groups that left without removing theirs."""
        self._looked_at = self._loop.time()
        left = () if self._replica is None else self._replica.left
        groups = () if self._replica is None else self._replica.groups
        for name in await self._port.states(DIRECTORY):
            group, _, text = name.rpartition("@")
            try:
                self._addresses.setdefault(group, parse_address(text, f"state/{DIRECTORY}/{name}"))
            except ConfigError as error:
                log.warning("address of a group cannot be read", error=str(error))
            if group in left:
                await self._port.remove_state(f"{DIRECTORY}/{name}")
        if groups:
            known = self._addresses.items()
            self._addresses = {group: address for group, address in known if group not in left}

    # -- the log's side

    async def _answer(self, read: ReadLog) -> None:
        assert self._messenger is not None
        try:
            entries = await self._port.read(read.first, read.end)
        except (OvertakenError, EntryError, SessionExpiredError, ClosedError) as error:
            self._failed(error)
        except ZraftError as error:
            log.info("log cannot be read for now", error=str(error), reason=read.reason.value)
            self._messenger.log_failed(self._now())
        else:
            self._recorded(read.reason.value, read.first, len(entries))
            self._messenger.log_answered(_payloads(entries), self._now())
        self._changed()

    async def _look_at_end(self) -> None:
        assert self._messenger is not None
        try:
            bounds = await self._port.bounds()
        except (EntryError, SessionExpiredError, ClosedError) as error:
            self._failed(error)
        except ZraftError as error:
            log.info("log's end cannot be seen for now", error=str(error))
            self._messenger.look_failed()
        else:
            self._recorded("look", bounds.end, 0)
            self._messenger.end_found(bounds.end, self._now())
        self._changed()

    async def _follow(self, first: Position) -> None:
        """Let the log push its entries, as a sentinel or until the group has joined."""
        assert self._messenger is not None
        while True:
            try:
                self._messenger.tailed((), self._now())
                async for batch in self._port.tail(first):
                    self._recorded("tail", batch[0].position, len(batch))
                    first = batch[-1].position + 1
                    self._messenger.tailed(_payloads(batch), self._now())
                    self._changed()
            except (OvertakenError, EntryError, SessionExpiredError, ClosedError) as error:
                self._failed(error)
                return
            except ZraftError as error:
                log.info("log cannot be followed for now", error=str(error))
            self._messenger.tail_lost(self._now())
            await asyncio.sleep(TAIL_AGAIN_S)

    def _recorded(self, reason: str, first: Position, count: int) -> None:
        if self._recorder is not None:
            self._recorder.log_read(reason, first, count)

    def _tail_from_here(self) -> None:
        if self._tail is not None:
            self._tail.cancel()
            self._tail = None
            self._do(Tail(True))

    # -- both

    def _now(self) -> int:
        return int(self._loop.time() * 1000)

    def _changed(self) -> None:
        self._pump()
        self._news.set()

    def _pump(self) -> None:
        """Do what the core asks for, and have it called when it is due."""
        messenger = self._messenger
        if messenger is None:
            return
        while outputs := messenger.outputs():
            for output in outputs:
                self._do(output)
        due = messenger.deadline() / 1000
        if self._timer is not None:
            # Nothing else tells: uvloop's handle does not say that its time is over.
            if self._due == due:
                return
            self._timer.cancel()
        self._timer, self._due = self._loop.call_at(due, self._tick), due

    def _tick(self) -> None:
        self._timer = None
        if self._messenger is not None:
            # A timer may ring a little early, by the clock's resolution; the core's clock is in whole ms.
            self._messenger.tick(max(self._now(), self._messenger.deadline()))
            self._changed()

    def _do(self, output: Output) -> None:
        match output:
            case Send():
                self._transmit(output)
            case ReadLog():
                self._spawn(self._answer(output))
            case LookAtEnd():
                self._spawn(self._look_at_end())
            case Tail(on):
                if self._tail is not None:
                    self._tail.cancel()
                    self._tail = None
                if on:
                    assert self._messenger is not None
                    self._tail = self._spawn(self._follow(self._messenger.position + 1))
            case BeginAgain(why):
                self._failed(DivergedError(f"group {self._group}: {why}"))

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._news.set()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, name="onyxlog gossip")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


def _payloads(entries: Sequence[Entry]) -> list[tuple[Position, bytes]]:
    return [(entry.position, encode_record(entry.record)) for entry in entries]


def gossip_sources(
    open_link: OpenLink,
    keys: Sequence[ClusterKey] | None,
    tenancy: str,
    settings: GossipSettings,
    *,
    recordings: Recordings | None = None,
    new_dice: Callable[[], random.Random] = random.Random,
    entropy: Callable[[int], bytes] = os.urandom,
) -> MakeSource:
    """Return the MakeSource of groups that gossip. All groups of a tenancy do, with the same keys and the same mode."""

    async def make(port: LogPort, group: GroupId) -> EntrySource:
        sealer = Sealer(keys, tenancy, group, entropy(SALT_BYTES))
        recorder = None if recordings is None else recordings.of(group)
        source = GossipSource(port, group, sealer, settings, tenancy, new_dice(), recorder)
        await source.begin(open_link)
        return source

    return make
