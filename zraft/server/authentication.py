"""Who a client is: what it proves with `auth` requests, and the ids that it has from then on.

Ids accumulate on a connection and end with it; clients send them again when they reconnect. Pure.
Source: ZooKeeper's `DigestAuthenticationProvider` and `IPAuthenticationProvider`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from attrs import field, frozen

from zraft.tree.acl import SUPER, Ids
from zraft.wire.requests import Auth

IDS_MAX: Final = 64
"""Ids of one connection: they travel with each of its writes."""


@frozen
class AuthSettings:
    """Who may do everything: `super_digest` is "user:base64(sha1(user:password))", as ZooKeeper's superDigest."""

    super_digest: str | None = field(default=None, repr=False)


def digest_id(credentials: bytes) -> str:
    """The id of "user:password", which is shown in ACLs and stored in the log; the password is not."""
    user = credentials.partition(b":")[0].decode(errors="replace")
    return f"{user}:{base64.b64encode(hashlib.sha1(credentials, usedforsecurity=False).digest()).decode()}"


def proved_ids(offer: Auth, ids: Ids, settings: AuthSettings) -> Ids | None:
    """The connection's ids after this request, or None if it proves nothing: then the connection ends.

    Any digest credentials are accepted, as in ZooKeeper: they are compared with ACLs, not with a list of users.
    """
    new: list[tuple[str, str]] = []
    if offer.scheme == "digest":
        who = digest_id(offer.auth)
        if settings.super_digest is not None and hmac.compare_digest(
            who.encode(), settings.super_digest.encode()
        ):
            new.append((SUPER, ""))
        new.append(("digest", who))
    elif offer.scheme != "ip":  # its address is known without asking
        return None
    return with_ids(ids, new)


def with_ids(ids: Ids, new: list[tuple[str, str]]) -> Ids | None:
    """`ids` and `new` without duplicates; None if they become too many."""
    merged = tuple(dict.fromkeys((*ids, *new)))
    return merged if len(merged) <= IDS_MAX else None
