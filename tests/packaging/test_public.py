"""Public names are declared and told of, and none goes without being noticed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest

from tests.documents.blocks import DOCUMENTS, Way, blocks_of
from tests.packaging.modules import REPOSITORY, ROOTS
from tests.packaging.public import MODULES, NAMES, exported, public_names

STABILITY = REPOSITORY / "docs" / "reference" / "stability.md"


def test_no_public_name_goes_unnoticed() -> None:
    committed, found = NAMES.read_text().splitlines(), public_names()
    gone = sorted(set(committed) - set(found))
    assert gone == [], (
        "users may rely on these names. Keep them for one minor release, with a DeprecationWarning "
        "(docs/reference/stability.md); if that is over, or they were never released, run `make generated`"
    )
    assert committed == found, "new public names: run `make generated`"


@pytest.mark.parametrize("module", MODULES)
def test_a_public_module_declares_its_names_in_order_and_says_what_each_is(module: str) -> None:
    names = exported(module)
    assert list(names) == sorted(set(names))
    mute = [
        name
        for name, value in names.items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and not value.__doc__
    ]
    assert mute == []


def test_the_document_names_exactly_the_public_modules() -> None:
    rows = [line for line in STABILITY.read_text().splitlines() if line.startswith("| `")]
    named = [row.split("`")[1] for row in rows]
    assert [name for name in named if name.partition(".")[0] in ROOTS] == sorted(MODULES)


def imports_of_users() -> Iterator[tuple[str, str, str]]:
    """(place, module, name) of what the examples import of ours: those of the documents, and those in `examples`."""
    texts = {
        str(block): block.text
        for document in DOCUMENTS
        for block in blocks_of(document)
        if block.language == "python"
        and block.way in (Way.PYTHON, Way.FILE)
        and document.stem.lower() != "simulation"  # for those who work on zraft
    }
    for file in (REPOSITORY / "examples").rglob("*.py"):
        texts[file.relative_to(REPOSITORY).as_posix()] = file.read_text()
    for place, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ROOTS:
                yield from ((place, node.module or "", alias.name) for alias in node.names)


def test_examples_import_public_names_only() -> None:
    found = list(imports_of_users())
    assert len(found) > 20
    wrong = [
        (place, module, name)
        for place, module, name in found
        if f"{module}.{name}" not in MODULES and (module not in MODULES or name not in exported(module))
    ]
    assert wrong == []
