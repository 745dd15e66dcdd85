"""Probability that the thesis' pool is not connected: exact, as fractions, for any size.

Each peer takes one of the s(s-1) arcs with the same probability. A set of m arcs is exactly the set of those
taken in surj(n, m) of the s(s-1)^n cases, so that it remains to count sets of arcs. Those with equal sets of
heads and tails are counted by inclusion and exclusion, the strongly connected ones by Wright's recurrence
(Liskovets 1969, Wright 1971), kept as polynomials in the number of arcs.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import comb

from attrs import frozen


@frozen
class Disconnection:
    """Probabilities for n peers that draw from s streams.

    `thesis`: published and listened streams differ, the thesis' criterion. `truly`: somebody's events do not
    reach all others. `publish_only`: a stream has publishers and no listeners. `islands`: the thesis'
    criterion is met, and yet somebody is not reached.
    """

    thesis: Fraction
    truly: Fraction
    publish_only: Fraction

    @property
    def islands(self) -> Fraction:
        """The probability of a pool in parts that the thesis' test does not notice."""
        return self.truly - self.thesis


def disconnection(peers: int, streams: int) -> Disconnection:
    """Return the exact probabilities, for peers >= 1 and streams >= 2."""
    cases = (streams * (streams - 1)) ** peers
    same = sum(comb(streams, k) * _heads_are_tails(peers, k) for k in range(2, streams + 1))
    strong = sum(comb(streams, k) * _cases_of(_strongly_connected(k), peers) for k in range(2, streams + 1))
    listened = sum(comb(streams, k) * _heads_within_tails(peers, k) for k in range(2, streams + 1))
    return Disconnection(
        1 - Fraction(same, cases), 1 - Fraction(strong, cases), 1 - Fraction(listened, cases)
    )


def surjections(of: int, onto: int) -> int:
    """Return the number of maps of a set of `of` elements onto one of `onto`."""
    return sum((-1) ** (onto - taken) * comb(onto, taken) * taken**of for taken in range(onto + 1))


def _heads_are_tails(peers: int, streams: int) -> int:
    """Count the cases in which all of these streams, and only these, are listened on, and the same are published on."""
    total = 0
    for no_tail in range(streams + 1):
        for no_head in range(streams + 1):
            for both in range(max(0, no_tail + no_head - streams), min(no_tail, no_head) + 1):
                chosen = (
                    comb(streams, no_tail) * comb(no_tail, both) * comb(streams - no_tail, no_head - both)
                )
                loops = streams - no_tail - no_head + both
                arcs = (streams - no_tail) * (streams - no_head) - loops
                total += (-1) ** (no_tail + no_head) * chosen * arcs**peers
    return total


def _heads_within_tails(peers: int, streams: int) -> int:
    """Count the cases in which exactly these streams are listened on, and only on these is published."""
    return sum(
        (-1) ** none * comb(streams, none) * ((streams - none) * (streams - 1)) ** peers
        for none in range(streams + 1)
    )


def _cases_of(sets: Polynomial, peers: int) -> int:
    """Count the draws whose arcs are one of the sets; `sets[m]` of the sets have m arcs."""
    return sum(count * surjections(peers, arcs) for arcs, count in enumerate(sets) if count)


Polynomial = list[int]
"""Coefficients, that of the lowest power first."""


def _strongly_connected(vertices: int) -> Polynomial:
    """Count strongly connected digraphs with labelled vertices, by their number of arcs."""
    eta: dict[int, Polynomial] = {}
    strong: dict[int, Polynomial] = {}
    for n in range(1, vertices + 1):
        taken = (_scaled(_times(_any(n - 1, n - t), eta[t]), -comb(n, t)) for t in range(1, n))
        eta[n] = _sum([_any(n, n - 1), *taken])
        parts = (_scaled(_times(strong[t], eta[n - t]), comb(n - 1, t - 1)) for t in range(1, n))
        strong[n] = _sum([eta[n], *parts])
    return strong[vertices]


def _any(rows: int, columns: int) -> Polynomial:
    """Return (1 + y)^(rows columns): each of rows x columns arcs may exist or not."""
    return [comb(rows * columns, m) for m in range(rows * columns + 1)]


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    product = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    return product


def _scaled(of: Polynomial, by: int) -> Polynomial:
    return [by * coefficient for coefficient in of]


def _sum(terms: Iterable[Polynomial]) -> Polynomial:
    terms = list(terms)
    total = [0] * max(len(term) for term in terms)
    for term in terms:
        for power, coefficient in enumerate(term):
            total[power] += coefficient
    return total
