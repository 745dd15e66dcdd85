"""Settings of a group's gossip: times and bounds, and what they are good for."""

from __future__ import annotations

from attrs import field, frozen

from onyxlog.gossip.spreading import Mode, SpreadingSettings
from zraft_core.errors import ConfigError


@frozen
class GossipSettings:
    """Settings of gossip. All times are in ms; waits are randomised by half of them either way.

    `gap_ms`: how long a missing entry is waited for before anybody is asked; `repair_ms`: how long a peer may
    take to answer; `repair_attempts`: how many peers are asked before the log is; `repair_entries_max`: if
    more entries are missing, they are read from the log at once.

    `heartbeat_ms`: between heartbeats to a random group after something happened; it doubles while nothing
    does, up to `heartbeat_ms_max`. `poll_ms`: how long nobody may have looked at the log before this group
    does; it doubles while there is nothing, up to `poll_ms_max`.

    `sentinels`: how many groups have the log push its entries to them, and publish those which no group
    wrote: a client's, a session's last will. `sentinel_wait_ms`: how long they leave that to an entry's
    writer. After `sentinel_quiet_ms` without anything new, and every `sentinel_beat_ms` from then on, they
    ask the log for its end, and tell everybody that there is nothing new, so that nobody else need look at
    the log.

    `window`: entries ahead of the next one that are kept; `history`, `history_bytes`: applied entries kept
    for others. `read_entries_max`: entries in one read of the log. `datagram_bytes`: what a message may take;
    `found_datagrams`: how many answer one request. `payload_bytes_max`: an entry above it fits no UDP
    datagram, and goes by the log alone.

    `divergence`: after how many groups in a row that contradict its replica a group begins again at the
    origin.
    """

    mode: Mode = Mode.POOL
    spreading: SpreadingSettings = field(factory=SpreadingSettings)
    gap_ms: int = 150
    repair_ms: int = 100
    repair_attempts: int = 2
    repair_entries_max: int = 64
    heartbeat_ms: int = 500
    heartbeat_ms_max: int = 5_000
    poll_ms: int = 5_000
    poll_ms_max: int = 15_000
    sentinels: int = 1
    sentinel_wait_ms: int = 50
    sentinel_quiet_ms: int = 2_000
    sentinel_beat_ms: int = 4_000
    window: int = 1024
    history: int = 2048
    history_bytes: int = 4 * 1024 * 1024
    read_entries_max: int = 1000
    datagram_bytes: int = 1300
    found_datagrams: int = 4
    payload_bytes_max: int = 60_000
    divergence: int = 3

    def __attrs_post_init__(self) -> None:
        times = {
            "gap_ms": self.gap_ms,
            "repair_ms": self.repair_ms,
            "heartbeat_ms": self.heartbeat_ms,
            "poll_ms": self.poll_ms,
        }
        for name, value in times.items():
            if value <= 0:
                raise ConfigError(f"gossip.{name}: expected ms above 0, found {value}")
        for low, high in (("heartbeat_ms", "heartbeat_ms_max"), ("poll_ms", "poll_ms_max")):
            if getattr(self, high) < getattr(self, low):
                raise ConfigError(
                    f"gossip.{high}: expected at least gossip.{low}, found {getattr(self, high)}"
                )
        if self.window < 2 or self.history < self.repair_entries_max or self.read_entries_max < 1:
            raise ConfigError(
                f"gossip: expected window >= 2, read_entries_max >= 1 and history >= repair_entries_max; found "
                f"{self.window}, {self.read_entries_max}, {self.history} and {self.repair_entries_max}"
            )


def settings_for(mode: Mode) -> GossipSettings:
    """Return the settings that suit a mode.

    In a tree an event takes many hops, and must not be given up for lost meanwhile.
    """
    if mode is Mode.PLUMTREE:
        return GossipSettings(mode, SpreadingSettings(graft_ms=150), gap_ms=400, sentinel_wait_ms=300)
    return GossipSettings(mode)
