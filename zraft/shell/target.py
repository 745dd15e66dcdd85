"""Connection strings: the servers, and the path that stands in front of every path (only the client knows it)."""

from __future__ import annotations

from typing import Any, Final, cast

from attrs import evolve, fields_dict, frozen

from zraft.shell.paths import checked_path
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.wire.client_requests import Create, GetEphemerals, Request, Sync

DEFAULT_PORT: Final = 2181


@frozen
class Target:
    """The servers to connect to, in order, and the path that stands for "/", "" for none."""

    servers: tuple[Address, ...]
    chroot: str = ""

    def __str__(self) -> str:
        return ",".join(map(str, self.servers)) + self.chroot


def parse_target(text: str, knob: str) -> Target:
    """Parse `host:port,host:port/chroot`; a host without a port means 2181.

    Raises:
        ConfigError: it is none; the message names `knob`.
    """
    hosts, slash, chroot = text.partition("/")
    path = checked_path(slash + chroot) if chroot else ""
    if not hosts.strip():
        raise ConfigError(
            f"{knob}: found {text!r}, expected HOST:PORT,… such as 127.0.0.1:2181,127.0.0.1:2182"
        )
    servers = []
    for host in hosts.split(","):
        host = host.strip()
        has_port = ":" in host if "[" not in host else "]:" in host
        servers.append(parse_address(host if has_port else f"{host}:{DEFAULT_PORT}", knob))
    return Target(tuple(dict.fromkeys(servers)), path)


def rooted(request: Request[Any], chroot: str) -> Request[Any]:
    """Return `request` with the paths that the server knows."""
    if not chroot or "path" not in fields_dict(type(request)):
        return request
    there: Any = request
    path: str = there.path
    return cast(Request[Any], evolve(there, path=chroot if path == "/" else chroot + path))


def unrooted(path: str, chroot: str) -> str:
    """Return a server's path as the user of this chroot knows it; one outside of it is unchanged."""
    if chroot and (path == chroot or path.startswith(chroot + "/")):
        return path[len(chroot) :] or "/"
    return path


def unrooted_value(request: Request[Any], value: Any, chroot: str) -> Any:
    """Return an answer's value without the chroot."""
    if chroot and value is not None:
        if isinstance(request, Create | Sync):
            return unrooted(value, chroot)
        if isinstance(request, GetEphemerals):
            return tuple(unrooted(path, chroot) for path in value)
    return value
