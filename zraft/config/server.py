"""Everything one server is told at start, as one frozen value, and the rules between its settings.

Knows neither where the values come from (`zraft.config.knobs` reads file, environment and flags) nor sockets,
directories or keys: whether a port is free or a key file is readable is found out by whoever opens it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import Factory, evolve, field, fields, frozen

from zraft.config.features import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from zraft.config.fields import count, knob
from zraft.config.topics import DeliveriesConfig, GroupsConfig, PartitionsConfig, TopicConfig
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId

CLUSTER_KEYS_MAX: Final = 2
"""The key in use and, while a key is being rotated, its successor (D-6)."""

LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
CLIENT_AUTHS: Final = ("none", "want", "need")
"""What is asked of TLS clients: no certificate, one if they have it, one in any case (ZooKeeper's ssl.clientAuth)."""
TLS_VERSIONS: Final = ("1.2", "1.3")
AUTH_SCHEMES: Final = ("digest", "sasl", "x509")
"""Schemes that a client authenticates itself with."""


FOUR_LETTER_WORDS_DEFAULT: Final = (
    *("conf", "cons", "dirs", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srvr", "stat", "wchs"),
)
"""The harmless ones; tests compare it with what the protocol's own module calls harmless."""


OBSERVER_MARK: Final = ":observer"


class ClusterList(dict[ServerId, Address]):
    """Every server's address. `observers` are those that never vote, and so do not found the cluster."""

    def __init__(self, addresses: Mapping[ServerId, Address], observers: Iterable[ServerId] = ()) -> None:
        super().__init__(addresses)
        self.observers = frozenset(observers)


@frozen(kw_only=True)
class RaftConfig:
    """Consensus. A tick is one millisecond."""

    election_timeout_ticks: int = count(
        300,
        20,
        60_000,
        "A follower that hears no leader for this long, up to twice it at random, asks for votes.",
    )
    heartbeat_ticks: int = count(50, 1, 20_000, "The leader speaks to every follower at least this often.")
    batch_bytes_max: int = count(
        524_288,
        1_024,
        2_097_152,
        "An entry stops taking further commands at this size; one command may exceed it.",
    )
    append_bytes_max: int = count(
        524_288, 1_024, 2_097_152, "Entries sent in one AppendEntries, at least one entry always."
    )
    inflight_messages_max: int = count(
        8, 1, 4_096, "AppendEntries sent to one follower and not yet answered; later entries gather into one."
    )
    inflight_bytes_max: int = count(
        2_097_152,
        65_536,
        1_073_741_824,
        "The same in bytes; a receiver's socket buffer must be able to hold it.",
    )
    uncommitted_bytes_max: int = count(
        67_108_864,
        1_048_576,
        4_294_967_296,
        "Entries awaiting a quorum; at the bound a leader takes no more.",
    )


@frozen(kw_only=True)
class WalConfig:
    """The write-ahead log."""

    segment_bytes_max: int = count(
        67_108_864,
        65_536,
        4_294_967_296,
        "A segment file is preallocated to this size; a new one begins when full.",
    )
    tail_bytes_max: int = count(
        67_108_864,
        0,
        17_179_869_184,
        "The log's end that is kept in memory after a start, for slow followers.",
    )
    group_tail_bytes_max: int = count(
        65_536, 0, 1_073_741_824, "The same of each partition's group, of which there may be hundreds."
    )
    slow_fsync_ms: int = count(
        1_000,
        0,
        60_000,
        "A leader whose writes take this long, while a majority's do not, hands its leadership on; 0: never.",
    )


@frozen(kw_only=True)
class ClientConfig:
    """ZooKeeper clients of this server. Each bound protects the server's memory from its clients."""

    jute_maxbuffer: int = count(
        1_048_575,
        4_096,
        2_097_152,
        "Largest request in bytes; a larger one closes the connection, as in ZooKeeper.",
    )
    connections_max: int = count(
        10_000, 1, 1_000_000, "Connections at the same time; further ones are closed."
    )
    connections_per_address_max: int = count(
        0, 0, 1_000_000, "The same from one client address (maxClientCnxns); 0: no limit."
    )
    connects_per_second_max: int = count(
        0, 0, 1_000_000, "Sessions begun or resumed per second; further clients wait in order. 0: no limit."
    )
    outstanding_bytes_max: int = count(
        16_777_216,
        65_536,
        4_294_967_296,
        "Writes taken and not yet applied; at the bound requests wait in the socket.",
    )
    watches_per_connection_max: int = count(
        1_000_000, 1_000, 1_000_000_000, "Watches one connection may have; with more it is closed."
    )
    read_only_mode_enabled: bool = field(
        default=False,
        metadata=knob(
            "switch",
            "Without a quorum, serve reads to clients that ask for read-only (readonlymode.enabled).",
        ),
    )
    reconfig_enabled: bool = field(
        default=False,
        metadata=knob(
            "switch",
            "Clients with the right to write /zookeeper/config may change the members (reconfigEnabled).",
        ),
    )
    reply_bytes_max: int = count(
        1_048_575,
        4_096,
        268_435_456,
        "Longest list of children; a longer one is refused. Java clients read no more than their jute.maxbuffer.",
    )
    output_bytes_max: int = count(
        16_777_216,
        65_536,
        4_294_967_296,
        "Replies and events one connection may leave unread before it is closed.",
    )
    output_bytes_per_address_max: int = count(
        33_554_432,
        65_536,
        68_719_476_736,
        "The same of all connections of one address; at half of it large replies wait, beyond it the largest are closed.",
    )
    output_bytes_sum_max: int = count(
        67_108_864, 65_536, 68_719_476_736, "The same of all connections of this server."
    )
    input_bytes_per_address_max: int = count(
        16_777_216,
        65_536,
        68_719_476_736,
        "Requests of one address that were read and wait; at half of it no more are read from those who have some.",
    )
    input_bytes_sum_max: int = count(
        33_554_432, 65_536, 68_719_476_736, "The same of all connections of this server."
    )
    unfinished_bytes_per_address_max: int = count(
        16_777_216,
        65_536,
        68_719_476_736,
        "Beginnings of requests of one address; at half of it new ones wait, beyond it the longest are closed.",
    )
    unfinished_bytes_sum_max: int = count(
        33_554_432, 65_536, 68_719_476_736, "The same of all connections of this server."
    )
    handshake_timeout_ms: int = count(
        10_000,
        100,
        600_000,
        "A connection that has not asked for a session within this time, TLS handshake included, is closed.",
    )
    four_letter_words: tuple[str, ...] = field(
        default=FOUR_LETTER_WORDS_DEFAULT,
        metadata=knob("words", "Four-letter words that are answered, separated by commas; `*` for all."),
    )


@frozen(kw_only=True)
class TreeConfig:
    """The znodes. All but the interval are replicated: what the cluster was founded with is in force."""

    ttl_nodes_enabled: bool = field(
        default=True,
        metadata=knob("switch", "Znodes with a time to live may be created (extendedTypesEnabled)."),
    )
    quota_enforced: bool = field(
        default=False,
        metadata=knob("switch", "Hard limits of quotas refuse, instead of being logged (enforceQuota)."),
    )
    container_never_used_ms_max: int = count(
        300_000,
        0,
        31_536_000_000,
        "A container that never had a child is removed after this long; 0: never.",
    )
    reap_interval_ms: int = count(
        60_000,
        10,
        86_400_000,
        "How often the leader removes containers and expired znodes with a time to live.",
    )


@frozen(kw_only=True)
class SnapshotConfig:
    """Snapshots of the state, and how much of the log is kept behind them."""

    log_bytes_min: int = count(
        33_554_432,
        4_096,
        1_099_511_627_776,
        "No snapshot is written before the log since the last one is this long, or `commands_min` is reached.",
    )
    log_ratio_percent: int = count(
        200,
        1,
        10_000,
        "... nor before it is this many percent of the state's own size; a busy server waits for twice as much.",
    )
    commands_min: int = count(
        250_000,
        1,
        1_000_000_000,
        "The same in commands, which a restart has to replay; more with many znodes (half as many as there are).",
    )
    keep: int = count(3, 1, 1_000, "Snapshots kept; older ones are removed (autopurge.snapRetainCount).")
    retain_bytes: int = count(
        8_388_608,
        0,
        1_099_511_627_776,
        "The log of all groups before the newest snapshot that is kept, so that a short absence needs no snapshot.",
    )
    retain_bytes_max: int = count(
        268_435_456,
        0,
        1_099_511_627_776,
        "The most that is kept before the newest snapshot for followers that answer but are behind.",
    )
    send_bytes_per_s: int = count(
        67_108_864,
        65_536,
        10_737_418_240,
        "What a leader sends of snapshots per second, to all followers together; live traffic keeps its latency.",
    )


@frozen(kw_only=True)
class PeerConfig:
    """Datagrams between servers."""

    datagram_bytes: int = count(
        1_400,
        512,
        65_000,
        "Largest UDP datagram; not set, it is 60000 when every server is on loopback, else 1400.",
    )


@frozen(kw_only=True)
class TlsConfig:
    """TLS for clients: on the port of `address` beside plain text, and on a port of its own. Off without `certificate`."""

    certificate: Path | None = field(
        default=None,
        metadata=knob(
            "path",
            "PEM file of this server's certificate and its intermediates; switches TLS for clients on.",
        ),
    )
    key: Path | None = field(
        default=None,
        metadata=knob(
            "path", "PEM file of the private key, mode 0600; not set, it is in the file of tls.certificate."
        ),
    )
    client_ca: Path | None = field(
        default=None, metadata=knob("path", "PEM file of the authorities that sign clients' certificates.")
    )
    client_auth: str = field(
        default="none",
        metadata=knob(
            "choice",
            "Client certificates: none, want (verified if a client has one), need (no connection without).",
            CLIENT_AUTHS,
        ),
    )
    required: bool = field(
        default=False, metadata=knob("switch", "Refuse plain text, four-letter words too, on the main port.")
    )
    address: Address | None = field(
        default=None,
        metadata=knob("address", "A further port for clients that takes TLS only (secureClientPort)."),
    )
    version_min: str = field(
        default="1.2", metadata=knob("choice", "Oldest TLS version spoken: 1.2 or 1.3.", TLS_VERSIONS)
    )
    ciphers: str | None = field(
        default=None,
        metadata=knob(
            "text", "OpenSSL's cipher list for TLS 1.2; not set, Python's. TLS 1.3 has none but good ones."
        ),
    )
    handshakes_max: int = count(
        250, 1, 100_000, "TLS handshakes under way at the same time; further connections are closed."
    )


@frozen(kw_only=True)
class AuthConfig:
    """Who clients are."""

    x509_super_user: str | None = field(
        default=None,
        metadata=knob(
            "text", "Subject of the client certificate that may do everything, such as CN=admin,O=Example."
        ),
    )
    sasl_users_file: Path | None = field(
        default=None,
        metadata=knob("path", "Users for SASL DIGEST-MD5, as user:password lines or a JAAS file, mode 0600."),
    )
    super_user: str | None = field(
        default=None, metadata=knob("text", "The SASL user that may do everything.")
    )
    super_digest: str | None = field(
        default=None,
        repr=False,
        metadata=knob(
            "text",
            "user:base64(sha1(user:password)) of the digest login that may do everything (superDigest).",
        ),
    )
    required_schemes: tuple[str, ...] = field(
        default=(),
        metadata=knob(
            "choices",
            "A client must authenticate by one of these (digest, sasl, x509) before its first request.",
            AUTH_SCHEMES,
        ),
    )


@frozen(kw_only=True)
class AuditConfig:
    """The audit log: a line per write of this server's clients. Off without `file`."""

    file: Path | None = field(
        default=None,
        metadata=knob(
            "path", "File of the audit log, a line per write of this server's clients; switches it on."
        ),
    )
    file_bytes_max: int = count(
        67_108_864,
        65_536,
        1_099_511_627_776,
        "At this size the file is renamed to FILE.1 and a new one begins.",
    )
    files_kept: int = count(
        10, 0, 10_000, "Older files kept, FILE.1 the newest of them; 0: none is renamed, SIGHUP reopens."
    )
    pending_bytes_max: int = count(
        16_777_216,
        65_536,
        4_294_967_296,
        "Lines waiting for a slow disk; further ones are dropped and counted, clients never wait for them.",
    )


@frozen(kw_only=True)
class ServerConfig:
    """Everything one server is told at start. Checked when made: an invalid one does not exist.

    `cluster` names every server, this one included, and where its peers reach it; `address` is where this
    server listens, which may be a wildcard. `key_files` holds the cluster key and, during a rotation, a
    second one; it is empty only for a single server or with `insecure_peers`.

    Raises:
        ConfigError: a rule between two settings is broken; the message names both.
    """

    id: ServerId
    data: Path
    address: Address
    cluster: Mapping[ServerId, Address]
    key_files: tuple[Path, ...] = ()
    insecure_peers: bool = False
    founds: bool = True
    admin: Address | None = None
    admin_hosts: tuple[str, ...] = ()
    tick_time_ms: int = count(
        2_000,
        20,
        600_000,
        "ZooKeeper's tickTime: sessions expire in steps of it, touches are reported each half of it.",
    )
    session_timeout_ms_min: int = field(default=Factory(lambda self: 2 * self.tick_time_ms, takes_self=True))
    session_timeout_ms_max: int = field(default=Factory(lambda self: 20 * self.tick_time_ms, takes_self=True))
    features_max: int = count(
        FEATURE_LEVEL_MAX,
        FEATURE_LEVEL_MIN,
        FEATURE_LEVEL_MAX,
        "Highest feature level announced to the cluster: hold it down while an upgrade may have to be taken back.",
    )
    log_format: str = "console"
    log_level: str = "info"
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
        """Of `cluster`, those that do not vote."""
        return self.cluster.observers if isinstance(self.cluster, ClusterList) else frozenset()


SECTIONS: Final[Mapping[str, type[Any]]] = {
    "raft": RaftConfig,
    "wal": WalConfig,
    "client": ClientConfig,
    "peer": PeerConfig,
    "tree": TreeConfig,
    "topics": TopicConfig,
    "snapshot": SnapshotConfig,
    "groups": GroupsConfig,
    "partitions": PartitionsConfig,
    "deliveries": DeliveriesConfig,
    "tls": TlsConfig,
    "auth": AuthConfig,
    "audit": AuditConfig,
}


KNOBS_OF_FIELDS: Final = {"key_files": "key", "admin_hosts": "admin.hosts"}
"""Of `ServerConfig`: those that are not named as their fields."""


def settings_in_force(config: ServerConfig) -> tuple[tuple[str, str], ...]:
    """(knob, value as an operator would write it) for all knobs. For who may see the admin pages: of keys it holds the
    names of their files only, of passwords not even the hashes."""
    found: list[tuple[str, str]] = []
    for attribute in fields(ServerConfig):
        value = getattr(config, attribute.name)
        if attribute.name == "named":
            continue
        if attribute.name in SECTIONS:
            found += [
                (
                    f"{attribute.name}.{inner.name}",
                    _written(
                        getattr(value, inner.name) if inner.repr else _hidden(getattr(value, inner.name))
                    ),
                )
                for inner in fields(SECTIONS[attribute.name])
            ]
        else:
            found.append((KNOBS_OF_FIELDS.get(attribute.name, attribute.name), _written(value)))
    return tuple(found)


def _hidden(value: object) -> str | None:
    return None if value is None else "set, not shown"


def secret_knobs() -> frozenset[str]:
    """Knobs whose values are secrets themselves, not names of files that hold them."""
    return frozenset(
        f"{section}.{inner.name}"
        for section, kind in SECTIONS.items()
        for inner in fields(kind)
        if not inner.repr
    )


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
    """The rules that hold between settings, all in one place.

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
        # What it says of itself it never sends to: there a wildcard harms nobody, and images' start scripts write one.
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
    if config.admin_hosts and config.admin is None:
        raise ConfigError(
            f"admin.hosts: found {', '.join(config.admin_hosts)}, but admin is not set, so nothing is served under them"
        )
    if config.admin is not None and config.admin == config.address:
        raise ConfigError(f"admin: {config.admin} is also address; the admin server needs a port of its own")
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
"""Of `ClientConfig`: each bound is at least so many times what has to find room in it."""


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
