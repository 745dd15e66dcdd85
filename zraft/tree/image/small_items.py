"""What of the state is neither znode nor session: few items, hashed anew for each digest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from zraft.tree.digest import item_hash
from zraft.tree.members import Wanted
from zraft.tree.origins import Origin, Row
from zraft.tree.settings import Settings


class SmallState(Protocol):
    """What `Machine` and `ImageState` have in common."""

    @property
    def feature_level(self) -> int: ...
    @property
    def last_zxid(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def log_time(self) -> int: ...
    @property
    def wall_time(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def faults(self) -> int: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def rows(self) -> dict[Origin, Row]: ...
    @property
    def members(self) -> Wanted: ...
    @property
    def ghosts(self) -> Mapping[str, int]: ...


def small_items(state: SmallState) -> tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]:
    """(kind, items) of each kind, sorted."""
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
    """The most of the small items, and hardly ever others: equal ones are hashed once."""
    return tuple(item_hash("setting", *fields) for fields in items)


def small_shares(state: SmallState) -> list[int]:
    """Their shares of the digest."""
    shares: list[int] = []
    for kind, items in small_items(state):
        if kind == "setting":
            shares += _setting_shares(items)
        else:
            shares += [item_hash(kind, *fields) for fields in items]
    return shares
