"""Native requests about znodes: the commands that change them, and what is read of them.

Source: docs/reference/protocol-native.md, "Writes" and "Reads".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.errors import MarshallingError
from zraft_core.layout import (
    NUMBER_MAX,
    Fields,
    any_string,
    integer,
    listed,
    optional,
    row,
)
from zraft_core.wire.native import fields
from zraft_core.wire.native.fields import expected_version, part
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN
from zraft_core.znodes.txn import (
    CHECK,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    SET_DATA,
    Command,
)

FLAG_CONTAINER: Final = 4
_TTL_FLAGS: Final = {0: 5, 2: 6}
"""Of createTTL, as ZooKeeper numbers them: persistent, and sequential."""


@frozen
class ReadZnode:
    """Data and stat of a znode."""

    path: str


@frozen
class ReadExists:
    """Stat of a znode, if it exists."""

    path: str


@frozen
class ReadChildren:
    """Names of a znode's children, and its stat."""

    path: str


@frozen
class ReadOwners:
    """The sessions of a znode's ephemeral children, and how long each is silent."""

    path: str


@frozen
class ReadSync:
    """Nothing; it is answered when all that was committed is applied here."""


ZnodeQuery = ReadZnode | ReadExists | ReadChildren | ReadOwners | ReadSync


# -- commands


def _create(
    path: str,
    data: bytes | None = None,
    flags: int = 0,
    acl: tuple[tuple[int, str, str], ...] | None = None,
    ttl: int | None = None,
) -> Command:
    if ttl is not None:
        if flags not in _TTL_FLAGS:
            raise MarshallingError(
                f"create: flags: found {flags} with a ttl, expected 0 or 2 (sequential): nothing else may have one"
            )
        return CREATE_TTL, path, data, acl, _TTL_FLAGS[flags], ttl
    opcode = CREATE_CONTAINER if flags == FLAG_CONTAINER else CREATE2
    return opcode, path, data, acl, flags, 0


def _set(path: str, data: bytes | None = None, version: int | None = None) -> Command:
    return SET_DATA, path, data, -1 if version is None else version


def _remove(path: str, version: int | None = None) -> Command:
    return DELETE, path, -1 if version is None else version


def _check(path: str, version: int | None = None) -> Command:
    return CHECK, path, -1 if version is None else version


_acl: Final = listed(row(rights=integer(INT32_MIN, INT32_MAX), scheme=any_string, id=any_string), NUMBER_MAX)

WRITES: Final[tuple[Fields[Command], ...]] = (
    part(
        "create",
        _create,
        path=any_string,
        data=fields.data,
        flags=integer(0, FLAG_CONTAINER),
        acl=optional(_acl),
        ttl=optional(integer(1, 2**40 - 1)),
    ),
    part("set", _set, path=any_string, data=fields.data, version=expected_version),
    part("remove", _remove, path=any_string, version=expected_version),
)
"""Their own fields; those of any write are beside them. They may also be operations of a multi."""

CHECK_PART: Final = part("check", _check, path=any_string, version=expected_version)
"""An operation that only a multi has."""

READS: Final[tuple[Fields[ZnodeQuery], ...]] = (
    Fields.of("read", ReadZnode, path=any_string),
    Fields.of("exists", ReadExists, path=any_string),
    Fields.of("children", ReadChildren, path=any_string),
    Fields.of("owners", ReadOwners, path=any_string),
    Fields.of("sync", ReadSync),
)
"""Their own fields; those of any read are beside them."""
