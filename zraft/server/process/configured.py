"""What a configuration means for the driver: every knob in the place where it is decided by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, fields

from zraft.config.server import ServerConfig
from zraft.config.topics import GroupsConfig, PartitionsConfig, TopicConfig
from zraft.groups.settings import GroupSettings
from zraft.groups.snapshots.keeper import SnapshotSettings
from zraft.raft.settings import RaftSettings
from zraft.server.clients.authentication.proofs import AuthSettings
from zraft.server.clients.settings import ClientSettings
from zraft.server.coordination.origin import OriginSettings
from zraft.server.engine.settings import DriverSettings
from zraft.server.partitions.settings import PartitionsSettings
from zraft.server.process.security.reloading import Reloading
from zraft.server.process.security.sasl_users import read_users
from zraft.storage.delivery.settings import DeliverySettings
from zraft.transport import routing
from zraft.tree.settings import Settings

DATAGRAM_OVERHEAD_BYTES: Final = 60
"""Of a datagram, about, for its seal and the header of a fragment."""

KNOBS_OF_SETTINGS: Final[Mapping[str, str]] = {
    **{name: name for name in ("tick_time_ms", "session_timeout_ms_min", "session_timeout_ms_max")},
    **{
        name: f"tree.{name}"
        for name in ("ttl_nodes_enabled", "quota_enforced", "container_never_used_ms_max")
    },
    "topics_max": "topics.topics_max",
    **{
        f"topics_{field.name}": f"topics.{field.name}"
        for field in fields(TopicConfig)
        if field.name != "topics_max"
    },
}
"""The knob that gives a replicated setting its first value. Two have none: `data_bytes_max` follows from
`client.jute_maxbuffer`, `session_ephemerals_max` is changed by `zraft settings set` only."""


def sasl_users(config: ServerConfig) -> Reloading[Mapping[str, str]] | None:
    file = config.auth.sasl_users_file
    return Reloading("SASL users", [file], lambda _: read_users(file)) if file is not None else None


def group_settings(config: ServerConfig) -> GroupSettings:
    """Of the groups of topics: timeouts as the coordination group's, bounds of their own."""
    groups, raft, own = config.groups, config.raft, GroupSettings().raft
    return GroupSettings(
        raft=evolve(
            own,
            election_timeout_ticks=raft.election_timeout_ticks,
            heartbeat_ticks=raft.heartbeat_ticks,
            append_bytes_max=raft.append_bytes_max,
            inflight_messages_max=raft.inflight_messages_max,
            inflight_bytes_max=raft.inflight_bytes_max,
            bulk_bytes_min=_bulk_bytes_min(config),
        ),
        **{field.name: getattr(groups, field.name) for field in fields(GroupsConfig)},
    )


def delivery_settings(config: ServerConfig) -> DeliverySettings:
    return DeliverySettings(
        **{field.name: getattr(config.deliveries, field.name) for field in fields(DeliverySettings)}
    )


def partition_settings(config: ServerConfig) -> PartitionsSettings:
    return PartitionsSettings(
        **{field.name: getattr(config.partitions, field.name) for field in fields(PartitionsConfig)}
    )


def _value(config: ServerConfig, knob: str) -> Any:
    section, _, name = knob.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


def _bulk_bytes_min(config: ServerConfig) -> int:
    """Above it a message goes by a stream, which Raft gives more time and does not overtake (D-22)."""
    return routing.DATAGRAMS_MAX * (config.peer.datagram_bytes - DATAGRAM_OVERHEAD_BYTES)


def driver_settings(config: ServerConfig, users: Reloading[Mapping[str, str]] | None) -> DriverSettings:
    raft, auth = config.raft, config.auth
    configured = {name for name, knob in KNOBS_OF_SETTINGS.items() if knob in config.named}
    data_bytes_max = Settings().data_bytes_max
    if config.client.jute_maxbuffer > data_bytes_max:
        # Who takes larger requests wants larger znodes; who takes smaller ones says nothing of those that are there.
        data_bytes_max = config.client.jute_maxbuffer
        configured.add("data_bytes_max")
    return DriverSettings(
        raft=RaftSettings(
            election_timeout_ticks=raft.election_timeout_ticks,
            heartbeat_ticks=raft.heartbeat_ticks,
            append_bytes_max=raft.append_bytes_max,
            inflight_messages_max=raft.inflight_messages_max,
            inflight_bytes_max=raft.inflight_bytes_max,
            bulk_bytes_min=_bulk_bytes_min(config),
            uncommitted_bytes_max=raft.uncommitted_bytes_max,
        ),
        origin=OriginSettings(unapplied_bytes_max=config.client.outstanding_bytes_max),
        clients=ClientSettings(
            jute_maxbuffer=config.client.jute_maxbuffer,
            connections_max=config.client.connections_max,
            output_bytes_max=config.client.output_bytes_max,
            output_bytes_per_address_max=config.client.output_bytes_per_address_max,
            output_bytes_sum_max=config.client.output_bytes_sum_max,
            input_bytes_per_address_max=config.client.input_bytes_per_address_max,
            input_bytes_sum_max=config.client.input_bytes_sum_max,
            unfinished_bytes_per_address_max=config.client.unfinished_bytes_per_address_max,
            unfinished_bytes_sum_max=config.client.unfinished_bytes_sum_max,
            reply_bytes_max=config.client.reply_bytes_max,
            watches_per_connection_max=config.client.watches_per_connection_max,
            read_only_mode_enabled=config.client.read_only_mode_enabled,
            reconfig_enabled=config.client.reconfig_enabled,
            connections_per_address_max=config.client.connections_per_address_max,
            connects_per_second_max=config.client.connects_per_second_max,
            auth=AuthSettings(
                super_digest=auth.super_digest,
                super_user=auth.super_user,
                users=(lambda: users.value) if users is not None else None,
                required_schemes=frozenset(auth.required_schemes),
            ),
        ),
        tree=Settings(
            data_bytes_max=data_bytes_max,
            **{name: int(_value(config, knob)) for name, knob in KNOBS_OF_SETTINGS.items()},
        ),
        configured=frozenset(configured),
        reap_interval_ms=config.tree.reap_interval_ms,
        snapshots=SnapshotSettings(
            log_bytes_min=config.snapshot.log_bytes_min,
            log_ratio_percent=config.snapshot.log_ratio_percent,
            commands_min=config.snapshot.commands_min,
            keep=config.snapshot.keep,
            retain_bytes=config.snapshot.retain_bytes,
            retain_bytes_max=config.snapshot.retain_bytes_max,
            send_bytes_per_s=config.snapshot.send_bytes_per_s,
        ),
        slow_fsync_ms=config.wal.slow_fsync_ms,
        groups=group_settings(config),
        features=config.features_max,
        observers={server: str(config.cluster[server]) for server in sorted(config.observers)},
        founds=config.founds,
        entry_bytes_max=raft.batch_bytes_max,
    )
