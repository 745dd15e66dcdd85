"""Tests of the command line get no settings of the terminal in which they run."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("ZRAFT_"):
            monkeypatch.delenv(name)
