"""Judges consumers that shared partitions: what the partitions' logs say of claims, and what consumers wrote down. Pure.

The logs are carried out once more by the product, and its answers are judged by the checks of the claims' simulation, which
share no rule with it. What consumers handed out is judged against the claims found so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve, frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.claims.checks import Checks, Holding
from zraft.raft.messages import Entry, EntryKind
from zraft.server.partitions.machine import PartitionMachine
from zraft.topics.entries import BatchEntry, decode_entry
from zraft_core.claims.values import Mode
from zraft_core.ids import GroupId

_KINDS: Final = ("H", "P", "C")


@frozen
class Handed:
    """A message that a program was given, when it was done with it, and when it was told that its commit is durable.

    ns of the machine's monotonic clock, None for what did not happen.
    """

    client: str
    partition: int
    offset: int
    epoch: int
    handed_ns: int
    done_ns: int | None = None
    durable_ns: int | None = None


@frozen
class ClaimsJudged:
    """How much there was to judge. `late`: handed out by an owner that was stopped meanwhile, after the next one began."""

    handed: int
    again: int
    late: int
    claims: int
    ended: Mapping[str, int]


def handed_line(partition: int, offset: int, epoch: int, now_ns: int) -> str:
    return f"H {partition} {offset} {epoch} {now_ns}"


def done_line(partition: int, offset: int, epoch: int, now_ns: int) -> str:
    return f"P {partition} {offset} {epoch} {now_ns}"


def durable_line(partition: int, offset: int, epoch: int, now_ns: int) -> str:
    return f"C {partition} {offset} {epoch} {now_ns}"


def read_consumer_journal(client: str, text: str) -> list[Handed]:
    """What one client was given, all of its processes after each other; a last line that is not whole is left out."""
    handed: list[Handed] = []
    places: dict[tuple[int, int, int], int] = {}
    for line in text.rpartition("\n")[0].splitlines():
        kind, _, rest = line.partition(" ")
        if kind not in _KINDS:
            continue
        partition, offset, epoch, at = map(int, rest.split())
        key = (partition, offset, epoch)
        if kind == "H":
            places[key] = len(handed)
            handed.append(Handed(client, partition, offset, epoch, at))
        else:
            one = handed[places[key]]
            handed[places[key]] = evolve(one, done_ns=at) if kind == "P" else evolve(one, durable_ns=at)
    return handed


def replay(checks: Checks, partition: int, group: GroupId, entries: Iterable[Entry]) -> int:
    """Carry out a partition's committed log from its birth, and have every claim judged; how many messages it delivered.

    Raises:
        BrokenPromiseError: a promise of claims does not hold, or the log cannot be carried out.
    """
    machine = PartitionMachine(group)
    for entry in entries:
        if entry.kind is not EntryKind.COMMANDS:
            continue
        machine.apply(entry)
        if machine.stopped:
            raise BrokenPromiseError("log", machine.error)
        decoded = decode_entry(entry.payload)
        for applied in machine.take_fresh():
            if not isinstance(decoded, BatchEntry):
                continue
            first = entry.position + len(decoded.batch.commands)
            now = machine.log_time_ms
            for at, (command, answer) in enumerate(zip(decoded.claims, applied.answers, strict=True)):
                # How long the leader had been awake is not in the log: expiry on waking is the simulation's to find.
                checks.on_applied(partition, first + at, now, command, answer, entry.term, now)
    return machine.next_offset


def judge_claims(
    checks: Checks,
    journals: Sequence[Handed],
    ends: Mapping[int, int],
    *,
    group: str,
    mode: Mode,
    stops: int,
) -> ClaimsJudged:
    """After `replay` of all partitions. `ends`: messages each delivered; `stops`: how often consumers were stopped.

    Raises:
        BrokenPromiseError: the first promise that does not hold.
    """
    by_claim: dict[tuple[int, int], list[Handed]] = defaultdict(list)
    for one in journals:
        by_claim[one.partition, one.epoch].append(one)
    holdings = checks.holdings
    for (partition, epoch), handed in by_claim.items():
        holding = holdings.get((partition, epoch))
        if holding is None or any(one.client != holding.owner.client for one in handed):
            raise BrokenPromiseError(
                "owners only", f"partition {partition}: epoch {epoch} is not of {handed[0].client}"
            )
        if mode is Mode.AT_MOST_ONCE:
            _claimed_before(holding, handed)
    again = _again(by_claim, holdings, mode)
    late = _late(by_claim, holdings)
    if late > stops:
        raise BrokenPromiseError(
            "a stale owner stops",
            f"{late} messages were handed out after the next owner's first, with {stops} stops",
        )
    for partition, end in ends.items():
        _complete(checks, journals, group, partition, mode, end)
    ended = Counter(one.ended_by for one in holdings.values() if one.ended is not None)
    return ClaimsJudged(len(journals), again, late, len(holdings), dict(ended))


def _claimed_before(holding: Holding, handed: Sequence[Handed]) -> None:
    beyond = [one.offset for one in handed if not holding.first <= one.offset < holding.claimed]
    if beyond:
        raise BrokenPromiseError(
            "claimed before processed",
            f"partition {holding.partition}, epoch {holding.epoch}: {beyond[:3]} handed out, claimed to {holding.claimed}",
        )


def _again(
    by_claim: Mapping[tuple[int, int], Sequence[Handed]],
    holdings: Mapping[tuple[int, int], Holding],
    mode: Mode,
) -> int:
    """How many messages were given out again; at most once never, at least once only behind what was committed."""
    given: dict[tuple[int, int], int] = {}
    durable: dict[tuple[int, int], int] = {}
    again = 0
    for (partition, epoch), handed in sorted(by_claim.items()):
        for one in handed:
            earlier = given.get((partition, one.offset))
            given[partition, one.offset] = epoch
            if one.durable_ns is not None:
                durable.setdefault((partition, one.offset), epoch)
            if earlier is None:
                continue
            if durable.get((partition, one.offset), epoch) < epoch:
                raise BrokenPromiseError(
                    "a durable commit holds",
                    f"partition {partition}, offset {one.offset}: {durable[partition, one.offset]} was told that its "
                    f"commit is durable, and {epoch} got it again",
                )
            if earlier == epoch or mode is Mode.AT_MOST_ONCE:
                raise BrokenPromiseError(
                    "at most once" if mode is Mode.AT_MOST_ONCE else "once per claim",
                    f"partition {partition}, offset {one.offset}: handed out under {earlier} and {epoch}",
                )
            if one.offset < holdings[partition, earlier].committed:
                raise BrokenPromiseError(
                    "reprocessing is bounded",
                    f"partition {partition}, offset {one.offset}: {earlier} had committed it, and {epoch} got it again",
                )
            again += 1
    return again


def _late(
    by_claim: Mapping[tuple[int, int], Sequence[Handed]], holdings: Mapping[tuple[int, int], Holding]
) -> int:
    """Messages handed out after a later owner's first one. A process that is stopped between the look at its lease and the
    program may hand out one so; a twin of the same client, which took over, is told with its next command only."""
    late = 0
    epochs: dict[int, list[int]] = defaultdict(list)
    for partition, epoch in by_claim:
        epochs[partition].append(epoch)
    for partition, several in epochs.items():
        ordered = sorted(several)
        for epoch, following in pairwise(ordered):
            if holdings[partition, epoch].ended_by == "takeover":
                continue
            began = min(one.handed_ns for one in by_claim[partition, following])
            late += sum(one.handed_ns > began for one in by_claim[partition, epoch])
    return late


def _complete(
    checks: Checks, journals: Sequence[Handed], group: str, partition: int, mode: Mode, end: int
) -> None:
    if mode is Mode.AT_MOST_ONCE:
        left = [offset for offset, byte in enumerate(checks.taken(group, partition, end)) if not byte]
        if left:
            raise BrokenPromiseError(
                "liveness", f"partition {partition}: never claimed: {left[:10]} of {end}"
            )
        return
    done = {one.offset for one in journals if one.partition == partition and one.done_ns is not None}
    missing = sorted(set(range(end)) - done)
    if missing:
        raise BrokenPromiseError(
            "at least once", f"partition {partition}: never processed: {missing[:10]} of {end}"
        )
