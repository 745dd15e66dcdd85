"""Results of measurements of topics: cells of multicast, what a message touches, streams. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import evolve, field, frozen

from onyxlog.theses import atomic_kafka
from zraft_bench.load.histogram import Histogram, Summary
from zraft_bench.multicast.plan import Cell, Deck

GENERATOR_BUSY: Final = 0.85


@frozen(kw_only=True)
class Produced:
    """Measurements of a process's producers.

    Times are seconds on the machine's monotonic clock.

    Attributes:
        sent: messages by producer, all of them reported as delivered at all their destinations.
        latencies: by number of destinations, from sending to that answer.
        failures: how often which error was met.
    """

    producers: tuple[int, ...]
    sent: tuple[int, ...] = ()
    began_s: float = 0.0
    ended_s: float = 0.0
    latencies: dict[str, Histogram] = field(factory=dict)
    failures: dict[str, int] = field(factory=dict)
    cpu_s: float = 0.0


@frozen(kw_only=True)
class Consumed:
    """Measurements of a process's readers.

    `arrivals`: by number of destinations, from sending to having it here.
    """

    places: tuple[int, ...]
    delivered: tuple[int, ...] = ()
    began_s: float = 0.0
    last_s: tuple[float, ...] = ()
    arrivals: dict[str, Histogram] = field(factory=dict)
    broken: str = ""
    cpu_s: float = 0.0


@frozen(kw_only=True)
class Counts:
    """Counts of all servers together during the run; None where they do not tell.

    Attributes:
        entries, commands: of the logs of groups, and what stands in them.
        bundles, edges: messages between servers that carry what groups say to each other, and to group 0.
        delivered: by all replicas.
    """

    entries: int | None = None
    commands: int | None = None
    bundles: int | None = None
    edges: int | None = None
    delivered: int | None = None


@frozen(kw_only=True)
class PlaceResult:
    """One partition's log: deliveries that a consumer read, and per second from the first message sent to the last read."""

    topic: int
    partition: int
    delivered: int
    per_second: float


@frozen(kw_only=True)
class CellResult:
    """One cell. What is in it was checked: `reason` says what was wrong, and then no figure of it counts.

    Attributes:
        multicasts: messages to more than one place.
        latency, arrival: by number of destinations: until the producer was told that it is delivered
            everywhere, and until a consumer had it.
        thesis_records: what the thesis' optimised algorithm would have written and read for the same
            messages.
        pairs: of logs that have messages in common, all of which agree.
        read_s: for how long consumers read, if they began when everything was sent; then `elapsed_s`, `servers_us` and
            `generator_us` are of sending alone, and `reader_us` is the consumers' CPU time per delivery.
    """

    cell: Cell
    servers: int
    reason: str = ""
    messages: int = 0
    multicasts: int = 0
    elapsed_s: float = 0.0
    places: tuple[PlaceResult, ...] = ()
    latency: dict[str, Summary] = field(factory=dict)
    arrival: dict[str, Summary] = field(factory=dict)
    histograms: dict[str, Histogram] = field(factory=dict)
    counts: Counts = field(factory=Counts)
    thesis_records: int = 0
    pairs: int = 0
    failures: dict[str, int] = field(factory=dict)
    generator_share: float = 0.0
    generator_us: float = 0.0
    servers_us: float | None = None
    read_s: float = 0.0
    reader_us: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing was wrong."""
        return not self.reason

    @property
    def delivered(self) -> int:
        """The number of deliveries at all places."""
        return sum(place.delivered for place in self.places)

    @property
    def per_second(self) -> float:
        """The number of messages per second, not of deliveries."""
        return self.messages / self.elapsed_s if self.elapsed_s else 0.0

    def per_topic(self) -> list[float]:
        """Return deliveries per second of each topic."""
        rates = [0.0] * self.cell.topics
        for place in self.places:
            rates[place.topic] += place.per_second
        return rates


@frozen(kw_only=True)
class TouchedGroup:
    """Commands in one group's log about messages, `addressed` to it or not.

    `others`: commands about no message.
    """

    name: str
    addressed: bool
    entries: int
    starts: int
    remotes: int
    others: int


@frozen(kw_only=True)
class TouchedServer:
    """Datagrams of a server for groups during the run.

    `hosts`: it has a replica of a group that was addressed.
    """

    name: str
    hosts: bool
    sent: int
    received: int


@frozen(kw_only=True)
class GenuineResult:
    """Result of messages to `fanout` of `topics`, one at a time: what they touched.

    Attributes:
        per_message: messages between groups that were logged or sent for each; `bound`: what it may be,
            k(k - 1) + k.
        commits: one after the other until a message was delivered at a group, the most that any message
            took.
    """

    topics: int
    fanout: int
    messages: int
    reason: str = ""
    groups: tuple[TouchedGroup, ...] = ()
    servers: tuple[TouchedServer, ...] = ()
    per_message: float = 0.0
    bound: int = 0
    commits: int = 0

    @property
    def ok(self) -> bool:
        """True if nothing was wrong."""
        return not self.reason

    @property
    def steps(self) -> int:
        """The steps at the leaders.

        These are the request, two for each commit and, between two commits, one leader's message to another.
        """
        return 3 * self.commits


@frozen(kw_only=True)
class StreamResult:
    """One topic with its producers and consumers, or (`target` log) appends to a znode log with a reader that follows."""

    target: str
    partitions: int
    value_bytes: int
    messages: int = 0
    elapsed_s: float = 0.0
    per_second: float = 0.0
    mb_per_second: float = 0.0
    latency: Summary | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing was wrong."""
        return not self.reason


@frozen(kw_only=True)
class MulticastResults:
    """All results of a run of `zraft-bench multicast`."""

    cells: tuple[CellResult, ...] = ()
    genuine: tuple[GenuineResult, ...] = ()
    streams: tuple[StreamResult, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing was wrong in any result."""
        return all(
            (
                all(one.ok for one in self.cells),
                all(one.ok for one in self.genuine),
                all(one.ok for one in self.streams),
            )
        )


def combine(
    cell: Cell,
    servers: int,
    produced: Sequence[Produced],
    consumed: Sequence[Consumed],
    *,
    counts: Counts | None = None,
    pairs: int = 0,
    servers_cpu_s: float | None = None,
) -> CellResult:
    """Make one result of what the processes saw; it is complete only if `judged` finds nothing wrong with it."""
    sent = sent_by_producer(cell, produced)
    began = min((one.began_s for one in produced), default=0.0)
    delivered = {p: n for one in consumed for p, n in zip(one.places, one.delivered, strict=True)}
    last = max((at for one in consumed for at in one.last_s), default=began)
    sent_all = max((one.ended_s for one in produced), default=began)
    elapsed = (sent_all if cell.reads_after else max(last, sent_all)) - began
    read_s = last - min((one.began_s for one in consumed), default=last) if cell.reads_after else 0.0
    reading = read_s or elapsed
    latency, arrival = _merged(one.latencies for one in produced), _merged(one.arrivals for one in consumed)
    decks = [Deck(cell, producer) for producer in range(cell.producers)]
    sizes = [size for deck, count in zip(decks, sent, strict=True) for size in deck.deliveries(count)]
    messages = sum(sent)
    sending, readers = [one.cpu_s for one in produced], [one.cpu_s for one in consumed]
    busy = sending if cell.reads_after else [*sending, *readers]
    failures: dict[str, int] = {}
    for one in produced:
        for text, count in one.failures.items():
            failures[text] = failures.get(text, 0) + count
    result = CellResult(
        cell=cell,
        servers=servers,
        messages=messages,
        multicasts=sum(deck.multicasts(count) for deck, count in zip(decks, sent, strict=True)),
        elapsed_s=elapsed,
        places=tuple(
            PlaceResult(
                topic=place // cell.partitions,
                partition=place % cell.partitions,
                delivered=count,
                per_second=count / reading if reading else 0.0,
            )
            for place, count in sorted(delivered.items())
        ),
        latency={name: one.summary() for name, one in latency.items()},
        arrival={name: one.summary() for name, one in arrival.items()},
        histograms=latency,
        counts=counts or Counts(),
        thesis_records=atomic_kafka.total_records(sizes),
        pairs=pairs,
        failures=failures,
        generator_share=max(busy, default=0.0) / elapsed if elapsed else 0.0,
        generator_us=sum(busy) * 1e6 / messages if messages else 0.0,
        servers_us=servers_cpu_s * 1e6 / messages if servers_cpu_s is not None and messages else None,
        read_s=read_s,
        reader_us=sum(readers) * 1e6 / max(1, sum(delivered.values())) if cell.reads_after else 0.0,
    )
    return _noted(judged(result, sizes, [one.broken for one in consumed if one.broken]))


def sent_by_producer(cell: Cell, produced: Iterable[Produced]) -> list[int]:
    """Return how many messages each producer of the cell has sent."""
    sent = [0] * cell.producers
    for one in produced:
        for producer, count in zip(one.producers, one.sent, strict=True):
            sent[producer] = count
    return sent


def judged(result: CellResult, sizes: Iterable[tuple[int, int]], broken: Sequence[str]) -> CellResult:
    """Add the reasons why the result does not count: the accounting must come out exactly."""
    reasons = list(broken)
    if result.failures:
        most = max(result.failures.items(), key=lambda one: one[1])
        reasons.append(f"{sum(result.failures.values()):,} messages failed, most often: {most[0]}")
    if not result.messages:
        reasons.append("nothing was delivered")
    wanted = sum(destinations * count for destinations, count in sizes)
    if not reasons and result.delivered != wanted:
        reasons.append(f"{wanted:,} deliveries were told to producers, consumers read {result.delivered:,}")
    return evolve(result, reason="; ".join(reasons))


def _noted(result: CellResult) -> CellResult:
    notes = list(result.notes)
    if result.generator_share > GENERATOR_BUSY:
        notes.append(
            f"{result.cell.name}: a load process used {result.generator_share:.0%} of a core and limits this figure"
        )
    if result.counts.entries is None:
        notes.append("the servers do not count what their groups log and send")
    return evolve(result, notes=tuple(notes))


def failed(cell: Cell, servers: int, reason: str) -> CellResult:
    """Return a cell that measured nothing."""
    return CellResult(cell=cell, servers=servers, reason=reason)


def _merged(parts: Iterable[dict[str, Histogram]]) -> dict[str, Histogram]:
    found: dict[str, Histogram] = {}
    for part in parts:
        for name, one in part.items():
            found.setdefault(name, Histogram()).merge(one)
    return dict(sorted(found.items(), key=lambda item: int(item[0])))
