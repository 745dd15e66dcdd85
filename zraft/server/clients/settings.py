"""What operators bound of clients, as the parts of this room take it."""

from __future__ import annotations

from attrs import field, frozen

from zraft.config.sections import ClientConfig
from zraft.server.clients.authentication.proofs import AuthSettings


@frozen(kw_only=True)
class ClientSettings(ClientConfig):
    """The knobs `client.…`, and who clients are."""

    auth: AuthSettings = field(factory=AuthSettings)
