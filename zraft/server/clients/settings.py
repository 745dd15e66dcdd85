"""Bounds of clients that operators set, as the parts of this room take them."""

from __future__ import annotations

from attrs import field, frozen

from zraft.config.sections import ClientConfig
from zraft.server.clients.authentication.proofs import AuthSettings


@frozen(kw_only=True)
class ClientSettings(ClientConfig):
    """The knobs `client.…`, and who clients are."""

    auth: AuthSettings = field(factory=AuthSettings)
