"""The forty traps themselves: each has its one test, and the table for users names the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "reference" / "compatibility.md"
NUMBERS = list(range(1, 41))


def _tests() -> list[tuple[int, str]]:
    """(number, name) of every test here whose docstring begins with "Trap N:"."""
    found = []
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                trap = re.match(r"Trap (\d+): \S", ast.get_docstring(node) or "")
                if trap:
                    found.append((int(trap[1]), f"{file.stem}.{node.name}"))
    return sorted(found)


def test_each_trap_has_exactly_one_test() -> None:
    assert [number for number, _ in _tests()] == NUMBERS


def test_table_for_users_names_the_test_of_each_trap() -> None:
    """A row is `| number | claim | file, test |`; docs/reference/compatibility.md, "Forty traps"."""
    section = TABLE.read_text().partition("## Forty traps\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| \S.* \| `(\w+)`, `(\w+)` \|$", section, re.MULTILINE)
    assert [(int(number), f"{file}.{name}") for number, file, name in rows] == _tests()
