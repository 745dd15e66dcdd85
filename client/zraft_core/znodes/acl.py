"""Access control of znodes: checks of ACLs, and one stored copy of equal ones.

Source: ZooKeeper's `fixupACL` and `checkACL`.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Any, Final

from zraft_core.errors import Code

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31

Acl = tuple[tuple[int, str, str], ...]
"""(permission bits, scheme, id) in the client's order, without duplicates, never empty."""

Ids = tuple[tuple[str, str], ...]
"""The (scheme, id) pairs that a connection has proved."""

OPEN_ACL: Final[Acl] = ((ALL, "world", "anyone"),)
"""The ACL of nearly every znode. The table hands out this very object, so that `is` decides the common case."""

READ_ONLY_ACL: Final[Acl] = ((READ, "world", "anyone"),)

SUPER: Final = "super"
"""Scheme of the one id that may do everything; no ACL names it, a connection has it or not."""

OF_OPERATORS: Final[Ids] = ((SUPER, ""),)
"""The ids of commands of operators that ACLs must not stop."""

PROVED_SCHEMES: Final = frozenset({"digest", "sasl", "x509"})
"""Ids that somebody had to prove. "auth" in an ACL stands for these."""

_INT32_MAX: Final = 2**31 - 1


@lru_cache(
    maxsize=1024
)  # a pure function; ACLs name few networks, and the check runs for every guarded operation
def _network(text: str) -> tuple[int, int, int] | None:
    """Return (IP version, prefix, bits to drop) of "address" or "address/bits"; None if it is neither."""
    address, slash, bits = text.partition("/")
    if "%" in address:
        return None
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    length = ip.max_prefixlen
    if slash:
        if not (bits.isascii() and bits.isdigit() and len(bits) <= 3 and int(bits) <= length):
            return None
        drop = length - int(bits)
    else:
        drop = 0
    return ip.version, int(ip) >> drop, drop


@lru_cache(maxsize=4096)
def _address(text: str) -> tuple[int, int] | None:
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return ip.version, int(ip)


def _ip_matches(network_text: str, address_text: str) -> bool:
    network, address = _network(network_text), _address(address_text)
    if network is None or address is None:
        return False
    version, prefix, drop = network
    return version == address[0] and prefix == address[1] >> drop


def are_ids(ids: Any) -> bool:
    """Return whether this is a valid list of ids, as a run gives for its connection."""
    if ids.__class__ is not tuple:
        return False
    for pair in ids:
        if pair.__class__ is not tuple or len(pair) != 2:
            return False
        if pair[0].__class__ is not str or pair[1].__class__ is not str:
            return False
    return True


def permits(acl: Acl, permission: int, ids: Ids) -> bool:
    """Return whether `acl` grants any bit of `permission` to a connection with these ids.

    The id "super" is granted everything.
    """
    if acl is OPEN_ACL:
        return True
    for bits, scheme, who in acl:
        if bits & permission:
            if scheme == "world":
                return True
            for proved_scheme, proved in ids:
                if proved_scheme == scheme and (
                    _ip_matches(who, proved) if scheme == "ip" else who == proved
                ):
                    return True
    return is_super(ids)


def is_super(ids: Ids) -> bool:
    """Return whether these ids may do everything."""
    return any(scheme == SUPER for scheme, _ in ids)


def user_of(scheme: str, who: str) -> str | None:
    """Return whom an id names when it is shown to anybody, never the hash of a password; None for "super"."""
    if scheme == "digest":
        return who.partition(":")[0]
    return None if scheme == SUPER else who


def checked_acl(acl: Any, ids: Ids) -> Acl | Code:
    """Return the ACL that a create or setACL asks for.

    It is without duplicates, and "auth" is replaced by the caller's ids.

    Returns:
        INVALID_ACL for an empty list, an unknown scheme or a bad id, or "auth" of a caller who has proved nothing
        (an address is no proof); MARSHALLING_ERROR if it is no ACL.
    """
    if acl.__class__ is not tuple:
        return Code.MARSHALLING_ERROR
    for entry in acl:
        if entry.__class__ is not tuple or len(entry) != 3:
            return Code.MARSHALLING_ERROR
        bits, scheme, who = entry
        if bits.__class__ is not int or scheme.__class__ is not str or who.__class__ is not str:
            return Code.MARSHALLING_ERROR
        if not -_INT32_MAX - 1 <= bits <= _INT32_MAX:
            return Code.MARSHALLING_ERROR
    if not acl:
        return Code.INVALID_ACL
    checked: list[tuple[int, str, str]] = []
    for bits, scheme, who in dict.fromkeys(acl):
        if scheme == "auth":
            proved = [(bits, *pair) for pair in ids if pair[0] in PROVED_SCHEMES]
            if not proved:
                return Code.INVALID_ACL
            checked += proved
        elif _is_valid_id(scheme, who):
            checked.append((bits, scheme, who))
        else:
            return Code.INVALID_ACL
    return tuple(checked)


def _is_valid_id(scheme: str, who: str) -> bool:
    match scheme:
        case "world":
            return who == "anyone"
        case "ip":
            return _network(who) is not None
        case "digest":
            # Java's split, which decides in ZooKeeper, drops an empty part at the end, not at the start.
            return who.count(":") == 1 and not who.endswith(":")
        case "sasl" | "x509":
            return who != ""
    return False


class AclTable:
    """Equal ACLs are stored once, for as long as a znode has them."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        self._users: dict[Acl, tuple[Acl, int]] = {}

    def __len__(self) -> int:
        return len(self._users)

    def hold(self, acl: Acl) -> Acl:
        """Return the shared object equal to `acl`; one `release` is owed."""
        if acl == OPEN_ACL:
            return OPEN_ACL
        shared, users = self._users.get(acl, (acl, 0))
        self._users[shared] = (shared, users + 1)
        return shared

    def release(self, acl: Acl) -> None:
        """Give up one use of an ACL; the last use removes it."""
        if acl is OPEN_ACL:
            return
        shared, users = self._users[acl]
        if users == 1:
            del self._users[acl]
        else:
            self._users[acl] = (shared, users - 1)
