"""Directory for what outlives this user's commands: XDG's directory for state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return `zraft` in XDG's directory for state, which need not exist.

    A relative XDG_STATE_HOME is ignored, as it must be.

    Raises:
        RuntimeError: XDG_STATE_HOME is not set, and nobody knows this user's home directory.
    """
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "zraft"
