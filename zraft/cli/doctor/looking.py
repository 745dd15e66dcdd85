"""Looks at servers, at their admin HTTP servers and at a configuration file, for `zraft doctor`. Changes nothing. Blocks.

Certificates are not judged here, so that one that has ended can be told of; nothing secret is sent to servers.
"""

from __future__ import annotations

import json
import os
import ssl
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from zraft.cli.doctor.sights import Disk, FileSight, ServerSight, Sights, number_in
from zraft.cli.status import UnreachableError, ask, parse_mntr, parse_srvr, speaks_tls
from zraft_core.address import Address, parse_address
from zraft_core.errors import Code, ConfigError, ZraftError

if TYPE_CHECKING:
    from zraft.cli.client_options import Identity
    from zraft.config.server import ServerConfig
    from zraft.shell.client import Client

TIMEOUT_S: Final = 3.0
PAGE_BYTES_MAX: Final = 16 * 2**20
AT_ONCE: Final = 16
TOPICS: Final = "/zookeeper/topics"
MOUNTS: Final = Path("/proc/self/mounts")
EVERYBODY: Final = ("world", "anyone")
WRITES: Final = 4 | 8 | 16
"""The bits of create, delete and administer."""


@frozen
class AdminSight:
    """The answers of an admin HTTP server: which server it is of, settings, the disk, the log, the clock."""

    server: int
    knobs: Mapping[str, str]
    disk: Disk | None
    log_bytes: int | None
    clock_ahead_s: float | None


def look(
    addresses: Sequence[Address],
    admins: Sequence[Address],
    files: Sequence[Path],
    identity: Identity,
    *,
    timeout_s: float = TIMEOUT_S,
    guessed: bool = False,
) -> Sights:
    """Return what is seen of all of these, looked at together.

    Args:
        addresses: of the servers, for their clients.
        admins: of their admin servers.
        guessed: whether nobody named the admin servers, so that it is no news if none is there.
    """
    unseen: list[str] = []
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        servers = list(pool.map(lambda one: server_sight(one, timeout_s), addresses))
        told = list(pool.map(lambda one: _admin(one, timeout_s), admins))
    by_server: dict[int, AdminSight] = {}
    for address, admin in zip(admins, told, strict=True):
        if isinstance(admin, AdminSight):
            by_server[admin.server] = admin
        elif not guessed:
            unseen.append(f"The admin server at {address} was not looked at: {admin}.")
    servers = [_with_admin(one, by_server) for one in servers]
    if servers and not any(one.knobs for one in servers):
        unseen.append("Settings, disks and clocks of the servers: name their admin servers with --admin.")
    open_root = open_topics = None
    if any(one.serves for one in servers):
        try:
            open_root, open_topics = _open(addresses, identity, timeout_s)
        except ZraftError as error:
            unseen.append(f"ACLs: {error}.")
    return Sights(
        now_s=time.time(),
        servers=tuple(servers),
        files=tuple(map(file_sight, files)),
        open_root=open_root,
        open_topics=open_topics,
        unseen=tuple(unseen),
    )


# -- a server


def server_sight(address: Address, timeout_s: float) -> ServerSight:
    """Return what one server tells by four-letter words, and of its certificate."""
    seen = ServerSight(name=str(address), loopback=address.is_loopback)
    tls = speaks_tls(address, timeout_s)
    context = _unjudging() if tls else None
    if tls:
        seen = evolve(seen, certificate_ends_s=_certificate_end(address, timeout_s))
    plain, answer, why = False, "", ""
    for way in (None, context) if tls else (None,):
        try:
            answer = ask(address, "srvr", timeout_s, way)
        except UnreachableError as error:
            why = str(error)
            continue
        if answer:
            plain = way is None
            context = way
            break
        why = f"{address}: closed the connection without an answer to srvr"
    if not answer:
        return evolve(seen, silent=why, tls=tls or None)
    status = parse_srvr(answer)
    if status is None:
        return evolve(seen, plain=plain, tls=tls)
    return evolve(
        seen,
        mode=status.mode,
        version=status.version,
        plain=plain,
        tls=tls,
        numbers=_numbers(address, timeout_s, context),
    )


def _numbers(address: Address, timeout_s: float, context: ssl.SSLContext | None) -> dict[str, str]:
    """Return `mntr`, and of `envi` and `conf` what is in no other place."""

    def words(word: str, read: Callable[[str], Mapping[str, str]]) -> Mapping[str, str]:
        with suppress(UnreachableError):
            return read(ask(address, word, timeout_s, context))
        return {}

    memory = {
        name: value.removesuffix("MB")
        for name, value in words("envi", _pairs).items()
        if name.startswith("os.memory.")
    }
    number = words("conf", _pairs).get("serverId")
    return {**words("mntr", parse_mntr), **memory, **({} if number is None else {"serverId": number})}


def _pairs(text: str) -> dict[str, str]:
    return {
        name: value for name, equals, value in (line.partition("=") for line in text.splitlines()) if equals
    }


def _unjudging() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _certificate_end(address: Address, timeout_s: float) -> float | None:
    """Return when the certificate that the server shows ends; None if it shows none to strangers."""
    import socket

    from cryptography import x509

    try:
        with (
            socket.create_connection((address.host, address.port), timeout=timeout_s) as connection,
            _unjudging().wrap_socket(connection, server_hostname=address.host) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except OSError:
        return None
    return None if shown is None else x509.load_der_x509_certificate(shown).not_valid_after_utc.timestamp()


# -- its admin server


def _admin(address: Address, timeout_s: float) -> AdminSight | str:
    """Return what an admin server tells, or why it tells nothing."""
    try:
        status, ahead_s = _page(address, "/status.json", timeout_s)
        knobs, _ = _page(address, "/commands/system_properties", timeout_s)
        metrics, _ = _page(address, "/metrics", timeout_s, text=True)
    except (OSError, HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
    if (
        not isinstance(status, dict)
        or not isinstance(status.get("server"), int)
        or not isinstance(knobs, dict)
    ):
        return "it is no admin server of zraft"
    gauges = dict(line.rsplit(" ", 1) for line in str(metrics).splitlines() if " " in line and line[0] != "#")
    free, size = number_in(gauges, "zraft_data_free_bytes"), number_in(gauges, "zraft_data_size_bytes")
    log_bytes = status.get("log_bytes")
    return AdminSight(
        server=status["server"],
        knobs={name.removeprefix("zraft."): value for name, value in knobs.items() if isinstance(value, str)},
        disk=None if free is None or not size else Disk(free=int(free), size=int(size)),
        log_bytes=log_bytes if isinstance(log_bytes, int) else None,
        clock_ahead_s=ahead_s,
    )


def _page(address: Address, path: str, timeout_s: float, *, text: bool = False) -> tuple[Any, float | None]:
    """Return a page, parsed unless `text`, and how far the server's clock was ahead when it answered."""
    with closing(HTTPConnection(address.host, address.port, timeout=timeout_s)) as connection:
        asked = time.time()
        connection.request("GET", path, headers={"Accept": "text/plain" if text else "application/json"})
        response = connection.getresponse()
        body = response.read(PAGE_BYTES_MAX)
        middle = (asked + time.time()) / 2
        date = response.getheader("Date")
    ahead_s = None
    if date is not None:
        with suppress(ValueError, TypeError):
            # Seconds are cut off, so half of one is missing on average.
            ahead_s = parsedate_to_datetime(date).timestamp() + 0.5 - middle
    return (body.decode(errors="replace") if text else json.loads(body)), ahead_s


def _with_admin(seen: ServerSight, by_server: Mapping[int, AdminSight]) -> ServerSight:
    number = seen.number("serverId")
    admin = None if number is None else by_server.get(int(number))
    if admin is None:
        return seen
    return evolve(
        seen,
        knobs=admin.knobs,
        disk=admin.disk,
        log_bytes=admin.log_bytes,
        clock_ahead_s=admin.clock_ahead_s,
    )


# -- what everybody may do


def _open(addresses: Sequence[Address], identity: Identity, timeout_s: float) -> tuple[bool, bool]:
    """Return whether everybody may change the root, and topics without an ACL of their own."""
    import asyncio

    # What is loaded here is not loaded by the loop, which would stand still for it.
    from zraft.shell.client import Client
    from zraft.shell.target import Target

    target = Target(tuple(addresses))

    def client() -> Client:
        return Client(
            target, session_timeout_ms=10_000, wait_s=timeout_s, notify=lambda _: None, tls=identity.tls
        )

    return asyncio.run(_acls(client, identity))


async def _acls(make: Callable[[], Client], identity: Identity) -> tuple[bool, bool]:
    from zraft_core.wire.client_requests import Auth, GetAcl

    client = make()
    client.start()
    try:
        for scheme, credentials in identity.auth:
            if scheme != "sasl":
                await client.ask([Auth(scheme, credentials)])
        root, topics = await client.ask([GetAcl("/"), GetAcl(TOPICS)])
    finally:
        await client.close()
    # Topics without a default are open; one that may not be read is somebody's.
    return _is_open(root), topics.code == Code.NO_NODE or _is_open(topics)


def _is_open(reply: Any) -> bool:
    if reply.code != Code.OK:
        return False
    acl, _ = reply.value
    return any(bits & WRITES and (scheme, who) == EVERYBODY for bits, scheme, who in acl)


# -- a configuration file


def file_sight(file: Path) -> FileSight:
    """Return what a configuration file says, and of what it names on this machine."""
    from zraft.config.knobs import load_config
    from zraft.config.server import settings_in_force

    try:
        config = load_config(flags={}, environ={}, file=file)
    except ConfigError as error:
        return FileSight(name=str(file), problem=str(error), modes=_modes([file]))
    secrets = [file, *config.key_files, config.data]
    for path in (config.tls.key or config.tls.certificate, config.auth.sasl_users_file):
        secrets += [path] if path is not None else []
    return FileSight(
        name=str(file),
        knobs=dict(settings_in_force(config)),
        loopback=config.address.is_loopback,
        modes=_modes([one for one in secrets if one != file or config.auth.super_digest is not None]),
        disk=_disk(config.data),
        certificate_ends_s=_file_certificate_end(config),
    )


def _modes(paths: Sequence[Path]) -> dict[str, int]:
    """Return the permission bits of those that exist."""
    found = {}
    for path in paths:
        with suppress(OSError):
            found[str(path)] = stat.S_IMODE(path.stat().st_mode)
    return found


def _disk(directory: Path) -> Disk | None:
    there = directory.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        found = os.statvfs(there)
    except OSError:
        return None
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return Disk(free=free, size=size, kind=_file_system(there.resolve()))


def _file_system(directory: Path) -> str:
    """Return the kind of the file system of a directory; nothing where the system does not say it like Linux."""
    try:
        mounts = [line.split(" ") for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    above = [(len(one[1]), one[2]) for one in mounts if len(one) > 2 and directory.is_relative_to(one[1])]
    return max(above, default=(0, ""), key=lambda one: one[0])[1]


def _file_certificate_end(config: ServerConfig) -> float | None:
    if config.tls.certificate is None:
        return None
    from cryptography import x509

    try:
        leaf = x509.load_pem_x509_certificates(config.tls.certificate.read_bytes())[0]
    except (OSError, ValueError):
        return None
    return leaf.not_valid_after_utc.timestamp()


def admin_of_dev(servers: Sequence[Address], offset: int) -> list[Address]:
    """Return where servers of `zraft dev` have their admin servers, unless told otherwise."""
    return [parse_address(str(Address(one.host, one.port + offset)), "--admin") for one in servers]
