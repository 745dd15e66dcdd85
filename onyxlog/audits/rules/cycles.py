"""Cycles through several orders: no single order has them all. Pure; linear in what it is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

Item = TypeVar("Item", bound=Hashable)
STARTS_MAX: Final = 200
"""The number of items of the core from which a shortest cycle is searched; one of the shortest is enough of a
witness.
"""


def graph_of(orders: Iterable[Sequence[Item]]) -> dict[Item, set[Item]]:
    """Map each item to those that come next after it in some order."""
    graph: dict[Item, set[Item]] = {}
    for order in orders:
        for item in order:
            graph.setdefault(item, set())
        for before, after in pairwise(order):
            if before != after:
                graph[before].add(after)
    return graph


def cyclic_core(graph: Mapping[Item, set[Item]]) -> dict[Item, set[Item]]:
    """Return what is left when all items that nothing precedes, and then all that nothing follows, are removed.

    Nothing is left of an acyclic graph.
    """
    before: dict[Item, set[Item]] = {item: set() for item in graph}
    after = {item: set(others) for item, others in graph.items()}
    for item, others in graph.items():
        for other in others:
            before[other].add(item)
    for here, there in ((before, after), (after, before)):
        free = deque(item for item, others in here.items() if not others)
        while free:
            item = free.popleft()
            del here[item]
            for other in there.pop(item):
                here[other].discard(item)
                if not here[other]:
                    free.append(other)
    return after


def shortest_cycle(graph: Mapping[Item, set[Item]]) -> list[Item]:
    """Return a shortest cycle through some of the graph's items, first item not repeated; [] if there is none."""
    core = cyclic_core(graph)
    best: list[Item] = []
    for start in list(core)[:STARTS_MAX]:
        found = _cycle_from(core, start, len(best))
        if found and (not best or len(found) < len(best)):
            best = found
        if len(best) == 2:
            break
    return best


def _cycle_from(core: Mapping[Item, set[Item]], start: Item, longest: int) -> list[Item]:
    """Return the shortest cycle through `start`, breadth first; shorter than `longest` unless that is 0."""
    came_from: dict[Item, Item] = {}
    depth = {start: 0}
    due = deque([start])
    while due:
        item = due.popleft()
        if longest and depth[item] + 1 >= longest:
            return []
        for other in core[item]:
            if other == start:
                path = [item]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other not in depth:
                depth[other] = depth[item] + 1
                came_from[other] = item
                due.append(other)
    return []
