"""Check of the places for results, before hours of work go into them."""

from __future__ import annotations

import os
from pathlib import Path

from onyxlog.audits.errors import AuditError


def check_place(directory: Path, knob: str) -> None:
    """Check that a directory can be made, or written to if it exists. This makes nothing.

    Raises:
        AuditError: it cannot, as far as can be seen; the message names `knob`.
    """
    nearest = directory
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise AuditError(f"{knob}: {directory} cannot be made: {nearest} is no directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise AuditError(f"{knob}: {directory} cannot be made: {nearest} may not be written to")
