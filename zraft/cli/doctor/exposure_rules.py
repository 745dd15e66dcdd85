"""Rules about what is open or unencrypted, what expires, and settings that are unusual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from zraft.cli.doctor.findings import CLUSTER, DAY_S, Finding, Rule, Severity, milder
from zraft.cli.doctor.sights import Sights, number_in
from zraft_core.address import parse_address
from zraft_core.errors import ConfigError

HARMLESS: Final = frozenset(
    {"conf", "cons", "dirs", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srvr", "stat", "wchs"}
)
EXPIRES_SOON_S: Final = 14 * DAY_S
EXPIRES_NOW_S: Final = 3 * DAY_S
ELECTION_MS_MIN: Final = 100
NONE: Final = "none"
TRUE: Final = "true"
GROUP: Final = 0o070
OTHERS: Final = 0o007


def _settings(sights: Sights) -> Iterator[tuple[str, Mapping[str, str], bool]]:
    """Yield where settings were seen, the settings, and whether only this machine is concerned."""
    for server in sights.servers:
        if server.knobs:
            yield server.name, server.knobs, server.loopback
    for file in sights.files:
        if file.knobs:
            yield file.name, file.knobs, file.loopback


def files(sights: Sights) -> Iterator[Finding]:
    """Find configuration files that no server starts with, and secrets that others can read."""
    for file in sights.files:
        if file.problem:
            yield Finding(
                Severity.ERROR,
                "configuration",
                file.name,
                file.problem,
                "A server does not start with it.",
                f"`zraft config check {file.name}` says more.",
            )
        for path, mode in file.modes.items():
            if mode & OTHERS:
                # Files in the directory have modes of their own.
                is_data = path == file.knobs.get("data")
                severity, who = Severity.WARNING if is_data else Severity.ERROR, "Everybody on this machine"
            elif mode & GROUP:
                severity, who = Severity.NOTE, "Its group"
            else:
                continue
            yield Finding(
                severity,
                "permissions",
                path,
                f"Mode {mode:04o}: {who.lower()} has access.",
                "It holds a key, passwords or all data, for whoever can read it.",
                f"`chmod go= {path}`; if others may have read it, replace what is in it (docs/how-to/security.md).",
            )


def transport(sights: Sights) -> Iterator[Finding]:
    """Find servers that speak plain text to others than this machine."""
    for server in sights.servers:
        if not server.plain:
            continue
        do = "Set tls.required" if server.tls else "Set tls.certificate and tls.key, then tls.required"
        yield Finding(
            milder(Severity.WARNING, when=server.loopback),
            "plain-text",
            server.name,
            "It takes plain text from clients" + (" beside TLS." if server.tls else ", and speaks no TLS."),
            "Whoever is on the network reads data and passwords, and changes them.",
            f"{do} (docs/how-to/security.md).",
        )


def peers(sights: Sights) -> Iterator[Finding]:
    """Find clusters whose servers do not know each other."""
    for where, knobs, loopback in _settings(sights):
        if knobs.get("insecure_peers") == TRUE:
            yield Finding(
                Severity.WARNING if loopback else Severity.ERROR,
                "no-cluster-key",
                where,
                "Its peers show no key (insecure_peers).",
                "Whoever can send it a datagram can vote, lead and change members.",
                "`zraft key new FILE`, copy it to all servers, set key to it and insecure_peers to false.",
            )


def certificates(sights: Sights) -> Iterator[Finding]:
    """Find certificates that have ended, or end soon."""
    ends = [(server.name, server.certificate_ends_s) for server in sights.servers]
    ends += [(file.name, file.certificate_ends_s) for file in sights.files]
    for where, end_s in ends:
        if end_s is None or end_s - sights.now_s >= EXPIRES_SOON_S:
            continue
        days = (end_s - sights.now_s) / DAY_S
        yield Finding(
            Severity.ERROR if days * DAY_S < EXPIRES_NOW_S else Severity.WARNING,
            "certificate",
            where,
            f"Its certificate ended {-days:.0f} days ago."
            if days < 0
            else f"Its certificate ends in {days:.0f} days.",
            "Clients that check it will not connect.",
            "Put a new one into the files of tls.certificate and tls.key; a running server reads them again.",
        )


def admin(sights: Sights) -> Iterator[Finding]:
    """Find admin servers that others reach, and four-letter words that tell or change more than they should."""
    for where, knobs, _ in _settings(sights):
        address = knobs.get("admin", NONE)
        if address == NONE:
            yield Finding(
                Severity.NOTE,
                "no-metrics",
                where,
                "It has no admin server.",
                "Nobody can watch its metrics, and nobody is told of what goes wrong.",
                "Set admin, such as to 127.0.0.1:8080, and see deploy/prometheus.",
            )
        elif not _is_loopback(address):
            yield Finding(
                Severity.WARNING,
                "admin-open",
                where,
                f"Its admin server listens at {address}.",
                "It asks nobody who they are: whoever reaches it sees sessions, paths and settings, and resets counters.",
                "Set admin to a loopback address, or let a firewall or a proxy decide who reaches it.",
            )
        words = {
            word for word in knobs.get("client.four_letter_words", "").split(",") if word and word != NONE
        }
        if more := sorted(words - HARMLESS):
            yield Finding(
                Severity.WARNING,
                "four-letter-words",
                where,
                f"It answers {', '.join(more)} to everybody.",
                "They show paths and session ids whatever the ACLs say, or change what others see.",
                "Take them out of client.four_letter_words.",
            )


def access(sights: Sights) -> Iterator[Finding]:
    """Find trees and topics that everybody may change."""
    if sights.open_root:
        yield Finding(
            milder(Severity.WARNING, when=sights.loopback),
            "open-root",
            CLUSTER,
            "Everybody may create and delete znodes in / (world:anyone:cdrwa).",
            "Any client can fill the tree, and take names that others expect to have.",
            "`zraft shell setAcl / …`, or auth.required_schemes so that only those who log in are served.",
        )
    if sights.open_topics:
        yield Finding(
            milder(Severity.WARNING, when=sights.loopback),
            "open-topics",
            CLUSTER,
            "Everybody may read and write topics that have no ACL of their own.",
            "Any client can read what others send, and send what others believe.",
            "`zraft topic acl set --default …` (docs/how-to/security.md).",
        )


def unusual(sights: Sights) -> Iterator[Finding]:
    """Find settings that work, and that few mean to have in production."""
    for where, knobs, loopback in _settings(sights):
        election = number_in(knobs, "raft.election_timeout_ticks")
        if election is not None and election < ELECTION_MS_MIN:
            yield Finding(
                Severity.WARNING,
                "unusual-setting",
                where,
                f"raft.election_timeout_ticks is {election:g}, a tenth of a second or less.",
                "A short pause of the leader's machine costs it the leadership.",
                "Take the default, 300, unless that was measured.",
            )
        voters = [one for one in knobs.get("cluster", "").split(",") if one and not one.endswith(":observer")]
        if len(voters) % 2 == 0 and voters:
            yield Finding(
                Severity.WARNING,
                "even-voters",
                where,
                f"cluster names {len(voters)} servers that vote.",
                f"They bear the loss of {(len(voters) - 1) // 2}, as {len(voters) - 1} would, and more of them can fail.",
                "Add one, or let one end with :observer.",
            )
        if knobs.get("snapshot.keep") == "1":
            yield Finding(
                Severity.WARNING,
                "unusual-setting",
                where,
                "snapshot.keep is 1.",
                "If the only snapshot is damaged, the server has nothing to start with.",
                "Take the default, 3.",
            )
        if knobs.get("log_level") == "debug":
            yield Finding(
                Severity.NOTE,
                "unusual-setting",
                where,
                "log_level is debug.",
                "The log grows quickly, and each line costs time.",
                "Set log_level to info.",
            )
        if knobs.get("client.connections_per_address_max") == "0" and not loopback:
            yield Finding(
                Severity.NOTE,
                "no-limit-per-address",
                where,
                "One address may take all connections.",
                "A client that leaks connections locks out the others.",
                "Set client.connections_per_address_max, such as to a tenth of client.connections_max.",
            )


EXPOSURE_RULES: Final[tuple[Rule, ...]] = (
    files,
    peers,
    certificates,
    transport,
    admin,
    access,
    unusual,
)


def _is_loopback(address: str) -> bool:
    try:
        return parse_address(address, "admin").is_loopback
    except ConfigError:
        return False
