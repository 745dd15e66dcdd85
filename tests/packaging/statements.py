"""Counts the statements of each room at some commits, to see what a change to the structure brings.

    python -m tests.packaging.statements BASE HEAD

Statements are those of Python's syntax tree. Docstrings, comments and the length of lines do not count, so that text that
becomes clearer and code that is wrapped otherwise are no growth.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

import click

from tests.packaging.modules import REPOSITORY

DEEPER: Final = frozenset({"zraft", "zraft/server", "client", "bench", "tests"})
"""Folders that are no rooms but have some."""


def statements(source: str) -> int:
    """How many statements a module has. Strings that stand alone are docstrings, also those of attributes."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(ast.parse(source)))


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def room_of(path: str) -> str:
    """The folder of the room that a file is in: the nearest one to the top that is in `DEEPER` no more."""
    folders = PurePosixPath(path).parts[:-1]
    for depth in range(1, len(folders) + 1):
        room = "/".join(folders[:depth])
        if room not in DEEPER:
            return room
    return "/".join(folders) or "."


def files_of(commit: str) -> dict[str, str]:
    """Path to text of all Python files of a commit.

    Raises:
        click.ClickException: there is no such commit.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=REPOSITORY, capture_output=True, check=False
    )
    if archive.returncode:
        raise click.ClickException(f"{commit}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        found = ((member.name, tar.extractfile(member)) for member in tar if member.name.endswith(".py"))
        return {name: file.read().decode() for name, file in found if file is not None}


def rooms_of(commit: str) -> Counter[str]:
    """Statements of each room."""
    rooms: Counter[str] = Counter()
    for path, text in files_of(commit).items():
        rooms[room_of(path)] += statements(text)
    return rooms


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("commits", nargs=-1, required=True)
def main(commits: tuple[str, ...]) -> None:
    """Show the statements of each room at COMMITS, in a column each."""
    columns = [rooms_of(commit) for commit in commits]
    rows = {room: [column[room] for column in columns] for room in sorted(set().union(*columns))}
    tests = [sum(column[room] for room in rows if room.startswith("tests")) for column in columns]
    every = [column.total() for column in columns]
    product = [a - b for a, b in zip(every, tests, strict=True)]
    rows |= {"all of the product": product, "all of tests": tests, "all": every}
    _show("", commits)
    for name, numbers in rows.items():
        _show(name, numbers)


def _show(name: str, cells: Iterable[object]) -> None:
    click.echo(f"{name:32}" + "".join(f"{cell!s:>12}" for cell in cells))


if __name__ == "__main__":
    main()
