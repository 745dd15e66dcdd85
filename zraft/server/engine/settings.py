"""Everything that a server decides by."""

from __future__ import annotations

from attrs import field, frozen

from zraft.config.sections import SnapshotConfig
from zraft.groups.settings import GroupSettings
from zraft.raft.settings import RaftSettings
from zraft.server.clients.settings import ClientSettings
from zraft.server.coordination.origin import OriginSettings
from zraft.server.coordination.settings import CoordinationSettings


@frozen
class DriverSettings(CoordinationSettings):
    """What the coordination group decides by, and what all that a driver is made of decides by."""

    raft: RaftSettings = field(factory=RaftSettings)
    origin: OriginSettings = field(factory=OriginSettings)
    clients: ClientSettings = field(factory=ClientSettings)
    log_memory_bytes_max: int = 32 * 1024 * 1024
    snapshots: SnapshotConfig = field(factory=SnapshotConfig)
    slow_fsync_ms: int = 1_000
    """A leader whose writes take this long, while the others' do not, hands its leadership on; 0: it does not."""
    groups: GroupSettings = field(factory=GroupSettings)
