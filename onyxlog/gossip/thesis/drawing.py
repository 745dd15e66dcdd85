"""Listing 6.3, `pick-streams`, and what the thesis measures of the resulting graphs (tables 8.1 to 8.6)."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from random import Random

from attrs import frozen

from onyxlog.errors import OnyxlogError
from onyxlog.gossip.messages import Stream
from onyxlog.gossip.streams import Arc, drawn_arc


class UndefinedDrawError(OnyxlogError, ValueError):
    """Error of a draw among fewer than two streams, for so few peers."""


def pick_streams(peers: int, generator: Random) -> Arc:
    """Draw one peer's streams, from floor(ln peers) streams.

    Raises:
        UndefinedDrawError: there are fewer than 8 peers, so there is at most one stream and no other one
            to listen on.
    """
    streams = math.floor(math.log(peers)) if peers > 0 else 0
    if streams < 2:
        raise UndefinedDrawError(
            f"{peers} peers have {streams} streams: the draw takes 2, so at least 8 peers"
        )
    return drawn_arc(generator, streams)


def draw_pool(peers: int, generator: Random) -> tuple[Arc, ...]:
    """Return the draws of that many peers that begin at the same time."""
    return tuple(pick_streams(peers, generator) for _ in range(peers))


@frozen
class GraphFigures:
    """Figures of one pool. Degrees are shares of all peers.

    `stream_path`: mean shortest path between streams (which the thesis' figures are close to); `peer_path`:
    between peers, which is how often an event is sent until it arrives. Both are over connected pairs.
    `thesis_connected`: the streams published on are those listened on, which is what the thesis calls
    connected; `connected`: whatever one peer publishes reaches all others.
    """

    degree: float
    in_degree_variance: float
    stream_path: float
    peer_path: float
    thesis_connected: bool
    connected: bool


def figures_of(pool: Sequence[Arc]) -> GraphFigures:
    """Return the thesis' figures of a pool."""
    peers = len(pool)
    listening = Counter(arc.listens for arc in pool)
    publishing = Counter(arc.publishes for arc in pool)
    arcs = Counter(pool)
    streams = sorted(set(listening) | set(publishing))
    between = {stream: _distances(stream, set(pool)) for stream in streams}

    # A peer's edges go to those that listen where it publishes; never to itself, as it listens elsewhere.
    edges = sum(listening[arc.publishes] for arc in pool)
    in_degrees = [publishing[arc.listens] / peers for arc in pool]
    mean = edges / peers / peers
    variance = sum((degree - mean) ** 2 for degree in in_degrees) / peers

    hops = pairs = 0
    for root, published in publishing.items():
        for stream, distance in between[root].items():
            # A peer that publishes on `root` and listens on `stream` is no pair with itself.
            count = published * listening[stream] - arcs[Arc(stream, root)]
            pairs += count
            hops += count * (distance + 1)
    steps = [d for root in streams for stream, d in between[root].items() if stream != root]
    return GraphFigures(
        degree=mean,
        in_degree_variance=variance,
        stream_path=sum(steps) / len(steps) if steps else 0.0,
        peer_path=hops / pairs if pairs else 0.0,
        thesis_connected=set(listening) == set(publishing),
        connected=pairs == peers * (peers - 1),
    )


def _distances(root: Stream, arcs: set[Arc]) -> dict[Stream, int]:
    """Return how often an event that was published on `root` is passed on until it is on each stream."""
    found, queue = {root: 0}, deque([root])
    while queue:
        stream = queue.popleft()
        for arc in sorted(arcs, key=lambda arc: (arc.listens, arc.publishes)):
            if arc.listens == stream and arc.publishes not in found:
                found[arc.publishes] = found[stream] + 1
                queue.append(arc.publishes)
    return found


def cut_off_on_arrival(peers: int, generator: Random) -> bool:
    """Return whether the last of `peers`, which came one by one, is cut off.

    A peer is cut off if nobody listens where it publishes, or nobody publishes where it listens. For peers
    that raise the number of streams the probability is 2/streams.
    """
    pool = [pick_streams(present, generator) for present in range(8, peers)]
    newcomer = pick_streams(peers, generator)
    return not any(arc.listens == newcomer.publishes for arc in pool) or not any(
        arc.publishes == newcomer.listens for arc in pool
    )
