"""Small items of the state, neither znodes nor sessions; they are hashed anew for each digest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from zraft.tree.digest import item_hash
from zraft.tree.members import Wanted
from zraft.tree.origins import Origin, OriginRow
from zraft.tree.settings import Settings


class SmallState(Protocol):
    """Values that `Machine` and `ImageState` have in common."""

    @property
    def feature_level(self) -> int:
        """The feature level in force."""

    @property
    def last_zxid(self) -> int:
        """The zxid of the last command."""

    @property
    def position(self) -> int:
        """The number of commands that the log has had (D-16)."""

    @property
    def log_time(self) -> int:
        """The log time of the last batch, in ms."""

    @property
    def wall_time(self) -> int:
        """The wall time of the last batch, in ms."""

    @property
    def index(self) -> int:
        """The index of the last entry."""

    @property
    def term(self) -> int:
        """The term of the last entry."""

    @property
    def faults(self) -> int:
        """The number of commands that did not follow the protocol."""

    @property
    def settings(self) -> Settings:
        """The replicated settings."""

    @property
    def rows(self) -> dict[Origin, OriginRow]:
        """The row of each origin."""

    @property
    def members(self) -> Wanted:
        """The members that operators want."""

    @property
    def ghosts(self) -> Mapping[str, int]:
        """The deleted directories whose hidden children are still in memory, with their `first`."""


def small_items(state: SmallState) -> tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]:
    """Return (kind, items) of each kind, sorted."""
    rows = tuple(sorted((*origin, row.boot, row.seq, row.boot_id) for origin, row in state.rows.items()))
    counters = (
        ("feature_level", state.feature_level),
        ("last_zxid", state.last_zxid),
        ("position", state.position),
        ("log_time", state.log_time),
        ("wall_time", state.wall_time),
        ("index", state.index),
        ("term", state.term),
        ("faults", state.faults),
    )
    return (
        ("row", rows),
        ("member", tuple((server, m.voter, m.address) for server, m in sorted(state.members.items()))),
        ("setting", tuple(sorted(state.settings.known_at(state.feature_level).items()))),
        ("counter", counters),
        ("ghost", tuple(sorted(state.ghosts.items()))),
    )


@lru_cache(maxsize=4)
def _setting_shares(items: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """Return the settings' shares.

    They are the most of the small items, and hardly ever others: equal ones are hashed once.
    """
    return tuple(item_hash("setting", *fields) for fields in items)


def small_shares(state: SmallState) -> list[int]:
    """Return the items' shares of the digest."""
    shares: list[int] = []
    for kind, items in small_items(state):
        if kind == "setting":
            shares += _setting_shares(items)
        else:
            shares += [item_hash(kind, *fields) for fields in items]
    return shares
