"""The cluster keys in force, read again when their files change: how the key is changed without a restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zraft.server.process.security.reloading import Reloading
from zraft.transport.keys import ClusterKey, read_keys


def cluster_keys(files: Sequence[Path]) -> Reloading[tuple[ClusterKey, ...]] | None:
    """Return the keys of these files, the sealing one first; None if there are no files: then there is no key.

    Files that cannot be used later change nothing, and are told to the log (`Reloading`).

    Raises:
        ConfigError: they cannot be used now.
    """
    if not files:
        return None
    return Reloading("cluster key", files, lambda _: read_keys(files))
