"""Workload of a test: which operations, how many, by how many workers, how large, how fast.

Pure.

A *round* is `entries` requests, spread evenly over all workers of all client machines. Rounds are repeated
until the test has run `seconds_min`, so that a test of a hundred entries measures more than its own
beginning.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import Final

from attrs import field, frozen, validators

ENTRIES_MAX: Final = 10_000_000
WORKERS_MAX: Final = 100_000
VALUE_BYTES_MAX: Final = 1_000_000
"""Below the default of `client.jute_maxbuffer`, with room for the request's other fields."""

INCOMPRESSIBLE_BYTES: Final = 1 << 16
"""Random bytes from which values are cut: making fresh ones for each request would cost more than sending them."""


class Operation(Enum):
    """Kinds of requests."""

    WRITE = "write"
    READ = "read"
    MIXED = "mixed"
    """`read_share` of the requests read, the others write."""
    CREATE_SEQUENTIAL = "create_seq"
    """Sequential znodes below one parent. Only sessions of ZooKeeper's protocol do it."""
    VISIT = "session_churn"
    """A session is opened and closed. Only sessions of ZooKeeper's protocol do it."""


OF_ALL_TARGETS: Final = (Operation.WRITE, Operation.READ, Operation.MIXED)
"""Every target carries out these."""


@frozen(kw_only=True)
class Workload:
    """One test.

    Attributes:
        entries: requests of a round; also the number of keys, all of one dictionary.
        workers: of each client machine; a worker has one request under way.
        under_way: requests that each session of ZooKeeper's protocol keeps under way, so that there are
            `workers / under_way` sessions. None: workers share the connections that their process has.
        value_bytes: of each value written.
        read_share: of `MIXED`, 0 to 1.
        rate: requests per second of all workers together (open loop): a request's latency counts from when it was
            due, not from when it could be sent. None (closed loop): each worker sends when the last answer is there.
        poisson: due times are a Poisson process instead of evenly spaced.
        seconds_min: rounds are repeated until so much time has passed; with a rate, the test takes that long.
        warm_up_s: load before the measured time.
        linearizable: reads go through the leader's quorum; otherwise the server that is asked answers from its state.
        deadline_s: a request without an answer after this long has failed.
        seed: of values and of the order of reads.
    """

    operation: Operation = Operation.WRITE
    entries: int = field(default=1000, validator=[validators.ge(1), validators.le(ENTRIES_MAX)])
    workers: int = field(default=16, validator=[validators.ge(1), validators.le(WORKERS_MAX)])
    value_bytes: int = field(default=100, validator=[validators.ge(0), validators.le(VALUE_BYTES_MAX)])
    read_share: float = field(default=0.9, validator=[validators.ge(0.0), validators.le(1.0)])
    rate: float | None = field(default=None, validator=validators.optional(validators.gt(0.0)))
    poisson: bool = False
    seconds_min: float = field(default=10.0, validator=validators.ge(0.0))
    warm_up_s: float = field(default=1.0, validator=validators.ge(0.0))
    linearizable: bool = True
    deadline_s: float = field(default=30.0, validator=validators.gt(0.0))
    seed: int = 1
    under_way: int | None = field(default=None, validator=validators.optional(validators.ge(1)))

    def __attrs_post_init__(self) -> None:
        if self.under_way is None:
            if self.operation not in OF_ALL_TARGETS:
                raise ValueError(
                    f"operation {self.operation.value}: expected sessions, with under_way requests each"
                )
        elif self.workers % self.under_way or self.rate is not None:
            raise ValueError(
                f"under_way {self.under_way}: found {self.workers} workers at a rate of {self.rate}, expected a multiple "
                "without a rate"
            )

    @property
    def loop(self) -> str:
        """The kind of loop: "open" if requests come at a rate, else "closed"."""
        return "closed" if self.rate is None else "open"

    def title(self) -> str:
        """Return a title for people: `write, 1,000 entries of 100 B, 16 workers`, or `write, 100 B, 64 x 16`."""
        if self.under_way is not None:
            size = "" if self.operation is Operation.VISIT else f"{self.value_bytes:,} B, "
            return f"{self.operation.value}, {size}{self.workers // self.under_way} x {self.under_way}"
        pace = "" if self.rate is None else f", {self.rate:,.0f}/s open loop"
        return f"{self.operation.value}, {self.entries:,} entries of {self.value_bytes:,} B, {self.workers} workers{pace}"


def shares(total: int, parts: int) -> list[int]:
    """Divide `total` into `parts` whole numbers that differ by one at most."""
    assert parts > 0
    least, more = divmod(total, parts)
    return [least + (part < more) for part in range(parts)]


@frozen
class Share:
    """The workers of one process: `first_worker` to `first_worker + workers - 1` of all `all_workers` of a test."""

    first_worker: int
    workers: int
    all_workers: int

    def entries_of(self, workload: Workload, worker: int) -> range:
        """Return the numbers of the entries that `worker`, counted over all machines, asks for in a round."""
        least, more = divmod(workload.entries, self.all_workers)
        first = worker * least + min(worker, more)
        return range(first, first + least + (worker < more))

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first_worker, self.first_worker + self.workers))


def process_shares(
    workers: int, machine: int, machines: int, processes: int, together: int = 1
) -> list[Share]:
    """Spread the `workers` of machine number `machine` (from 0) over its processes; so many stay together."""
    found = []
    first = machine * workers
    groups = workers // together
    for part in shares(groups, min(processes, groups)):
        found.append(Share(first, part * together, workers * machines))
        first += part * together
    return found


class Values:
    """Values to write: incompressible, different from each other, cheap to make. The same seed gives the same ones."""

    __slots__ = ("_bytes", "_next", "_size")

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._bytes = random.Random(seed).randbytes(size + INCOMPRESSIBLE_BYTES)
        self._next = 0

    def next(self) -> bytes:
        """Return the next value."""
        # An odd step visits every offset before one comes again.
        self._next = (self._next + 7919) % INCOMPRESSIBLE_BYTES
        return self._bytes[self._next : self._next + self._size]
