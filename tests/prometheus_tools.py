"""Where `promtool` and `prometheus` are: Debian's package `prometheus` has both, and `.ci/setup` unpacks them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
RULES: Final = ROOT / "deploy" / "prometheus" / "zraft.rules.yml"


def find_tool(name: str) -> str:
    """The program `name`, of this environment or of the system; skips the test, with what to do, if there is none."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: run .ci/setup, or install Debian's package `prometheus`")
    return found
