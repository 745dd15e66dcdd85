"""The settings of the coordination group."""

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
    """The settings of the coordination group.

    Attributes:
        tree: the values that the replicated settings get when a cluster is founded (D-5).
    """

    raft: RaftSettings = field(factory=RaftSettings)
    origin: OriginSettings = field(factory=OriginSettings)
    log_memory_bytes_max: int = 32 * 1024 * 1024
    """Beyond these bytes applied entries leave memory; they are read from the disk when they are needed."""
    tree: Settings = field(factory=Settings)
    configured: frozenset[str] = frozenset()
    """The names in `tree` to which the operator gave a value; a default that is not in force is not reported."""
    entry_bytes_max: int = 512 * 1024
    puts_off_attended: bool = False
    """True puts entries off for servers that have clients, too. Simulators do that, as their clients are everywhere."""
    entries_in_flight_max: int = 1
    """With this many uncommitted entries a leader lets commands gather: fuller entries cost less per command."""
    reap_interval_ms: int = 60_000
    """How often a leader looks for containers and znodes with a time to live that are due."""
    observers: Mapping[ServerId, str] = field(factory=dict)
    """Listed servers that do not found the cluster, by address: they are let in as soon as it is founded."""
    founds: bool = True
    """Whether this server, if it is listed and empty, founds a cluster with the others, or only joins one."""
    features: int = FEATURE_LEVEL_MAX
    """The highest feature level that this server announces: what it can apply, or less, so that an upgrade can be undone."""
