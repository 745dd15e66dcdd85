"""Proof of what is committed, from the logs of several servers.

Pure.

A server's log does not say how far it is committed; a majority of logs does. The rule is Raft's own (section
5.4.2): an entry is committed when a majority of voters had it, or a later one, while they were in its own
term. Each server's log is a history of what it held in which term. So the proof needs no common moment, and
holds for good once it exists: logs may be read while they are written. Snapshots are proofs, too (only
committed entries get into one), and so is what a server noted in its journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from onyxlog.audits.source.survey import Configuration, Runs, Standpoint, term_in
from zraft.raft.membership.quorum import agreed_value


@frozen
class Evidence:
    """Evidence in one server's log about one group.

    Attributes:
        proven: per term the highest index that it held while in that term.
        known: (index, term) of entries that it knows to be committed: of snapshots, or noted.
    """

    server: int
    standpoint: Standpoint
    proven: Mapping[int, int]
    known: tuple[tuple[int, int], ...] = ()


@frozen
class Committed:
    """Committed part of a group's log.

    `runs` are those of the committed log; before the first of them it is not known.

    `by_term`: what was committed by entries of that term, for each term that has a majority.
    """

    index: int = 0
    runs: Runs = ()
    by_term: tuple[tuple[int, int], ...] = ()

    def holds(self, index: int, term: int) -> bool:
        """Return whether the entry of that index and term is committed.

        By log matching these two are enough.
        """
        return index <= self.index and term_in(self.runs, index) == term


def committed(evidence: Sequence[Evidence]) -> Committed:
    """Return how far one group is committed, by the logs of all available servers."""
    by_term: dict[int, int] = {}
    for term in sorted({term for one in evidence for term in one.proven}):
        index = _committed_in(term, evidence)
        if index:
            by_term[term] = index
    points = [(index, term) for term, index in by_term.items()]
    points += [point for one in evidence for point in one.known]
    if not points:
        return Committed()
    top, top_term = max(points)
    return Committed(top, _runs(evidence, top, top_term), tuple(sorted(by_term.items())))


def _committed_in(term: int, evidence: Sequence[Evidence]) -> int:
    """Return the highest index that a majority held in `term`, under the configuration that its leader used."""
    held = {one.server: one.proven.get(term, 0) for one in evidence}
    longest = max(evidence, key=lambda one: one.proven.get(term, 0))
    top = held[longest.server]
    if not top:
        return 0
    # Below the longest log of that term lies the leader's; its configurations are the leader's own.
    configurations = _up_to(longest.standpoint.configurations, top, term)
    best = 0
    for at, one in enumerate(configurations):
        # While it was the newest one, the leader's log ended before the next.
        limit = configurations[at + 1].index - 1 if at + 1 < len(configurations) else top
        agreed = agreed_value(one.membership, lambda server: held.get(int(server), 0))
        best = max(best, min(agreed, limit))
    first = _first_of(term, evidence)
    return best if best >= first else 0


def _up_to(configurations: Iterable[Configuration], index: int, term: int) -> list[Configuration]:
    return [one for one in configurations if one.index <= index and one.term <= term]


def _first_of(term: int, evidence: Iterable[Evidence]) -> int:
    """Return where the entries of a term begin, as far as any log tells: nothing below is committed by counting in it."""
    return min(
        (first for one in evidence for first, found in one.standpoint.runs if found == term), default=1
    )


def _runs(evidence: Sequence[Evidence], top: int, top_term: int) -> Runs:
    """Return runs of the committed log up to `top`.

    They are of a log that has that entry, continued downwards by others that match it.
    """
    runs: Runs = ()
    first = top + 1
    anchor, anchor_term = top, top_term
    while True:
        holders = [
            one.standpoint
            for one in evidence
            if one.standpoint.term_at(anchor) == anchor_term and one.standpoint.first - 1 < first - 1
        ]
        if not holders:
            return runs or ((top, top_term),)
        lowest = min(holders, key=lambda point: point.first)
        below = tuple(run for run in lowest.runs if run[0] < first)
        runs = below + tuple(run for run in runs if not below or run[1] != below[-1][1])
        first = lowest.first
        if first <= 1 or not runs:
            return runs
        anchor, anchor_term = first - 1, lowest.term_at(first - 1) or 0
        if not anchor_term:
            return runs
