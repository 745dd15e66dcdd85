"""Data directories that the shipped consensus, log and state have written, made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onyxlog.audits.generating import Generator, Scenario

COMMANDS = 3_000
SCENARIO = Scenario(COMMANDS, batch=20, elections=3, snapshots=2, seed=5, segment_bytes=32 << 10)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three servers; nobody changes them."""
    path = tmp_path_factory.mktemp("generated")
    generator = Generator(str(path), SCENARIO)
    generator.run()
    generator.close()
    age(path)
    return path


def age(path: Path) -> None:
    """As if the last write was long ago, so that it counts as durable."""
    for segment in path.rglob("*.seg"):
        os.utime(segment, (1, 1))
