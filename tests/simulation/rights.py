"""Owns the reference rules of ACLs: who may do what to a znode, and what an ACL that a client sends becomes.

Written anew for the simulator, from ZooKeeper's documentation of its ACLs, so that a mistake of `zraft_core.znodes.acl`
is not made twice. Only the schemes that the simulated clients use.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from typing import Final

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31

Ids = tuple[tuple[str, str], ...]
"""What a connection has proved: (scheme, id)."""

Acl = tuple[tuple[int, str, str], ...]
"""(permission bits, scheme, id)."""

OPEN: Final[Acl] = ((ALL, "world", "anyone"),)

ADDRESS_ID: Final = ("ip", "10.0.0.1")
"""The id that every simulated connection has from the beginning."""

SUPER_CREDENTIALS: Final = "super:boss"
"""Of the user who may do everything, in clusters of the simulator."""


def digest_of(credentials: str) -> str:
    """The id of "user:password" in scheme digest."""
    user, _, _ = credentials.partition(":")
    return f"{user}:{base64.b64encode(hashlib.sha1(credentials.encode()).digest()).decode()}"


def proved_by(credentials: str) -> Ids:
    """The ids that an `auth` request with these credentials adds."""
    own = ("digest", digest_of(credentials))
    return (("super", ""), own) if credentials == SUPER_CREDENTIALS else (own,)


def grants(acl: Acl, bits: int, ids: Ids) -> bool:
    """Whether any of `bits` is granted to a connection with these ids."""
    if any(scheme == "super" for scheme, _ in ids):
        return True
    return any(
        granted & bits and (scheme == "world" or any(_is_meant(scheme, who, own) for own in ids))
        for granted, scheme, who in acl
    )


def _is_meant(scheme: str, who: str, own: tuple[str, str]) -> bool:
    if own[0] != scheme:
        return False
    if scheme == "ip":
        return ipaddress.ip_address(own[1]) in ipaddress.ip_network(who, strict=False)
    return own[1] == who


def stored(acl: Acl | None, ids: Ids) -> Acl | None:
    """The ACL that a znode gets when a connection with these ids asks for `acl`; None if that is refused."""
    if acl is None:
        return OPEN
    result: list[tuple[int, str, str]] = []
    for bits, scheme, who in dict.fromkeys(acl):
        if scheme == "auth":
            proved = [(bits, *own) for own in ids if own[0] == "digest"]
            if not proved:
                return None
            result += proved
        elif scheme in ("world", "digest", "ip"):
            result.append((bits, scheme, who))
        else:
            return None
    return tuple(result) or None


def shown(acl: Acl, ids: Ids) -> Acl:
    """What getACL shows: hashes of passwords only to those who may change the ACL."""
    if grants(acl, ADMIN, ids):
        return acl
    return tuple(
        (bits, scheme, who.partition(":")[0] + ":x" if scheme == "digest" else who)
        for bits, scheme, who in acl
    )
