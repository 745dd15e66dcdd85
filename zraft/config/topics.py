"""Configuration of topics on one server: their limits, groups, partitions and deliveries."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.config.fields import count
from zraft_core.claims.values import HEARTBEAT_MS_DEFAULT, HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN

ITEMS_LARGEST: Final = 128
"""The most items of which the codec still takes a message, with as many withdrawals as there may be."""
PAYLOAD_BYTES_LARGEST: Final = 2 * 1024 * 1024
"""The largest payload that is still one message between servers, with what is around it."""


@frozen(kw_only=True)
class TopicConfig:
    """Topics. All of it is replicated, under names like topics_replication: `zraft settings` changes it."""

    replication: int = count(
        3,
        1,
        15,
        "This many servers hold each partition of a topic, if as many vote.",
    )
    dead_after_ms: int = count(
        600_000,
        0,
        31_536_000_000,
        "Other servers take over the partitions of a server that was silent for this long; 0 means only when it is removed.",
    )
    topics_max: int = count(4_096, 0, 65_536, "This many topics may exist; further ones are refused.")
    groups_max: int = count(16_384, 0, 65_536, "All topics together may have this many partitions.")
    partitions_max: int = count(1_024, 1, 1_024, "One topic may have this many partitions.")
    destinations_max: int = count(
        64, 1, 1_024, "One message may go to this many partitions; a message to more is refused."
    )
    producers_max: int = count(262_144, 0, 1_048_576, "All sessions together may have this many producers.")


@frozen(kw_only=True)
class GroupsConfig:
    """Partitions of topics, each a Raft group: hundreds on one server. A tick is one millisecond."""

    items_max: int = count(
        64,
        1,
        ITEMS_LARGEST,
        "One shared heartbeat offers at most this many groups; more wait for the next one.",
    )
    apply_bytes_max: int = count(
        1_048_576,
        4_096,
        1_073_741_824,
        "One turn applies about this many bytes of entries of one group; the rest waits for the next turn.",
    )
    log_bytes_max: int = count(
        1_048_576,
        4_096,
        1_073_741_824,
        "A group keeps this many bytes of entries in memory; beyond it, applied entries are read from the log when needed.",
    )
    asleep_log_bytes_max: int = count(
        4_096, 0, 1_073_741_824, "A group that has nothing to do keeps this many bytes of entries in memory."
    )
    snapshot_bytes: int = count(
        4_194_304,
        4_096,
        1_099_511_627_776,
        "A group's next snapshot is due after this many bytes of entries.",
    )
    keep_log_bytes_max: int = count(
        16_777_216,
        1,
        1_099_511_627_776,
        "This many bytes of log are kept before a group's snapshot for followers; those further behind get the snapshot.",
    )
    wal_bytes_max: int = count(
        536_870_912,
        8_192,
        1_099_511_627_776,
        "If a group, also group 0, holds back this many bytes of the log of all groups, it is snapshotted.",
    )
    snapshots_at_once: int = count(2, 1, 64, "At most this many snapshots of groups are written at a time.")
    transfers_at_once: int = count(
        4, 1, 1_024, "At most this many leaderships of groups are moved to their preferred servers at a time."
    )
    transfer_pause_ticks: int = count(
        20, 1, 60_000, "Two moves of leaderships begin at least this much time apart."
    )
    digest_interval: int = count(
        1_024,
        1,
        1_000_000_000,
        "After every so many entries of a group, its members compare digests of its state.",
    )


@frozen(kw_only=True)
class PartitionsConfig:
    """Knobs of what a partition's leader accepts, and of what a server keeps of partitions in memory."""

    payload_bytes_max: int = count(
        1_048_576,
        1,
        PAYLOAD_BYTES_LARGEST,
        "One message's payload may have this many bytes; a larger one is refused, because servers send each other "
        "whole messages.",
    )
    entry_bytes_max: int = count(
        524_288, 1_024, 2_097_152, "An entry of a partition stops taking further commands at this size."
    )
    entries_in_flight_max: int = count(
        4,
        1,
        1_024,
        "This many entries of a partition may wait for their quorum; what comes meanwhile gathers in one more.",
    )
    tail_bytes_max: int = count(
        1_048_576,
        1,
        1_073_741_824,
        "This many bytes of deliveries of one partition are kept in memory for consumers that follow.",
    )
    tails_bytes_max: int = count(
        67_108_864,
        1,
        68_719_476_736,
        "This many bytes of all partitions' deliveries are kept in memory; partitions that delivered least recently "
        "lose theirs first.",
    )
    fetch_bytes_max: int = count(
        1_048_576,
        1_024,
        16_777_216,
        "One answer to a consumer has at most this many bytes; at least one delivery is always sent.",
    )
    fetch_wait_ms_max: int = count(
        60_000, 1, 600_000, "A consumer can let a fetch wait for this long at most."
    )
    fetches_max: int = count(
        16_384, 1, 1_048_576, "This many fetches may wait for something new; further ones are refused."
    )
    reads_max: int = count(
        256,
        1,
        65_536,
        "This many reads of older deliveries may be under way or wait for the disk; further ones are refused.",
    )
    reads_bytes_max: int = count(
        8_388_608,
        1_048_576,
        1_073_741_824,
        "Reads of older deliveries that are under way may bring this many bytes into memory together; further ones wait.",
    )
    requests_max: int = count(
        4_096,
        1,
        1_048_576,
        "This many claims of one partition may wait for their quorum, and as many reads of its offsets.",
    )
    retain_interval_ms: int = count(60_000, 100, 86_400_000, "Retention looks at each partition this often.")
    claims_heartbeat_ms: int = count(
        HEARTBEAT_MS_DEFAULT,
        HEARTBEAT_MS_MIN,
        HEARTBEAT_MS_MAX,
        "Claims' heartbeats have this interval for consumers that choose none, in partitions that are created from now on.",
    )


@frozen(kw_only=True)
class DeliveriesConfig:
    """Knobs of deliveries, which are kept in segments that consumers read."""

    segment_bytes_max: int = count(
        67_108_864,
        4_096,
        1_099_511_627_776,
        "A segment is closed before it grows beyond this size; retention removes whole segments.",
    )
    frame_bytes_max: int = count(
        262_144, 256, 16_777_216, "This many bytes of deliveries are compressed and checked together."
    )
    compression_level: int = count(1, 0, 19, "The level of zstd; 0 stores deliveries uncompressed.")
    sync_bytes_max: int = count(
        8_388_608,
        1,
        1_099_511_627_776,
        "This many bytes of one partition may be written before they are made durable without a request.",
    )
    checkpoint_bytes: int = count(
        8_388_608,
        1,
        1_099_511_627_776,
        "A start after a crash reads at most about this many bytes of the segment that was being written.",
    )
    index_stride_bytes: int = count(
        65_536,
        1,
        1_099_511_627_776,
        "Reading can start at points of a segment that are this many bytes apart.",
    )
    indices_max: int = count(
        256,
        1,
        1_048_576,
        "The starting points of this many segments are in memory at once, over all partitions.",
    )
    files_max: int = count(256, 4, 1_048_576, "This many segments are open at once, over all partitions.")
    waiting_bytes_max: int = count(
        33_554_432,
        1_048_576,
        4_294_967_296,
        "This many bytes of deliveries may wait for the disk; beyond it, partitions apply nothing more for a while.",
    )
    sync_interval_ms: int = count(
        2_000,
        10,
        600_000,
        "Deliveries wait this long to be made durable without a request; meanwhile, the log holds them.",
    )
