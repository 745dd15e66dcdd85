"""Configuration of one server, as one frozen value, and the rules between its settings.

Knows neither where the values come from (`zraft.config.knobs` reads file, environment and flags) nor sockets,
directories or keys: whether a port is free or a key file is readable is found out by whoever opens it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import Attribute, Factory, evolve, field, fields, frozen

from zraft.config.features import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from zraft.config.fields import Declaration, bounds, count, declaration_of, knob
from zraft.config.sections import (
    AuditConfig,
    AuthConfig,
    ClientConfig,
    PeerConfig,
    RaftConfig,
    SnapshotConfig,
    TlsConfig,
    TreeConfig,
    WalConfig,
)
from zraft.config.topics import DeliveriesConfig, GroupsConfig, PartitionsConfig, TopicConfig
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId

CLUSTER_KEYS_MAX: Final = 2
"""The key in use and, while a key is being rotated, its successor (D-6)."""

LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
OBSERVER_MARK: Final = ":observer"
CONSOLE_REACHES: Final = ("off", "overview", "local", "everywhere")
"""Values of `admin.console`."""
CONSOLE_TOKEN_CHARACTERS_MIN: Final = 16


class ClusterList(dict[ServerId, Address]):
    """Every server's address. `observers` are those that never vote, and so do not found the cluster."""

    def __init__(self, addresses: Mapping[ServerId, Address], observers: Iterable[ServerId] = ()) -> None:
        super().__init__(addresses)
        self.observers = frozenset(observers)


@frozen(kw_only=True)
class ServerConfig:
    """Configuration of one server.

    It is checked when it is made: an invalid one does not exist.

    `cluster` names every server, this one included, and where its peers reach it; `address` is where this
    server listens, which may be a wildcard. `key_files` holds the cluster key and, during a rotation, a
    second one; it is empty only for a single server or with `insecure_peers`.

    Raises:
        ConfigError: a rule between two settings is broken; the message names both.
    """

    id: ServerId = field(
        metadata=bounds(SERVER_ID_MIN, SERVER_ID_MAX, "The number of this server, 1 to 254.")
    )
    data: Path = field(metadata=knob("path", "The data directory of this server, and of no other."))
    address: Address = field(
        metadata=knob("address", "Clients (TCP) and peers (UDP) reach this server here.")
    )
    cluster: Mapping[ServerId, Address] = field(
        metadata=knob(
            "cluster", "All servers, this one included, as ID=HOST:PORT,…; an observer ends with :observer."
        )
    )
    key_files: tuple[Path, ...] = field(
        default=(),
        metadata=knob(
            "paths",
            "The file of the cluster key, which is read again when it changes; two files during a rotation.",
            name="key",
        ),
    )
    insecure_peers: bool = field(
        default=False, metadata=knob("switch", "Run a cluster without a key: peers are not authenticated.")
    )
    founds: bool = field(
        default=True,
        metadata=knob(
            "switch",
            "An empty server may create a cluster, with the others of `cluster`; if false, it only joins one.",
            default="true; false beside ZooKeeper's data (`version-2`)",
        ),
    )
    admin: Address | None = field(
        default=None, metadata=knob("address", "The admin HTTP server listens here.")
    )
    admin_hosts: tuple[str, ...] = field(
        default=(),
        metadata=knob(
            "hosts",
            "Browsers may request pages and resets under these host names, beside IP addresses and localhost.",
            name="admin.hosts",
        ),
    )
    admin_console: str = field(
        default="local",
        metadata=knob(
            "choice",
            "The web console: off, overview (no data of clients, no sign-in), local (the rest only for browsers on this "
            "machine), or everywhere.",
            CONSOLE_REACHES,
            name="admin.console",
        ),
    )
    admin_console_token: str | None = field(
        default=None,
        repr=False,
        metadata=knob(
            "text",
            "Whoever has this token may sign in to the web console; `zraft dev` makes one at each start.",
            name="admin.console_token",
        ),
    )
    admin_partitions_max: int = field(
        default=1_000,
        metadata=bounds(
            0,
            65_536,
            "/metrics has series of this many partitions on this server; the others are only counted.",
            name="admin.partitions_max",
        ),
    )
    admin_consumers_max: int = field(
        default=200,
        metadata=bounds(
            0,
            65_536,
            "/metrics shows the lag of this many consumers, counted once for each of their topics; the others are only "
            "counted.",
            name="admin.consumers_max",
        ),
    )
    tick_time_ms: int = count(
        2_000,
        20,
        600_000,
        "ZooKeeper's tickTime: sessions expire in steps of it, and servers report touches every half of it.",
    )
    session_timeout_ms_min: int = field(
        default=Factory(lambda self: 2 * self.tick_time_ms, takes_self=True),
        metadata=bounds(
            40, 86_400_000, "No session gets a shorter timeout than this.", default="2 * tick_time_ms"
        ),
    )
    session_timeout_ms_max: int = field(
        default=Factory(lambda self: 20 * self.tick_time_ms, takes_self=True),
        metadata=bounds(
            40, 86_400_000, "No session gets a longer timeout than this.", default="20 * tick_time_ms"
        ),
    )
    features_max: int = count(
        FEATURE_LEVEL_MAX,
        FEATURE_LEVEL_MIN,
        FEATURE_LEVEL_MAX,
        "This server announces no higher feature level to the cluster; set it while you may want to undo an upgrade.",
    )
    log_format: str = field(
        default="console",
        metadata=knob("choice", f"The format of the log: {' or '.join(LOG_FORMATS)}.", LOG_FORMATS),
    )
    log_level: str = field(
        default="info",
        metadata=knob(
            "choice", f"The level from which on messages are logged: {', '.join(LOG_LEVELS)}.", LOG_LEVELS
        ),
    )
    raft: RaftConfig = field(factory=RaftConfig)
    wal: WalConfig = field(factory=WalConfig)
    client: ClientConfig = field(factory=ClientConfig)
    peer: PeerConfig = field(factory=PeerConfig)
    tree: TreeConfig = field(factory=TreeConfig)
    topics: TopicConfig = field(factory=TopicConfig)
    snapshot: SnapshotConfig = field(factory=SnapshotConfig)
    groups: GroupsConfig = field(factory=GroupsConfig)
    partitions: PartitionsConfig = field(factory=PartitionsConfig)
    deliveries: DeliveriesConfig = field(factory=DeliveriesConfig)
    tls: TlsConfig = field(factory=TlsConfig)
    auth: AuthConfig = field(factory=AuthConfig)
    audit: AuditConfig = field(factory=AuditConfig)
    named: frozenset[str] = frozenset()
    """Knobs that the operator gave a value; all others have their defaults."""

    def __attrs_post_init__(self) -> None:
        validate(self)

    @property
    def observers(self) -> frozenset[ServerId]:
        """The servers of `cluster` that do not vote."""
        return self.cluster.observers if isinstance(self.cluster, ClusterList) else frozenset()


@frozen
class DeclaredKnob:
    """A field of `ServerConfig`, or of one of its sections, and what is declared of it as a knob."""

    name: str
    section: str
    """Empty for a knob of none."""
    attribute: Attribute[Any]
    declaration: Declaration

    def value(self, config: ServerConfig) -> Any:
        """Return the knob's value in a configuration."""
        holder = getattr(config, self.section) if self.section else config
        return getattr(holder, self.attribute.name)

    @property
    def secret(self) -> bool:
        """True if the value is a secret itself, not the name of a file that holds one."""
        return not self.attribute.repr


SECTIONS: Final[Mapping[str, type[Any]]] = {
    attribute.name: attribute.default.factory
    for attribute in fields(ServerConfig)
    if attribute.default is not None and declaration_of(attribute) is None and attribute.name != "named"
}


def _declared() -> Iterator[DeclaredKnob]:
    for attribute in fields(ServerConfig):
        if (declaration := declaration_of(attribute)) is not None:
            yield DeclaredKnob(declaration.name or attribute.name, "", attribute, declaration)
        for inner in fields(SECTIONS[attribute.name]) if attribute.name in SECTIONS else ():
            declaration = declaration_of(inner)
            assert declaration is not None, f"{attribute.name}.{inner.name} is not declared as a knob"
            yield DeclaredKnob(f"{attribute.name}.{inner.name}", attribute.name, inner, declaration)


DECLARED: Final = tuple(_declared())
"""All knobs, in order."""


def settings_in_force(config: ServerConfig) -> tuple[tuple[str, str], ...]:
    """Return (knob, value as an operator would write it) for all knobs.

    It is for those who may see the admin pages: of keys it has only the names of their files, and
    no passwords, not even their hashes.
    """
    found: list[tuple[str, str]] = []
    for declared in DECLARED:
        value = declared.value(config)
        if declared.secret and value is not None:
            value = "set, not shown"
        found.append((declared.name, _written(value)))
    return tuple(found)


def secret_knobs() -> frozenset[str]:
    """Return the knobs whose values are secrets themselves, not names of files that hold them."""
    return frozenset(declared.name for declared in DECLARED if declared.secret)


def _written(value: object) -> str:
    match value:
        case None | ():
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value))
        case Mapping():
            observers = getattr(value, "observers", ())
            return ",".join(
                f"{server}={address}{OBSERVER_MARK if server in observers else ''}"
                for server, address in sorted(value.items())
            )
        case _:
            return str(value)


def validate(config: ServerConfig) -> None:
    """Check the rules that hold between settings, all in one place.

    Raises:
        ConfigError: the first rule found broken.
    """
    if not SERVER_ID_MIN <= config.id <= SERVER_ID_MAX:
        raise ConfigError(f"id: found {config.id}, expected {SERVER_ID_MIN} to {SERVER_ID_MAX}")
    if config.id not in config.cluster:
        raise ConfigError(
            f"cluster: lists servers {_listed(config.cluster)} but not this one, id {config.id}"
        )
    if config.observers.issuperset(config.cluster):
        raise ConfigError(
            "cluster: all servers are observers, and nobody votes; expected at least one without :observer"
        )
    named: dict[Address, ServerId] = {}
    for server, address in config.cluster.items():
        if not SERVER_ID_MIN <= server <= SERVER_ID_MAX:
            raise ConfigError(
                f"cluster: found server id {server}, expected {SERVER_ID_MIN} to {SERVER_ID_MAX}"
            )
        # A server never sends to its own entry: a wildcard harms nobody there, and images' start scripts
        # write one.
        if address.is_wildcard and server != config.id:
            raise ConfigError(
                f"cluster: server {server} is at {address}, an address that peers cannot send to"
            )
        if address in named:
            raise ConfigError(f"cluster: servers {named[address]} and {server} are both at {address}")
        named[address] = server
    if config.cluster[config.id].port != config.address.port:
        raise ConfigError(
            f"address: {config.address} and cluster: {config.id}={config.cluster[config.id]} have different ports; "
            "clients' TCP and peers' UDP use the same one"
        )
    if len(config.key_files) > CLUSTER_KEYS_MAX:
        raise ConfigError(
            f"key: found {len(config.key_files)} files, expected one, or two while a key is rotated"
        )
    if len(set(config.key_files)) != len(config.key_files):
        raise ConfigError(f"key: {config.key_files[0]} is given twice")
    if config.key_files and config.insecure_peers:
        raise ConfigError("insecure_peers: is on although key is set; drop one of the two")
    if len(config.cluster) > 1 and not config.key_files and not config.insecure_peers:
        raise ConfigError(
            f"key: not set, and a cluster of {len(config.cluster)} servers needs one; make it with `zraft key new FILE`, "
            "copy it to every server and pass --key FILE, set ZRAFT_KEY, or write zraft.key=FILE into a zoo.cfg (or, where "
            "nobody else can reach the network, --insecure-peers)"
        )
    _validate_admin(config)
    raft = config.raft
    if raft.election_timeout_ticks < 3 * raft.heartbeat_ticks:
        raise ConfigError(
            f"raft.election_timeout_ticks: found {raft.election_timeout_ticks}, expected at least three times "
            f"raft.heartbeat_ticks ({raft.heartbeat_ticks}), so that two lost heartbeats do not start an election"
        )
    groups = config.groups
    if groups.wal_bytes_max < 2 * groups.snapshot_bytes:
        raise ConfigError(
            f"groups.wal_bytes_max: found {groups.wal_bytes_max}, expected at least twice groups.snapshot_bytes "
            f"({groups.snapshot_bytes}), so that groups are snapshotted for their size before their age"
        )
    if config.session_timeout_ms_max < config.session_timeout_ms_min:
        raise ConfigError(
            f"session_timeout_ms_max: found {config.session_timeout_ms_max}, expected at least "
            f"session_timeout_ms_min ({config.session_timeout_ms_min})"
        )
    if config.session_timeout_ms_min < 3 * raft.election_timeout_ticks:
        raise ConfigError(
            f"session_timeout_ms_min: found {config.session_timeout_ms_min}, expected at least three times "
            f"raft.election_timeout_ticks ({raft.election_timeout_ticks}); a server gives up its clients after a third "
            "of the smallest session timeout without contact (D-14), and an election must not be enough for that"
        )
    if config.client.outstanding_bytes_max < config.client.jute_maxbuffer:
        raise ConfigError(
            f"client.outstanding_bytes_max: found {config.client.outstanding_bytes_max}, expected at least "
            f"client.jute_maxbuffer ({config.client.jute_maxbuffer}), or the largest request could never be taken"
        )
    _validate_sums(config.client)
    if raft.inflight_bytes_max < raft.append_bytes_max:
        raise ConfigError(
            f"raft.inflight_bytes_max: found {raft.inflight_bytes_max}, expected at least "
            f"raft.append_bytes_max ({raft.append_bytes_max}), or a full message could never be sent"
        )
    _validate_tls(config)
    _validate_auth(config)


ROOM: Final = (
    ("output_bytes_max", 1, "reply_bytes_max"),
    ("output_bytes_per_address_max", 1, "output_bytes_max"),
    ("output_bytes_sum_max", 1, "output_bytes_per_address_max"),
    ("input_bytes_per_address_max", 1, "jute_maxbuffer"),
    ("input_bytes_sum_max", 1, "input_bytes_per_address_max"),
    # A message of the native protocol is held twice until it is complete.
    ("unfinished_bytes_per_address_max", 2, "jute_maxbuffer"),
    ("unfinished_bytes_sum_max", 1, "unfinished_bytes_per_address_max"),
)
"""The bounds of `ClientConfig`, each at least so many times what has to find room in it."""


def with_room(client: ClientConfig, named: Container[str]) -> ClientConfig:
    """Raise the bounds that the operator has not `named` to what those that he has named need.

    Who raises the length of a request or of a list need not know of the sums.
    """
    for name, times, content in ROOM:
        least = times * getattr(client, content)
        if f"client.{name}" not in named and getattr(client, name) < least:
            client = evolve(client, **{name: least})
    return client


def _validate_sums(client: ClientConfig) -> None:
    for name, times, content in ROOM:
        found, least = getattr(client, name), times * getattr(client, content)
        if found < least:
            of = "" if times == 1 else f"{times} times "
            raise ConfigError(
                f"client.{name}: found {found}, expected at least {of}client.{content} ({least})"
            )


def _validate_tls(config: ServerConfig) -> None:
    tls = config.tls
    if tls.certificate is None:
        for name, value in (
            ("key", tls.key),
            ("client_ca", tls.client_ca),
            ("client_auth", tls.client_auth != "none"),
            ("required", tls.required),
            ("address", tls.address),
        ):
            if value:
                raise ConfigError(f"tls.{name}: is set, but tls.certificate is not, so there is no TLS")
    if tls.client_auth != "none" and tls.client_ca is None:
        raise ConfigError(
            f"tls.client_auth: found {tls.client_auth}, but tls.client_ca is not set; "
            "name the PEM file of the authorities that sign clients' certificates"
        )
    if tls.client_ca is not None and tls.client_auth == "none":
        raise ConfigError(
            "tls.client_ca: is set, but tls.client_auth is none, so no client is asked for a certificate; "
            "set it to want or need"
        )
    for name, other in (("address", config.address), ("admin", config.admin)):
        if tls.address is not None and tls.address == other:
            raise ConfigError(
                f"tls.address: {tls.address} is also {name}; it needs a port of its own "
                "(clients may use TLS on the port of address anyway)"
            )


def _validate_admin(config: ServerConfig) -> None:
    if config.admin_hosts and config.admin is None:
        raise ConfigError(
            f"admin.hosts: found {', '.join(config.admin_hosts)}, but admin is not set, so nothing is served under them"
        )
    token = config.admin_console_token
    if token is not None and len(token) < CONSOLE_TOKEN_CHARACTERS_MIN:
        raise ConfigError(
            f"admin.console_token: found {len(token)} characters, expected at least {CONSOLE_TOKEN_CHARACTERS_MIN}, drawn "
            "at random"
        )
    if config.admin is not None and config.admin == config.address:
        raise ConfigError(f"admin: {config.admin} is also address; the admin server needs a port of its own")


def _validate_auth(config: ServerConfig) -> None:
    auth, asked_for = config.auth, config.tls.client_auth != "none"
    if auth.x509_super_user is not None and not asked_for:
        raise ConfigError(
            "auth.x509_super_user: is set, but tls.client_auth is none, so no client can show that it is this one"
        )
    if auth.super_user is not None and auth.sasl_users_file is None:
        raise ConfigError(
            "auth.super_user: is set, but auth.sasl_users_file is not, so nobody can log in by SASL"
        )
    if auth.super_digest is not None and auth.super_digest.count(":") != 1:
        raise ConfigError(
            "auth.super_digest: expected user:base64(sha1(user:password)) with one colon, found another form"
        )
    if not auth.required_schemes or "digest" in auth.required_schemes:
        return
    if not ("sasl" in auth.required_schemes and auth.sasl_users_file is not None) and not (
        "x509" in auth.required_schemes and asked_for
    ):
        raise ConfigError(
            f"auth.required_schemes: found {', '.join(auth.required_schemes)}, which no client can meet: sasl needs "
            "auth.sasl_users_file, x509 needs tls.client_auth want or need"
        )


def _listed(servers: Iterable[ServerId]) -> str:
    return ", ".join(str(server) for server in sorted(servers))
