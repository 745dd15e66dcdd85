"""Apportionment of whole numbers in proportion to weights."""

from __future__ import annotations

from collections.abc import Sequence


def largest_remainder(total: int, weights: Sequence[int], whole: int | None = None) -> list[int]:
    """Apportion `total`: floor(total * weight / whole) to each weight, and one more to those with the largest remainders.

    `whole`: what the weights are parts of, their sum unless given; if they sum to less, as much as they sum
    to is apportioned, rounded down. Among equal remainders the first come first.
    """
    if whole is None:
        whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    shares = [total * weight // whole for weight in weights]
    left = total * sum(weights) // whole - sum(shares)
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in by_remainder[:left]:
        shares[i] += 1
    return shares
