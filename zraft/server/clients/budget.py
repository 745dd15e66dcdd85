"""Budget of one kind of bytes that a server's clients hold, and the choice of who gives way at its bounds.

Connections that are each within their own bound can together hold more than the machine has. A budget knows what each holds:

- At half of a bound it is *pressed*: whoever wants to hold more waits until others hold less.
- Whoever holds something for `PATIENCE_MS` without a break while others wait is *overdue*, and is closed.
- Beyond a bound, the connections that hold most are closed until an eighth is free again, those of the address that holds
  most first.

Pure: time is handed in. Source: docs/how-to/security.md, "Sums".
"""

from __future__ import annotations

import heapq
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import takewhile
from typing import Final, Generic, Protocol, TypeVar

from attrs import frozen

PATIENCE_MS: Final = 5_000
"""A client that is alive takes a megabyte within this time; one whose machine is busy may well pause for seconds."""

IPV6_PREFIX_BITS: Final = 64
"""Whoever has one IPv6 address has all of these."""


class Holder(Protocol):
    """A connection, as far as budgets know it."""

    @property
    def address(self) -> str:
        """The client's address: `host:port`, or `[host]:port`."""

    def __hash__(self) -> int: ...


T = TypeVar("T", bound=Holder)


@frozen
class Bound:
    """One knob and its value in bytes."""

    knob: str
    bytes_max: int


@frozen
class Excess(Generic[T]):
    """Client that has to go.

    Attributes:
        one: who.
        why: in words, with the knob.
    """

    one: T
    why: str


class _Share(Generic[T]):
    """Share of one address: what its connections hold."""

    __slots__ = ("address", "held", "ones")

    def __init__(self, address: str) -> None:
        self.address = address
        self.held = 0
        self.ones: dict[T, int] = {}


class Budget(Generic[T]):
    """Budget of one kind of bytes, per address and for all connections together.

    Attributes:
        held: bytes that all connections hold together.
        pressed: whether more than half of a bound is used, of some address or of all together.
        wide: whether so little is held that one connection may take much at once.
        evicted_total: connections that had to go.
    """

    __slots__ = (
        "_by_address",
        "_crowded",
        "_narrow",
        "_per_address",
        "_shares",
        "_since",
        "_together",
        "_what",
        "evicted_total",
        "held",
        "pressed",
        "wide",
    )

    def __init__(self, what: str, *, per_address: Bound, together: Bound) -> None:
        """Begin with nothing held.

        `what` says in words what is held: "bytes of answers that their clients do not read".
        """
        self._what = what
        self._per_address = per_address
        self._together = together
        self._by_address: dict[str, _Share[T]] = {}
        self._shares: dict[T, _Share[T]] = {}
        self._since: dict[T, int] = {}
        """Since when each has held something all the time, oldest first."""
        self._narrow = 0
        """The number of addresses that hold more than a quarter of their bound."""
        self._crowded = 0
        """The number of addresses that hold more than half of it."""
        self.held = 0
        self.pressed = False
        self.wide = True
        self.evicted_total = 0

    def __len__(self) -> int:
        """Return how many connections hold something."""
        return len(self._shares)

    def hold(self, one: T, size: int, now_ms: int) -> bool:
        """Note that `one` holds `size` bytes from now on; return True if a bound is exceeded, see `excess`."""
        share = self._shares.get(one)
        if share is None:
            if not size:
                return False
            address = address_of(one.address)
            share = self._by_address.get(address)
            if share is None:
                share = self._by_address[address] = _Share(address)
            self._shares[one] = share
            self._since[one] = now_ms
        before = share.held
        grown = size - share.ones.get(one, 0)
        if size:
            share.ones[one] = size
        else:
            share.ones.pop(one, None)
            del self._shares[one], self._since[one]
            if not share.ones:
                del self._by_address[share.address]
        share.held += grown
        self.held += grown
        quarter = self._per_address.bytes_max // 4
        self._narrow += (share.held > quarter) - (before > quarter)
        self._crowded += (share.held > 2 * quarter) - (before > 2 * quarter)
        quarter = self._together.bytes_max // 4
        self.wide = not self._narrow and self.held <= quarter
        self.pressed = bool(self._crowded) or self.held > 2 * quarter
        return grown > 0 and (
            share.held > self._per_address.bytes_max or self.held > self._together.bytes_max
        )

    def held_by(self, one: T) -> int:
        """Return how many bytes `one` holds."""
        share = self._shares.get(one)
        return 0 if share is None else share.ones[one]

    def has_room(self, one: T, size: int) -> bool:
        """Return whether `one` may hold `size` bytes more without waiting.

        It may always if nobody else holds anything.
        """
        if not self.held:
            return True
        share = self._by_address.get(address_of(one.address))
        of_address = 0 if share is None else share.held
        return self.held + size <= self._together.bytes_max // 2 and (
            not of_address or of_address + size <= self._per_address.bytes_max // 2
        )

    def is_pressed(self, one: T) -> bool:
        """Return whether more than half of a bound that applies to `one` is used."""
        if self.held > self._together.bytes_max // 2:
            return True
        share = self._shares.get(one)
        return share is not None and share.held > self._per_address.bytes_max // 2

    def overdue(self, now_ms: int, above: int = 0) -> list[Excess[T]]:
        """End the patience with those who have held something for too long while others wait.

        Whoever holds no more than `above` bytes waits itself. If all do, they wait for each other: then those go who have
        waited longest, until nobody has to wait.

        Returns:
            Who has to go; they hold nothing from now on.
        """
        latest = now_ms - PATIENCE_MS
        waiting = [one for one, _ in takewhile(lambda item: item[1] <= latest, self._since.items())]
        gone = [self._impatient(one, now_ms) for one in waiting if self.held_by(one) > above]
        if not gone and above and not self._is_above(above):
            for one in waiting:
                if not self.pressed:
                    break
                gone.append(self._impatient(one, now_ms))
        return gone

    def _is_above(self, size: int) -> bool:
        """Whether anybody holds more than that."""
        return any(held > size for share in self._by_address.values() for held in share.ones.values())

    def _impatient(self, one: T, now_ms: int) -> Excess[T]:
        knob = self._together.knob
        return self._evict(
            one, now_ms, f"for more than {PATIENCE_MS / 1000:g} s, while others wait for room within {knob}"
        )

    def excess(self, now_ms: int) -> list[Excess[T]]:
        """Return those who must go for the bounds to hold again, largest first; they hold nothing from now on."""
        gone: list[Excess[T]] = []
        for share in [s for s in self._by_address.values() if s.held > self._per_address.bytes_max]:
            enough = _relieved(self._per_address)
            for one in sorted(share.ones, key=share.ones.__getitem__, reverse=True):
                if share.held <= enough:
                    break
                gone.append(self._over(one, now_ms, self._per_address, share.held))
        if self.held > self._together.bytes_max:
            enough = _relieved(self._together)
            # The heaviest address first; ties by name, so that shares are never compared.
            heap = [(-share.held, share.address, share) for share in self._by_address.values()]
            heapq.heapify(heap)
            while self.held > enough and heap:
                _, address, share = heapq.heappop(heap)
                largest = max(share.ones, key=share.ones.__getitem__)
                gone.append(self._over(largest, now_ms, self._together, self.held))
                if share.ones:
                    heapq.heappush(heap, (-share.held, address, share))
        return gone

    def _over(self, one: T, now_ms: int, bound: Bound, found: int) -> Excess[T]:
        return self._evict(
            one, now_ms, f"of {found} together, expected at most {bound.knob} = {bound.bytes_max}"
        )

    def _evict(self, one: T, now_ms: int, why: str) -> Excess[T]:
        size = self.held_by(one)
        self.hold(one, 0, now_ms)
        self.evicted_total += 1
        return Excess(one, f"{size} {self._what} {why}")


def _relieved(bound: Bound) -> int:
    """Return what may be left after somebody had to go, so that not every further byte is looked at."""
    return bound.bytes_max - bound.bytes_max // 8


def address_of(client: str) -> str:
    """Return the address that bounds count by: the host, for IPv6 the network that one machine is given."""
    host = client.rpartition(":")[0].strip("[]")
    if ":" not in host:
        return host
    try:
        found = ip_address(host)
    except ValueError:
        return host
    assert isinstance(found, IPv6Address), f"{host} has colons"
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), IPV6_PREFIX_BITS), strict=False).network_address)
