"""The identity of this process: its server and data directory, and the number of this start of it (D-1)."""

from __future__ import annotations

from attrs import frozen

from zraft_core.errors import ZraftError
from zraft_core.ids import Instance, ServerId


class CopiedDirectoryError(ZraftError):
    """Another process runs, or ran, with this data directory's identity (D-1), so this one must not go on."""


@frozen
class Identity:
    """The identity of this process.

    Attributes:
        server: the server.
        instance: random id of the data directory.
        boot: number of this start of the directory.
        boot_id: random id of this start.
        cluster: id of the cluster; None before the directory belongs to one.
    """

    server: ServerId
    instance: Instance
    boot: int
    boot_id: bytes
    cluster: bytes | None

    def copied(self, boot: int) -> CopiedDirectoryError:
        """Return the error to raise when `boot` of this very directory was registered, and not by this process."""
        return CopiedDirectoryError(
            f"server {self.server}: another process has registered boot {boot} of this data directory's instance "
            f"{self.instance.hex()}, and this process is boot {self.boot}: the directory is a copy, or was restored from "
            f"one. Stop this server, and start it with an empty directory (it will ask to be replaced)"
        )
