"""Meaning of an operator's `zoo.cfg`: every key of ZooKeeper's configuration, and its effect here.

A key is mapped to a knob, or taken without effect because zraft does the same by itself, or taken with a note
that says what differs. A key that is none of ZooKeeper's is named in a warning. Pure: properties in, values and
notes out; files are read by `zraft.config.zoo_source`, and `zraft.config.knobs` judges the values like all others.

Source: ZooKeeper's administrator's guide, "Configuration Parameters"; docs/how-to/migration.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NoReturn

from attrs import field, frozen

from zraft.config.sections import JUTE_MAXBUFFER_LARGEST
from zraft.config.server import ClusterList
from zraft.program.nearest import did_you_mean
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId

KNOB_PREFIX: Final = "zraft."
"""`zraft.key=FILE` in a zoo.cfg is the knob `key`: what ZooKeeper has no key for can stand in the same file."""

DATA_SUBDIRECTORY: Final = "zraft"
"""Below dataDir, so that ZooKeeper's files and ours never mix and either can be started again."""

AUDIT_FILE: Final = "audit.log"
"""In our own directory, for `audit.enable=true`, which names no file."""

ADMIN_PORT: Final = 8080
WILDCARD_V4: Final = "0.0.0.0"
WILDCARD_V6: Final = "::"


class Level(Enum):
    """Levels of notes."""

    INFO = "info"
    WARNING = "warning"


@frozen
class ConfigNote:
    """Note for an operator about one key. It never holds a value that may be secret."""

    level: Level
    key: str
    text: str


@frozen
class Setting:
    """A knob's value as found, and the key it was found under."""

    found: object
    key: str


@frozen
class Translation:
    """`values` maps names of knobs to what is to be parsed as their values.

    `beside_zookeeper`: dataDir holds data of a ZooKeeper.
    """

    values: Mapping[str, Setting]
    notes: tuple[ConfigNote, ...] = ()
    beside_zookeeper: bool = False


class Effect(Enum):
    """Effects of a key."""

    MAPPED = "mapped"
    SILENT = "no effect, and nothing is lost"
    INFO = "no effect, and the log says why"
    WARNING = "no effect, and the log warns"


@frozen
class Key:
    """One key of ZooKeeper's; `name` may end with `*`. `why` is for the log, in words for an operator."""

    name: str
    effect: Effect
    why: str = ""
    knob: str = ""


def _mapped(knob: str, *names: str) -> list[Key]:
    return [Key(name, Effect.MAPPED, knob=knob) for name in names]


def _keys(effect: Effect, why: str, names: str) -> list[Key]:
    return [Key(name, effect, why) for name in names.split()]


KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        # -- mapped
        *_mapped("cluster", "server.*", "peerType"),
        *_mapped("address", "clientPort", "clientPortAddress"),
        *_mapped("data", "dataDir"),
        *_mapped("tick_time_ms", "tickTime"),
        *_mapped("session_timeout_ms_min", "minSessionTimeout"),
        *_mapped("session_timeout_ms_max", "maxSessionTimeout"),
        *_mapped("client.connections_max", "maxCnxns"),
        *_mapped("client.connections_per_address_max", "maxClientCnxns"),
        *_mapped("client.jute_maxbuffer", "jute.maxbuffer"),
        *_mapped("client.four_letter_words", "4lw.commands.whitelist"),
        *_mapped("admin", "admin.enableServer", "admin.serverAddress", "admin.serverPort"),
        *_mapped("client.read_only_mode_enabled", "readonlymode.enabled"),
        *_mapped("client.reconfig_enabled", "reconfigEnabled"),
        *_mapped("snapshot.keep", "autopurge.snapRetainCount"),
        *_mapped("snapshot.commands_min", "snapCount"),
        *_mapped("snapshot.log_bytes_min", "snapSizeLimitInKb"),
        *_mapped("tree.ttl_nodes_enabled", "extendedTypesEnabled"),
        *_mapped("tree.quota_enforced", "enforceQuota"),
        *_mapped("tree.reap_interval_ms", "znode.container.checkIntervalMs"),
        *_mapped("tree.container_never_used_ms_max", "znode.container.maxNeverUsedIntervalMs"),
        *_mapped("auth.super_digest", "DigestAuthenticationProvider.superDigest"),
        *_mapped("audit.file", "audit.enable"),
        *_mapped("tls.address", "secureClientPort", "secureClientPortAddress"),
        *_mapped("tls.certificate", "ssl.keyStore.location", "ssl.keyStore.type"),
        *_mapped("tls.client_ca", "ssl.trustStore.location", "ssl.trustStore.type"),
        *_mapped("tls.client_auth", "ssl.clientAuth"),
        *_mapped("tls.version_min", "ssl.protocol", "ssl.enabledProtocols"),
        *_mapped("auth.x509_super_user", "X509AuthenticationProvider.superUser"),
        *_mapped("auth.super_user", "superUser"),
        *_mapped("auth.sasl_users_file", "java.security.auth.login.config"),
        *_mapped("auth.required_schemes", "enforce.auth.schemes"),
        *_mapped("dynamic file", "dynamicConfigFile"),
        # -- the same without being told
        *_keys(
            Effect.SILENT,
            "zraft does this by itself, or needs no such setting",
            "initLimit syncLimit connectToLearnerMasterLimit leaderServes electionAlg cnxTimeout quorumCnxnTimeoutMs "
            "electionPortBindRetry standaloneEnabled quorumListenOnAllIPs observer.* learner.* "
            "multiAddress.enabled multiAddress.reachabilityCheckTimeoutMs multiAddress.reachabilityCheckEnabled "
            "preAllocSize txnLogSizeLimitInKb fsync.warningthresholdms flushDelay maxBatchSize maxWriteQueuePollTime "
            "snapshot.trust.empty snapshot.compression.method digest.enabled "
            "warningthresholdms closeSessionTxn.enabled watchManagerName watcherCleanThreadsNum "
            "watcherCleanThreshold watcherCleanIntervalInSeconds maxInProcessingDeadWatchers bitHashCacheSize "
            "clientPortListenBacklog serverCnxnFactory nio.* netty.* commitProcessor.* fastleader.* "
            "leader.reconnectDelayMs leader.closeSocketAsync learner.closeSocketAsync learner.asyncSending "
            "learner.syncLimit maxResponseCacheSize maxGetChildrenResponseCacheSize znode.container.* "
            "serializeLastProcessedZxid.enabled jmx.* jvm.* tcpKeepAlive jute.maxbuffer.extrasize "
            "config.expandEnvironmentVariables version client.portUnification client.certReload "
            "sslClientReloadCertFiles enforce.auth.enabled",
        ),
        # -- without effect, and it may matter
        *_keys(
            Effect.INFO,
            "PEM files are read as they are, without a password",
            "ssl.keyStore.password ssl.keyStore.passwordPath ssl.trustStore.password ssl.trustStore.passwordPath",
        ),
        *_keys(
            Effect.INFO,
            "these are Java's names; OpenSSL's stand in the knob tls.ciphers",
            "ssl.ciphersuites",
        ),
        *_keys(
            Effect.INFO,
            "the schemes of ZooKeeper are built in; users for SASL are named by the knob auth.sasl_users_file",
            "authProvider.*",
        ),
        *_keys(
            Effect.INFO,
            "the write-ahead log stands below dataDir: put dataDir on the fast disk",
            "dataLogDir",
        ),
        *_keys(
            Effect.INFO,
            "old snapshots are removed as soon as a newer one is durable, without an interval",
            "autopurge.purgeInterval",
        ),
        *_keys(
            Effect.INFO,
            "how much log is kept for servers that are behind is said in bytes: snapshot.retain_bytes_max",
            "commitLogCount",
        ),
        *_keys(
            Effect.INFO,
            "writes that wait are bounded in bytes: client.outstanding_bytes_max",
            "globalOutstandingLimit globalOutstandingLimitBytes largeRequestMaxBytes largeRequestThreshold",
        ),
        *_keys(
            Effect.INFO,
            "requests are not dropped under load; what cannot be taken in waits in its socket",
            "requestThrottleLimit requestThrottleStallTime requestThrottleDropStale requestStaleLatencyCheck "
            "requestStaleConnectionCheck throttledOpWaitTime request_throttler.*",
        ),
        *_keys(
            Effect.INFO,
            "metrics are served by the admin server (knob admin), without a provider to choose",
            "metricsProvider.*",
        ),
        *_keys(
            Effect.INFO,
            "the admin server has no such setting here; keep its port from strangers",
            "admin.*",
        ),
        *_keys(
            Effect.INFO,
            "servers know each other by the cluster key (knob key), which always encrypts what they say",
            "sslQuorum ssl.quorum.* portUnification sslQuorumReloadCertFiles quorum.auth.* quorum.cnxn.*",
        ),
        *_keys(
            Effect.WARNING,
            "this release does not have it",
            "ssl.* DigestAuthenticationProvider.* X509AuthenticationProvider.* "
            "sessionRequireClientSASLAuth allowSaslFailedClients "
            "requireClientAuthScheme kerberos.* sasl.* ensembleAuthName audit.impl.class connection_throttle_tokens "
            "connection_throttle_fill_time connection_throttle_fill_count connection_throttle_freeze_time "
            "connection_throttle_drop_increase connection_throttle_drop_decrease "
            "connection_throttle_decrease_ratio connection_throttle_weight_enabled "
            "connection_throttle_global_session_weight connection_throttle_local_session_weight "
            "connection_throttle_renew_session_weight",
        ),
        *_keys(
            Effect.WARNING,
            "every acknowledged write is on disk here; this cannot be switched off",
            "forceSync",
        ),
        *_keys(
            Effect.WARNING,
            "every server has one vote, and a majority of all of them decides",
            "group.* weight.* oraclePath",
        ),
        *_keys(
            Effect.WARNING,
            "observers follow the leader, as all servers do",
            "observerMasterPort",
        ),
        *_keys(
            Effect.WARNING,
            "sessions are always global: they survive the server they began on",
            "localSessionsEnabled localSessionsUpgradingEnabled",
        ),
        *_keys(
            Effect.WARNING,
            "there is no such switch: access lists are always checked",
            "skipACL",
        ),
    )
}

_SERVER_KEY: Final = re.compile(r"server\.(.*)", re.DOTALL)
_LOOKS_LIKE_ZOO_CFG: Final = re.compile(
    r"^[ \t]*(server\.[0-9]+|dataDir|dataLogDir|clientPort|clientPortAddress|secureClientPort|tickTime|initLimit|"
    r"syncLimit|maxClientCnxns|dynamicConfigFile|4lw\.commands\.whitelist)[ \t]*[=: \t]",
    re.MULTILINE,
)
_SUFFIXES: Final = (".cfg", ".properties", ".conf")


def is_zoo_cfg(name: str, text: str) -> bool:
    """Return whether a settings file is ZooKeeper's: by its name, and else by keys that no file of ours can have."""
    if name.endswith(".toml"):
        return False
    return name.endswith(_SUFFIXES) or bool(_LOOKS_LIKE_ZOO_CFG.search(text))


def known_key(name: str) -> Key | None:
    """Return what is known of a key; None if it is none of ZooKeeper's."""
    if name in KEYS:
        return KEYS[name]
    prefix = name
    while prefix:
        prefix = prefix.rpartition(".")[0]
        if prefix + ".*" in KEYS:
            return KEYS[prefix + ".*"]
    return None


def nearest_key(name: str, known: Iterable[str] | None = None) -> str:
    """Return `; did you mean …?`, or nothing if no key is near."""
    return did_you_mean(name, KEYS if known is None else known, cutoff=0.7)


@frozen
class ServerLine:
    """`server.N=host:quorumPort:electionPort[:role][;[clientHost:]clientPort]`, taken apart."""

    server: ServerId
    host: str
    client_host: str | None
    client_port: int | None
    observer: bool = False


def parse_server_line(key: str, text: str, label: str) -> ServerLine:
    """Return one `server.N` line.

    Raises:
        ConfigError: it does not have that form.
    """
    match = _SERVER_KEY.fullmatch(key)
    number = match[1] if match else ""
    if not re.fullmatch(r"[0-9]{1,10}", number) or not SERVER_ID_MIN <= int(number) <= SERVER_ID_MAX:
        raise ConfigError(
            f"{key} ({label}): found server id {number!r}, expected {SERVER_ID_MIN} to {SERVER_ID_MAX}"
        )
    # Several addresses of one server stand between bars; peers use one.
    quorum, _, client = text.partition(";")
    quorum = quorum.partition("|")[0].strip()
    form = f"expected {key}=HOST:QUORUMPORT:ELECTIONPORT[:participant|:observer][;[CLIENTHOST:]CLIENTPORT]"
    split = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]+):([0-9]+):([0-9]+)(?::(\w+))?", quorum)
    if split is None:
        raise ConfigError(f"{key} ({label}): found {text!r}, {form}")
    role = (split[4] or "participant").lower()
    if role not in ("participant", "observer"):
        raise ConfigError(f"{key} ({label}): found role {split[4]!r}, expected participant or observer")
    observer = role == "observer"
    host = parse_address(f"{split[1]}:{split[2]}", f"{key} ({label})").host
    if split[3] != "0":  # which is how zraft's /zookeeper/config says that there is none
        parse_address(f"{split[1]}:{split[3]}", f"{key} ({label})")
    client = client.strip()
    if not client:
        return ServerLine(ServerId(int(number)), host, None, None, observer)
    if ":" not in client:
        address = parse_address(f"{WILDCARD_V4}:{client}", f"{key} ({label})")
        return ServerLine(ServerId(int(number)), host, None, address.port, observer)
    address = parse_address(client, f"{key} ({label})")
    return ServerLine(
        ServerId(int(number)),
        host,
        None if address.is_wildcard else address.host,
        address.port,
        observer,
    )


@frozen
class _Peers:
    """The server lines of one file and where this server listens."""

    lines: Mapping[ServerId, ServerLine]
    port: int | None
    host: str | None
    label: str
    me: ServerId = field()

    def address_of(self, line: ServerLine) -> Address:
        """Return where peers reach a server: zraft's UDP has the number of its client port (never the quorum port)."""
        key = f"server.{line.server}"
        host = line.client_host or line.host
        if line.server == self.me and self.host is not None and line.client_host is None:
            host = self.host
        port = line.client_port or self.port
        if port is None:
            raise ConfigError(
                f"{key} ({self.label}): names no client port, and clientPort is not set. Servers reach each other at "
                f"the client port, by UDP: append ;CLIENTPORT to the line, such as {key}={line.host}:2888:3888;2181"
            )
        address = Address(host, port)
        if address.is_loopback and not Address(line.host, port).is_loopback:
            raise ConfigError(
                f"{key} ({self.label}): its clients' address is {address}, which other machines cannot reach, and "
                "servers reach each other at the client port, by UDP: name an address that both can reach"
            )
        return address

    def cluster(self) -> Mapping[ServerId, Address]:
        cluster: dict[ServerId, Address] = {}
        for server in sorted(self.lines):
            line = self.lines[server]
            address = self.address_of(line)
            for other, taken in cluster.items():
                if taken == address:
                    raise ConfigError(
                        f"server.{other} and server.{server} ({self.label}): both would be reached at {address}. "
                        "Servers reach each other at the client port, by UDP, and clientPort of this file is only "
                        f"this server's own: append to every line the client port of its server, such as "
                        f"server.{server}={line.host}:2888:3888;2182"
                    )
            cluster[server] = address
        return cluster


def translate(properties: Mapping[str, str], *, my_id: int | None, label: str) -> Translation:
    """Return knobs and notes from the properties of a zoo.cfg.

    `my_id` is this server's number (`myid`, ZOO_MY_ID or a knob), None if nobody said it. `label` names the
    file, or where the properties come from, in messages. A password or hash stands in no note and no error.

    Raises:
        ConfigError: a key has an impossible value, or asks for what cannot be had here.
    """
    values: dict[str, Setting] = {}
    notes: list[ConfigNote] = []
    properties = {name.removeprefix("zookeeper."): value for name, value in properties.items()}
    for name, value in properties.items():
        if name.startswith(KNOB_PREFIX):
            continue
        key = known_key(name)
        if key is None:
            notes.append(
                ConfigNote(Level.WARNING, name, f"no key of ZooKeeper's, it has no effect{nearest_key(name)}")
            )
        elif key.effect is Effect.INFO:
            notes.append(ConfigNote(Level.INFO, name, f"has no effect: {key.why}"))
        elif key.effect is Effect.WARNING and not _says_default(name, value):
            notes.append(ConfigNote(Level.WARNING, name, f"has no effect: {key.why}"))
    _plain(properties, values, notes, label)
    _admin(properties, values, label)
    _tls(properties, values, label)
    if "clientPort" not in properties and "secureClientPort" in properties and "tls.certificate" in values:
        # Peers need a client port, and TLS is spoken on it as well: the secure one is the only one then.
        properties |= {"clientPort": properties["secureClientPort"]}
        if "secureClientPortAddress" in properties:
            properties["clientPortAddress"] = properties["secureClientPortAddress"]
        values["tls.required"] = Setting(True, "secureClientPort")
        del values["tls.address"]
    _servers(properties, values, notes, my_id, label)
    for name, value in properties.items():
        if name.startswith(KNOB_PREFIX):
            # Last, because who names a knob means it.
            values[name.removeprefix(KNOB_PREFIX)] = Setting(value, name)
    return Translation(values, tuple(notes))


def _says_default(name: str, value: str) -> bool:
    """Return whether a switch says what is so anyway, which deserves no warning."""
    return value.lower() == ("yes" if name == "forceSync" else "no" if name == "skipACL" else "false")


def _plain(
    properties: Mapping[str, str], values: dict[str, Setting], notes: list[ConfigNote], label: str
) -> None:
    """Take keys whose value is a knob's value, but for what ZooKeeper writes when it means "not set"."""
    for name in ("readonlymode.enabled", "reconfigEnabled", "extendedTypesEnabled", "enforceQuota"):
        if name in properties:
            # Java takes it so: whatever is not true is false.
            values[KEYS[name].knob] = Setting(properties[name].lower() == "true", name)
    if properties.get("enforce.auth.enabled", "").lower() == "true" and "enforce.auth.schemes" in properties:
        values["auth.required_schemes"] = Setting(properties["enforce.auth.schemes"], "enforce.auth.schemes")
    if "dataDir" in properties:
        # Text joined here, a path made at the edge.
        values["data"] = Setting(f"{properties['dataDir'].rstrip('/')}/{DATA_SUBDIRECTORY}", "dataDir")
    for name, unset in (
        ("tickTime", ""),
        ("minSessionTimeout", "-1"),
        ("maxSessionTimeout", "-1"),
        ("maxCnxns", "0"),
        ("maxClientCnxns", ""),
        ("X509AuthenticationProvider.superUser", ""),
        ("superUser", ""),
        ("java.security.auth.login.config", ""),
        ("znode.container.checkIntervalMs", ""),
        ("autopurge.snapRetainCount", ""),
        ("snapCount", ""),
        ("znode.container.maxNeverUsedIntervalMs", ""),
        ("DigestAuthenticationProvider.superDigest", ""),
        ("4lw.commands.whitelist", ""),
    ):
        if name in properties and properties[name] != unset:
            values[KEYS[name].knob] = Setting(properties[name], name)
    if properties.get("audit.enable", "").lower() == "true" and "data" in values:
        # Without dataDir there is no data directory either, and the configuration is refused for that.
        values["audit.file"] = Setting(f"{values['data'].found}/{AUDIT_FILE}", "audit.enable")
    if properties.get("snapSizeLimitInKb", "-1") not in ("-1", "0"):
        values["snapshot.log_bytes_min"] = Setting(
            _kilobytes(properties["snapSizeLimitInKb"], label), "snapSizeLimitInKb"
        )
    if "jute.maxbuffer" in properties:
        values["client.jute_maxbuffer"] = Setting(
            _maxbuffer(properties["jute.maxbuffer"], notes), "jute.maxbuffer"
        )


def _kilobytes(text: str, label: str) -> str:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        _refuse("snapSizeLimitInKb", label, text, "a whole number of kB, or -1 for no limit")
    return str(int(text) * 1024)


def _maxbuffer(text: str, notes: list[ConfigNote]) -> str:
    """Return the buffer's size.

    Java's Integer.decode also takes 0x and octal numbers; more than the bound is cut down, with a
    warning.
    """
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text):
        text = str(int(text, 16))
    elif re.fullmatch(r"0[0-7]{1,11}", text):
        text = str(int(text, 8))
    highest = JUTE_MAXBUFFER_LARGEST
    if re.fullmatch(r"[0-9]{1,20}", text) and int(text) > highest:
        notes.append(
            ConfigNote(
                Level.WARNING,
                "jute.maxbuffer",
                f"found {text}, taken as {highest}, the most that one request may have here; a larger one "
                "closes its client's connection",
            )
        )
        return str(highest)
    return text


def _everywhere(properties: Mapping[str, str]) -> str:
    """Return where a server listens whose file names no address.

    For IPv6, which is for IPv4 as well, if servers have such.
    """
    servers = (value for name, value in properties.items() if name.startswith("server."))
    return WILDCARD_V6 if any(value.lstrip().startswith("[") for value in servers) else WILDCARD_V4


def _admin(properties: Mapping[str, str], values: dict[str, Setting], label: str) -> None:
    """Enable the admin server if the file speaks of it.

    ZooKeeper's default, port 8080 unasked, is what operators complain of.
    """
    enabled = properties.get("admin.enableServer")
    if enabled is not None and enabled.lower() != "true":
        return
    if enabled is None and "admin.serverPort" not in properties:
        return
    host = properties.get("admin.serverAddress", _everywhere(properties))
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    port = properties.get("admin.serverPort", str(ADMIN_PORT))
    key = "admin.serverPort" if "admin.serverPort" in properties else "admin.enableServer"
    values["admin"] = Setting(parse_address(f"{host}:{port}", f"{key} ({label})"), key)


def _tls(properties: Mapping[str, str], values: dict[str, Setting], label: str) -> None:
    """Take TLS for clients.

    ZooKeeper's PEM key store is one file with key and certificates, which is what ours is, too.
    """
    for store, knob in (("keyStore", "tls.certificate"), ("trustStore", "tls.client_ca")):
        key = f"ssl.{store}.location"
        if key in properties:
            values[knob] = Setting(_pem(properties, store, label), key)
    if "secureClientPort" in properties:
        if "tls.certificate" not in values:
            raise ConfigError(
                f"secureClientPort ({label}): TLS needs a certificate, and ssl.keyStore.location is not set; name a PEM "
                "file with the private key and the certificates"
            )
        host = properties.get("secureClientPortAddress", _everywhere(properties))
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        text = f"{host}:{properties['secureClientPort']}"
        values["tls.address"] = Setting(
            parse_address(text, f"secureClientPort ({label})"), "secureClientPort"
        )
    if "tls.client_ca" in values:
        auth = properties.get("ssl.clientAuth", "need").lower()
        if auth == "none":
            del values["tls.client_ca"]
        else:
            values["tls.client_auth"] = Setting(auth, "ssl.clientAuth")
    protocols = properties.get("ssl.enabledProtocols", properties.get("ssl.protocol", ""))
    if protocols and "tls.certificate" in values:
        newest_only = all(name.strip() == "TLSv1.3" for name in protocols.split(","))
        values["tls.version_min"] = Setting("1.3" if newest_only else "1.2", "ssl.enabledProtocols")


def _pem(properties: Mapping[str, str], store: str, label: str) -> str:
    """Return the file of a key store or trust store.

    Raises:
        ConfigError: it is one of Java's formats.
    """
    file = properties[f"ssl.{store}.location"]
    kind = properties.get(f"ssl.{store}.type", "")
    if kind.upper() == "PEM" or (not kind and file.lower().endswith(".pem")):
        return file
    raise ConfigError(
        f"ssl.{store}.location ({label}): {file} is a Java key store ({kind or 'by its name'}), expected PEM. Convert it, "
        f"such as by keytool -importkeystore … -deststoretype PKCS12 and openssl pkcs12 -in … -nodes -out {store}.pem, "
        f"and write ssl.{store}.location={store}.pem and ssl.{store}.type=PEM"
    )


def _servers(
    properties: Mapping[str, str],
    values: dict[str, Setting],
    notes: list[ConfigNote],
    my_id: int | None,
    label: str,
) -> None:
    """Set `id`, `address` and `cluster`."""
    lines: dict[ServerId, ServerLine] = {}
    for name, value in properties.items():
        if name.startswith("server."):
            line = parse_server_line(name, value, label)
            if "|" in value:
                notes.append(ConfigNote(Level.INFO, name, "of several addresses, peers use the first"))
            lines[line.server] = line
    port = _client_port(properties, label)
    host = _client_host(properties, label)
    if not lines and port is None:
        if my_id is not None:
            values["id"] = Setting(my_id, "myid")
        if host is not None:
            notes.append(ConfigNote(Level.WARNING, "clientPortAddress", "has no effect without clientPort"))
        return
    me = _own_id(lines, my_id, label)
    values["id"] = Setting(int(me), "myid")
    own = lines.get(me)
    if own is not None and own.client_port is not None:
        if port is not None and port != own.client_port:
            raise ConfigError(
                f"clientPort ({label}): found {port}, and server.{me} names client port {own.client_port}; they must be "
                "the same, leave one of them out"
            )
        port = own.client_port
    peers = _Peers(lines, port, host, label, me)
    if port is None:
        peers.address_of(lines[me])  # raises, with what to do
        raise AssertionError("a server without a client port has no address")
    address = Address(host or (own.client_host if own else None) or _everywhere(properties), port)
    values["address"] = Setting(address, "clientPort")
    if not lines:
        values["cluster"] = Setting({me: address}, "clientPort")
        return
    cluster = peers.cluster()
    for server, where in cluster.items():
        if where.host != lines[server].host:
            notes.append(
                ConfigNote(
                    Level.INFO,
                    f"server.{server}",
                    f"peers reach it at {where}, its clients' address, by UDP",
                )
            )
    observers = {server for server, line in lines.items() if line.observer}
    if _is_observer(properties, label):
        observers.add(me)
    values["cluster"] = Setting(ClusterList(cluster, observers), "server.*")


def _is_observer(properties: Mapping[str, str], label: str) -> bool:
    """Return whether a file says that its own server is an observer, beside its line."""
    peer_type = properties.get("peerType", "participant").lower()
    if peer_type not in ("participant", "observer"):
        raise ConfigError(
            f"peerType ({label}): found {properties['peerType']!r}, expected participant or observer"
        )
    return peer_type == "observer"


def _own_id(lines: Mapping[ServerId, ServerLine], my_id: int | None, label: str) -> ServerId:
    if my_id is not None:
        if lines and my_id not in lines:
            listed = ", ".join(f"server.{server}" for server in sorted(lines))
            raise ConfigError(
                f"myid: this is server {my_id}, and {label} lists {listed}; add server.{my_id} to the file of "
                "every server, or correct myid"
            )
        return ServerId(my_id)
    if len(lines) > 1:
        raise ConfigError(
            f"myid: not found, and {label} lists {len(lines)} servers; write this server's number into the file myid in "
            "dataDir, set ZOO_MY_ID or pass --id"
        )
    return next(iter(lines), ServerId(1))


def _client_port(properties: Mapping[str, str], label: str) -> int | None:
    text = properties.get("clientPort")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65_535:
        _refuse("clientPort", label, text, "a port from 1 to 65535; peers use the same number, for UDP")
    return int(text)


def _client_host(properties: Mapping[str, str], label: str) -> str | None:
    text = properties.get("clientPortAddress")
    if text is None:
        return None
    bracketed = f"[{text}]" if ":" in text and not text.startswith("[") else text
    address = parse_address(f"{bracketed}:1", f"clientPortAddress ({label})")
    return None if address.is_wildcard else address.host


def _refuse(key: str, label: str, found: str, expected: str) -> NoReturn:
    raise ConfigError(f"{key} ({label}): found {found!r}, expected {expected}")
