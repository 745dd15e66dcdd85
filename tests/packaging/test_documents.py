"""Tests that documents name are there: a claim whose test was renamed or removed is a claim without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAIR = re.compile(r"`([a-z_/]+\.py)`, `(test_[a-z0-9_]+)`")
"""`unit/tree/test_acl.py`, `test_name`: relative to tests/."""

NODE_ID = re.compile(r"`tests/([a-z_/]+\.py)::(test_[a-z0-9_]+)`")
"""As pytest takes it."""


@pytest.mark.parametrize(
    ("document", "form", "least"),
    [
        ("THREATS.md", PAIR, 30),
        ("ZATT.md", NODE_ID, 15),
        ("ONYXLOG.md", NODE_ID, 5),
        ("CLAIMS.md", NODE_ID, 30),
        ("KAFKALITE.md", NODE_ID, 12),
    ],
)
def test_every_test_that_a_document_names_exists(document: str, form: re.Pattern[str], least: int) -> None:
    named = form.findall((ROOT / "docs" / document).read_text())
    assert len(named) > least
    missing = [
        (file, test)
        for file, test in named
        if not re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


FILE = re.compile(r"\btests/[a-z0-9_/]+\.py\b")
"""A file of tests, wherever it stands: alone, in a command, in front of a test."""


def test_every_file_of_tests_that_a_document_names_exists() -> None:
    named = {
        (document.name, file)
        for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for file in FILE.findall(document.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert not [(document, file) for document, file in sorted(named) if not (ROOT / file).is_file()]
