"""The error of servers inside a test."""

from __future__ import annotations

from zraft_core.errors import ZraftError


class ZraftTestError(ZraftError):
    """A server inside a test cannot do what the test asks for."""
