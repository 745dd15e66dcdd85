"""Check of what consumers of a cell read, so that no figure is one of a broken run.

Pure; a byte of memory per message.

`LogCheck` follows one place's log: dense offsets, ascending stamps, every message once, unchanged, where it
was sent to, and in the producer's order if it went there alone, or if the cell's order is of all messages.
Logs of different places are compared by chains of digests over what they have in common: equal chains mean
the same messages, in the same order, with the same stamps. A stamp that is the same everywhere and ascends in
every log leaves no room for a cycle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from attrs import field, frozen

from zraft_bench.multicast.plan import Cell, Deck, Destinations, Header, Payloads
from zraft_client.topics.options import Order
from zraft_core.errors import ZraftError

MARK_EVERY: Final = 1024
"""Common messages between digests that are kept, which tell about where two logs begin to differ."""

DIGEST_BYTES: Final = 16

_COMMON: Final = struct.Struct(">IQQQ")
"""Producer, number, time and group of the stamp."""

_MISSING_SHOWN: Final = 3


class BrokenOrderError(ZraftError):
    """Error of a run in which reads broke a promise of multicast: the cell measured nothing."""


Stamp = tuple[int, int, int, int]
"""(time, group, sub, partition), as consumers get it."""


@frozen
class Read:
    """A message as a consumer read it. `id` is the batch's own: (producer's id, number); `index` is its place there."""

    offset: int
    stamp: Stamp
    id: tuple[int, int]
    payload: bytes
    index: int = 0


@frozen
class Arrival:
    """Values that a read message carries about itself."""

    sent_us: int
    destinations: int


@frozen(kw_only=True)
class Chain:
    """Common part of a log with that of `other`: the number of messages, and digests over them."""

    other: int
    count: int = 0
    digest: str = ""
    marks: tuple[str, ...] = ()


@frozen(kw_only=True)
class LogSummary:
    """One place's log as it was read. `chains` are with the places that messages to it may have in common."""

    place: int
    delivered: int
    chains: tuple[Chain, ...] = field(default=())


class _Running:
    """A chain that several other places share, because the same messages go to all of them."""

    __slots__ = ("buffer", "count", "hash", "marks")

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=DIGEST_BYTES)
        self.count = 0
        self.marks: list[str] = []
        self.buffer = bytearray()

    def add(self, packed: bytes) -> None:
        self.buffer += packed
        self.count += 1
        if self.count % MARK_EVERY == 0:
            self._flush()
            self.marks.append(self.hash.hexdigest())

    def _flush(self) -> None:
        self.hash.update(self.buffer)
        self.buffer.clear()

    def chain(self, other: int) -> Chain:
        self._flush()
        return Chain(other=other, count=self.count, digest=self.hash.hexdigest(), marks=tuple(self.marks))


class LogCheck:
    """Check of the log of one place, read from its beginning."""

    def __init__(self, cell: Cell, nonce: int, place: int) -> None:
        self.place = place
        self.delivered = 0
        self._payloads = Payloads(cell, nonce)
        self._decks = [Deck(cell, producer) for producer in range(cell.producers)]
        self._seen = [bytearray() for _ in self._decks]
        self._ids: list[int | None] = [None] * cell.producers
        # The batch's number and the place there of the last message that went here alone, and of the last of all.
        self._last_single = [(-1, 0)] * cell.producers
        self._last = [(-1, 0)] * cell.producers
        self._ordered = cell.order is not Order.PARTITION
        self._before: Read | None = None
        self._chains, self._chains_of = self._make_chains()

    def _make_chains(self) -> tuple[dict[int, _Running], dict[tuple[int, ...], tuple[_Running, ...]]]:
        """Make a chain per other place, the same one for places that always come together.

        Note which chains a message is in.
        """
        decks = [
            destinations for deck in self._decks for destinations in deck.of if self.place in destinations
        ]
        together: dict[int, set[tuple[int, ...]]] = {}
        for destinations in decks:
            for other in destinations:
                if other != self.place:
                    together.setdefault(other, set()).add(destinations)
        shared: dict[frozenset[tuple[int, ...]], _Running] = {}
        chains = {other: shared.setdefault(frozenset(sets), _Running()) for other, sets in together.items()}
        of = {
            one: tuple({id(chains[other]): chains[other] for other in one if other != self.place}.values())
            for one in set(decks)
        }
        return chains, of

    def expect(self, produced: Sequence[int]) -> int:
        """Return how many deliveries there have to be, if each producer sent so many messages."""
        return sum(
            count * sum(self.place in one for one in deck.of)
            + sum(self.place in one for one in deck.of[:rest])
            for deck, (count, rest) in zip(
                self._decks,
                (divmod(n, len(deck.of)) for n, deck in zip(produced, self._decks, strict=True)),
                strict=True,
            )
        )

    def take(self, reads: Iterable[Read]) -> list[Arrival]:
        """Take the next messages of the log.

        Raises:
            BrokenOrderError: they are not what may come here.
        """
        arrivals = []
        for read in reads:
            header = self._payloads.read(read.payload)
            destinations = self._judge(read, header)
            if len(destinations) > 1:
                packed = _COMMON.pack(header.producer, header.number, read.stamp[0], read.stamp[1])
                for chain in self._chains_of[destinations]:
                    chain.add(packed)
            self._before = read
            self.delivered += 1
            arrivals.append(Arrival(header.sent_us, len(destinations)))
        return arrivals

    def _judge(self, read: Read, header: Header) -> Destinations:
        """Return the destinations of a message that may come here."""
        producer, number = header.producer, header.number
        if read.offset != self.delivered:
            raise self._broken(read, header, f"expected offset {self.delivered}")
        before = self._before
        if read.index:
            if before is None or (before.stamp, before.id, before.index + 1) != (
                read.stamp,
                read.id,
                read.index,
            ):
                raise self._broken(
                    read, header, f"the {read.index + 1}th of its batch, without the one before"
                )
        elif before is not None and read.stamp <= before.stamp:
            raise self._broken(read, header, f"stamp {read.stamp} does not come after {before.stamp}")
        if producer >= len(self._decks) or read.id[0] != (self._ids[producer] or read.id[0]):
            raise self._broken(read, header, f"sent as {read.id}, by somebody else")
        destinations = self._decks[producer].destinations(number)
        if self.place not in destinations:
            raise self._broken(read, header, f"it was sent to {destinations}")
        self._once(read, header)
        self._ids[producer] = read.id[0]
        sent = (read.id[1], read.index)
        if self._ordered:
            if sent <= self._last[producer]:
                raise self._overtaken(read, header, self._last[producer])
            self._last[producer] = sent
        if len(destinations) == 1:
            if sent <= self._last_single[producer]:
                raise self._overtaken(read, header, self._last_single[producer])
            self._last_single[producer] = sent
        return destinations

    def _once(self, read: Read, header: Header) -> None:
        seen, number = self._seen[header.producer], header.number
        if number >= len(seen):
            seen.extend(bytes(number + 1 - len(seen)))
        if seen[number]:
            raise self._broken(read, header, "it came twice")
        seen[number] = 1

    def _overtaken(self, read: Read, header: Header, last: tuple[int, int]) -> BrokenOrderError:
        return self._broken(read, header, f"its producer's {read.id[1]}th came behind the {last[0]}th")

    def _broken(self, read: Read, header: Header, why: str) -> BrokenOrderError:
        message = f"message {header.number} of producer {header.producer}"
        return BrokenOrderError(f"place {self.place}, offset {read.offset}, {message}: {why}")

    def finish(self, produced: Sequence[int]) -> LogSummary:
        """Check the whole log after its last message; the cell's producers sent so many each, all reported as delivered.

        Raises:
            BrokenOrderError: something is missing, or exists that nobody sent.
        """
        for producer, (count, deck, seen) in enumerate(zip(produced, self._decks, self._seen, strict=True)):
            pattern = bytes(self.place in one for one in deck.of)
            wanted = (pattern * (count // len(pattern) + 1))[:count]
            found = bytes(seen[:count]).ljust(count, b"\0")
            if len(seen) > count:
                raise BrokenOrderError(
                    f"place {self.place}: found message {len(seen) - 1} of producer {producer}, which sent {count}"
                )
            if found != wanted:
                missing = [n for n in range(count) if wanted[n] and not found[n]]
                raise BrokenOrderError(
                    f"place {self.place}: {len(missing)} messages of producer {producer} were told as delivered and are "
                    f"not there, such as {missing[:_MISSING_SHOWN]}"
                )
        chains = tuple(chain.chain(other) for other, chain in sorted(self._chains.items()))
        return LogSummary(place=self.place, delivered=self.delivered, chains=chains)


def require_one_order(summaries: Iterable[LogSummary]) -> int:
    """Compare every pair of logs; return how many pairs have messages in common.

    Raises:
        BrokenOrderError: a pair differs in what it has in common, or in its order.
    """
    chains: Mapping[tuple[int, int], Chain] = {
        (log.place, chain.other): chain for log in summaries for chain in log.chains
    }
    pairs = 0
    for (place, other), chain in chains.items():
        theirs = chains.get((other, place))
        if theirs is None:
            raise BrokenOrderError(f"places {place} and {other}: the log of {other} was not read")
        if (chain.count, chain.digest) != (theirs.count, theirs.digest):
            raise BrokenOrderError(
                f"places {place} and {other}: of {chain.count} and {theirs.count} common messages the order differs behind "
                f"the first {_agreed(chain, theirs)}"
            )
        pairs += place < other and chain.count > 0
    return pairs


def _agreed(a: Chain, b: Chain) -> int:
    """Return how many common messages are surely in the same order."""
    marks = zip(a.marks, b.marks, strict=False)
    return MARK_EVERY * next((n for n, (x, y) in enumerate(marks) if x != y), min(len(a.marks), len(b.marks)))
