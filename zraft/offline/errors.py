"""What keeps an offline command from doing its work."""

from __future__ import annotations

from zraft_core.errors import ZraftError


class OfflineError(ZraftError):
    """A state cannot be read, or no cluster can be founded with it; the message says what to do."""
