"""Native requests about the cluster: its members, and a change of them.

Source: docs/reference/protocol-native.md, "Writes" and "Reads".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.layout import Fields, any_string, choice, integer, optional, parameters, wrong
from zraft_core.wire.native.fields import ID


@frozen
class Config:
    """Add a server (`server` None: the next free number) or delete one, by its "HOST:PORT"."""

    id: int | None
    add: bool
    address: str
    server: int | None


@frozen
class ReadDiagnostic:
    """Ask a server for its diagnostic figures (Z-14)."""


@frozen
class ReadMembers:
    """Ask for the members of the cluster."""


def made_config(
    action: str, address: str, port: int, server: int | None = None, id: int | None = None
) -> Config:
    """Return the change of members that a message asks for, with an id or in Zatt's form.

    Raises:
        FieldError: the address is none.
    """
    if not 1 <= len(address) <= 253 or not address.isprintable():
        raise wrong("config.address", "a host name or an address of 1 to 253 characters", address)
    host = f"[{address}]" if ":" in address and not address.startswith("[") else address
    return Config(id, action == "add", f"{host}:{port}", server)


CONFIG: Final = parameters(
    made_config,
    action=choice("add", "delete"),
    address=any_string,
    port=integer(1, 65_535),
    server=optional(integer(1, 254)),
    id=ID,
)
"""The fields of a change of members."""

REQUESTS: Final[tuple[Fields[Config], ...]] = (Fields("config", made_config, CONFIG, skips="type"),)
