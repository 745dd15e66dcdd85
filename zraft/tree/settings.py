"""The replicated settings: everything apply consults that an operator may change (D-5)."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve, fields, frozen

from zraft.config.features import LEVEL_OF_TOPICS


@frozen
class Settings:
    """One value per knob; sizes in bytes, times in milliseconds."""

    tick_time_ms: int = 2_000
    session_timeout_ms_min: int = 4_000
    session_timeout_ms_max: int = 40_000
    data_bytes_max: int = 1024 * 1024
    session_ephemerals_max: int = 20_000
    """Closing a session removes all its ephemerals in one command, which must not stall apply (D-20)."""
    ttl_nodes_enabled: int = 1
    """0 or 1: whether znodes with a time to live may be created (ZooKeeper's extendedTypesEnabled)."""
    quota_enforced: int = 0
    """0 or 1: whether hard limits of quotas refuse (ZooKeeper's enforceQuota)."""
    container_never_used_ms_max: int = 300_000
    """A container that never had a child goes after this long; 0: it stays."""
    topics_max: int = 4_096
    topics_groups_max: int = 16_384
    """Partitions of all topics together, those that are being deleted included."""
    topics_partitions_max: int = 1_024
    """The most partitions of one topic."""
    topics_destinations_max: int = 64
    """The most destinations of one message. Nothing is applied by it: leaders refuse what is larger before it
    is logged.
    """
    topics_producers_max: int = 262_144
    """Open ones, and closed ones of which something may be left."""
    topics_replication: int = 3
    """Servers that hold each partition, as far as there are as many voters."""
    topics_dead_after_ms: int = 600_000
    """Others stand in for a server that was silent for so long; 0: nobody does, until it is removed or gets a new disk."""

    def changed(self, changes: dict[Any, Any], feature_level: int) -> Settings | None:
        """Return these settings with `changes` made, or None if any of them is unknown or out of bounds.

        A setting that is newer than the level in force is unknown, or servers of two releases would part (D-5).
        """
        for name, value in changes.items():
            if name not in _BOUNDS or value.__class__ is not int or _SINCE.get(name, 1) > feature_level:
                return None
            low, high = _BOUNDS[name]
            if not low <= value <= high:
                return None
        new = evolve(self, **changes)
        return None if new.session_timeout_ms_min > new.session_timeout_ms_max else new

    def known_at(self, feature_level: int) -> dict[str, int]:
        """Return the settings that exist at a feature level: no other counts as state."""
        return {name: getattr(self, name) for name in _BOUNDS if _SINCE.get(name, 1) <= feature_level}

    def clamped_timeout_ms(self, timeout_ms: int) -> int:
        """Return the session timeout that a client gets when it asks for `timeout_ms`."""
        if timeout_ms > self.session_timeout_ms_max:
            timeout_ms = self.session_timeout_ms_max
        return timeout_ms if timeout_ms > self.session_timeout_ms_min else self.session_timeout_ms_min


_DAY_MS: Final = 24 * 3600 * 1000
_BOUNDS: Final = {
    "tick_time_ms": (1, 60_000),
    "session_timeout_ms_min": (1, _DAY_MS),
    "session_timeout_ms_max": (1, _DAY_MS),
    "data_bytes_max": (1, 2**30),
    "session_ephemerals_max": (1, 2**31 - 1),
    "ttl_nodes_enabled": (0, 1),
    "quota_enforced": (0, 1),
    "container_never_used_ms_max": (0, 365 * _DAY_MS),
    "topics_max": (0, 65_536),
    "topics_groups_max": (0, 65_536),
    "topics_partitions_max": (1, 1_024),
    "topics_destinations_max": (1, 1_024),
    "topics_producers_max": (0, 1 << 20),
    "topics_replication": (1, 15),
    "topics_dead_after_ms": (0, 365 * _DAY_MS),
}
_SINCE: Final = {name: LEVEL_OF_TOPICS for name in _BOUNDS if name.startswith("topics_")}
"""The feature level of a setting that is newer than level 1."""
assert set(_BOUNDS) == {field.name for field in fields(Settings)}
