"""What the coordination group decides by."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.raft.settings import RaftSettings
from zraft.server.coordination.origin import OriginSettings
from zraft.tree.settings import Settings
from zraft_core.ids import ServerId


@frozen
class CoordinationSettings:
    """`tree` seeds the replicated settings when a cluster is founded (D-5)."""

    raft: RaftSettings = field(factory=RaftSettings)
    origin: OriginSettings = field(factory=OriginSettings)
    log_memory_bytes_max: int = 32 * 1024 * 1024
    """Entries that are applied leave memory beyond this; who needs them reads them from the disk."""
    tree: Settings = field(factory=Settings)
    configured: frozenset[str] = frozenset()
    """Names of those of `tree` that the operator gave a value; nobody misses a default that is not in force."""
    entry_bytes_max: int = 512 * 1024
    entries_in_flight_max: int = 1
    """Uncommitted entries of a leader at which it lets commands gather: fuller entries cost less per command."""
    reap_interval_ms: int = 60_000
    """How often a leader looks for containers and znodes with a time to live that are due."""
    observers: Mapping[ServerId, str] = field(factory=dict)
    """Listed servers that do not found the cluster, by address: they are taken in as soon as it is founded."""
    founds: bool = True
    """Whether this server, if it is listed and empty, founds a cluster with the others, or only joins one."""
    features: int = FEATURE_LEVEL_MAX
    """The highest feature level this server announces: what it can apply, or less, so that a release can be taken back."""
