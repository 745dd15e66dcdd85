"""The knobs of a server's partitions: paces, and how much of anything waits or is kept in memory."""

from __future__ import annotations

from typing import Final

from attrs import field, fields, frozen

from zraft.topics.leader_settings import LeaderSettings
from zraft_core.claims.values import HEARTBEAT_MS_DEFAULT, HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN
from zraft_core.errors import ConfigError

PAYLOAD_BYTES_LARGEST: Final = 2 * 1024 * 1024
"""With what is around it, it still is one message between servers."""


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
class PartitionsSettings:
    """Checked by `validate`, which `Partitions` calls. Times in milliseconds.

    Attributes:
        tick_ms: a tick of `leader`'s paces.
        payload_bytes_max: of one message; a larger one is refused.
        entry_bytes_max: of one entry, at least one command always.
        entries_in_flight_max: entries of a leader that await their quorum; what comes meanwhile is one more.
        tail_bytes_max: deliveries of one partition that are kept in memory for those who follow.
        tails_bytes_max: of all partitions; those that delivered least recently forget first.
        fetch_bytes_max: of one answer to a consumer, at least one delivery always.
        fetch_wait_ms_max: the longest a consumer can let a fetch wait.
        fetches_max: fetches that wait for something new.
        reads_max: reads from the disk under way or waiting for it; beyond, fetches are answered "busy".
        requests_max: requests of consumers of one partition, of each kind, that wait for their entry or quorum round.
        retain_interval_ms: how often retention looks at each partition.
        claims_heartbeat_ms: the interval of claims in partitions that are created from now on.
    """

    tick_ms: int = 5
    leader: LeaderSettings = field(factory=_leader_settings)
    payload_bytes_max: int = 1024 * 1024
    entry_bytes_max: int = 512 * 1024
    entries_in_flight_max: int = 4
    tail_bytes_max: int = 1024 * 1024
    tails_bytes_max: int = 64 * 1024 * 1024
    fetch_bytes_max: int = 1024 * 1024
    fetch_wait_ms_max: int = 60_000
    fetches_max: int = 16_384
    reads_max: int = 256
    requests_max: int = 4_096
    retain_interval_ms: int = 60_000
    claims_heartbeat_ms: int = HEARTBEAT_MS_DEFAULT

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
