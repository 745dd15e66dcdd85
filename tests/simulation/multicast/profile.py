"""What kind of run a seed makes: how much is multicast, by how many, over how bad a network."""

from __future__ import annotations

from enum import Enum
from random import Random

from attrs import evolve, frozen

from zraft.topics.leader_settings import Exchange, LeaderSettings
from zraft_core.topics.producer import Reach
from zraft_core.topics.registry_values import PartitionSettings


class Size(Enum):
    """`TINY` makes schedules to read, `SMALL` the densest interleavings, `LARGE` long histories."""

    TINY = "tiny"
    SMALL = "small"
    LARGE = "large"


class Mode(Enum):
    """A class of trouble that some planted bugs need; without one a run has a bit of each."""

    DELETING = "topics are deleted"
    GROWING = "partitions are added"
    CAUSAL = "messages depend on what was seen"
    CLOSING = "producers are closed"
    ORDERED = "messages of one producer are ordered"
    LOSING = "groups are given up"
    REPLACING = "partitions of a topic are given up, and others take their places"


@frozen
class Rare:
    """Relative frequencies of what seldom happens."""

    close: float = 3.0
    alter: float = 2.0
    delete: float = 2.0
    stop: float = 1.5
    coordinator: float = 1.0
    restart: float = 1.0
    give_up: float = 0.0


_RARE = {
    None: Rare(),
    Mode.DELETING: Rare(close=0.5, delete=12.0),
    Mode.GROWING: Rare(close=0.5, alter=12.0),
    Mode.CAUSAL: Rare(close=0.5),
    Mode.CLOSING: Rare(close=12.0),
    Mode.ORDERED: Rare(),
    Mode.LOSING: Rare(close=1.0, give_up=12.0),
    Mode.REPLACING: Rare(close=1.0, give_up=12.0, restart=3.0),
}


@frozen
class Profile:
    """The dice of one run, rolled before it. `length` counts the adversary's steps."""

    size: Size
    groups: int
    producers: tuple[int, ...]
    """How many messages each sends."""
    window: int
    loss: float
    length: int
    alters: int
    deletes: int
    give_ups: int
    replaces: bool
    """True if topics outlive the groups that are given up, so that others take their places."""
    causal: float
    """Share of the messages that depend on what was seen."""
    ordered: float
    """Share of the producers whose messages are ordered."""
    rare: Rare
    inline_bytes_max: int
    coded: bool
    """Whether all that is logged and sent goes through the codecs: most of the time of a large run."""
    exchange: Exchange

    def group_settings(self) -> PartitionSettings:
        return PartitionSettings(window=self.window, consumers_max=4)

    def leader_settings(self) -> LeaderSettings:
        return LeaderSettings(
            resend_ticks=1,
            resend_ticks_max=4,
            floor_ticks=1,
            advance_ticks=1,
            report_ticks=1,
            inline_bytes_max=self.inline_bytes_max,
            exchange=self.exchange,
        )


def draw(seed: int, rng: Random, size: Size | None, mode: Mode | None) -> Profile:
    if size is None:
        size = rng.choices([Size.TINY, Size.SMALL, Size.LARGE], [1, 2, 7])[0]
    tiny, large = size is Size.TINY, size is Size.LARGE
    groups = rng.choice([2, 3] if tiny else [2, 3, 3, 4] if not large else [3, 4, 5, 6])
    if mode in (Mode.DELETING, Mode.LOSING, Mode.REPLACING):
        groups = max(groups, 4 if mode is Mode.DELETING else 5)
    count = rng.choice([1, 2] if tiny else [1, 2, 3, 4] if not large else [4, 5, 6])
    each = [1, 2, 3] if tiny else [2, 4, 8] if not large else [80, 120, 160]
    return Profile(
        size,
        groups,
        tuple(rng.choice(each) for _ in range(count)),
        window=rng.choice([3, 8, 32]) if large else 6 if mode is Mode.ORDERED else 3,
        loss=rng.choice([0.0, 0.1, 0.3]) if not large else rng.choice([0.0, 0.02, 0.1]),
        length=rng.choice([40, 100] if tiny else [100, 300, 500] if not large else [3000, 5000]),
        alters=2 if mode is Mode.GROWING else rng.choice([0, 0, 1, 2]),
        deletes=0 if groups < 3 else 2 if mode is Mode.DELETING else rng.choice([0, 1, 1, 2]),
        give_ups=2 if mode is Mode.LOSING else 4 if mode is Mode.REPLACING else 0,
        replaces=mode is Mode.REPLACING,
        causal=0.7 if mode is Mode.CAUSAL else rng.choice([0.0, 0.0, 0.3]),
        ordered=1.0 if mode is Mode.ORDERED else 0.4 if large else 0.0,
        rare=_rare(mode, large=large),
        inline_bytes_max=rng.choice([0, 512]),
        coded=not large or rng.random() < 0.1,
        exchange=Exchange.ENTRY if seed % 3 == 2 else Exchange.ALL,
    )


def _rare(mode: Mode | None, *, large: bool) -> Rare:
    """In a long run the same number of producers is closed as in a short one, or none would be left."""
    rare = _RARE[mode]
    return evolve(rare, close=rare.close / 10) if large else rare


def reach(rng: Random) -> Reach:
    return rng.choice([Reach.ALL, Reach.ONE])
