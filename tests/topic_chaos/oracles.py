"""Judges what consumers of every replica read against what producers were told. Pure, and blind to how it is done.

The names are those of docs/explanation/topics.md, "Promises". Everything is healed and at rest when this is called: what is
missing then is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.multicast.checks import cycle_in, disagreement
from tests.topic_chaos.journal import Key, Outcome, Sent, key_of

NEVER_AGAIN: Final = 1 << 63

Place = tuple[str, int]
"""A topic and a partition of it."""

Stamp = tuple[int, int, int, int]


@frozen
class Read:
    """A record as a consumer got it. `id` is its message's: (producer, number), and `index` its place in it."""

    offset: int
    stamp: Stamp
    id: tuple[int, int]
    payload: bytes
    index: int = 0


@frozen
class Reading:
    """The whole log of a place, as one server gave it."""

    server: int
    place: Place
    reads: tuple[Read, ...]


@frozen
class Judged:
    """How much there was to judge, so that an empty run is noticed."""

    sent: int
    delivered: int
    several: int
    open: int
    replicas: int


def judge(
    sent: Mapping[Key, Sent],
    readings: Sequence[Reading],
    merged: Mapping[str, Sequence[Sequence[Key]]] | None = None,
) -> Judged:
    """`merged`: of each topic, what consumers of its partitions in one order got.

    Raises:
        BrokenPromiseError: the first promise that does not hold.
    """
    logs = one_log_per_place(readings)
    orders = {place: [key_of(read.payload) for read in log] for place, log in logs.items()}
    check_integrity(sent, logs, orders)
    check_agreement(sent, orders)
    check_order(orders, merged or {})
    check_real_time(sent, orders)
    check_producers(sent, logs, orders)
    for topic, consumers in (merged or {}).items():
        check_merged(sent, orders, topic, consumers)
    delivered = {key for order in orders.values() for key in order}
    return Judged(
        sent=len(sent),
        delivered=len(delivered),
        several=sum(len(sent[key].places) > 1 for key in delivered),
        open=sum(one.outcome is Outcome.OPEN for one in sent.values()),
        replicas=len(readings),
    )


def one_log_per_place(readings: Sequence[Reading]) -> dict[Place, tuple[Read, ...]]:
    """*Determinism*: all replicas of a place give the same."""
    logs: dict[Place, Reading] = {}
    for reading in readings:
        first = logs.setdefault(reading.place, reading)
        if first.reads != reading.reads:
            at = next(
                (n for n, (a, b) in enumerate(zip(first.reads, reading.reads, strict=False)) if a != b),
                "the end",
            )
            raise BrokenPromiseError(
                "determinism",
                f"servers {first.server} ({len(first.reads)}) and {reading.server} ({len(reading.reads)}) differ in "
                f"{reading.place} at {at}",
            )
    return {place: reading.reads for place, reading in logs.items()}


def check_integrity(
    sent: Mapping[Key, Sent], logs: Mapping[Place, Sequence[Read]], orders: Mapping[Place, Sequence[Key]]
) -> None:
    """*Integrity*: each message once, where it was sent to, as it was sent; stamps ascend and are the same everywhere."""
    stamps: dict[Key, Stamp] = {}
    for place, log in logs.items():
        for at, (read, key) in enumerate(zip(log, orders[place], strict=True)):
            if read.offset != at:
                raise BrokenPromiseError("offsets", f"{place}: offset {read.offset} at place {at}")
            if key not in sent or place not in sent[key].places:
                raise BrokenPromiseError("integrity", f"{place}: {tuple(key)} was not sent there")
            if stamps.setdefault(key, read.stamp) != read.stamp:
                raise BrokenPromiseError(
                    "stamps", f"{tuple(key)} has {stamps[key]} and, at {place}, {read.stamp}"
                )
        twice = [key for key, count in Counter(orders[place]).items() if count > 1]
        if twice:
            raise BrokenPromiseError(
                "exactly once", f"{place}: {tuple(twice[0])} and {len(twice) - 1} others twice"
            )
        for a, b in pairwise(log):
            if (a.stamp, a.index) >= (b.stamp, b.index):
                raise BrokenPromiseError("stamps", f"{place}: {b.stamp} at {b.offset} is not above {a.stamp}")


def check_agreement(sent: Mapping[Key, Sent], orders: Mapping[Place, Sequence[Key]]) -> None:
    """*Agreement* and validity: everywhere or nowhere, and what a producer was told is true."""
    where: dict[Key, set[Place]] = defaultdict(set)
    for place, order in orders.items():
        for key in order:
            where[key].add(place)
    for key, one in sent.items():
        if where[key] and where[key] != one.places:
            missing = sorted(one.places - where[key])
            raise BrokenPromiseError(
                "agreement", f"{tuple(key)} is at {sorted(where[key])}, not at {missing}"
            )
        if (one.outcome is Outcome.DELIVERED and not where[key]) or (
            one.outcome is Outcome.NEVER and where[key]
        ):
            raise BrokenPromiseError(
                "answers", f"{tuple(key)} was told as {one.outcome.value}, found at {where[key]}"
            )


def check_order(orders: Mapping[Place, Sequence[Key]], merged: Mapping[str, Sequence[Sequence[Key]]]) -> None:
    """*Total order*: every pair of logs agrees on what both have, and no cycle goes through all of them."""
    named = [(str(place), order) for place, order in sorted(orders.items())]
    for at, (name, order) in enumerate(named):
        for other, theirs in named[at + 1 :]:
            if (found := disagreement(order, theirs)) is not None:
                a, b = found
                n = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
                raise BrokenPromiseError("order", f"{name} has {tuple(a[n])} where {other} has {tuple(b[n])}")
    consumers = [order for several in merged.values() for order in several]
    cycle = cycle_in([*orders.values(), *consumers])
    if cycle is not None:
        raise BrokenPromiseError("order", f"cycle {[tuple(key) for key in cycle]}")


def check_real_time(sent: Mapping[Key, Sent], orders: Mapping[Place, Sequence[Key]]) -> None:
    """*Real time*: what was sent after another one was told as delivered comes behind it wherever both are addressed."""
    for place, order in orders.items():
        earliest, which = NEVER_AGAIN, None
        for key in reversed(order):
            if earliest < sent[key].sent_ns:
                raise BrokenPromiseError(
                    "real time",
                    f"{place}: {tuple(key)} comes before {which}, and was sent after that was delivered",
                )
            one = sent[key]
            if one.outcome is Outcome.DELIVERED and one.told_ns < earliest:
                earliest, which = one.told_ns, tuple(key)


def check_producers(
    sent: Mapping[Key, Sent], logs: Mapping[Place, Sequence[Read]], orders: Mapping[Place, Sequence[Key]]
) -> None:
    """*Producer order*: what a producer sends to one place alone is delivered in order, without a gap."""
    alone: dict[tuple[Place, str], list[int]] = defaultdict(list)
    for key, one in sorted(sent.items()):
        if len(one.places) == 1:
            alone[next(iter(one.places)), key.sender].append(key.number)
    for place, log in logs.items():
        numbers: dict[int, tuple[int, int]] = {}
        came: dict[str, list[int]] = defaultdict(list)
        for read, key in zip(log, orders[place], strict=True):
            if len(sent[key].places) > 1:
                continue
            producer, number = read.id
            if (number, read.index) <= numbers.get(producer, (0, 0)):
                raise BrokenPromiseError(
                    "producer order", f"{place}: {tuple(key)} is behind {numbers[producer]}"
                )
            numbers[producer] = number, read.index
            came[key.sender].append(key.number)
        for sender, found in came.items():
            if found != alone[place, sender][: len(found)]:
                raise BrokenPromiseError(
                    "producer order", f"{place}: messages of {sender} have a gap, or are out of turn"
                )


def check_merged(
    sent: Mapping[Key, Sent],
    orders: Mapping[Place, Sequence[Key]],
    topic: str,
    consumers: Sequence[Sequence[Key]],
) -> None:
    """*Merged*: consumers of a topic's partitions in one order have the same, with everything in it once."""
    everything = {key for place, order in orders.items() if place[0] == topic for key in order}
    for merged in consumers:
        if list(merged) != list(consumers[0]):
            raise BrokenPromiseError("merged", f"{topic}: two consumers of all partitions differ")
        if len(merged) != len(set(merged)) or set(merged) != everything:
            raise BrokenPromiseError(
                "merged", f"{topic}: {len(merged)} messages in one order, {len(everything)} in its partitions"
            )


def undecided(sent: Iterable[Sent]) -> list[Key]:
    """Messages whose senders live and were told nothing."""
    return [one.key for one in sent if one.outcome is Outcome.OPEN]
