"""What is made from declarations is as the command makes it."""

from __future__ import annotations

import pytest

from tests.packaging.generated import GENERATED, ROOT


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_is_what_the_command_makes(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert GENERATED[path](text) == text, "run `make generated`"
