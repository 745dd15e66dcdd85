"""Who this process is: the data directory's identity, and this start of it (D-1)."""

from __future__ import annotations

from attrs import frozen

from zraft_core.errors import ZraftError
from zraft_core.ids import Instance, ServerId


class CopiedDirectoryError(ZraftError):
    """Another process runs, or ran, with this data directory's identity (D-1): this one must not go on."""


@frozen
class Identity:
    """`boot` numbers the starts of this directory, `boot_id` is random for each; `cluster`: None before it has one."""

    server: ServerId
    instance: Instance
    boot: int
    boot_id: bytes
    cluster: bytes | None

    def copied(self, boot: int) -> CopiedDirectoryError:
        """The error to raise: `boot` of this very directory was registered, and not by this process."""
        return CopiedDirectoryError(
            f"server {self.server}: another process has registered boot {boot} of this data directory's instance "
            f"{self.instance.hex()}, and this process is boot {self.boot}: the directory is a copy, or was restored from "
            f"one. Stop this server, and start it with an empty directory (it will ask to be replaced)"
        )
