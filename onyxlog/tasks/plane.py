"""The channels of one group: how workers are reached, what was opened too early, and what is over.

docs/explanation/onyxlog.md, "Channels", has the protocol. All of it belongs to one event loop. Workers within the group
are reached without bytes; all channels to another group share a connection that is dialed here and kept as
long as there are channels.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from onyxlog.ids import PeerId, Position, Site
from onyxlog.peer.task_runner import PlaneStatistics
from onyxlog.tasks.channels import WINDOW, Inlet, Outlet
from onyxlog.tasks.connection import accept, dial, ring_of
from onyxlog.tasks.items import (
    Batch,
    ChannelEnd,
    ChannelError,
    Close,
    Grant,
    Hello,
    Item,
    Message,
    Open,
    Purpose,
    Refuse,
    Sent,
    decode,
    encode,
    encode_sent,
)
from zraft.program.limited_log import LimitedLog
from zraft.program.listening import cannot_listen
from zraft.transport.keys import ClusterKey
from zraft.transport.packing import MESSAGE_BYTES_MAX
from zraft.transport.sealing import RejectedError
from zraft.transport.stream import Stream
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

BATCH_BYTES_MAX: Final = 256 * 1024
RETRY_S: Final = 0.05
RETRY_MAX_S: Final = 2.0
EARLY_MAX: Final = 8192
"""The number of opens that are kept for attempts that this group has not come to: of 90 workers from each of
90 others.
"""


class Endpoint(Protocol):
    """A worker, as its channels see it. Its methods are called within the event loop and must not block."""

    def on_open(self, inlet: Inlet) -> None:
        """Take a new channel that ends here; each comes once."""
        ...

    def on_arrival(self, inlet: Inlet) -> None:
        """Take note that there is one more item to take."""
        ...

    def on_credit(self) -> None:
        """Take note that a channel that begins here may carry more."""
        ...


class _Source(Protocol):
    """Source of an open, to which grants for it go."""

    def grant(self, channel: int, expected: int, limit: int) -> None: ...

    def refuse(self, channel: int, version: Position) -> None: ...

    def opened(self, channel: int, inlet: Inlet) -> None: ...


class ItemLink(Protocol):
    """Interface of what carries the items of an outlet."""

    def transmit(self, outlet: Outlet) -> None:
        """Send what the outlet has ready."""

    def remove(self, outlet: Outlet) -> None:
        """Close an outlet's channel."""


class Channel:
    """The sending end, for the worker at which the channel begins."""

    __slots__ = ("_link", "_plane", "encoded", "outlet")

    def __init__(self, outlet: Outlet, link: ItemLink, plane: DataPlane, *, encoded: bool) -> None:
        self.outlet = outlet
        self.encoded = encoded
        self._link = link
        self._plane = plane

    @property
    def has_credit(self) -> bool:
        """True if an item that is sent now need not wait."""
        return self.outlet.has_credit

    def send(self, item: Item) -> None:
        """Send an item, or keep it until there is credit. A worker that checks `has_credit` before keeps little.

        Raises:
            ChannelError: a segment cannot be encoded, or one alone is above `MESSAGE_BYTES_MAX`.
        """
        self._put(item)
        self._link.transmit(self.outlet)

    def close(self) -> None:
        """Close the channel; what was not sent is dropped."""
        self._link.remove(self.outlet)

    def _put(self, item: Item) -> None:
        outlet = self.outlet
        self._plane.items_sent += 1
        if not self.encoded:
            outlet.put(item)
            return
        frame = encode_sent(outlet.number, outlet.next_sequence, item)
        if len(frame) > BATCH_BYTES_MAX and isinstance(item, Batch) and len(item.segments) > 1:
            for half in _halves(item):
                self._put(half)
            return
        if len(frame) > MESSAGE_BYTES_MAX:
            raise ChannelError(
                f"a segment for {outlet.receiver.peer} takes {len(frame)} bytes; expected at most {MESSAGE_BYTES_MAX}: "
                f"send where the data lies instead"
            )
        self._plane.bytes_sent += len(frame)
        outlet.put(frame)


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.segments) // 2
    roots, values = batch.roots, batch.values
    if roots is None or values is None:
        return Batch(batch.segments[:middle]), Batch(batch.segments[middle:])
    return (
        Batch(batch.segments[:middle], roots[:middle], values[:middle]),
        Batch(batch.segments[middle:], roots[middle:], values[middle:]),
    )


class DataPlane:
    """All channels that begin or end in one group.

    Args:
        tenancy: connections of another are refused.
        keys: the cluster's; None: frames carry checksums only.
        window: how many items a sender may be ahead.
    """

    def __init__(
        self,
        tenancy: str,
        keys: Sequence[ClusterKey] | None = None,
        *,
        window: int = WINDOW,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.tenancy = tenancy
        self.ring = ring_of(keys)
        self.entropy = entropy
        self.items_sent = 0
        self.items_received = 0
        self.bytes_sent = 0
        self.reconnects = 0
        self.rejected = 0
        self.limited = LimitedLog(time.monotonic)
        """Limits log lines that strangers can cause any number of times."""
        self._sealed = keys is not None
        self._window = window
        self._site: Site | None = None
        self._listener: asyncio.Server | None = None
        self._accepted: set[_Accepted] = set()
        self._dialed: dict[Site, _Dialed] = {}
        self._local = _Local(self)
        self._endpoints: dict[ChannelEnd, Endpoint] = {}
        self._newest: dict[PeerId, Position] = {}
        self._inlets: dict[tuple[ChannelEnd, ChannelEnd, Purpose], Inlet] = {}
        self._early: dict[ChannelEnd, list[tuple[Open, _Source]]] = {}
        self._early_count = 0
        self._numbers = 0
        self._closed = False

    @property
    def site(self) -> Site:
        """The address that workers of other groups connect to. Valid once the plane listens."""
        assert self._site is not None, "it does not listen yet"
        return self._site

    async def listen(
        self, address: Address, *, insecure_peers: bool = False, advertise: Address | None = None
    ) -> None:
        """Accept connections of other groups; port 0: any.

        `advertise`: what others dial, if not this address; its port 0 is that of the socket.

        Raises:
            ConfigError: there is no key. Anybody who reaches the port could then put segments into jobs,
                so only loopback is allowed, unless `insecure_peers`.
        """
        if not self._sealed and not insecure_peers and not address.is_loopback:
            raise ConfigError(
                f"{address}: without a cluster key groups talk in the clear, to whoever comes; give --key, listen on "
                f"loopback, or say --insecure-peers"
            )
        if address.is_wildcard and advertise is None:
            raise ConfigError(
                f"{address}: others cannot dial that; say what they can with --advertise HOST:PORT"
            )
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                self._on_connection, address.listening_hosts, address.port
            )
        except OSError as error:
            raise ConfigError(
                f"--address: cannot listen at {address} for other groups: {cannot_listen(error)}"
            ) from error
        port = self._listener.sockets[0].getsockname()[1]
        told = advertise or address
        self._site = str(Address(told.host, told.port or port))

    def register(self, worker: ChannelEnd, endpoint: Endpoint) -> None:
        """Let channels to this worker end here from now on, those that were opened early at once."""
        assert worker not in self._endpoints
        self._endpoints[worker] = endpoint
        self._newest[worker.peer] = max(worker.version, self._newest.get(worker.peer, -1))
        self._settle_early(worker.peer)

    def unregister(self, worker: ChannelEnd) -> None:
        """Forget the worker and all channels that end at it."""
        self._endpoints.pop(worker, None)
        for key in [key for key in self._inlets if key[0] == worker]:
            self._inlets.pop(key).detach()

    def forget_peer(self, peer: PeerId) -> None:
        """Forget a virtual peer that will never have a task again: channels to it are refused."""
        self._newest[peer] = 2**62
        self._settle_early(peer)

    def connect(self, purpose: Purpose, sender: ChannelEnd, receiver: ChannelEnd, site: Site) -> Channel:
        """Open a channel from a registered worker of this group to any worker."""
        self._numbers += 1
        outlet = Outlet(self._numbers, purpose, sender, receiver)
        if site == self._site:
            self._local.add(outlet)
            return Channel(outlet, self._local, self, encoded=False)
        link = self._dialed.get(site)
        if link is None:
            link = self._dialed[site] = _Dialed(self, site)
        link.add(outlet)
        return Channel(outlet, link, self, encoded=True)

    def statistics(self) -> PlaneStatistics:
        """Return the counts of items, bytes and reconnects."""
        return PlaneStatistics(
            items_sent=self.items_sent,
            items_received=self.items_received,
            bytes_sent=self.bytes_sent,
            reconnects=self.reconnects,
            rejected=self.rejected,
        )

    def disconnect(self) -> None:
        """Break all connections; they are made again. For tests and for operators."""
        for accepted in tuple(self._accepted):
            accepted.connection.abort()

    async def close(self) -> None:
        """Close all connections, and stop listening."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        for link in tuple(self._dialed.values()):
            link.close()
        for accepted in tuple(self._accepted):
            accepted.connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()

    # -- called by links

    def on_credit(self, outlet: Outlet) -> None:
        """Tell the sending worker that its channel has credit again."""
        endpoint = self._endpoints.get(outlet.sender)
        if endpoint is not None:
            endpoint.on_credit()

    def on_open(self, opened: Open, source: _Source) -> None:
        """Connect a channel that another group opens to its worker, or keep it until the worker starts."""
        endpoint = self._endpoints.get(opened.receiver)
        if endpoint is None:
            self._on_open_without_endpoint(opened, source)
            return
        key = (opened.receiver, opened.sender, opened.purpose)
        inlet = self._inlets.get(key)
        if inlet is None:
            inlet = self._inlets[key] = Inlet(
                opened.purpose, opened.sender, opened.receiver, window=self._window
            )
            endpoint.on_open(inlet)
        source.opened(opened.channel, inlet)
        inlet.attach(lambda expected, limit: source.grant(opened.channel, expected, limit))

    def on_item(self, inlet: Inlet, sequence: int, item: Item) -> None:
        """Give an item to its worker, unless it came twice."""
        endpoint = self._endpoints.get(inlet.receiver)
        if endpoint is not None and inlet.on_item(sequence, item):
            self.items_received += 1
            endpoint.on_arrival(inlet)

    def lose_source(self, source: _Source) -> None:
        """Note that nothing can be granted to this source any more."""
        for worker, opens in tuple(self._early.items()):
            kept = [(opened, whence) for opened, whence in opens if whence is not source]
            self._early_count -= len(opens) - len(kept)
            if kept:
                self._early[worker] = kept
            else:
                del self._early[worker]

    def forget_link(self, site: Site) -> None:
        """Forget the connection to a site, so that the next channel dials again."""
        self._dialed.pop(site, None)

    def lose_accepted(self, accepted: _Accepted) -> None:
        """Forget an accepted connection, and detach its channels."""
        self._accepted.discard(accepted)
        self.lose_source(accepted)

    def _on_open_without_endpoint(self, opened: Open, source: _Source) -> None:
        newest = self._newest.get(opened.receiver.peer, -1)
        if opened.receiver.version <= newest:
            source.refuse(opened.channel, newest)
            return
        if self._early_count >= EARLY_MAX:
            raise ChannelError(
                f"opens for attempts that this group has not come to: expected at most {EARLY_MAX}; does its log move?"
            )
        self._early_count += 1
        self._early.setdefault(opened.receiver, []).append((opened, source))

    def _settle_early(self, peer: PeerId) -> None:
        """Keep a peer's early opens only for versions that are still to come."""
        newest = self._newest[peer]
        due = [worker for worker in self._early if worker.peer == peer and worker.version <= newest]
        for worker in due:
            opens = self._early.pop(worker)
            self._early_count -= len(opens)
            for opened, source in opens:
                self.on_open(opened, source)

    def _on_connection(self) -> Stream:
        accepted = _Accepted(self)
        self._accepted.add(accepted)
        if self._closed:
            accepted.connection.abort()  # accepted in the iteration in which the plane closed
        return accepted.connection


class _Local:
    """Channels within the group: items are handed over in the loop's next iteration, not within the sender's call."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._outlets: dict[int, Outlet] = {}
        self._inlets: dict[int, Inlet] = {}

    def add(self, outlet: Outlet) -> None:
        self._outlets[outlet.number] = outlet
        opened = Open(outlet.number, outlet.purpose, outlet.sender, outlet.receiver)
        asyncio.get_running_loop().call_soon(self._open, opened)

    def _open(self, opened: Open) -> None:
        if opened.channel in self._outlets:
            self._plane.on_open(opened, self)

    def remove(self, outlet: Outlet) -> None:
        self._outlets.pop(outlet.number, None)
        self._inlets.pop(outlet.number, None)

    def transmit(self, outlet: Outlet) -> None:
        if outlet.has_ready:
            asyncio.get_running_loop().call_soon(self._deliver, outlet)

    def _deliver(self, outlet: Outlet) -> None:
        inlet = self._inlets.get(outlet.number)
        if inlet is None:
            return
        for sequence, frame in outlet.take_ready():
            assert not isinstance(frame, bytes)
            self._plane.on_item(inlet, sequence, frame)

    def opened(self, channel: int, inlet: Inlet) -> None:
        self._inlets[channel] = inlet

    def grant(self, channel: int, expected: int, limit: int) -> None:
        outlet = self._outlets.get(channel)
        if outlet is not None:
            outlet.on_grant(expected, limit)
            self.transmit(outlet)
            self._plane.on_credit(outlet)

    def refuse(self, channel: int, version: Position) -> None:
        outlet = self._outlets.get(channel)
        if outlet is not None:
            outlet.refuse()
            self._plane.on_credit(outlet)


class _Dialed:
    """All channels from this group to one other."""

    def __init__(self, plane: DataPlane, site: Site) -> None:
        self._plane = plane
        self._site = site
        self._outlets: dict[int, Outlet] = {}
        self._connection: Stream | None = None
        """The connection, once it is established."""
        self._retry_s = RETRY_S
        self._dialing: asyncio.Task[None] | None = None
        self._closed = False
        self._dial_soon(0)

    def add(self, outlet: Outlet) -> None:
        self._outlets[outlet.number] = outlet
        self._open(outlet)

    def remove(self, outlet: Outlet) -> None:
        if self._outlets.pop(outlet.number, None) is not None:
            self._send(Close(outlet.number))
        if not self._outlets:
            self._plane.forget_link(self._site)
            self.close()

    def transmit(self, outlet: Outlet) -> None:
        if self._connection is not None:
            for _, frame in outlet.take_ready():
                assert isinstance(frame, bytes)
                self._connection.send(frame)

    def close(self) -> None:
        self._closed = True
        if self._dialing is not None:
            self._dialing.cancel()
        if self._connection is not None:
            self._connection.close()

    def on_established(self, connection: Stream) -> None:
        # This is done here and not in the dialing coroutine: the handshake may be over before that continues.
        if self._closed:
            connection.abort()
            return
        self._connection = connection
        self._retry_s = RETRY_S
        self._send(Hello(self._plane.tenancy))
        for outlet in self._outlets.values():
            outlet.on_disconnected()
            self._open(outlet)

    def on_message(self, connection: Stream, message: bytes) -> None:
        try:
            self._on(decode(message))
        except ChannelError as error:
            self._plane.rejected += 1
            self._plane.limited.warn(
                "connection to another group ended", kind="to", site=self._site, error=str(error)
            )
            connection.abort()

    def on_rejected(self, connection: Stream, error: RejectedError) -> None:
        self._plane.rejected += 1
        self._plane.limited.warn(
            "another group was not believed", kind="dialed", site=self._site, error=str(error)
        )

    def on_lost(self, connection: Stream) -> None:
        self._connection = None
        for outlet in self._outlets.values():
            outlet.on_disconnected()
        if not self._closed:
            self._plane.reconnects += 1
            self._dial_soon(self._retry_s)
            self._retry_s = min(RETRY_MAX_S, 2 * self._retry_s)

    def _on(self, message: Message) -> None:
        match message:
            case Grant(channel, expected, limit):
                outlet = self._outlets.get(channel)
                if outlet is not None:
                    outlet.on_grant(expected, limit)
                    self.transmit(outlet)
                    self._plane.on_credit(outlet)
            case Refuse(channel, _):
                outlet = self._outlets.get(channel)
                if outlet is not None:
                    outlet.refuse()
                    self._plane.on_credit(outlet)
            case _:
                raise ChannelError(
                    f"{self._site}: expected a grant or a refusal, found {type(message).__name__}"
                )

    def _open(self, outlet: Outlet) -> None:
        self._send(Open(outlet.number, outlet.purpose, outlet.sender, outlet.receiver))

    def _send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(encode(message))

    def _dial_soon(self, delay_s: float) -> None:
        self._dialing = asyncio.get_running_loop().create_task(self._dial(delay_s))

    async def _dial(self, delay_s: float) -> None:
        address = parse_address(self._site, "site of a group")
        loop = asyncio.get_running_loop()
        plane = self._plane
        while True:
            await asyncio.sleep(delay_s)
            try:
                await loop.create_connection(
                    lambda: dial(self, plane.ring, plane.entropy), address.host, address.port
                )
            except OSError:
                delay_s = self._retry_s
                self._retry_s = min(RETRY_MAX_S, 2 * self._retry_s)
                continue
            return


class _Accepted:
    """A connection that another group dialed: channels to workers of this group."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._inlets: dict[int, Inlet] = {}
        self._greeted = False
        self.connection = accept(self, plane.ring, plane.entropy)

    def on_established(self, connection: Stream) -> None:
        pass

    def on_message(self, connection: Stream, message: bytes) -> None:
        try:
            self._on(decode(message))
        except ChannelError as error:
            self._plane.rejected += 1
            self._plane.limited.warn(
                "connection of another group ended", kind="of", address=connection.address, error=str(error)
            )
            connection.abort()

    def on_rejected(self, connection: Stream, error: RejectedError) -> None:
        self._plane.rejected += 1
        self._plane.limited.warn(
            "another group was not believed", kind="accepted", address=connection.address, error=str(error)
        )

    def on_lost(self, connection: Stream) -> None:
        self._inlets.clear()
        self._plane.lose_accepted(self)

    def opened(self, channel: int, inlet: Inlet) -> None:
        self._inlets[channel] = inlet

    def grant(self, channel: int, expected: int, limit: int) -> None:
        self.connection.send(encode(Grant(channel, expected, limit)))

    def refuse(self, channel: int, version: Position) -> None:
        self.connection.send(encode(Refuse(channel, version)))

    def _on(self, message: Message) -> None:
        match message:
            case Hello(tenancy):
                if tenancy != self._plane.tenancy:
                    raise ChannelError(
                        f"expected a group of tenancy {self._plane.tenancy}, found one of {tenancy[:80]}"
                    )
                self._greeted = True
            case _ if not self._greeted:
                raise ChannelError(f"expected hello first, found {type(message).__name__}")
            case Sent(channel, sequence, item):
                inlet = self._inlets.get(channel)
                if inlet is not None:
                    self._plane.on_item(inlet, sequence, item)
            case Open():
                self._plane.on_open(message, self)
            case Close(channel):
                self._inlets.pop(channel, None)
            case _:
                raise ChannelError(f"expected an open, items or a close, found {type(message).__name__}")
