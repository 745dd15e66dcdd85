"""Identity of a client: its proofs by `auth` and `sasl` requests, and the ids that these give it.

Ids accumulate on a connection and end with it; clients send them again when they reconnect. Pure.
Source: ZooKeeper's `DigestAuthenticationProvider` and `IPAuthenticationProvider`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from attrs import field, frozen

from zraft_core.wire.requests import Credentials
from zraft_core.znodes.acl import SUPER, Ids

IDS_MAX: Final = 64
"""Ids of one connection: they travel with each of its writes."""


@frozen
class AuthSettings:
    """Settings of authentication: superusers, SASL users, and what clients must prove.

    `super_digest` is "user:base64(sha1(user:password))", as ZooKeeper's superDigest; `super_user` a user of SASL.
    `users` gives the SASL users of now, passwords by name; None: there is no SASL. Connections serve only clients that
    have proved an id of one of `required_schemes`, if there are any.
    """

    super_digest: str | None = field(default=None, repr=False)
    super_user: str | None = None
    users: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    required_schemes: frozenset[str] = frozenset()


def digest_id(credentials: bytes) -> str:
    """Return the id of "user:password", which is shown in ACLs and stored in the log; the password is not."""
    user = credentials.partition(b":")[0].decode(errors="replace")
    return f"{user}:{base64.b64encode(hashlib.sha1(credentials, usedforsecurity=False).digest()).decode()}"


def proved_ids(offer: Credentials, ids: Ids, settings: AuthSettings) -> Ids | None:
    """Return the connection's ids after this request, or None if it proves nothing: then the connection ends.

    Any digest credentials are accepted, as in ZooKeeper: they are compared with ACLs, not with a list of users.
    """
    new: list[tuple[str, str]] = []
    if offer.scheme == "digest" and offer.auth is not None:
        who = digest_id(offer.auth)
        if settings.super_digest is not None and hmac.compare_digest(
            who.encode(), settings.super_digest.encode()
        ):
            new.append((SUPER, ""))
        new.append(("digest", who))
    elif offer.scheme != "ip":  # its address is known without asking
        return None
    return with_ids(ids, new)


def logged_in_ids(user: str, ids: Ids, settings: AuthSettings) -> Ids | None:
    """Return the connection's ids after this user logged in by SASL; None if they become too many."""
    new = [("sasl", user)]
    if user == settings.super_user:
        new.append((SUPER, ""))
    return with_ids(ids, new)


def meets(ids: Ids, required_schemes: frozenset[str]) -> bool:
    """Return whether a client with these ids has proved one of the required schemes, or may do everything."""
    return any(scheme in required_schemes or scheme == SUPER for scheme, _ in ids)


def with_ids(ids: Ids, new: list[tuple[str, str]]) -> Ids | None:
    """Return `ids` and `new` without duplicates; None if they become too many."""
    merged = tuple(dict.fromkeys((*ids, *new)))
    return merged if len(merged) <= IDS_MAX else None
