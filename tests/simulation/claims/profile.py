"""What one seed rolls: how many consumers and partitions, what kind of groups, which faults how often."""

from __future__ import annotations

import random
from typing import Final

from attrs import frozen

from zraft_core.claims.values import Mode

HEARTBEAT_MS: Final = 2_000
FAULTY_MS: Final = 30_000
"""Phase one: faults. Afterwards everything is healed and must get done."""


@frozen
class GroupProfile:
    """One consumer group. `range_messages` 0: whole partitions; `consumers`: its processes."""

    name: str
    mode: Mode
    consumers: int
    range_messages: int
    entire_topic: bool
    greedy: bool
    maximum_claims: int
    workers: int
    batch_messages: int
    queue_max: int
    heartbeat_ms: int
    """What its consumers choose."""


@frozen
class Profile:
    """All that a seed decides beforehand. Rates are chances per message; intervals are mean milliseconds between faults."""

    partitions: int
    groups: tuple[GroupProfile, ...]
    message_every_ms: int
    """Of each partition."""
    process_ms: int
    loss: float
    duplicates: float
    delayed: float
    """Share of messages that are under way for up to three heartbeat intervals."""
    stop_every_ms: int
    kill_every_ms: int
    end_every_ms: int
    leader_every_ms: int
    server_stop_every_ms: int
    pause_every_ms: int
    """How often an operator pauses a group."""
    twins: bool
    """Whether a second process with the client id of a running one is started, which operators must not do."""
    plain: bool
    """Whether the servers are of a release that knows no intervals of claims and no commits of ranges."""
    clock_rate: float
    """Clocks run this much faster or slower at most."""


def roll(rng: random.Random, partitions: int | None = None, consumers: int | None = None) -> Profile:
    """The profile; `partitions` and `consumers` (of all groups together) are drawn if not given."""
    names = rng.sample(("once", "least", "ranges"), rng.choice((1, 2, 2, 3)))
    partitions = partitions or rng.choice((1, 2, 4, 6, 8, 12))
    each = None if consumers is None else max(1, consumers // len(names))
    groups = tuple(_group(rng, name, partitions, each or rng.randint(2, 6)) for name in sorted(names))
    return Profile(
        partitions=partitions,
        groups=groups,
        message_every_ms=rng.choice((100, 200, 400)) * max(1, partitions // 4),
        process_ms=rng.choice((2, 10, 40)),
        loss=rng.choice((0.0, 0.01, 0.05)),
        duplicates=rng.choice((0.0, 0.02, 0.1)),
        delayed=rng.choice((0.0, 0.01, 0.05)),
        stop_every_ms=rng.choice((2_000, 4_000, 10_000)),
        kill_every_ms=rng.choice((3_000, 6_000, 15_000)),
        end_every_ms=rng.choice((1_500, 4_000, 15_000)),
        leader_every_ms=rng.choice((1_500, 4_000, 15_000)),
        server_stop_every_ms=rng.choice((5_000, 15_000, 60_000)),
        pause_every_ms=rng.choice((10_000, 60_000)),
        twins=rng.random() < 0.15,
        plain=rng.random() < 0.2,
        clock_rate=rng.choice((0.0, 0.02, 0.1)),
    )


def _group(rng: random.Random, name: str, partitions: int, consumers: int) -> GroupProfile:
    entire = name != "ranges" and rng.random() < 0.2
    # Those that are left when some are killed for good must still be able to own everything.
    bounded = not entire and rng.random() < 0.3
    return GroupProfile(
        name=name,
        mode=Mode.AT_MOST_ONCE
        if name == "once" or (name == "ranges" and rng.random() < 0.5)
        else Mode.AT_LEAST_ONCE,
        consumers=consumers,
        range_messages=rng.choice((5, 20)) if name == "ranges" else 0,
        entire_topic=entire,
        greedy=rng.random() < 0.5,
        maximum_claims=3 * partitions if bounded else 0,
        workers=rng.choice((1, 2, 4)),
        batch_messages=rng.choice((1, 5, 20)),
        queue_max=rng.choice((5, 50, 1_000)),
        heartbeat_ms=rng.choice((HEARTBEAT_MS // 2, HEARTBEAT_MS)),
    )
