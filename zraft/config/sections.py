"""Configuration of one server except topics, by section: each knob with its default, bounds and help."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import field, frozen

from zraft.config.fields import count, knob
from zraft_core.address import Address

CLIENT_AUTHS: Final = ("none", "want", "need")
"""The certificates that TLS clients are asked for: none, one if they have it, one in any case (ZooKeeper's
ssl.clientAuth).
"""
TLS_VERSIONS: Final = ("1.2", "1.3")
AUTH_SCHEMES: Final = ("digest", "sasl", "x509")
"""Schemes that a client authenticates itself with."""


JUTE_MAXBUFFER_LARGEST: Final = 2_097_152
FOUR_LETTER_WORDS_DEFAULT: Final = (
    *("conf", "cons", "dirs", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srvr", "stat", "wchs"),
)
"""The harmless ones; tests compare it with what the protocol's own module calls harmless."""


@frozen(kw_only=True)
class RaftConfig:
    """Consensus. A tick is one millisecond."""

    election_timeout_ticks: int = count(
        300,
        20,
        60_000,
        "A follower that hears no leader for this long, or randomly up to twice as long, asks for votes.",
    )
    heartbeat_ticks: int = count(
        50,
        1,
        20_000,
        "The leader sends something to every follower at least this often; an idle one, three times in an election timeout.",
    )
    batch_bytes_max: int = count(
        524_288,
        1_024,
        2_097_152,
        "An entry stops taking further commands at this size; one command may exceed it.",
    )
    append_bytes_max: int = count(
        524_288,
        1_024,
        2_097_152,
        "One AppendEntries carries at most this many bytes of entries; at least one entry is always sent.",
    )
    inflight_messages_max: int = count(
        8,
        1,
        4_096,
        "At most this many AppendEntries to one follower are unanswered; later entries gather into one.",
    )
    inflight_bytes_max: int = count(
        2_097_152,
        65_536,
        1_073_741_824,
        "At most this many bytes to one follower are unanswered; its socket buffer must be able to hold them.",
    )
    uncommitted_bytes_max: int = count(
        67_108_864,
        1_048_576,
        4_294_967_296,
        "At most this many bytes of entries wait for a quorum; at the bound, a leader accepts no more.",
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
        "This many bytes of the log's end stay in memory after a start, for slow followers.",
    )
    group_tail_bytes_max: int = count(
        65_536,
        0,
        1_073_741_824,
        "This many bytes of the end of each partition's log stay in memory after a start; there may be hundreds.",
    )
    slow_fsync_ms: int = count(
        1_000,
        0,
        60_000,
        "A leader whose writes take this long, while a majority's do not, hands its leadership over; 0 means never.",
    )
    loop_sync_us: int = count(
        1_000,
        0,
        20_000,
        "While three of four syncs take at most this long, the loop does those of small frames; 0 means a thread does all.",
    )


@frozen(kw_only=True)
class ClientConfig:
    """ZooKeeper clients of this server. Each bound protects the server's memory from its clients."""

    jute_maxbuffer: int = count(
        1_048_575,
        4_096,
        JUTE_MAXBUFFER_LARGEST,
        "A request may have this many bytes; a larger one closes the connection, as in ZooKeeper.",
    )
    connections_max: int = count(
        10_000, 1, 1_000_000, "This many connections may be open at the same time; further ones are closed."
    )
    connections_per_address_max: int = count(
        0,
        0,
        1_000_000,
        "This many connections may be open from one client address (maxClientCnxns); 0 means no limit.",
    )
    connects_per_second_max: int = count(
        0,
        0,
        1_000_000,
        "This many sessions may begin or resume per second; further clients wait in order. 0 means no limit.",
    )
    outstanding_bytes_max: int = count(
        16_777_216,
        65_536,
        4_294_967_296,
        "This many bytes of writes may be accepted and not yet applied; at the bound, requests wait in the socket.",
    )
    watches_per_connection_max: int = count(
        1_000_000, 1_000, 1_000_000_000, "One connection may have this many watches; with more it is closed."
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
        "A list of children may have this many bytes; a longer one is refused. Java clients read no more than their "
        "jute.maxbuffer.",
    )
    output_bytes_max: int = count(
        16_777_216,
        65_536,
        4_294_967_296,
        "One connection may leave this many bytes of replies and events unread before it is closed.",
    )
    output_bytes_per_address_max: int = count(
        33_554_432,
        65_536,
        68_719_476_736,
        "The connections of one address may leave this many bytes unread; at half of it, large replies wait; beyond "
        "it, the largest are closed.",
    )
    output_bytes_sum_max: int = count(
        67_108_864,
        65_536,
        68_719_476_736,
        "All connections of this server may leave this many bytes unread; at half of it, large replies wait; beyond "
        "it, the largest are closed.",
    )
    input_bytes_per_address_max: int = count(
        16_777_216,
        65_536,
        68_719_476_736,
        "This many bytes of one address's requests may wait; at half of it, connections that have some are not read.",
    )
    input_bytes_sum_max: int = count(
        33_554_432,
        65_536,
        68_719_476_736,
        "This many bytes of all clients' requests may wait; at half of it, connections that have some are not read.",
    )
    unfinished_bytes_per_address_max: int = count(
        16_777_216,
        65_536,
        68_719_476_736,
        "One address may have this many bytes of incomplete requests; at half of it, new ones wait; beyond it, the "
        "longest are closed.",
    )
    unfinished_bytes_sum_max: int = count(
        33_554_432,
        65_536,
        68_719_476_736,
        "All clients may have this many bytes of incomplete requests; at half of it, new ones wait; beyond it, the "
        "longest are closed.",
    )
    handshake_timeout_ms: int = count(
        10_000,
        100,
        600_000,
        "A connection that has not asked for a session within this time, TLS handshake included, is closed.",
    )
    four_letter_words: tuple[str, ...] = field(
        default=FOUR_LETTER_WORDS_DEFAULT,
        metadata=knob(
            "words", "The server answers these four-letter words, separated by commas; `*` stands for all."
        ),
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
        metadata=knob(
            "switch", "Refuse what exceeds a hard limit of a quota, instead of logging it (enforceQuota)."
        ),
    )
    container_never_used_ms_max: int = count(
        300_000,
        0,
        31_536_000_000,
        "A container that never had a child is removed after this long; 0 means never.",
    )
    reap_interval_ms: int = count(
        60_000,
        10,
        86_400_000,
        "The leader removes containers and expired znodes with a time to live this often.",
    )


@frozen(kw_only=True)
class SnapshotConfig:
    """Snapshots of the state, and how much of the log is kept behind them."""

    log_bytes_min: int = count(
        33_554_432,
        4_096,
        1_099_511_627_776,
        "A snapshot waits until the log since the last one is this long, or `replay_ms` or `commands_min` is reached.",
    )
    log_ratio_percent: int = count(
        200,
        1,
        10_000,
        "No snapshot is written before the log is this many percent of the state's size, or twice that on a busy server.",
    )
    replay_ms: int = count(
        4_500,
        100,
        86_400_000,
        "A restart spends at most this long on the log, at the speed that this server measured; longer with many znodes.",
    )
    commands_min: int = count(
        0,
        0,
        1_000_000_000,
        "So many commands in the log count like `log_bytes_min`, at least half the znodes; 0: only their time counts.",
    )
    keep: int = count(
        3, 1, 1_000, "This many snapshots are kept; older ones are removed (autopurge.snapRetainCount)."
    )
    retain_bytes: int = count(
        8_388_608,
        0,
        1_099_511_627_776,
        "This many bytes of all groups' log are kept before the newest snapshot, so that a short absence needs none.",
    )
    retain_bytes_max: int = count(
        268_435_456,
        0,
        1_099_511_627_776,
        "At most this many bytes of the log are kept before the newest snapshot for followers that answer but are behind.",
    )
    send_bytes_per_s: int = count(
        67_108_864,
        65_536,
        10_737_418_240,
        "All followers together are sent this many bytes of snapshots per second, so that other traffic keeps its latency.",
    )


@frozen(kw_only=True)
class PeerConfig:
    """Datagrams between servers."""

    datagram_bytes: int = count(
        1_400,
        512,
        65_000,
        "A UDP datagram has at most this many bytes; if not set, 1400, or with all servers on loopback 60000 (macOS: 9000).",
    )


@frozen(kw_only=True)
class TlsConfig:
    """TLS for clients: on the port of `address` beside plain text, and on a port of its own. Off without `certificate`."""

    certificate: Path | None = field(
        default=None,
        metadata=knob(
            "path",
            "The PEM file of this server's certificate and its intermediates; it switches TLS for clients on.",
        ),
    )
    key: Path | None = field(
        default=None,
        metadata=knob(
            "path",
            "The PEM file of the private key, with mode 0600; if not set, the key is in the file of tls.certificate.",
        ),
    )
    client_ca: Path | None = field(
        default=None,
        metadata=knob("path", "The PEM file of the authorities that sign clients' certificates."),
    )
    client_auth: str = field(
        default="none",
        metadata=knob(
            "choice",
            "Whether clients show certificates: none, want (verified if there is one), need (no connection without one).",
            CLIENT_AUTHS,
        ),
    )
    required: bool = field(
        default=False, metadata=knob("switch", "Refuse plain text on the main port, four-letter words too.")
    )
    address: Address | None = field(
        default=None,
        metadata=knob(
            "address", "The address of a further port for clients, which takes TLS only (secureClientPort)."
        ),
    )
    version_min: str = field(
        default="1.2",
        metadata=knob("choice", "The oldest TLS version that is spoken: 1.2 or 1.3.", TLS_VERSIONS),
    )
    ciphers: str | None = field(
        default=None,
        metadata=knob(
            "text",
            "OpenSSL's cipher list for TLS 1.2; if not set, Python's is used. All ciphers of TLS 1.3 are good.",
        ),
    )
    handshakes_max: int = count(
        250,
        1,
        100_000,
        "This many TLS handshakes may be under way at the same time; further connections are closed.",
    )


@frozen(kw_only=True)
class AuthConfig:
    """Knobs of how clients prove who they are."""

    x509_super_user: str | None = field(
        default=None,
        metadata=knob(
            "text",
            "The subject of the client certificate that may do everything, such as CN=admin,O=Example.",
        ),
    )
    sasl_users_file: Path | None = field(
        default=None,
        metadata=knob(
            "path",
            "The file of users for SASL DIGEST-MD5, as user:password lines or a JAAS file, with mode 0600.",
        ),
    )
    super_user: str | None = field(
        default=None, metadata=knob("text", "The SASL user that may do everything.")
    )
    super_digest: str | None = field(
        default=None,
        repr=False,
        metadata=knob(
            "text",
            "The digest login that may do everything, as user:base64(sha1(user:password)) (superDigest).",
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
            "path",
            "The file of the audit log, which has a line per write of this server's clients; naming it switches the log on.",
        ),
    )
    file_bytes_max: int = count(
        67_108_864,
        65_536,
        1_099_511_627_776,
        "At this size the file is renamed to FILE.1 and a new one begins.",
    )
    files_kept: int = count(
        10,
        0,
        10_000,
        "This many older files are kept, FILE.1 the newest of them; with 0, none is renamed, and SIGHUP reopens the file.",
    )
    pending_bytes_max: int = count(
        16_777_216,
        65_536,
        4_294_967_296,
        "This many bytes of lines may wait for a slow disk; further lines are dropped and counted, and clients never wait.",
    )
