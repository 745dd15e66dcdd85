"""The error of an offline command that cannot do its work."""

from __future__ import annotations

from zraft_core.errors import ZraftError


class OfflineError(ZraftError):
    """A state cannot be read, or no cluster can be created from it; the message says what to do."""
