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
        "Servers that hold each partition of a topic, if as many vote.",
    )
    dead_after_ms: int = count(
        600_000,
        0,
        31_536_000_000,
        "Other servers take over the partitions of a server that was silent for this long; 0: only of a removed server.",
    )
    topics_max: int = count(4_096, 0, 65_536, "Topics; further ones are refused.")
    groups_max: int = count(16_384, 0, 65_536, "Partitions of all topics together.")
    partitions_max: int = count(1_024, 1, 1_024, "Partitions of one topic.")
    destinations_max: int = count(
        64, 1, 1_024, "Partitions that one message goes to; a message to more is refused."
    )
    producers_max: int = count(262_144, 0, 1_048_576, "Producers of all sessions together.")


@frozen(kw_only=True)
class GroupsConfig:
    """Partitions of topics, each a Raft group: hundreds on one server. A tick is one millisecond."""

    items_max: int = count(
        64, 1, ITEMS_LARGEST, "Groups that one shared heartbeat offers; more wait for the next one."
    )
    apply_bytes_max: int = count(
        1_048_576,
        4_096,
        1_073_741_824,
        "Bytes of entries of one group applied in one turn; the rest waits for the next turn.",
    )
    log_bytes_max: int = count(
        1_048_576,
        4_096,
        1_073_741_824,
        "Bytes of entries of a group in memory; beyond it, applied entries are read from the log when needed.",
    )
    asleep_log_bytes_max: int = count(4_096, 0, 1_073_741_824, "The same for a group that has nothing to do.")
    snapshot_bytes: int = count(
        4_194_304,
        4_096,
        1_099_511_627_776,
        "Bytes of entries since the last snapshot of a group at which the next one is due.",
    )
    keep_log_bytes_max: int = count(
        16_777_216,
        1,
        1_099_511_627_776,
        "Bytes of log kept before a group's snapshot for followers that are behind; beyond it, they get the snapshot.",
    )
    wal_bytes_max: int = count(
        536_870_912,
        8_192,
        1_099_511_627_776,
        "Bytes of the log of all groups at which the group that needs its oldest part is snapshotted, also group 0.",
    )
    snapshots_at_once: int = count(2, 1, 64, "Snapshots of groups that are written at a time.")
    transfers_at_once: int = count(
        4, 1, 1_024, "Leaderships of groups that are moved to their preferred servers at a time."
    )
    transfer_pause_ticks: int = count(20, 1, 60_000, "Time between the beginnings of two such moves.")
    digest_interval: int = count(
        1_024,
        1,
        1_000_000_000,
        "Entries of a group between two digests of its state that its members compare.",
    )


@frozen(kw_only=True)
class PartitionsConfig:
    """Knobs of what a partition's leader accepts, and of what a server keeps of partitions in memory."""

    payload_bytes_max: int = count(
        1_048_576,
        1,
        PAYLOAD_BYTES_LARGEST,
        "Bytes of one message's payload; a larger one is refused, because servers send each other whole messages.",
    )
    entry_bytes_max: int = count(
        524_288, 1_024, 2_097_152, "An entry of a partition stops taking further commands at this size."
    )
    entries_in_flight_max: int = count(
        4,
        1,
        1_024,
        "Entries of a partition that wait for their quorum; what comes meanwhile gathers in one more.",
    )
    tail_bytes_max: int = count(
        1_048_576,
        1,
        1_073_741_824,
        "Bytes of deliveries of one partition kept in memory for consumers that follow.",
    )
    tails_bytes_max: int = count(
        67_108_864,
        1,
        68_719_476_736,
        "The same for all partitions together; those that delivered least recently are dropped first.",
    )
    fetch_bytes_max: int = count(
        1_048_576,
        1_024,
        16_777_216,
        "Bytes of one answer to a consumer; at least one delivery is always sent.",
    )
    fetch_wait_ms_max: int = count(60_000, 1, 600_000, "The longest that a consumer can let a fetch wait.")
    fetches_max: int = count(
        16_384, 1, 1_048_576, "Fetches that wait for something new; further ones are refused."
    )
    reads_max: int = count(
        256,
        1,
        65_536,
        "Reads of older deliveries under way or waiting for the disk; further ones are refused.",
    )
    requests_max: int = count(
        4_096,
        1,
        1_048_576,
        "Claims, and reads of offsets, of one partition that wait for their quorum; the bound is for each kind.",
    )
    retain_interval_ms: int = count(60_000, 100, 86_400_000, "How often retention looks at each partition.")
    claims_heartbeat_ms: int = count(
        HEARTBEAT_MS_DEFAULT,
        HEARTBEAT_MS_MIN,
        HEARTBEAT_MS_MAX,
        "Interval of claims' heartbeats for consumers that choose none, in partitions that are created from now on.",
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
        262_144, 256, 16_777_216, "Bytes of deliveries that are compressed and checked together."
    )
    compression_level: int = count(1, 0, 19, "Level of zstd; 0 stores deliveries uncompressed.")
    sync_bytes_max: int = count(
        8_388_608,
        1,
        1_099_511_627_776,
        "Bytes of one partition that may be written before they are made durable without a request.",
    )
    checkpoint_bytes: int = count(
        8_388_608,
        1,
        1_099_511_627_776,
        "About the most bytes that a start after a crash reads of the segment that was being written.",
    )
    index_stride_bytes: int = count(
        65_536, 1, 1_099_511_627_776, "Bytes of a segment between two points at which reading can start."
    )
    indices_max: int = count(
        256, 1, 1_048_576, "Segments whose points are in memory at once, over all partitions."
    )
    files_max: int = count(256, 4, 1_048_576, "Segments open at once, over all partitions.")
    waiting_bytes_max: int = count(
        33_554_432,
        1_048_576,
        4_294_967_296,
        "Bytes of deliveries that wait for the disk; beyond it, partitions apply nothing more for a while.",
    )
    sync_interval_ms: int = count(
        2_000,
        10,
        600_000,
        "How long deliveries wait to be made durable without a request; meanwhile, the log holds them.",
    )
