"""Addresses of servers on loopback whose every word to each other passes a proxy that can lose it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from attrs import frozen

from tests.chaos.servers import HOST, free_ports
from tests.simulation.fault_proxy import FaultProxy
from zraft_core.address import Address


@frozen
class Links:
    """`addresses`: where each server listens; `peers`: by server, where it is told that the others do."""

    addresses: Mapping[int, Address]
    peers: Mapping[int, Mapping[int, Address]]
    proxy: FaultProxy


def ports_of(servers: int) -> int:
    """Return how many ports servers and the links between them need."""
    return servers * servers


async def open_links(servers: int, rng: random.Random, ports: Sequence[int] = ()) -> Links:
    """Open the links of servers 1 to n, on these ports or on free ones. Raises OSError if a port was taken meanwhile."""
    numbers = range(1, servers + 1)
    pairs = [(a, b) for a in numbers for b in numbers if a != b]
    # Not from the seed: two runs of one seed must not meet on one port.
    ports = ports or free_ports(ports_of(servers), random.Random())
    addresses = {n: Address(HOST, port) for n, port in zip(numbers, ports, strict=False)}
    proxy = FaultProxy({n: (HOST, a.port) for n, a in addresses.items()}, rng)
    await proxy.open(dict(zip(pairs, ports[len(numbers) :], strict=True)))
    peers = {n: {m: Address(HOST, proxy.port(n, m)) for m in numbers if m != n} for n in numbers}
    return Links(addresses, peers, proxy)
