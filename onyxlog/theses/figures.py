"""The file of published figures."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, Final

FIGURES: Final[dict[str, Any]] = tomllib.loads(
    (files("onyxlog.theses") / "figures.toml").read_text(encoding="utf-8")
)
"""The figures by thesis: `zatt`, `atomic_kafka`, `gossip`."""
