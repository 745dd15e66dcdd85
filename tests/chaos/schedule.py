"""Which fault strikes when: a pure function of a seed. Whom it strikes is settled when it does, as a leader moves.

Two tracks run beside each other: one of processes, disks and clocks, one of the network. Within a track one fault
ends, and a pause passes, before the next one begins, so that a cluster is without a quorum for moments only.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from enum import StrEnum
from typing import Final

from attrs import frozen

from zraft_core.errors import ConfigError


class FaultKind(StrEnum):
    """The names are what `--faults` takes."""

    KILL = "kill"
    """SIGKILL, and a start after a while."""
    RESTART = "restart"
    """SIGTERM, and a start at once."""
    STOP_SHORT = "stop-short"
    """SIGSTOP for less than an election timeout takes to matter."""
    STOP_LONG = "stop-long"
    """SIGSTOP for longer than sessions live."""
    KILL_ALL = "kill-all"
    """SIGKILL of all servers at once, and a start of all."""
    STOP_ALL = "stop-all"
    """SIGSTOP of all servers: a laptop that sleeps (D-11)."""
    SLOW_FSYNC = "slow-fsync"
    """Each fdatasync takes longer, by up to some hundred milliseconds."""
    FSYNC_ERROR = "fsync-error"
    """fdatasync fails with EIO: the server must end (D-10), and start again."""
    FULL_DISK = "full-disk"
    """No room for a while; nothing may be acknowledged by that server, and it must recover by itself."""
    CLOCK = "clock"
    """The wall clock jumps, forward or back, by up to days."""
    LOSS = "loss"
    DELAY = "delay"
    REORDER = "reorder"
    DUPLICATE = "duplicate"
    SLOW_LINK = "slow-link"
    ONE_WAY = "one-way"
    """What one server says to one other is lost; the answers are not."""
    CUT = "cut"
    """One pair of servers cannot talk, both can with the third."""
    ISOLATE = "isolate"
    """One server is alone with its clients."""
    PARTITION = "partition"
    """A minority is apart from the others."""
    WIPE = "wipe"
    """SIGKILL, an empty data directory, the same command."""
    TRANSFER = "transfer"
    """`zraft member transfer` to another server."""
    MEMBER = "member"
    """`zraft member remove`, an empty directory, a start, `zraft member add`, and it votes again."""


NETWORK: Final = frozenset(
    {
        FaultKind.LOSS,
        FaultKind.DELAY,
        FaultKind.REORDER,
        FaultKind.DUPLICATE,
        FaultKind.SLOW_LINK,
        FaultKind.ONE_WAY,
        FaultKind.CUT,
        FaultKind.ISOLATE,
        FaultKind.PARTITION,
    }
)
MEMBERSHIP: Final = frozenset({FaultKind.WIPE, FaultKind.TRANSFER, FaultKind.MEMBER})
"""They need a cluster that can change its members; asked for by name only."""

DEFAULT: Final = frozenset(FaultKind) - MEMBERSHIP

DURATIONS_S: Final[dict[FaultKind, tuple[float, float]]] = {
    FaultKind.KILL: (0.2, 8.0),
    FaultKind.RESTART: (0.0, 0.0),
    FaultKind.STOP_SHORT: (0.05, 0.8),
    FaultKind.STOP_LONG: (4.0, 15.0),
    FaultKind.KILL_ALL: (0.2, 4.0),
    FaultKind.STOP_ALL: (1.0, 12.0),
    FaultKind.SLOW_FSYNC: (2.0, 10.0),
    FaultKind.FSYNC_ERROR: (0.5, 3.0),
    FaultKind.FULL_DISK: (2.0, 8.0),
    FaultKind.CLOCK: (1.0, 6.0),
    FaultKind.LOSS: (3.0, 15.0),
    FaultKind.DELAY: (3.0, 12.0),
    FaultKind.REORDER: (3.0, 12.0),
    FaultKind.DUPLICATE: (3.0, 12.0),
    FaultKind.SLOW_LINK: (3.0, 10.0),
    FaultKind.ONE_WAY: (2.0, 10.0),
    FaultKind.CUT: (2.0, 12.0),
    FaultKind.ISOLATE: (2.0, 15.0),
    FaultKind.PARTITION: (2.0, 12.0),
    FaultKind.WIPE: (0.5, 3.0),
    FaultKind.TRANSFER: (0.0, 0.0),
    FaultKind.MEMBER: (1.0, 4.0),
}
PAUSE_S: Final = (1.0, 5.0)
"""Between two faults of a track."""

QUIET_S: Final = 3.0
"""At the beginning, in which clients begin."""

RARE: Final = frozenset({FaultKind.KILL_ALL, FaultKind.STOP_ALL, FaultKind.MEMBER})
RARE_WEIGHT: Final = 0.4


class Target(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    ANY = "any"


@frozen(kw_only=True)
class Fault:
    """One fault of a plan. `at_s` counts from the beginning of the run."""

    number: int
    at_s: float
    duration_s: float
    kind: FaultKind
    target: Target
    choice: int
    """Settles which of several servers, links or sides it strikes."""
    strength: float
    """0 to 1: of a loss, a delay, a jump."""

    @property
    def ends_s(self) -> float:
        return self.at_s + self.duration_s


def plan(seed: int, duration_s: float, kinds: Collection[FaultKind]) -> tuple[Fault, ...]:
    """All faults of a run, by time. Every kind asked for appears before one repeats, if there is time."""
    faults: list[Fault] = []
    for track, members in (
        ("processes", [k for k in FaultKind if k in kinds and k not in NETWORK]),
        ("network", [k for k in FaultKind if k in kinds and k in NETWORK]),
    ):
        if members:
            faults += _track(random.Random(f"{seed}/faults/{track}"), duration_s, members)
    faults.sort(key=lambda fault: (fault.at_s, fault.kind))
    return tuple(
        Fault(
            number=number,
            at_s=one.at_s,
            duration_s=one.duration_s,
            kind=one.kind,
            target=one.target,
            choice=one.choice,
            strength=one.strength,
        )
        for number, one in enumerate(faults, 1)
    )


def _track(rng: random.Random, duration_s: float, kinds: list[FaultKind]) -> list[Fault]:
    faults: list[Fault] = []
    at_s = QUIET_S + rng.uniform(0, PAUSE_S[1])
    waiting: list[FaultKind] = []
    while True:
        if not waiting:
            waiting = [
                kind for kind in kinds if not faults or kind not in RARE or rng.random() < RARE_WEIGHT
            ] or kinds[:]
            rng.shuffle(waiting)
        kind = waiting.pop()
        length_s = rng.uniform(*DURATIONS_S[kind])
        if at_s + length_s > duration_s:
            return faults
        faults.append(
            Fault(
                number=0,
                at_s=at_s,
                duration_s=length_s,
                kind=kind,
                target=rng.choice((Target.LEADER, Target.FOLLOWER, Target.ANY)),
                choice=rng.getrandbits(16),
                strength=rng.random(),
            )
        )
        at_s += length_s + rng.uniform(*PAUSE_S)


def parse_faults(text: str) -> frozenset[FaultKind]:
    """`default`, `all`, `none`, or names separated by commas; a name with `-` in front is taken away.

    Raises:
        ConfigError: a name that is none; lists them.
    """
    chosen: set[FaultKind] = set()
    for place, word in enumerate(part.strip() for part in text.split(",")):
        takes_away, name = word.startswith("-"), word.removeprefix("-")
        if name in ("default", "all", "none"):
            named = {"default": DEFAULT, "all": frozenset(FaultKind), "none": frozenset[FaultKind]()}[name]
        else:
            try:
                named = frozenset({FaultKind(name)})
            except ValueError:
                raise ConfigError(
                    f"--faults: expected default, all, none or some of {', '.join(FaultKind)}, found {name!r}"
                ) from None
        if takes_away and not place:
            chosen |= DEFAULT
        chosen = chosen - named if takes_away else chosen | named
    return frozenset(chosen)
