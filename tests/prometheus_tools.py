"""Where the programs are that check what is in deploy/: `promtool`, `prometheus` and `systemd-analyze`.

`.ci/setup` fetches them from Debian.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
RULES: Final = ROOT / "deploy" / "prometheus" / "zraft.rules.yml"


def find_tool(name: str, package: str = "prometheus") -> str:
    """The program `name`, of this environment or of the system; skips the test, with what to do, if there is none."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: run .ci/setup, or install Debian's package `{package}`")
    return found
