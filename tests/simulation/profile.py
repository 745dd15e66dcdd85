"""What kind of run a seed makes: sizes, how bad network and disks are, and which faults prevail.

Everything is rolled from the seed alone, before the run begins. Swarm testing: each run switches
whole classes of trouble off, because a bug that needs many crashes hides in runs that also cut
every link, and the other way round.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import Final

from attrs import frozen

from zraft.config.features import FEATURE_LEVEL_MAX

FAULTS_FROM_MS: Final = 900
"""By then a cluster is founded, led, and has its first clients."""

RUN_MS: Final = 6_900
"""Length of the phase with faults; about 6 session timeouts."""

HEAL_MS: Final = 5_500
"""Bound of the phase without faults in which everything must make progress again."""

CALM_AFTER_MS: Final = 600
"""So long into it clients are as busy as before; then they ask seldom: what remains to be seen is what the past left."""

TICK_TIME_MS: Final = 200
HEARTBEAT_MS: Final = 30
ELECTION_TIMEOUT_MS: Final = 120
SESSION_TIMEOUTS_MS: Final = (800, 1000, 1400)
"""What clients ask for; the smallest is 4 ticks."""


REAP_INTERVAL_MS: Final = 250
"""How often leaders look for znodes that are to go by themselves."""

CONTAINER_NEVER_USED_MS: Final = 1_200
TOPICS_DEAD_AFTER_MS: Final = 2_500


class Mode(Enum):
    """Which class of faults prevails (7 of 10 faults are drawn from it)."""

    ALL = "all"
    EXPIRY = "expiry"
    VOTES = "votes"
    BOOTS = "boots"
    READS = "reads"
    ELECTIONS = "elections"
    WIPES = "wipes"
    SNAPSHOTS = "snapshots"
    MEMBERS = "members"
    DISKS = "disks"


@frozen
class Profile:
    """The rolled parameters of one run; probabilities are per message, delays in milliseconds."""

    mode: Mode
    gentle: bool
    """Faults that a healthy deployment sees: at most one server down, no loss. No session may expire."""

    servers: int
    clients: int
    loss: float
    duplicate: float
    late: float
    """Probability of a second copy that arrives up to `late_ms_max` later."""
    late_ms_max: int
    delay_ms_max: int
    reorder: float
    """Probability of an extra delay that lets later messages pass."""

    fsync_ms_max: int
    slow_fsync: float
    slow_fsync_ms_max: int
    snipe: float
    """Probability, per write of a vote, that the writer crashes while the fsync runs."""

    fault_gaps_ms: tuple[int, ...]
    think_ms_max: int
    burst_max: int
    batches_in_flight: int
    entries_in_flight: int
    wipes: bool
    fragment: bool
    """Client bytes arrive in arbitrary pieces."""

    read_only_mode: bool
    """Servers without a quorum serve reads, and one more client is content with that."""

    quota_enforced: bool

    snapshot_bytes: int
    """Of log since the last snapshot after which the next one is due."""
    snapshot_commands: int
    snapshot_keep: int
    retain_bytes: int
    """Of log kept before a snapshot, beyond what followers need."""
    retain_bytes_max: int
    """The same, also if followers need more: small ones make them need snapshots."""

    operators: bool
    """Members are added, removed, demoted, promoted and replaced, and leaders asked to hand over."""
    operator_gaps_ms: tuple[int, ...]
    features: tuple[int, ...]
    """The highest feature level that each of the first servers knows at its first boots."""
    disk_faults: bool
    """Full disks, failed writes and fsyncs, snapshots that rot."""
    asking_again_share_min: float
    """See `OriginSettings`; 0 lets servers wait often."""
    put_off_ms: int
    """So long leaders put off entries for a follower that no quorum needs: by default too short for these networks."""


def roll(seed: int, mode: Mode | None = None) -> Profile:
    """The profile of a seed; `mode` overrides the rolled one (directed schedules of planted bugs)."""
    rng = random.Random(f"zraft/{seed}/profile")
    gentle = rng.random() < 0.25
    rolled = rng.choice(
        (
            *(Mode.ALL, Mode.ALL, Mode.EXPIRY, Mode.VOTES, Mode.BOOTS, Mode.READS, Mode.ELECTIONS),
            *(Mode.WIPES, Mode.SNAPSHOTS, Mode.SNAPSHOTS, Mode.MEMBERS, Mode.MEMBERS, Mode.DISKS),
        )
    )
    loss = rng.choice((0.0, 0.0, 0.02, 0.10))
    duplicate = rng.choice((0.0, 0.02, 0.10))
    late = rng.choice((0.0, 0.01, 0.05))
    snipe = rng.choice((0.0, 0.02, 0.10))
    slow_fsync = rng.choice((0.02, 0.10, 0.40))
    wipes = rng.random() < 0.4
    operators = rng.random() < 0.4
    disk_faults = rng.random() < 0.3
    mixed = rng.random() < 0.3
    if mode is not None:
        rolled, gentle = mode, False
    if rolled is Mode.VOTES:
        snipe = 0.25
    if rolled in (Mode.BOOTS, Mode.ELECTIONS):
        late = 0.15
    if rolled is Mode.WIPES:
        wipes = True
    if rolled is Mode.MEMBERS:
        operators, mixed = True, False
    if rolled is Mode.DISKS:
        disk_faults = True
    return Profile(
        mode=rolled,
        gentle=gentle,
        servers=3 if rng.random() < 0.8 else 5,
        clients=rng.choice((3, 4, 5)),
        loss=0.0 if gentle else loss,
        duplicate=0.0 if gentle else duplicate,
        late=0.0 if gentle else late,
        late_ms_max=2_500,
        delay_ms_max=rng.choice((2, 5, 12)),
        reorder=0.0 if gentle else rng.choice((0.0, 0.05, 0.2)),
        fsync_ms_max=rng.choice((1, 3, 8)),
        slow_fsync=0.0 if gentle else slow_fsync,
        slow_fsync_ms_max=rng.choice((30, 150)),
        snipe=0.0 if gentle else snipe,
        fault_gaps_ms=(1_700, 2_100) if gentle else (40, 140, 350, 600, 950),
        think_ms_max=rng.choice((120, 200) if gentle else (60, 90, 160)),
        burst_max=rng.choice((2, 4) if gentle else (2, 4, 8)),
        batches_in_flight=rng.choice((1, 2, 4)),
        entries_in_flight=rng.choice((1, 2, 4)),
        wipes=wipes and not gentle,
        fragment=rng.random() < 0.3,
        read_only_mode=rng.random() < 0.4,
        quota_enforced=rng.random() < 0.7,
        snapshot_bytes=rng.choice((2_000, 6_000, 16_000)),
        snapshot_commands=rng.choice((30, 80, 200)),
        snapshot_keep=rng.choice((1, 2, 3)),
        retain_bytes=rng.choice((0, 0, 2_500)),
        retain_bytes_max=rng.choice((0, 4_000, 60_000)),
        operators=operators,
        operator_gaps_ms=(1_700, 2_400) if gentle else (5, 40, 140, 350, 600, 950),
        features=tuple(rng.choice((1, FEATURE_LEVEL_MAX)) if mixed else FEATURE_LEVEL_MAX for _ in range(5)),
        disk_faults=disk_faults and not gentle,
        asking_again_share_min=rng.choice((0.0, 0.75)),
        put_off_ms=rng.choice((3, 3, 40)),
    )
