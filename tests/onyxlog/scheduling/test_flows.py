"""Seating and placement by themselves, on harder cases than jobs make: compared with plain search."""

from __future__ import annotations

from functools import cache
from random import Random

from attrs import frozen

from onyxlog.scheduling.placement import Seats, WorkerPool, place
from onyxlog.scheduling.seating import Seating


@frozen
class Case:
    """`able`: of each kind, its classes, in no particular order; `members`: class of each worker."""

    able: tuple[tuple[int, ...], ...]
    members: tuple[int, ...]
    classes: int

    @property
    def supply(self) -> list[int]:
        return [self.members.count(number) for number in range(self.classes)]


def random_case(random: Random, workers: int) -> Case:
    classes = random.randint(2, 4)
    able = tuple(
        tuple(random.sample(range(classes), random.randint(1, classes - 1)))
        for _ in range(random.randint(2, 4))
    )
    return Case(able, tuple(random.randrange(classes) for _ in range(workers)), classes)


def most_seated(case: Case, demands: list[int]) -> int:
    @cache
    def best(index: int, left: tuple[int, ...]) -> int:
        if index == len(case.members):
            return 0
        found = best(index + 1, left)
        for kind, missing in enumerate(left):
            if missing and case.members[index] in case.able[kind]:
                fewer = (*left[:kind], missing - 1, *left[kind + 1 :])
                found = max(found, 1 + best(index + 1, fewer))
        return found

    return best(0, tuple(demands))


def test_a_kind_moves_on_to_another_class_for_who_has_no_other() -> None:
    seating = Seating([1, 1, 1], [(0, 1), (1, 2), (0,)])
    assert seating.take(0, 1) == 1
    assert seating.take(1, 1) == 1
    # the only one for the third kind is taken: the first takes one of the second's, who takes what is free
    assert seating.take(2, 1) == 1
    assert seating.free == 0
    assert seating.take(0, 1) == 0


def test_together_as_many_are_seated_as_can_be_in_any_order_of_asking() -> None:
    short = 0
    for seed in range(300):
        random = Random(seed)
        case = random_case(random, 7)
        demands = [random.randrange(5) for _ in case.able]
        seating = Seating(case.supply, case.able)
        order = random.sample(range(len(demands)), len(demands))
        got = sum(seating.take(kind, demands[kind]) for kind in order)
        assert got == most_seated(case, demands), case
        assert seating.free == len(case.members) - got
        short += got < sum(demands)
    assert 50 < short < 290


def test_all_or_nothing_leaves_nothing_behind() -> None:
    refused = 0
    for seed in range(200):
        random = Random(seed)
        case = random_case(random, 6)
        seating = Seating(case.supply, case.able)
        before = seating.take_all({0: 1})
        free = seating.free
        wanted = {kind: random.randrange(4) for kind in range(len(case.able))}
        possible = most_seated(case, [wanted[kind] + (before and kind == 0) for kind in wanted])
        assert seating.take_all(wanted) == (possible == sum(wanted.values()) + before)
        if seating.free == free:
            refused += 1
            assert sum(_maxima(seating, case)) + before == most_seated(
                case, [len(case.members)] * len(case.able)
            )
    assert refused > 30


def _maxima(seating: Seating, case: Case) -> list[int]:
    return [seating.take(kind, len(case.members)) for kind in range(len(case.able))]


def test_placement_lets_as_many_stay_as_any_assignment() -> None:
    """For any numbers that are possible, whoever sat where before."""
    moved = 0
    for seed in range(300):
        random = Random(seed)
        case = random_case(random, 7)
        kinds = [random.randrange(len(case.able)) for _ in range(random.randint(3, 5))]
        keys = [("j", f"t{index}") for index in range(len(kinds))]
        wanted = [0] * len(kinds)
        present: dict[tuple[str, str], list[str]] = {key: [] for key in keys}
        for number in case.members:
            fitting = [index for index, kind in enumerate(kinds) if number in case.able[kind]]
            if fitting and random.random() < 0.97:
                wanted[random.choice(fitting)] += 1
        names = [f"p{index}" for index in range(len(case.members))]
        for name, number in zip(names, case.members, strict=True):
            fitting = [index for index, kind in enumerate(kinds) if number in case.able[kind]]
            if fitting and random.random() < 0.97:
                present[keys[random.choice(fitting)]].append(name)
        before = {key: tuple(peers) for key, peers in present.items()}
        pool = WorkerPool(dict(zip(names, case.members, strict=True)), case.able, case.classes)
        seats = [Seats(key, kind, count) for key, kind, count in zip(keys, kinds, wanted, strict=True)]
        placed = place(seats, pool, before, {}, lambda _peer: 0)
        assert [len(placed[key]) for key in keys] == wanted
        everybody = [peer for peers in placed.values() for peer in peers]
        assert len(everybody) == len(set(everybody))
        for key, kind in zip(keys, kinds, strict=True):
            assert all(pool.class_of[peer] in case.able[kind] for peer in placed[key])
        stay = sum(len(set(placed[key]) & set(before[key])) for key in keys)
        assert stay == _most_stay(case, kinds, wanted, [before[key] for key in keys]), seed
        moved += stay < sum(min(len(before[key]), count) for key, count in zip(keys, wanted, strict=True))
    assert moved > 5


def _most_stay(case: Case, kinds: list[int], wanted: list[int], before: list[tuple[str, ...]]) -> int:
    @cache
    def best(index: int, left: tuple[int, ...]) -> int:
        if index == len(case.members):
            return -1000 if any(left) else 0
        found = best(index + 1, left)
        for task, missing in enumerate(left):
            if missing and case.members[index] in case.able[kinds[task]]:
                fewer = (*left[:task], missing - 1, *left[task + 1 :])
                found = max(found, (f"p{index}" in before[task]) + best(index + 1, fewer))
        return found

    return best(0, tuple(wanted))
