"""A proxy between servers that loses, delays, reorders, repeats and cuts, one direction at a time. Shell, asyncio.

Each ordered pair of servers has a port of its own on loopback: server A is told that B lives at the port of (A, B), so
that what A says to B passes here and nowhere else. Datagrams are forwarded one by one; a TCP connection to the same port is
carried through with the delay, bandwidth and cuts of its two directions (its loss would only be delay: the kernel repeats).

`LinkQuality.fate` decides and touches no socket; everything random comes from the generator that is handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import define, field, frozen

HOST: Final = "127.0.0.1"
DATAGRAM_BYTES_MAX: Final = 65_535
DATAGRAMS_PER_WAKEUP_MAX: Final = 64
HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Datagrams on their way at a time, per direction; beyond it they are dropped, as a router's queue does."""

BUFFER_BYTES: Final = 4 * 1024 * 1024
STREAM_CHUNK_BYTES: Final = 65_536


@frozen(kw_only=True)
class LinkQuality:
    """What happens to traffic of one direction. Probabilities from 0 to 1; delays in seconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Share of datagrams held back by `reorder_s`, so that later ones overtake them."""
    reorder_s: float = 0.02
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Up to this much more, each datagram by itself: with it, datagrams are reordered, too."""
    bytes_per_second: float = 0.0
    """0: no limit."""
    cut: bool = False

    def fate(self, rng: random.Random) -> tuple[float, ...]:
        """Seconds after which each copy of one datagram arrives; none if it is lost."""
        if self.cut or (self.loss and rng.random() < self.loss):
            return ()
        copies = 2 if self.duplicate and rng.random() < self.duplicate else 1
        return tuple(self._delay(rng) for _ in range(copies))

    def _delay(self, rng: random.Random) -> float:
        held = self.reorder_s if self.reorder and rng.random() < self.reorder else 0.0
        return self.delay_s + (rng.random() * self.jitter_s if self.jitter_s else 0.0) + held


CLEAR: Final = LinkQuality()


@frozen
class ProxyStatistics:
    """Of one direction, since it was opened."""

    forwarded: int
    lost: int
    duplicated: int
    delayed: int


@define(eq=False)
class _Direction:
    """One ordered pair: its socket, where it leads, and its quality now."""

    target: tuple[str, int]
    rng: random.Random
    quality: LinkQuality = CLEAR
    port: int = 0
    udp: socket.socket | None = None
    server: asyncio.Server | None = None
    held_bytes: int = 0
    busy_until: float = 0.0
    forwarded: int = 0
    lost: int = 0
    duplicated: int = 0
    delayed: int = 0
    streams: set[asyncio.Task[None]] = field(factory=set)
    whole: asyncio.Event = field(factory=asyncio.Event)
    """Set while it is not cut."""


class FaultProxy:
    """The proxies of all ordered pairs of some servers. `open`, then `port`; `set_quality` at any time."""

    def __init__(self, targets: Mapping[int, tuple[str, int]], rng: random.Random) -> None:
        """`targets`: where each server really listens, for UDP and TCP alike."""
        self._directions = {
            (a, b): _Direction(target, random.Random(rng.getrandbits(64)))
            for a in targets
            for b, target in targets.items()
            if a != b
        }
        self._loop = asyncio.get_running_loop()

    def port(self, sender: int, receiver: int) -> int:
        """Where `sender` must be told that `receiver` lives."""
        return self._directions[sender, receiver].port

    async def open(self, ports: Mapping[tuple[int, int], int]) -> None:
        """Listen at the given ports. Raises OSError if one is taken."""
        for pair, direction in self._directions.items():
            direction.port = ports[pair]
            direction.whole.set()
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            direction.udp = udp
            udp.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                udp.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            udp.bind((HOST, direction.port))
            self._loop.add_reader(udp.fileno(), self._readable, direction)
            back = self._directions[pair[1], pair[0]]
            direction.server = await asyncio.start_server(
                self._accepting(direction, back), HOST, direction.port
            )

    async def close(self) -> None:
        """Stop everything; datagrams on their way are dropped."""
        for direction in self._directions.values():
            if direction.udp is not None:
                self._loop.remove_reader(direction.udp.fileno())
                direction.udp.close()
                direction.udp = None
            if direction.server is not None:
                direction.server.close()
            streams = tuple(direction.streams)
            for task in streams:
                task.cancel()
            await asyncio.gather(*streams, return_exceptions=True)

    def can(self, quality: LinkQuality) -> bool:
        """Everything that a `LinkQuality` can say."""
        return True

    def set_quality(self, pairs: Iterable[tuple[int, int]], quality: LinkQuality) -> None:
        """From now on, for datagrams and bytes that arrive here; what is on its way is not called back."""
        for pair in pairs:
            direction = self._directions[pair]
            direction.quality = quality
            if quality.cut:
                direction.whole.clear()
            else:
                direction.whole.set()

    def quality(self, sender: int, receiver: int) -> LinkQuality:
        return self._directions[sender, receiver].quality

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._directions)

    def statistics(self) -> Mapping[tuple[int, int], ProxyStatistics]:
        return {
            pair: ProxyStatistics(one.forwarded, one.lost, one.duplicated, one.delayed)
            for pair, one in self._directions.items()
        }

    # -- datagrams

    def _readable(self, direction: _Direction) -> None:
        for _ in range(DATAGRAMS_PER_WAKEUP_MAX):
            if direction.udp is None:
                return
            try:
                datagram = direction.udp.recv(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # an ICMP about a datagram before: its server does not listen now
            self._forward(direction, datagram)

    def _forward(self, direction: _Direction, datagram: bytes) -> None:
        arrivals = direction.quality.fate(direction.rng)
        if not arrivals:
            direction.lost += 1
            return
        direction.duplicated += len(arrivals) - 1
        now = self._loop.time()
        for delay in arrivals:
            if direction.quality.bytes_per_second:
                begins = max(now, direction.busy_until)
                direction.busy_until = begins + len(datagram) / direction.quality.bytes_per_second
                delay += direction.busy_until - now
            if delay <= 0:
                self._send(direction, datagram)
            elif direction.held_bytes + len(datagram) > HELD_BYTES_MAX:
                direction.lost += 1
            else:
                direction.delayed += 1
                direction.held_bytes += len(datagram)
                self._loop.call_later(delay, self._arrives, direction, datagram)

    def _arrives(self, direction: _Direction, datagram: bytes) -> None:
        direction.held_bytes -= len(datagram)
        self._send(direction, datagram)

    def _send(self, direction: _Direction, datagram: bytes) -> None:
        if direction.udp is None:
            return
        try:
            direction.udp.sendto(datagram, direction.target)
            direction.forwarded += 1
        except OSError:
            direction.lost += 1  # a full buffer or a refused port: the network may lose anything

    # -- streams

    def _accepting(
        self, direction: _Direction, back: _Direction
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task of our own: asyncio would log it as an error that `close` cancels one of its.
            task = self._loop.create_task(self._carry(direction, back, reader, writer))
            direction.streams.add(task)
            task.add_done_callback(direction.streams.discard)

        return accepted

    async def _carry(
        self,
        direction: _Direction,
        back: _Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            # A SYN that is lost is repeated.
            await direction.whole.wait()
            await back.whole.wait()
            there, thither = await asyncio.open_connection(*direction.target)
        except BaseException as error:
            writer.close()
            if isinstance(error, OSError):
                return  # nobody listens
            raise
        try:
            pumps = [
                asyncio.ensure_future(self._pump(direction, reader, thither)),
                asyncio.ensure_future(self._pump(back, there, writer)),
            ]
            try:
                await asyncio.wait(pumps)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            thither.close()
            writer.close()

    async def _pump(
        self, direction: _Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(STREAM_CHUNK_BYTES):
                quality = direction.quality
                pause = quality.delay_s
                if quality.bytes_per_second:
                    pause += len(chunk) / quality.bytes_per_second
                if pause:
                    await asyncio.sleep(pause)
                await direction.whole.wait()
                writer.write(chunk)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
