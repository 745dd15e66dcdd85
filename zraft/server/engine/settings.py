"""The settings of a driver."""

from __future__ import annotations

from attrs import field, frozen

from zraft.config.sections import SnapshotConfig
from zraft.groups.settings import GroupSettings
from zraft.server.clients.settings import ClientSettings
from zraft.server.coordination.settings import CoordinationSettings


@frozen
class DriverSettings(CoordinationSettings):
    """The settings of the coordination group, and of everything else that a driver is made of."""

    clients: ClientSettings = field(factory=ClientSettings)
    snapshots: SnapshotConfig = field(factory=SnapshotConfig)
    slow_fsync_ms: int = 1_000
    """A leader whose writes take this long, while the others' do not, hands its leadership over; 0 if it never does."""
    groups: GroupSettings = field(factory=GroupSettings)
