"""The knobs of a server's partitions: paces, and how much of anything waits or is kept in memory."""

from __future__ import annotations

from typing import Final

from attrs import field, fields, frozen

from zraft.config.topics import PAYLOAD_BYTES_LARGEST, PartitionsConfig
from zraft.topics.leader_settings import LeaderSettings
from zraft_core.claims.values import HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN
from zraft_core.errors import ConfigError

LEADERLESS_MS: Final = 1_000
"""An election takes less than this, so a shorter time without a leader is no trouble."""


def _leader_settings() -> LeaderSettings:
    return LeaderSettings(
        resend_ticks=40,
        resend_ticks_max=800,
        floor_ticks=20,
        advance_ticks=2,
        report_ticks=40,
        started_bytes_max=16 * 1024 * 1024,
        report_unchanged=False,
    )


@frozen(kw_only=True)
class PartitionsSettings(PartitionsConfig):
    """The knobs `partitions.…`, and the paces of leaders. Checked by `validate`, which `Partitions` calls."""

    tick_ms: int = 5
    """A tick of `leader`'s paces."""
    leader: LeaderSettings = field(factory=_leader_settings)

    def validate(self) -> None:
        """Check each value.

        Raises:
            ConfigError: names the knob, what was found and what it must be.
        """
        for attribute in fields(PartitionsSettings):
            value = getattr(self, attribute.name)
            if attribute.name != "leader" and value < 1:
                raise ConfigError(f"partitions.{attribute.name} is {value}, it must be at least 1")
        if self.payload_bytes_max > PAYLOAD_BYTES_LARGEST:
            raise ConfigError(
                f"partitions.payload_bytes_max is {self.payload_bytes_max}, it must be at most "
                f"{PAYLOAD_BYTES_LARGEST}: servers tell each other a message whole"
            )
        if not HEARTBEAT_MS_MIN <= self.claims_heartbeat_ms <= HEARTBEAT_MS_MAX:
            raise ConfigError(
                f"partitions.claims_heartbeat_ms is {self.claims_heartbeat_ms}, expected {HEARTBEAT_MS_MIN} to "
                f"{HEARTBEAT_MS_MAX}"
            )
