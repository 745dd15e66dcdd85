"""The settings of a server's groups, in ticks of one millisecond and in bytes."""

from __future__ import annotations

from typing import Final

from attrs import field, fields, frozen

from zraft.config.topics import ITEMS_LARGEST, GroupsConfig
from zraft.raft.settings import RaftSettings
from zraft_core.errors import ConfigError

_ZERO_ALLOWED: Final = ("asleep_log_bytes_max",)


def _raft_settings() -> RaftSettings:
    return RaftSettings(uncommitted_bytes_max=8 * 1024 * 1024, pending_reads_max=1_000)


@frozen(kw_only=True)
class GroupSettings(GroupsConfig):
    """The knobs `groups.…`, and the settings of each group's core. `GroupHost` checks them by `validate`."""

    raft: RaftSettings = field(factory=_raft_settings)
    """The settings of each group's core. Bounds hold per group, so they are smaller than the coordination group's."""

    def validate(self) -> None:
        """Check each value, and the relations between them.

        Raises:
            ConfigError: names the knob, what was found and what it must be.
        """
        self.raft.validate()
        for attribute in fields(GroupSettings):
            if attribute.name == "raft":
                continue
            value, least = getattr(self, attribute.name), attribute.name not in _ZERO_ALLOWED
            if value < least:
                raise ConfigError(f"groups.{attribute.name} is {value}, it must be at least {int(least)}")
        if self.items_max > ITEMS_LARGEST:
            raise ConfigError(
                f"groups.items_max is {self.items_max}, it must be at most {ITEMS_LARGEST}: a shared heartbeat is no batch"
            )
        if self.wal_bytes_max < 2 * self.snapshot_bytes:
            raise ConfigError(
                f"groups.wal_bytes_max is {self.wal_bytes_max}, it must be at least 2 * groups.snapshot_bytes "
                f"({self.snapshot_bytes}): else groups are snapshotted for their age before their size asks for it"
            )
