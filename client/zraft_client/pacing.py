"""Choice of the next server, and of the wait before it is tried. Pure, with the generator handed in."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

DELAY_FIRST_S: Final = 0.02
DELAY_MAX_S: Final = 2.0
HOSTS_MAX: Final = 512
"""More than a cluster's members, old and new; further discovered hosts are not kept."""


def parse_hosts(hosts: str | Iterable[str | tuple[str, int] | Address]) -> tuple[Address, ...]:
    """Return addresses from `"a:2181,b:2181"`, or from a sequence of such, of pairs, or of `Address`.

    Raises:
        ConfigError: none is given, or one is no address.
    """
    given: Sequence[str | tuple[str, int] | Address]
    given = [part for part in hosts.split(",") if part.strip()] if isinstance(hosts, str) else list(hosts)
    found: list[Address] = []
    for one in given:
        if isinstance(one, str):
            address = parse_address(one, "hosts")
        elif isinstance(one, Address):
            address = one
        else:
            host, port = one
            address = parse_address(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "hosts")
        if address not in found:
            found.append(address)
    if not found:
        raise ConfigError("hosts: found none, expected HOST:PORT of at least one server")
    return tuple(found)


def delay_s(attempt: int, rng: random.Random) -> float:
    """Return the wait before an attempt, which are counted from 1.

    It doubles and has full jitter, so that clients that lost one server do not reconnect together.
    """
    ceiling = min(DELAY_MAX_S, DELAY_FIRST_S * float(1 << min(attempt, 16)))
    return ceiling * (0.5 + rng.random() / 2)


class HostRing:
    """The servers in the order in which they are tried: every one of them once before any is tried again.

    Those given come before those that a server named: the latter may not be reachable from here.
    """

    def __init__(self, given: Sequence[Address], rng: random.Random) -> None:
        self._rng = rng
        self._given = list(given)
        self._learned: list[Address] = []
        self._round: list[Address] = []
        self._rounds = 0

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The servers' addresses: those that the program gave, then those that the cluster told."""
        return (*self._given, *self._learned)

    def learn(self, addresses: Iterable[Address]) -> None:
        """Take members that a server named; those learned before and not among them are forgotten."""
        known = set(self._given)
        self._learned = [one for one in dict.fromkeys(addresses) if one not in known][:HOSTS_MAX]

    def next(self) -> tuple[Address, float]:
        """Return the server to try, and the seconds to wait before: none within a round."""
        wait = 0.0
        if not self._round:
            if self._rounds:
                wait = delay_s(self._rounds, self._rng)
            self._rounds += 1
            given, learned = list(self._given), list(self._learned)
            self._rng.shuffle(given)
            self._rng.shuffle(learned)
            self._round = [*given, *learned]
        return self._round.pop(0), wait

    def succeeded(self) -> None:
        """Note that a server accepted us: the next failure begins a fresh round, without waiting."""
        self._rounds = 0
        self._round = []
