"""What atomic multicast promises, judged from the histories of a run. Knows nothing of how it is done.

docs/explanation/topics.md, "Promises", has them by the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Final, Protocol

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from zraft.topics.image import state_digest
from zraft.topics.partition import Partition
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.message import Delivery, Message
from zraft_core.topics.producer import Ended, Ending
from zraft_core.topics.stamps import MessageId, Stamp

NEVER_AGAIN: Final = 1 << 62


class CheckedGroup(Protocol):
    """A group, what it delivered and began, which messages it gave up, and which of a round it put in order."""

    @property
    def partition(self) -> Partition: ...
    @property
    def delivered(self) -> list[Delivery]: ...
    @property
    def begun(self) -> list[Message]: ...
    @property
    def voids(self) -> list[MessageId]: ...
    @property
    def rounds(self) -> list[MessageId]: ...
    @property
    def first_offset(self) -> int: ...

    def replica(self) -> tuple[Partition, list[Delivery]]:
        """Another replica, and what that delivered."""
        ...


@frozen
class History:
    """All that a run leaves behind: by group, by message, and what consumers of all partitions of a topic got."""

    groups: Mapping[GroupId, CheckedGroup]
    gone: frozenset[GroupId]
    messages: Mapping[MessageId, Message]
    invoked: Mapping[MessageId, int]
    ended: Mapping[MessageId, Ended]
    delivered_at: Mapping[MessageId, int]
    promised: frozenset[MessageId]
    merged: Sequence[Sequence[tuple[Stamp, MessageId]]]
    window: int
    ordered: frozenset[ProducerId] = frozenset()
    """Producers whose messages come behind all that they sent before."""
    ascending: frozenset[ProducerId] = frozenset()
    """Those of them whose stamps ascend, too."""
    given_up: frozenset[GroupId] = frozenset()
    """Groups that are given up: what they go on doing is nobody's concern."""
    topic: tuple[GroupId, ...] = ()
    """The partitions of the topic that consumers read merged, at the end."""

    @property
    def left(self) -> dict[GroupId, CheckedGroup]:
        """The groups that are not given up."""
        return {group: hosted for group, hosted in self.groups.items() if group not in self.given_up}


def check_all(history: History) -> None:
    """Raises:
    BrokenPromiseError: the first promise that does not hold.
    """
    for check in (
        *(check_groups, check_replicas, check_agreement, check_order, check_real_time, check_producers),
        *(check_after, check_ordered, check_conditions, check_merged, check_bounds),
    ):
        check(history)


def cycle_in(orders: Iterable[Sequence[Any]]) -> list[Any] | None:
    """A cycle through several orders, if there is one: then no single order of all has them all."""
    graph: dict[Any, set[Any]] = {}
    for order in orders:
        for a, b in pairwise(order):
            graph.setdefault(b, set()).add(a)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[Any] = error.args[1]
        return cycle
    return None


def disagreement(first: Sequence[Any], second: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """What both have, in the order of each, if these differ."""
    common = set(first).intersection(second)
    a, b = [m for m in first if m in common], [m for m in second if m in common]
    return None if a == b else (a, b)


def check_groups(history: History) -> None:
    """*Integrity*: each message once, where it was sent to, as it was sent; stamps ascend and are equal everywhere.

    Each of its records has an offset.
    """
    stamps: dict[MessageId, Stamp] = {}
    for group, hosted in history.groups.items():
        seen: set[MessageId] = set()
        end = hosted.first_offset
        for delivery in hosted.delivered:
            message, mid = delivery.message, delivery.message.mid
            if mid in seen:
                raise BrokenPromiseError("exactly once", f"{tuple(mid)} twice at {group}")
            seen.add(mid)
            if delivery.offset != end:
                raise BrokenPromiseError("offsets", f"offset {delivery.offset} of {group}, expected {end}")
            end = delivery.offset + message.span
            if group not in message.destinations or history.messages.get(mid) != message:
                raise BrokenPromiseError("integrity", f"{message} delivered at {group} is not what was sent")
            if group not in history.given_up and stamps.setdefault(mid, delivery.stamp) != delivery.stamp:
                raise BrokenPromiseError("stamps", f"{tuple(mid)} has two stamps")
            if message.depends and delivery.stamp.time <= message.depends:
                raise BrokenPromiseError("causal order", f"{message} has the stamp {tuple(delivery.stamp)}")
        for a, b in pairwise(hosted.delivered):
            if a.stamp >= b.stamp or a.position > b.position:
                raise BrokenPromiseError("stamps", f"at {group} {b} does not come after {a}")
        if any(group not in message.destinations for message in hosted.begun):
            raise BrokenPromiseError("genuineness", f"{group} began what is not addressed to it")


def check_replicas(history: History) -> None:
    """*Determinism*: whoever applies the same log has the same state, deliveries and chain of digests."""
    for group, hosted in history.groups.items():
        replica, delivered = hosted.replica()
        if replica.chain != hosted.partition.chain or delivered != hosted.delivered:
            raise BrokenPromiseError("determinism", f"deliveries of two replicas of {group} differ")
        if state_digest(replica) != state_digest(hosted.partition):
            raise BrokenPromiseError("determinism", f"states of two replicas of {group} differ")


def check_agreement(history: History) -> None:
    """*Agreement*: begun anywhere, the same outcome at every destination. What a producer was told is true."""
    delivered = {g: {*(d.message.mid for d in h.delivered), *h.rounds} for g, h in history.groups.items()}
    voids = {g: set(h.voids) for g, h in history.groups.items()}
    at_offsets = {g: {d.offset: d.message.mid for d in h.delivered} for g, h in history.groups.items()}
    begun = {message.mid for h in history.left.values() for message in h.begun}
    unmade = {mid for mid, ended in history.ended.items() if ended.ending in (Ending.NEVER, Ending.UNKNOWN)}
    promised = {
        mid
        for mid in history.promised - unmade
        if not history.given_up.intersection(history.messages[mid].destinations)
    }
    for mid in sorted(begun | promised):
        destinations = [g for g in history.messages[mid].destinations if g not in history.given_up]
        everywhere = all(mid in delivered[g] for g in destinations)
        if not everywhere and not all(mid in voids[g] for g in destinations):
            where = [g for g in destinations if mid in delivered[g] or mid in voids[g]]
            raise BrokenPromiseError("agreement", f"{tuple(mid)} to {destinations} only at {where}")
    for mid, ended in history.ended.items():
        condition = history.messages[mid].condition
        if condition is not None and condition.home in history.given_up:
            continue
        somewhere = any(mid in mids for mids in delivered.values())
        match ended.ending:
            case Ending.DELIVERED | Ending.FAILED:
                true = (ended.ending is Ending.DELIVERED) == somewhere
            case Ending.NEVER:
                true = mid not in begun
            case Ending.DECIDED | Ending.UNKNOWN:
                true = True
        if not true:
            raise BrokenPromiseError("answers", f"{tuple(mid)} ended {ended.ending}, delivered: {somewhere}")
        round_ = history.messages[mid].round is not None
        for group, offset in () if round_ else ended.offsets.items():
            if at_offsets[group].get(offset) != mid:
                raise BrokenPromiseError("answers", f"{tuple(mid)} is not at offset {offset} of {group}")


def only_lost(history: History, left: Iterable[GroupId]) -> set[tuple[Stamp, MessageId]]:
    """The deliveries that groups which are given up made, and none of `left` made so.

    One whose proposal nobody else heard of delivers a message at another place than those who go on without it.
    """
    lost = {(d.stamp, d.message.mid) for g in history.given_up for d in history.groups[g].delivered}
    return lost - {(d.stamp, d.message.mid) for g in left for d in history.groups[g].delivered}


def check_order(history: History) -> None:
    """*Total order*: no cycle through any logs, merged ones included."""
    orders = [[d.message.mid for d in hosted.delivered] for hosted in history.left.values()]
    lost = only_lost(history, history.left)
    cycle = cycle_in([*orders, *([got[1] for got in out if got not in lost] for out in history.merged)])
    if cycle is not None:
        raise BrokenPromiseError("order", f"cycle {[tuple(mid) for mid in cycle]}")


def check_real_time(history: History) -> None:
    """*Real time*: what was sent after another was delivered comes after it at every common destination (D-17c)."""
    for group, hosted in history.left.items():
        earliest, which = NEVER_AGAIN, None
        for delivery in reversed(hosted.delivered):
            mid = delivery.message.mid
            if earliest < history.invoked[mid]:
                raise BrokenPromiseError(
                    "real time",
                    f"at {group} {tuple(mid)} comes before {which}, though sent after that was delivered",
                )
            at = history.delivered_at.get(mid, NEVER_AGAIN)
            if at < earliest:
                earliest, which = at, tuple(mid)


def check_producers(history: History) -> None:
    """*Producer order*: what one producer sends to one partition alone begins and is delivered in order, without a gap."""
    for group, hosted in history.groups.items():
        begun: dict[ProducerId, int] = {}
        for message in hosted.begun:
            if message.is_single:
                if message.number != begun.get(message.mid.producer, 0) + 1:
                    raise BrokenPromiseError("producer order", f"at {group} {message} is begun out of turn")
                begun[message.mid.producer] = message.number
        delivered: dict[ProducerId, int] = {}
        for delivery in hosted.delivered:
            message = delivery.message
            if message.is_single:
                if message.number <= delivered.get(message.mid.producer, 0):
                    raise BrokenPromiseError(
                        "producer order", f"at {group} {message} is delivered out of turn"
                    )
                delivered[message.mid.producer] = message.number


def check_after(history: History) -> None:
    """*After*: what a message names as earlier comes first wherever both are addressed (D-17a)."""
    for group, hosted in history.groups.items():
        place = {delivery.message.mid: at for at, delivery in enumerate(hosted.delivered)}
        voids = set(hosted.voids)
        for delivery in hosted.delivered:
            after = delivery.message.after
            if after is None or group not in after.destinations or after.mid in voids:
                continue
            ended = history.ended.get(after.mid)
            if ended is not None and ended.ending in (Ending.NEVER, Ending.UNKNOWN):
                continue
            # One that is given up may go on, and lack what was decided without it.
            absent = 0 if group in history.given_up else NEVER_AGAIN
            if place.get(after.mid, absent) > place[delivery.message.mid]:
                raise BrokenPromiseError(
                    "after", f"at {group} {delivery.message} does not come after {tuple(after.mid)}"
                )


def check_ordered(history: History) -> None:
    """*Ordered*: what a producer sent comes in that order in every partition, and if it is causal, in the order of stamps.

    Whoever sees one of its messages finds all that it sent before, sooner or later.
    """
    stamps: dict[ProducerId, dict[int, Stamp]] = {}
    settled: dict[ProducerId, set[int]] = {}
    for group, hosted in history.left.items():
        last: dict[ProducerId, int] = {}
        for delivery in hosted.delivered:
            producer, seq = delivery.message.mid
            if producer not in history.ordered:
                continue
            if seq < last.get(producer, 0):
                raise BrokenPromiseError(
                    "ordered", f"at {group} {seq} of {producer} comes after {last[producer]}"
                )
            last[producer] = seq
            stamps.setdefault(producer, {})[seq] = delivery.stamp
            settled.setdefault(producer, set()).add(seq)
        for mid in hosted.voids:
            settled.setdefault(mid.producer, set()).add(mid.seq)
    for producer in history.ascending:
        mine = sorted(stamps.get(producer, {}).items())
        for (before, a), (seq, b) in pairwise(mine):
            if a >= b:
                raise BrokenPromiseError(
                    "ordered", f"{producer}: {seq} has the stamp {tuple(b)}, {before} {tuple(a)}"
                )
    for mid, message in history.messages.items():
        if mid.producer not in history.ordered or message.round is not None:
            continue
        unmade = mid in history.ended and history.ended[mid].ending in (Ending.NEVER, Ending.UNKNOWN)
        unmade = unmade or not history.given_up.isdisjoint(message.destinations)
        lost = mid.seq not in settled.get(mid.producer, ()) and not unmade
        if lost and any(seq > mid.seq for seq in stamps.get(mid.producer, ())):
            raise BrokenPromiseError(
                "ordered", f"{tuple(mid)} is lost, and a later one of its producer is delivered"
            )


def check_conditions(history: History) -> None:
    """*Conditions*: each step of a consumer was taken by exactly one message (D-9d)."""
    taken: dict[tuple[GroupId, bytes], dict[int, set[MessageId]]] = {}
    for hosted in history.groups.values():
        for delivery in hosted.delivered:
            condition = delivery.message.condition
            if condition is not None and condition.home not in history.given_up:
                steps = taken.setdefault((condition.home, condition.consumer), {})
                steps.setdefault(condition.expected, set()).add(delivery.message.mid)
    for (home, consumer), steps in taken.items():
        committed = history.groups[home].partition.offsets.get(consumer, 0)
        if sorted(steps) != list(range(committed)) or any(len(mids) > 1 for mids in steps.values()):
            raise BrokenPromiseError(
                "conditions", f"at {home} {consumer!r} is at {committed}; steps taken: {steps}"
            )
    for home, hosted in history.left.items():
        for consumer, committed in hosted.partition.offsets.items():
            if committed and (home, consumer) not in taken:
                raise BrokenPromiseError(
                    "conditions", f"at {home} {consumer!r} went to {committed} by nothing"
                )


def check_merged(history: History) -> None:
    """*Merged*: two consumers that read differently have one order, with ascending stamps and nothing missing.

    Of what only a given-up partition delivered, one may have read more than the other.
    """
    first, second = history.merged
    # What both got is compared, too.
    lost = only_lost(history, history.topic).difference(set(first).intersection(second))
    one, other = ([got for got in out if got not in lost] for out in (first, second))
    if one != other:
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), "the end")
        raise BrokenPromiseError("merged", f"two merged consumers differ at {at}")
    for out in (first, second):
        for (a, _), (b, mid) in pairwise(out):
            if a >= b:
                raise BrokenPromiseError("merged", f"{tuple(mid)} at {tuple(b)} comes after {tuple(a)}")


def check_bounds(history: History) -> None:
    """*Memory*: what is left belongs to living producers, and of each at most its window."""
    for group, hosted in history.groups.items():
        if group in history.gone or group in history.given_up:
            continue
        for producer, row in hosted.partition.rows.items():
            rounds = {mid.seq for mid in hosted.rounds if mid.producer == producer}
            outcomes = sum(seq not in rounds for seq in row.outcomes)
            if max(outcomes, len(row.staged)) > history.window:
                found = f"{outcomes} outcomes, {len(row.staged)} staged"
                raise BrokenPromiseError("memory", f"{found} of {producer} at {group}")
        if not any(row.staged for row in hosted.partition.rows.values()) and hosted.partition.staged_bytes:
            raise BrokenPromiseError("memory", f"{hosted.partition.staged_bytes} staged bytes at {group}")
