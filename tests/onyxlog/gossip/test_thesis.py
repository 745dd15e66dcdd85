"""The thesis' gossip, and the numbers that explain its tables (3.2-2 to 3.2-7)."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from random import Random
from statistics import mean

import pytest

from onyxlog.gossip.streams import Arc
from onyxlog.gossip.thesis.copies import Reading, spread
from onyxlog.gossip.thesis.drawing import (
    UndefinedDrawError,
    cut_off_on_arrival,
    draw_pool,
    figures_of,
    pick_streams,
)
from onyxlog.gossip.thesis.exact import Disconnection, disconnection, surjections
from onyxlog.theses.gossip import GRAPHS, SPREADS, GraphRow, SpreadRow


@pytest.mark.parametrize("peers", range(8))
def test_with_fewer_than_eight_peers_there_is_nothing_to_draw_from(peers: int) -> None:
    with pytest.raises(UndefinedDrawError, match=f"{peers} peers"):
        pick_streams(peers, Random(1))


def test_all_arcs_are_drawn_alike() -> None:
    generator = Random(1)
    drawn = Counter(pick_streams(21, generator) for _ in range(60_000))
    assert set(drawn) == {Arc(a, b) for a in range(3) for b in range(3) if a != b}
    assert all(abs(count - 10_000) < 400 for count in drawn.values())


def brute_force(peers: int, streams: int) -> Disconnection:
    arcs = [Arc(a, b) for a in range(streams) for b in range(streams) if a != b]
    thesis = truly = publish_only = cases = 0
    for pool in product(arcs, repeat=peers):
        figures = figures_of(pool)
        cases += 1
        thesis += not figures.thesis_connected
        truly += not figures.connected
        publish_only += bool({arc.publishes for arc in pool} - {arc.listens for arc in pool})
    return Disconnection(Fraction(thesis, cases), Fraction(truly, cases), Fraction(publish_only, cases))


@pytest.mark.parametrize(("peers", "streams"), [(2, 2), (4, 2), (8, 2), (3, 3), (4, 3), (3, 4)])
def test_exact_probabilities_are_those_of_trying_all_cases(peers: int, streams: int) -> None:
    assert disconnection(peers, streams) == brute_force(peers, streams)


@pytest.mark.parametrize(
    ("peers", "streams", "thesis", "truly", "publish_only"),
    [
        (8, 2, 7.8125e-3, 7.8125e-3, 7.8125e-3),
        (21, 3, 1.200e-3, 1.200e-3, 6.015e-4),
        (55, 4, 1.0751e-6, 1.0764e-6, 5.376e-7),
        (149, 5, 3.634e-14, 3.634e-14, 1.817e-14),
    ],
)
def test_the_thesis_pool_is_disconnected_as_often_as_this(
    peers: int, streams: int, thesis: float, truly: float, publish_only: float
) -> None:
    found = disconnection(peers, streams)
    assert float(found.thesis) == pytest.approx(thesis, rel=5e-4)
    assert float(found.truly) == pytest.approx(truly, rel=5e-4)
    assert float(found.publish_only) == pytest.approx(publish_only, rel=5e-4)


def test_the_thesis_criterion_overlooks_islands_which_are_rare() -> None:
    two_islands = (Arc(0, 1), Arc(1, 0), Arc(2, 3), Arc(3, 2))
    figures = figures_of(two_islands)
    assert figures.thesis_connected
    assert not figures.connected
    assert float(disconnection(55, 4).islands) == pytest.approx(1.24e-9, rel=1e-2)
    assert disconnection(8, 2).islands == 0
    assert float(disconnection(404, 6).truly) < 1.3e-31
    assert float(disconnection(1097, 7).truly) < 5.2e-73


def test_a_thousand_pools_of_eight_that_are_all_connected_are_not_to_be_believed() -> None:
    assert float((1 - disconnection(8, 2).thesis) ** 1000) == pytest.approx(0.0004, abs=5e-5)


def test_surjections_are_counted() -> None:
    for n, m in product(range(6), range(1, 5)):
        assert surjections(n, m) == sum(len(set(f)) == m for f in product(range(m), repeat=n))


@pytest.mark.parametrize("row", GRAPHS[:3], ids=lambda row: str(row.peers))
def test_degrees_are_those_of_the_table_and_paths_between_peers_are_two_less_a_streams_share(
    row: GraphRow,
) -> None:
    peers, streams = row.peers, row.streams
    generator = Random(7)
    found = [figures_of(draw_pool(peers, generator)) for _ in range(300)]
    assert mean(f.degree for f in found) == pytest.approx((peers - 1) / (streams * peers), rel=0.03)
    assert mean(f.degree for f in found) == pytest.approx(row.degree, rel=0.03)
    assert mean(f.peer_path for f in found) == pytest.approx(2 - 1 / streams, abs=0.03)
    assert mean(f.stream_path for f in found) == pytest.approx(row.path, abs=0.03)


@pytest.mark.parametrize(("peers", "streams"), [(21, 3), (55, 4), (149, 5)])
def test_who_makes_the_streams_more_is_cut_off_with_twice_a_streams_share(peers: int, streams: int) -> None:
    generator = Random(3)
    runs = 600
    cut = sum(cut_off_on_arrival(peers, generator) for _ in range(runs)) / runs
    assert cut == pytest.approx(2 / streams, abs=0.05)
    assert sum(cut_off_on_arrival(peers - 1, generator) for _ in range(200)) / 200 < 0.1


def figures(peers: int, ttl: int, reading: Reading, runs: int) -> tuple[float, float, float, float]:
    generator = Random(1)
    found = [spread(draw_pool(peers, generator), ttl, reading, generator) for _ in range(runs)]
    return (
        mean(f.coverage for f in found),
        mean(f.redundancy for f in found),
        mean(f.overall for f in found),
        mean(f.sends for f in found),
    )


@pytest.mark.parametrize("row", SPREADS, ids=lambda row: row.table)
def test_half_of_the_first_hop_can_be_redundant_only_if_the_origin_emits_twice(row: SpreadRow) -> None:
    peers = row.peers
    assert figures(peers, 1, Reading.LISTING, 200)[1] == 0
    assert figures(peers, 1, Reading.TWICE, 200)[1] == pytest.approx(0.5, abs=0.01)
    for ttl, (_, published) in enumerate(row.by_ttl, start=1):
        assert figures(peers, ttl, Reading.TWICE, 200)[1] == pytest.approx(published, abs=0.09)


def test_the_missing_coverage_of_table_8_7_is_one_run_in_which_all_drew_alike() -> None:
    missing = 20 * 8 * (1 - SPREADS[0].by_ttl[3][0])
    assert missing == pytest.approx(7, abs=0.01)
    alike = (Arc(0, 1),) * 8
    assert spread(alike, 4, Reading.LISTING, Random(1)).coverage == 1 / 8
    assert disconnection(8, 2).thesis == Fraction(1, 128)
    # With two streams, two hops and a mixed pool everybody is reached: nothing else can be missing.
    generator = Random(5)
    for _ in range(300):
        pool = draw_pool(8, generator)
        if len(set(pool)) == 2:
            assert spread(pool, 2, Reading.LISTING, generator).coverage == 1


def test_copies_multiply_with_every_hop_as_known_events_are_passed_on() -> None:
    sends = [figures(55, ttl, Reading.LISTING, 60)[3] for ttl in (1, 2, 3, 4)]
    assert sends == pytest.approx([1, 14.5, 200, 2700], rel=0.12)


def test_the_proposed_history_of_visited_streams_does_not_cure_it() -> None:
    _, per_peer, overall, sends = figures(55, 4, Reading.VISITED_FIRST, 100)
    assert per_peer == pytest.approx(0.69, abs=0.03)
    assert overall == pytest.approx(0.90, abs=0.03)
    assert sends == pytest.approx(41, rel=0.1)
    assert figures(55, 4, Reading.VISITED, 60)[3] == pytest.approx(640, rel=0.15)
