"""Translation of a configuration to the settings of a server's parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from attrs import AttrsInstance, evolve, fields

from zraft.config.server import ServerConfig
from zraft.config.topics import TopicConfig
from zraft.groups.settings import GroupSettings
from zraft.raft.settings import RaftSettings
from zraft.server.clients.authentication.proofs import AuthSettings
from zraft.server.clients.settings import ClientSettings
from zraft.server.coordination.origin import OriginSettings
from zraft.server.engine.settings import DriverSettings
from zraft.server.partitions.settings import PartitionsSettings
from zraft.server.process.security.reloading import Reloading
from zraft.server.process.security.sasl_users import read_users
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.settings import WalSettings
from zraft.transport import routing
from zraft.tree.settings import Settings

S = TypeVar("S", bound=AttrsInstance)

DATAGRAM_OVERHEAD_BYTES: Final = 60
"""The bytes of a datagram, about, for its seal and the header of a fragment."""

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
    """Return the SASL users, read again when their file changes; None if there is no file."""
    file = config.auth.sasl_users_file
    return Reloading("SASL users", [file], lambda _: read_users(file)) if file is not None else None


def taken(kind: type[S], section: AttrsInstance, **more: Any) -> S:
    """Return settings of this kind: fields that are knobs of a section of the configuration, and `more`."""
    of_both = {field.name for field in fields(kind)} & {field.name for field in fields(type(section))}
    return kind(**{name: getattr(section, name) for name in of_both}, **more)


def delivery_settings(config: ServerConfig) -> DeliverySettings:
    """Return the settings of deliveries on the disk."""
    return taken(DeliverySettings, config.deliveries)


def partition_settings(config: ServerConfig) -> PartitionsSettings:
    """Return the settings of partitions."""
    return taken(PartitionsSettings, config.partitions)


def wal_settings(config: ServerConfig) -> WalSettings:
    """Return the settings of the write-ahead log."""
    return taken(WalSettings, config.wal)


def _value(config: ServerConfig, knob: str) -> Any:
    section, _, name = knob.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


def _bulk_bytes_min(config: ServerConfig) -> int:
    """Return the size above which a message goes by a stream.

    Raft gives a stream more time and does not overtake it (D-22).
    """
    return routing.DATAGRAMS_MAX * (config.peer.datagram_bytes - DATAGRAM_OVERHEAD_BYTES)


def driver_settings(config: ServerConfig, users: Reloading[Mapping[str, str]] | None) -> DriverSettings:
    """Return the settings of the driver."""
    auth, own = config.auth, GroupSettings().raft
    raft = taken(RaftSettings, config.raft, bulk_bytes_min=_bulk_bytes_min(config))
    configured = {name for name, knob in KNOBS_OF_SETTINGS.items() if knob in config.named}
    data_bytes_max = Settings().data_bytes_max
    if config.client.jute_maxbuffer > data_bytes_max:
        # An operator who allows larger requests wants larger znodes; one who allows smaller ones says nothing
        # of existing znodes.
        data_bytes_max = config.client.jute_maxbuffer
        configured.add("data_bytes_max")
    return DriverSettings(
        raft=raft,
        origin=OriginSettings(unapplied_bytes_max=config.client.outstanding_bytes_max),
        clients=taken(
            ClientSettings,
            config.client,
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
        snapshots=config.snapshot,
        slow_fsync_ms=config.wal.slow_fsync_ms,
        groups=taken(
            GroupSettings,
            config.groups,
            # timeouts as the coordination group's, bounds of their own
            raft=evolve(
                raft,
                uncommitted_bytes_max=own.uncommitted_bytes_max,
                pending_reads_max=own.pending_reads_max,
            ),
        ),
        features=config.features_max,
        observers={server: str(config.cluster[server]) for server in sorted(config.observers)},
        founds=config.founds,
        entry_bytes_max=config.raft.batch_bytes_max,
    )
