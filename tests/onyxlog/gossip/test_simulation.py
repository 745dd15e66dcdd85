"""Whole fleets: every replica reaches the log's chain, whatever the network does; and what it costs when it does nothing.

That nothing is applied twice, out of order, or with other bytes than the log's is asserted inside of the simulation.
"""

from __future__ import annotations

from random import Random

import pytest

from onyxlog.gossip.measures import Scenario, measure, quantile, scenarios
from onyxlog.gossip.messages import Event, PoolEvent
from onyxlog.gossip.settings import GossipSettings, settings_for
from onyxlog.gossip.simulation import NOTE, Conditions, Simulation
from onyxlog.gossip.spreading import Mode
from onyxlog.replica.pool import ends_in_order, streams_for

MODES = tuple(Mode)


def noted(world: Simulation, count: int, interval: int = 50) -> None:
    """Entries by random members, one after the other."""
    for number in range(count):
        world.at(
            world.now + number * interval,
            lambda: world.append(
                NOTE, "x", world.random.choice([n.name for n in world.living() if not n.paused])
            ),
        )
    world.run(world.now + count * interval)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_every_replica_reaches_the_logs_chain_through_loss_doubles_deaths_joins_and_collection(
    mode: Mode, seed: int
) -> None:
    conditions = Conditions(loss=0.1, doubled=0.1, delay_ms=(1, 60))
    world = Simulation(12, settings_for(mode), conditions, seed)
    random = Random(seed)
    world.run(2000)
    for _ in range(6):
        noted(world, 6)
        match random.choice(("die", "join", "client", "collect")):
            case "die" if len(world.living()) > 4:
                world.die(random.choice([node.name for node in world.living()]))
            case "join":
                world.join()
            case "collect":
                world.collect(random.randrange(world.origin, len(world.log)))
            case _:
                world.append(NOTE, "client")
    world.run(world.now + conditions.expiry_ms + 100)
    assert world.settle(), f"behind: {world.behind()}"
    assert len(world.log) >= 12 + 36
    pool = world.states[-1].pool
    assert pool.streams == streams_for(len(pool.arcs), pool.streams)
    assert set(ends_in_order(pool.streams)[: pool.streams]) <= {arc.ends for arc in pool.arcs.values()}


@pytest.mark.parametrize("mode", [Mode.POOL, Mode.PLUMTREE])
def test_a_partitioned_half_catches_up_when_it_is_healed(mode: Mode) -> None:
    world = Simulation(20, settings_for(mode), Conditions(), 3)
    world.run(5000)
    half = set(list(world.nodes)[:10])
    world.connected = lambda a, b: (a in half) == (b in half)
    noted(world, 20)
    world.connected = lambda a, b: True
    assert world.settle(30_000)


def test_a_paused_group_goes_on_with_what_its_socket_kept_and_mends_the_rest() -> None:
    world = Simulation(21, settings_for(Mode.POOL), Conditions(), 4)
    world.run(1000)
    sleeper = next(node for node in world.living() if not node.tailing)
    world.pause(sleeper.name)
    noted(world, 40)
    world.resume(sleeper.name, buffer=10)
    assert world.settle(20_000)
    sources = [track.sources[sleeper.name] for track in world.tracks.values()]
    assert sources.count("gossip") >= 5
    assert "peer" in sources
    assert "log" not in sources


def test_a_group_that_collection_overtakes_goes_on_from_the_origin() -> None:
    world = Simulation(21, GossipSettings(history=64), Conditions(), 5)
    world.run(1000)
    sleeper = next(node for node in world.living() if not node.tailing)
    world.pause(sleeper.name)
    noted(world, 200, interval=5)  # more than others keep
    world.collect(len(world.log) - 1)
    world.resume(sleeper.name, buffer=0)
    assert world.settle(30_000)
    assert sleeper.messenger.counters.begun_again == 1
    assert world.tracks[world.origin + 1].applied.get(sleeper.name) is not None


def test_a_stream_whose_listeners_are_all_dead_keeps_nobody_else_from_anything() -> None:
    world = Simulation(21, settings_for(Mode.POOL), Conditions(expiry_ms=60_000), 6)
    world.run(1000)
    victims = [
        name
        for name in world.nodes
        if world.states[-1].pool.arcs[name].subscribe == 1 and not world.nodes[name].tailing
    ]
    for victim in victims:
        world.die(victim)
    noted(world, 20)
    assert world.settle(10_000)


def test_when_the_sentinel_is_dead_clients_entries_are_found_by_polls_and_then_by_another_sentinel() -> None:
    world = Simulation(21, settings_for(Mode.POOL), Conditions(), 7)
    world.run(1000)
    (first,) = [node.name for node in world.living() if node.tailing]
    world.die(first)
    world.append(NOTE, "client")
    assert world.settle(30_000)
    assert sum(node.messenger.counters.reads["poll"] for node in world.living()) >= 1
    world.run(world.now + 10_000)
    assert world.settle(30_000)
    (second,) = [node.name for node in world.living() if node.tailing]
    assert second != first
    polls = sum(node.messenger.counters.reads["poll"] for node in world.living())
    world.append(NOTE, "client")
    assert world.settle(1000)
    assert sum(node.messenger.counters.reads["poll"] for node in world.living()) == polls


@pytest.mark.parametrize("mode", [Mode.POOL, Mode.PLUMTREE])
@pytest.mark.parametrize("seed", range(3))
def test_a_sentinel_that_only_the_log_has_lost_does_not_keep_others_from_looking(
    mode: Mode, seed: int
) -> None:
    world = Simulation(21, settings_for(mode), Conditions(), seed)
    noted(world, 5)
    world.run(world.now + 60_000)
    (sentinel,) = [node for node in world.living() if node.tailing]
    world.lose(sentinel.name)
    position = world.append(NOTE, "client")
    # Who was told a moment before looks after so long at the latest, and publishes what it finds.
    assert world.settle(round(1.5 * world.settings.poll_ms_max) + 1000)
    assert world.tracks[position].sources[sentinel.name] in ("gossip", "peer")
    found = [node.name for node in world.living() if node.messenger.counters.reads["poll"]]
    assert sentinel.name not in found
    assert len(found) < 5


def test_an_idle_fleet_leaves_the_log_alone() -> None:
    world = Simulation(21, settings_for(Mode.POOL), Conditions(), 8)
    noted(world, 5)
    world.settle()
    world.run(world.now + 10 * 60_000)
    assert sum(node.messenger.counters.reads.total() for node in world.living()) == 0
    looks = sorted(node.messenger.counters.looks for node in world.living())
    assert looks[:-1] == [0] * 20
    assert looks[-1] == pytest.approx(10 * 60_000 / world.settings.sentinel_beat_ms, abs=2), "the sentinel's"


def test_recorded_events_that_are_played_again_change_nothing() -> None:
    world = Simulation(8, settings_for(Mode.POOL), Conditions(), 9)
    noted(world, 10)
    world.settle()
    node = world.living()[0]
    before = (node.messenger.position, node.messenger.chain)
    state = world.states[10]
    old = Event(11, world.log[11], state.chain, world.origin, world.living()[1].name)
    for stream in (0, 1):
        node.messenger.receive(old.publisher, PoolEvent(old, state.pool.streams, stream, stream), world.now)
    assert node.messenger.ready(world.now) is None
    assert (node.messenger.position, node.messenger.chain) == before


@pytest.mark.parametrize("size", [8, 21, 55, 149])
def test_in_the_calm_the_default_reaches_all_with_nothing_received_twice(size: int) -> None:
    found = measure(Scenario(size, events=20, clients=0.1))
    assert (found.by_gossip, found.after_peers, found.after_log) == (1.0, 1.0, 1.0)
    assert (found.redundancy, found.redundancy_overall) == (0.0, 0.0)
    assert found.sends <= {8: 2, 21: 3, 55: 4, 149: 5}[size]
    assert found.datagrams == size - 1
    assert found.hops_max <= 2
    assert (found.reads, found.looks) == (0, 0)
    assert found.saved == pytest.approx(1 - 1 / size), "what a sentinel is pushed is all"


@pytest.mark.parametrize(
    ("loss", "churn", "gossip", "peers", "saved"),
    [(0.01, 0.0, 0.97, 0.998, 0.98), (0.05, 0.2, 0.9, 0.99, 0.95)],
)
def test_loss_and_churn_are_mended_by_peers_and_hardly_ever_by_the_log(
    loss: float, churn: float, gossip: float, peers: float, saved: float
) -> None:
    found = measure(Scenario(55, Mode.POOL, loss, churn, events=40))
    assert found.settled
    assert found.after_log == 1
    assert found.by_gossip > gossip
    assert found.after_peers > peers
    assert found.saved > saved
    assert found.redundancy < 0.15


def test_a_tree_receives_nothing_twice_either_once_it_has_formed() -> None:
    found = measure(Scenario(55, Mode.PLUMTREE, events=20))
    assert (found.by_gossip, found.after_log, found.reads) == (1.0, 1.0, 0)
    assert found.redundancy_overall < 0.1


def test_the_thesis_ways_receive_most_events_many_times() -> None:
    assert measure(Scenario(21, Mode.BLIND_COUNTER, events=5)).redundancy_overall > 0.9
    assert measure(Scenario(21, Mode.VISITED_STREAMS, events=5)).redundancy_overall > 0.6


def test_equal_seeds_are_equal_runs() -> None:
    scenario = Scenario(21, Mode.POOL, 0.05, 0.1, 0.1, events=15)
    assert measure(scenario) == measure(scenario)


def test_scenarios_cover_every_loss_and_churn() -> None:
    found = scenarios((8, 21), (Mode.POOL,), (0.0, 0.01, 0.05), 0.1, 5)
    assert [(s.peers, s.loss, s.churn) for s in found[:4]] == [
        (8, 0, 0),
        (8, 0.01, 0),
        (8, 0.05, 0),
        (8, 0.01, 0.1),
    ]
    assert len(found) == 8


def test_quantiles_are_of_the_values() -> None:
    assert (quantile([3, 1, 2], 0.5), quantile(range(100), 0.99), quantile([], 0.5)) == (2, 99, 0)
