"""Errors of an audit that its user can mend."""

from __future__ import annotations

from onyxlog.errors import OnyxlogError


class AuditError(OnyxlogError):
    """An option, a path or the environment is not what an audit needs; the message says what was expected."""
