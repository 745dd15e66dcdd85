"""The knobs of a server's groups, in ticks of one millisecond and in bytes."""

from __future__ import annotations

from typing import Final

from attrs import field, fields, frozen

from zraft.raft.settings import RaftSettings
from zraft_core.errors import ConfigError

ITEMS_MAX: Final = 128
"""With as many withdrawals as there may be, still what the codec takes for one message."""

_ZERO_ALLOWED: Final = ("asleep_log_bytes_max",)


def _raft_settings() -> RaftSettings:
    return RaftSettings(uncommitted_bytes_max=8 * 1024 * 1024, pending_reads_max=1_000)


@frozen(kw_only=True)
class GroupSettings:
    """Every bound of a host of groups. Checked by `validate`, which `GroupHost` calls.

    Attributes:
        raft: of every group. Its bounds are per group, so they are smaller than those of the coordination group.
        items_max: groups that one shared heartbeat offers; more wait for the next one.
        apply_bytes_max: entries of one group that are applied in one turn; the rest waits for the next.
        log_bytes_max: entries of a group in memory beyond which those that are applied are read from the disk again.
        asleep_log_bytes_max: the same for a group that has nothing to do.
        snapshot_bytes: entries since the last snapshot of a group beyond which the next one is due.
        keep_log_bytes_max: log that is kept before a snapshot for followers that lack it; beyond, they take the
            snapshot.
        wal_bytes_max: size of the common log beyond which the group that needs the oldest part of it is
            snapshotted, however little it wrote; behind one with a large image the log may be longer by that.
        snapshots_at_once: snapshots of groups that are being written at a time.
        transfers_at_once: leaderships that are being moved to their preferred servers at a time.
        transfer_pause_ticks: time between two beginnings of such a move, and after which one that failed is tried
            again, times the tries so far.
        digest_interval: entries of a group between two digests of its state that its members compare.
    """

    raft: RaftSettings = field(factory=_raft_settings)
    items_max: int = 64
    apply_bytes_max: int = 1024 * 1024
    log_bytes_max: int = 1024 * 1024
    asleep_log_bytes_max: int = 4 * 1024
    snapshot_bytes: int = 4 * 1024 * 1024
    keep_log_bytes_max: int = 16 * 1024 * 1024
    wal_bytes_max: int = 512 * 1024 * 1024
    snapshots_at_once: int = 2
    transfers_at_once: int = 4
    transfer_pause_ticks: int = 20
    digest_interval: int = 1_024

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
        if self.items_max > ITEMS_MAX:
            raise ConfigError(
                f"groups.items_max is {self.items_max}, it must be at most {ITEMS_MAX}: a shared heartbeat is no batch"
            )
        if self.wal_bytes_max < 2 * self.snapshot_bytes:
            raise ConfigError(
                f"groups.wal_bytes_max is {self.wal_bytes_max}, it must be at least 2 * groups.snapshot_bytes "
                f"({self.snapshot_bytes}): else groups are snapshotted for their age before their size asks for it"
            )
