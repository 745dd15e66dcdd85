"""What is told of addresses at which nobody was reached: each reason once, with all addresses that it is about."""

from __future__ import annotations

from collections.abc import Iterable

from zraft.address import Address


def told_once(reasons: Iterable[tuple[Address, str]], separator: str = "\n") -> str:
    """`a:1, b:1: connection refused`, and so on for each other reason, in the order in which they came."""
    by_reason: dict[str, list[Address]] = {}
    for address, reason in reasons:
        by_reason.setdefault(reason, []).append(address)
    return separator.join(
        f"{', '.join(map(str, addresses))}: {reason}" for reason, addresses in by_reason.items()
    )
