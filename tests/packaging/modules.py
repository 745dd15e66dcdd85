"""Which modules the product has and what each imports, read from the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
ROOTS: Final = {
    "onyxlog": REPOSITORY / "onyxlog",
    "zraft": REPOSITORY / "zraft",
    "zraft_bench": REPOSITORY / "bench" / "zraft_bench",
    "zraft_client": REPOSITORY / "client" / "zraft_client",
    "zraft_core": REPOSITORY / "client" / "zraft_core",
}
"""The import packages of the product, and where each stands."""


def sources() -> dict[str, Path]:
    """Module name to file, for the whole product."""
    found = {}
    for root in ROOTS.values():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def folder_of(package: str) -> Path:
    root, *rest = package.split(".")
    return ROOTS[root].joinpath(*rest)


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names imported anywhere, also inside functions; `from a.b import c` gives a.b.c."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Relative imports would hide the layer from this test and from a reader.
            assert node.level == 0, f"relative import of {node.module} in line {node.lineno}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names_used_of(tree: ast.AST, module: str) -> Iterator[ast.Attribute]:
    """Every `module.name` in the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            yield node
