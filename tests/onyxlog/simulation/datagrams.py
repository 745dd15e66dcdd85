"""Datagrams in memory, on the event loop's clock: loss, doubles, delay, flipped bits and partitions, by a seed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

from attrs import define, field

from onyxlog.peer.gossip.link import Link, Received
from zraft_core.address import Address

DATAGRAM_BYTES_MAX: Final = 65_507
"""What UDP carries over IPv4; larger ones are not sent, there as here."""


@define(eq=False)
class Network:
    """`open` is an OpenLink. `loss`, `doubled`, `flipped`: probabilities for each datagram; `delay_s`: from, to."""

    random: Random = field(factory=lambda: Random(1))
    loss: float = 0.0
    doubled: float = 0.0
    flipped: float = 0.0
    delay_s: tuple[float, float] = (0.001, 0.005)
    connected: Callable[[Address, Address], bool] = lambda sender, receiver: True
    sent: int = 0
    record: list[tuple[Address, Address, bytes]] | None = None
    """Everything that was sent, if a list is put here: sender, receiver, datagram."""
    _ends: dict[Address, Received] = field(factory=dict)
    _ports: itertools.count[int] = field(factory=lambda: itertools.count(1))

    async def open(self, received: Received) -> Link:
        address = Address("127.0.0.1", next(self._ports))
        self._ends[address] = received
        return _End(self, address)

    @property
    def ends(self) -> int:
        """How many are open."""
        return len(self._ends)

    def carry(self, sender: Address, receiver: Address, datagram: bytes) -> None:
        if len(datagram) > DATAGRAM_BYTES_MAX:
            return
        self.sent += 1
        if self.record is not None:
            self.record.append((sender, receiver, datagram))
        for _ in range(1 + (self.random.random() < self.doubled)):
            if self.random.random() < self.loss or not self.connected(sender, receiver):
                continue
            carried = datagram
            if self.random.random() < self.flipped:
                broken = bytearray(datagram)
                broken[self.random.randrange(len(broken))] ^= 1 << self.random.randrange(8)
                carried = bytes(broken)
            delay = self.random.uniform(*self.delay_s)
            asyncio.get_running_loop().call_later(delay, self.deliver, sender, receiver, carried)

    def deliver(self, sender: Address, receiver: Address, datagram: bytes) -> None:
        received = self._ends.get(receiver)
        if received is not None:
            received(datagram, sender)

    def closed(self, address: Address) -> None:
        self._ends.pop(address, None)


@define
class _End:
    """A Link."""

    _network: Network
    address: Address

    def send(self, to: Address, datagram: bytes) -> None:
        self._network.carry(self.address, to, datagram)

    def close(self) -> None:
        self._network.closed(self.address)
