"""What operators bound of clients, as the parts of this room take it."""

from __future__ import annotations

from attrs import field, frozen

from zraft.server.clients.authentication.proofs import AuthSettings


@frozen
class ClientSettings:
    """Bounds per server; names as in the configuration's `client` section."""

    jute_maxbuffer: int = 0xFFFFF
    connections_max: int = 20_000
    output_bytes_max: int = 16 * 1024 * 1024
    output_bytes_per_address_max: int = 32 * 1024 * 1024
    output_bytes_sum_max: int = 64 * 1024 * 1024
    input_bytes_per_address_max: int = 16 * 1024 * 1024
    input_bytes_sum_max: int = 32 * 1024 * 1024
    unfinished_bytes_per_address_max: int = 16 * 1024 * 1024
    unfinished_bytes_sum_max: int = 32 * 1024 * 1024
    reply_bytes_max: int = 0xFFFFF
    auth: AuthSettings = field(factory=AuthSettings)
    read_only_mode_enabled: bool = False
    reconfig_enabled: bool = False
    watches_per_connection_max: int = 1_000_000
    connections_per_address_max: int = 0
    connects_per_second_max: int = 0
