"""Tests that documents name are there: a claim whose test was renamed or removed is a claim without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([a-z_/]+\.py)`, `(test_[a-z0-9_]+)`")


@pytest.mark.parametrize("document", ["THREATS.md"])
def test_every_test_that_a_document_names_exists(document: str) -> None:
    named = NAMED.findall((ROOT / "docs" / document).read_text())
    assert len(named) > 30
    missing = [
        (file, test)
        for file, test in named
        if not re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
