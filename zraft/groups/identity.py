"""Who this process is: the data directory's identity, and this start of it (D-1)."""

from __future__ import annotations

from attrs import frozen

from zraft_core.ids import Instance, ServerId


@frozen
class Identity:
    """`boot` numbers the starts of this directory, `boot_id` is random for each; `cluster`: None before it has one."""

    server: ServerId
    instance: Instance
    boot: int
    boot_id: bytes
    cluster: bytes | None
