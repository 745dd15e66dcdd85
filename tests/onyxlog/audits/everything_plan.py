"""Which producer, consumer or peer dies when in a run of everything. Pure: a seed and a length are the plan.

What servers suffer meanwhile is of `tests.chaos.schedule`.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import Final

from attrs import frozen

from zraft_core.claims.values import Mode

SERVERS: Final = 3
PRODUCERS: Final = 2
CONSUMERS: Final = 3
PEERS: Final = 3
FIRST_S: Final = 3.0
EVERY_S: Final = 5.0
"""Between two of them, on the average; a machine that is busy with other work needs all of it."""


class Kind(Enum):
    PRODUCER = "producer"
    """Another one begins."""
    CONSUMER = "consumer"
    """It starts again, under its name."""
    PEER = "peer"
    """Another one joins."""
    COLLECT = "collect"
    """No death: the peers' log is collected, so that there is an origin."""


MORTAL: Final = (Kind.PRODUCER, Kind.CONSUMER, Kind.PEER)


@frozen
class Strike:
    """`at_s`: since the beginning; `number`: which of them, as far as it matters; `after_s`: until it starts again."""

    at_s: float
    kind: Kind
    number: int
    after_s: float


def plan(seed: int, duration_s: float) -> list[Strike]:
    """In order of time. Every kind comes at least once, whatever the length."""
    rng = random.Random(f"{seed} everything")
    count = max(len(Kind), int((duration_s - FIRST_S) / EVERY_S))
    kinds = [*Kind, *rng.choices(MORTAL, k=count - len(Kind))]
    rng.shuffle(kinds)
    times = sorted(rng.uniform(FIRST_S, max(FIRST_S + 1, duration_s)) for _ in kinds)
    return [
        Strike(at_s, kind, rng.randrange(1_000), rng.uniform(0.2, 2.0))
        for at_s, kind in zip(times, kinds, strict=True)
    ]


def mode_of(seed: int) -> Mode:
    return Mode.AT_LEAST_ONCE if seed % 2 else Mode.AT_MOST_ONCE
