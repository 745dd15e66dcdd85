"""What an audit raises when it cannot be done; what it finds are violations, never errors."""

from __future__ import annotations

from onyxlog.errors import OnyxlogError


class AuditError(OnyxlogError):
    """The audit cannot be run as asked: an input is missing or is not what it has to be, or Spark cannot start."""
