"""Translation of a reconfig request's server strings to the MEMBERS command.

Pure.

A server has one port here, for clients and servers alike. Of the three that ZooKeeper's strings name, it is the
client port if there is one, else the first; the host is the server's own, since a client address is often 0.0.0.0.

Source: ZooKeeper's guide to dynamic reconfiguration; docs/reference/protocol-zookeeper.md.
"""

from __future__ import annotations

import re
from typing import Final

from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.wire.requests import decode_reconfig
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE
from zraft_core.znodes.txn import MEMBERS, Command

UNREADABLE: Final = ()
"""Stands for a change that cannot be read: the command is refused as a whole, with BAD_ARGUMENTS, in its turn."""

_SERVER: Final = re.compile(r"\s*server\.(\d{1,19})\s*=\s*(.+?)\s*", re.DOTALL)
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[^:;\[\]|]+)"
_SPEC: Final = re.compile(
    # Several addresses of one server are separated by "|"; the first is the one.
    _HOST + r":(\d{1,5}):(\d{1,5})(?:\|[^;]*?)?(?::([A-Za-z]+))?(?:;(?:" + _HOST + r":)?(\d{1,5}))?"
)
_ROLES: Final = {"participant": PARTICIPANT, "observer": OBSERVER}
_NUMBER: Final = re.compile(r"\s*(\d{1,19})\s*")


def decode_reconfig_command(frame: bytes) -> Command:
    """Return the command [MEMBERS, replace, version, changes] of a reconfig request.

    Raises:
        MarshallingError: the body does not follow the protocol. Strings that follow no grammar do not raise.
    """
    joining, leaving, members, version = decode_reconfig(frame)
    if members is not None:
        lines = [line for line in re.split(r"[,\n]", members) if line.strip() and not _is_other(line)]
        return (MEMBERS, True, version, tuple(map(server_change, lines)))
    changes: list[tuple[object, ...]] = []
    if leaving is not None:
        changes += [_leaving(part) for part in leaving.split(",") if part.strip()]
    if joining is not None:
        changes += [server_change(part) for part in joining.split(",") if part.strip()]
    return (MEMBERS, False, version, tuple(changes) or (UNREADABLE,))


def _is_other(line: str) -> bool:
    """Return whether a line is none of a server, but one that a file of a whole configuration may hold beside."""
    return line.lstrip().startswith(("#", "version="))


def _leaving(text: str) -> tuple[object, ...]:
    found = _NUMBER.fullmatch(text)
    return (int(found[1]), REMOVE, "") if found is not None else UNREADABLE


def server_change(text: str) -> tuple[object, ...]:
    """Return (server, part, address) of a server's line, or UNREADABLE.

    The line is `server.N=host:port:port[:role][;[client host:]client port]`.
    """
    found = _SERVER.fullmatch(text)
    spec = _SPEC.fullmatch(found[2]) if found is not None else None
    if found is None or spec is None:
        return UNREADABLE
    host, first, _, role, _, client = spec.groups()
    part = _ROLES.get((role or "participant").lower())
    if part is None:
        return UNREADABLE
    try:
        address: Address = parse_address(f"{host.strip()}:{client or first}", f"server.{found[1]}")
    except ConfigError:
        return UNREADABLE
    return (int(found[1]), part, str(address))
