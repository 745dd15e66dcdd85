"""Placement of the chunks of colocated jobs on sites, and of workers in them.

A chunk is one worker for each task of a job, all on one site. Jobs have their minimum first, by order; then
one chunk after the other goes to the job that ranks first, always on the site where the fewest workers have
to move for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from attrs import frozen

from onyxlog.ids import JobId, PeerId, Site
from onyxlog.scheduling.demand import UNBOUNDED, JobDemand, Key
from onyxlog.scheduling.job_schedulers.rule import Rank
from onyxlog.scheduling.placement import Seats, WorkerPool, place
from onyxlog.scheduling.requirements import Allocations, Slots
from onyxlog.scheduling.seating import Seating


@frozen
class Wish:
    """Demand of a job for chunks.

    `count`: how many chunks it is to have; `first`: how many of them before jobs after it have any.

    `pinned`: how many chunks each site has to keep; the job has none but these, if any.
    """

    demand: JobDemand
    count: int
    first: int
    pinned: Mapping[Site, int]
    rank: Callable[[int], Rank]
    """Returns the rank of the job when it has so many workers: the lowest has the next chunk."""


@frozen
class Ground:
    """The workers to place.

    `pool`: class of each worker that is not pinned, by id. `running`: jobs that continue; their workers are
    left alone if there are others.
    """

    pool: Mapping[PeerId, int]
    sites: Mapping[PeerId, Site]
    able: Sequence[Sequence[int]]
    classes: int
    pins: Mapping[Key, Sequence[PeerId]]
    present: Allocations
    slots: Slots
    running: frozenset[JobId]


@frozen
class Chunks:
    """The outcome.

    `granted`: how many chunks each wish has. `placed`: workers of each task, if all wishes are granted.
    """

    placed: Mapping[Key, Sequence[PeerId]]
    granted: tuple[int, ...]


def place_chunks(wishes: Sequence[Wish], ground: Ground) -> Chunks:
    """Place as many chunks as sites and tags allow. A pinned job whose chunks cannot be completed has none."""
    picking = _Picking(wishes, ground)
    if not picking.picked(keeping=True):
        # Chunks that stay are in the way of somebody's first: then they give way to jobs that come before.
        picking = _Picking(wishes, ground)
        picking.picked(keeping=False)
    short = any(got < wish.count for got, wish in zip(picking.granted, wishes, strict=True))
    return Chunks({} if short else picking.placed(), tuple(picking.granted))


class _Picking:
    """The state of one decision, which changes while it is made."""

    def __init__(self, wishes: Sequence[Wish], ground: Ground) -> None:
        self._wishes: Final = wishes
        self._ground: Final = ground
        self._by_site: Final[dict[Site, dict[PeerId, int]]] = {}
        for peer, number in ground.pool.items():
            self._by_site.setdefault(ground.sites[peer], {})[peer] = number
        self._pins: Final[dict[tuple[Key, Site], list[PeerId]]] = {}
        for key, peers in ground.pins.items():
            for peer in peers:
                self._pins.setdefault((key, ground.sites[peer]), []).append(peer)
        self._seating: Final[dict[Site, Seating]] = {}
        busy = {peer for key, peers in ground.present.items() if key[0] in ground.running for peer in peers}
        self._idle: Final[dict[Site, int]] = {}
        """The number of workers on each site whom nobody would miss."""
        for site, workers in self._by_site.items():
            supply = [0] * ground.classes
            for number in workers.values():
                supply[number] += 1
            self._seating[site] = Seating(supply, ground.able)
            self._idle[site] = sum(peer not in busy for peer in workers)
        self._emptiest: Final = [(-idle, site) for site, idle in self._idle.items()]
        """Sites by how many workers idle there: a heap, whose items may promise too much."""
        heapify(self._emptiest)
        self._own: Final = [self._own_of(wish) for wish in wishes]
        self.chosen: Final[list[dict[Site, int]]] = [{} for _ in wishes]
        """The chunks of each wish, by site."""
        self.granted: Final = [0] * len(wishes)
        """The number of chunks of each wish."""
        self._kinds: Final = [Counter(task.kind for task in wish.demand.tasks) for wish in wishes]
        self._full: Final[set[tuple[tuple[int, int], ...]]] = set()
        """Chunks, by kinds, for which no site has room any more."""
        self._staying: Final = [
            [(self._cost(index, site), site) for site in own] for index, own in enumerate(self._own)
        ]
        """The cost of each wish's next chunk on each site where the job has workers; heaps."""
        for heap in self._staying:
            heapify(heap)

    def _own_of(self, wish: Wish) -> dict[Site, list[int]]:
        """Return the workers of each task of the job now, by site, without those that are pinned."""
        own: dict[Site, list[int]] = {}
        for index, task in enumerate(wish.demand.tasks):
            for peer in self._ground.present.get(task.key, ()):
                if peer in self._ground.pool:
                    own.setdefault(self._ground.sites[peer], [0] * len(wish.demand.tasks))[index] += 1
        return own

    def picked(self, *, keeping: bool) -> bool:
        """Pick chunks; return whether everybody got the first ones.

        `keeping`: chunks that need nobody else's workers stay where they are, before any other is placed.
        Otherwise one chunk that moves to where another is would move that one, and so on through all jobs.
        """
        for index, wish in enumerate(self._wishes):
            if wish.pinned:
                self._complete(index)
        unpinned = [index for index, wish in enumerate(self._wishes) if not wish.pinned]
        if keeping:
            for index in unpinned:
                while self.granted[index] < self._wishes[index].count and self._stay(
                    index, cost_max=-1, displacing=False
                ):
                    pass
        content = True
        for index in unpinned:
            wish = self._wishes[index]
            while self.granted[index] < wish.first and self._next(index):
                pass
            content &= self.granted[index] >= wish.first
            if self.granted[index] * wish.demand.step < wish.demand.lower:
                self._release(index)
        heap = [(self._rank(index), index) for index in unpinned if self.chosen[index]]
        heapify(heap)
        while heap:
            _, index = heappop(heap)
            if self.granted[index] < self._wishes[index].count and self._next(index):
                heappush(heap, (self._rank(index), index))
        return content

    def _rank(self, index: int) -> Rank:
        return self._wishes[index].rank(self.granted[index] * self._wishes[index].demand.step)

    def _complete(self, index: int) -> None:
        """Complete the chunks that are pinned."""
        wish = self._wishes[index]
        done: list[tuple[Site, dict[int, int]]] = []
        for site, count in sorted(wish.pinned.items()):
            lacking = self._lacking(wish, site, count)
            if lacking and not (site in self._seating and self._seating[site].take_all(lacking)):
                for other, amounts in done:
                    for kind, amount in amounts.items():
                        self._seating[other].give_back(kind, amount)
                return
            done.append((site, lacking))
        self.chosen[index].update(wish.pinned)
        self.granted[index] = sum(wish.pinned.values())

    def _lacking(self, wish: Wish, site: Site, count: int) -> dict[int, int]:
        """Return what is lacking, by kind."""
        found: Counter[int] = Counter()
        for task in wish.demand.tasks:
            found[task.kind] += count - len(self._pins.get((task.key, site), ()))
        return {kind: amount for kind, amount in found.items() if amount}

    def _next(self, index: int) -> bool:
        """Place one chunk more where it costs least; return whether there was room for it."""
        heap = self._staying[index]
        while heap:
            # Elsewhere it costs nothing at best.
            if self._stay(index, cost_max=-1) or self._go(index):
                return True
            # A site without room drops out here. A site that is dearer than it was may be dearer than another.
            if heap and self._stay(index, cost_max=heap[0][0]):
                return True
        return self._go(index)

    def _stay(self, index: int, cost_max: int, *, displacing: bool = True) -> bool:
        """Place one chunk more on a site where the job has workers. Costs only rise, so they are computed again late."""
        heap = self._staying[index]
        passed: list[tuple[int, Site]] = []
        found = False
        while heap and heap[0][0] <= cost_max and not found:
            cost, site = heappop(heap)
            if (now := self._cost(index, site)) > cost:
                heappush(heap, (now, site))
            elif not displacing and self._others(index, site) > self._idle[site]:
                passed.append((cost, site))
            elif self._seating[site].take_all(self._kinds[index]):
                self._choose(index, site)
                heappush(heap, (self._cost(index, site), site))
                found = True
        for item in passed:
            heappush(heap, item)
        return found

    def _go(self, index: int) -> bool:
        """Place one chunk more on a site where the job has nobody, or one as dear: the one where it displaces the fewest."""
        step = self._wishes[index].demand.step
        kinds = tuple(sorted(self._kinds[index].items()))
        if kinds in self._full:
            return False
        heap = self._emptiest
        while heap and -heap[0][0] > self._idle[heap[0][1]]:
            heapreplace(heap, (-self._idle[heap[0][1]], heap[0][1]))
        if heap and -heap[0][0] >= step and self._goes_to(index, heap[0][1]):
            return True
        dearest = self._staying[index][0][0] if self._staying[index] else UNBOUNDED
        costs = [
            (max(step - idle, 0), site)
            for site, idle in self._idle.items()
            if self._seating[site].free >= step
        ]
        for cost, site in sorted(costs):
            if cost > dearest:
                return False
            if self._goes_to(index, site):
                return True
        if not self._own[index]:
            self._full.add(kinds)
        return False

    def _goes_to(self, index: int, site: Site) -> bool:
        if site in self._own[index] or not self._seating[site].take_all(self._kinds[index]):
            return False
        self._choose(index, site)
        return True

    def _choose(self, index: int, site: Site) -> None:
        self._idle[site] -= min(self._idle[site], self._others(index, site))
        self.chosen[index][site] = self.chosen[index].get(site, 0) + 1
        self.granted[index] += 1

    def _others(self, index: int, site: Site) -> int:
        """Return how many workers that are not the job's own its next chunk on the site needs."""
        step = self._wishes[index].demand.step
        own = sum(self._own[index].get(site, ())) - step * self.chosen[index].get(site, 0)
        return step - min(max(own, 0), step)

    def _cost(self, index: int, site: Site) -> int:
        """Return the cost of the next chunk on the site.

        It is the number of displaced workers of other jobs, less own ones that stay by it.

        It never falls from one chunk to the next, so that taking the cheapest each time is best for the job.
        """
        number = self.chosen[index].get(site, 0) + 1
        displaced = max(self._others(index, site) - self._idle[site], 0)
        return displaced - sum(count >= number for count in self._own[index][site])

    def _release(self, index: int) -> None:
        for site, count in self.chosen[index].items():
            for kind, amount in self._kinds[index].items():
                self._seating[site].give_back(kind, amount * count)
            self._full.clear()
        self.chosen[index].clear()
        self.granted[index] = 0

    def placed(self) -> dict[Key, list[PeerId]]:
        """Return the workers in their places.

        They are placed site by site, all jobs together: what tags allow together is not always
        possible one after the other.
        """
        ground = self._ground
        found: dict[Key, list[PeerId]] = {}
        seats: dict[Site, list[Seats]] = {}
        for wish, chosen in zip(self._wishes, self.chosen, strict=True):
            for site, count in chosen.items():
                for task in wish.demand.tasks:
                    staying = self._pins.get((task.key, site), []) if wish.pinned else []
                    found.setdefault(task.key, []).extend(staying)
                    if count > len(staying):
                        seats.setdefault(site, []).append(Seats(task.key, task.kind, count - len(staying)))
        colocated = {wish.demand.job.id for wish in self._wishes}
        missed = {
            peer
            for key, peers in ground.present.items()
            if key[0] in ground.running and key[0] not in colocated
            for peer in peers
        }
        # Each site gets only its own part, or all workers would be gone over once for each site.
        present = self._present_by_site()
        for site, wanted in sorted(seats.items()):
            pool = WorkerPool(self._by_site[site], ground.able, ground.classes)
            for key, peers in place(
                wanted, pool, present.get(site, {}), ground.slots, lambda peer: peer in missed
            ).items():
                found[key] += peers
        return found

    def _present_by_site(self) -> dict[Site, dict[Key, list[PeerId]]]:
        """Return the workers of each task now, those that are pinned aside."""
        found: dict[Site, dict[Key, list[PeerId]]] = {}
        for wish in self._wishes:
            for task in wish.demand.tasks:
                for peer in self._ground.present.get(task.key, ()):
                    if peer in self._ground.pool:
                        found.setdefault(self._ground.sites[peer], {}).setdefault(task.key, []).append(peer)
        return found
