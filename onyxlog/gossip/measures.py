"""Measures of gossip in a simulated fleet: coverage, redundancy, sends, hops, latency, and saved reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from attrs import frozen

from onyxlog.gossip.settings import settings_for
from onyxlog.gossip.simulation import NOTE, Conditions, Simulation
from onyxlog.gossip.spreading import Mode
from onyxlog.ids import GroupId

QUIET_MS: Final = 1_000
"""Time before the first event, ms. A tree forms its links in it."""
OVERLAY_MS: Final = 15_000
WARM_UP: Final = 20
"""Entries before those that are measured."""


@frozen
class Scenario:
    """A measurement: `events` entries, one every `interval_ms`, by random groups.

    `churn`: the share of the groups that die meanwhile; as many others join. `clients`: the share of the
    entries that no group wrote.
    """

    peers: int
    mode: Mode = Mode.POOL
    loss: float = 0.0
    churn: float = 0.0
    clients: float = 0.0
    events: int = 50
    interval_ms: int = 100
    seed: int = 1


@frozen
class Figures:
    """The figures of one measurement.

    Coverages are shares of all pairs of an event and a live group that was a member (without the publisher):
    those that got the event by gossip alone, by gossip or from a peer that was asked, and in the end.
    Redundancy is superfluous receptions of events: the mean of each group's share, and the share of all.

    `sends`, `datagrams`: for one event. `small`: datagrams for one event that carry none (heartbeats,
    announcements, requests). Latencies are in ms, from the append to the apply, of all pairs, and
    `everywhere_ms` until the last group, of half of the events.

    `reads`: entries read from the log; `looks`: looks of a sentinel at its end; `pushed`: entries that the
    log pushed to sentinels; `saved`: the share of one read for each group and event that was not needed.
    """

    scenario: Scenario
    settled: bool
    by_gossip: float
    after_peers: float
    after_log: float
    redundancy: float
    redundancy_overall: float
    sends: float
    datagrams: float
    small: float
    hops: float
    hops_max: int
    median_ms: float
    p99_ms: float
    everywhere_ms: float
    reads: int
    looks: int
    pushed: int
    saved: float


def measure(scenario: Scenario) -> Figures:
    """Run the scenario to the end: until every live group has applied the whole log."""
    world = Simulation(
        scenario.peers, settings_for(scenario.mode), Conditions(loss=scenario.loss), scenario.seed
    )
    start = OVERLAY_MS if scenario.mode is Mode.PLUMTREE else QUIET_MS
    world.run(start)
    dice = world.random
    for _ in range(WARM_UP):  # a tree forms in this time
        world.append(NOTE, "warm up", dice.choice([node.name for node in world.living()]))
        world.run(world.now + scenario.interval_ms)
    start = world.now + QUIET_MS
    world.run(start)
    world.tracks.clear()
    before = dict(world.datagrams)
    asked_before = _asked(world)
    end = start + scenario.events * scenario.interval_ms

    def one() -> None:
        if dice.random() < scenario.clients:
            world.append(NOTE, "client")
        else:
            members = [node.name for node in world.living() if node.name in world.states[-1].pool.arcs]
            world.append(NOTE, "group", dice.choice(members))

    def death() -> None:
        world.die(dice.choice([node.name for node in world.living()]))

    for number in range(scenario.events):
        world.at(start + number * scenario.interval_ms, one)
    for _ in range(round(scenario.churn * scenario.peers)):
        world.at(dice.randrange(start, end), death)
        world.at(dice.randrange(start, end), world.join)
    world.run(end)
    settled = world.settle()
    return _figures(scenario, world, before, asked_before, settled)


def _asked(world: Simulation) -> tuple[int, int, int]:
    """Return what was asked of the log: reads of entries, looks at its end, and entries that it pushed."""
    counters = [node.messenger.counters for node in world.nodes.values()]
    return (
        sum(c.reads.total() for c in counters),
        sum(c.looks for c in counters),
        sum(c.tailed_entries for c in counters),
    )


def _figures(
    scenario: Scenario,
    world: Simulation,
    before: dict[str, int],
    asked_before: tuple[int, int, int],
    settled: bool,
) -> Figures:
    living = {node.name for node in world.living()}
    tracks = list(world.tracks.values())
    pairs = gossip = peers = applied = 0
    receptions: Counter[GroupId] = Counter()
    useful: Counter[GroupId] = Counter()
    hops: Counter[int] = Counter()
    latencies: list[int] = []
    last: list[int] = []
    for track in tracks:
        expected = (track.members & living) - track.publishers
        pairs += len(expected)
        gossip += sum(group in track.spread for group in expected)
        peers += sum(group in track.spread or track.sources.get(group) == "peer" for group in expected)
        applied += sum(group in track.applied for group in expected)
        receptions.update(track.receptions)
        useful.update(group for group in track.spread if group not in track.publishers)
        hops.update(track.spread.values())
        times = [track.applied[group] - track.at for group in expected if group in track.applied]
        latencies += times
        last.append(max(times, default=0))
    events = len(tracks)
    reads, looks, pushed = (now - then for now, then in zip(_asked(world), asked_before, strict=True))
    sent = {kind: count - before.get(kind, 0) for kind, count in world.datagrams.items()}
    carrying = sum(sent.get(kind, 0) for kind in ("PoolEvent", "RumourEvent", "TreeEvent"))
    total = receptions.total()
    return Figures(
        scenario=scenario,
        settled=settled,
        by_gossip=gossip / pairs,
        after_peers=peers / pairs,
        after_log=applied / pairs,
        redundancy=fmean((count - useful[group]) / count for group, count in receptions.items()),
        redundancy_overall=(total - useful.total()) / total,
        sends=sum(track.published for track in tracks) / events,
        datagrams=carrying / events,
        small=(sum(sent.values()) - carrying) / events,
        hops=sum(hop * count for hop, count in hops.items()) / hops.total(),
        hops_max=max(hops),
        median_ms=quantile(latencies, 0.5),
        p99_ms=quantile(latencies, 0.99),
        everywhere_ms=quantile(last, 0.5),
        reads=reads,
        looks=looks,
        pushed=pushed,
        saved=1 - (reads + looks + pushed) / (scenario.peers * events),
    )


def quantile(values: Sequence[int], share: float) -> float:
    """Return the least value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) if ordered else 0.0


def scenarios(
    sizes: Iterable[int], modes: Iterable[Mode], losses: Iterable[float], churn: float, events: int
) -> list[Scenario]:
    """Return the calm and the lossy scenarios of each mode and size, and one with churn at the middle loss."""
    found = []
    losses = tuple(losses)
    for mode in modes:
        for size in sizes:
            found += [Scenario(size, mode, loss, events=events) for loss in losses]
            found.append(Scenario(size, mode, losses[len(losses) // 2], churn, events=events))
    return found
