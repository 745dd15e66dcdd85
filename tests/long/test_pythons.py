"""Every supported release of Python has a piece, which says what is missing if there is no such interpreter."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from attrs import evolve

from tests.long import __main__ as command
from tests.long.pieces import PYTHONS, Piece, pieces
from tests.long.pythons import commands, find_python, requirements, without
from tests.long.record import Outcome, Record, Result
from tests.packaging.distributions import DISTRIBUTIONS, setup_cfg

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
NOWHERE = {"PATH": "", "PYENV_ROOT": "/nonexistent"}


def test_the_releases_are_those_that_packages_state() -> None:
    for distribution in DISTRIBUTIONS:
        stated = re.findall(r"Python :: (3\.\d+)$", setup_cfg(distribution)["metadata"]["classifiers"], re.M)
        assert tuple(stated) == PYTHONS
        assert setup_cfg(distribution)["options"]["python_requires"] == f">={PYTHONS[0]}"


def test_each_release_has_a_piece_that_needs_it() -> None:
    found = {piece.python: piece for piece in pieces("python", 17, Path("out")) if piece.python}
    assert tuple(found) == PYTHONS
    for release, piece in found.items():
        assert piece.name == f"python-{release}"
        assert f"--release {release} " in " ".join(piece.commands[0])


def test_the_interpreter_that_runs_this_is_found_and_one_that_is_not_there_is_not() -> None:
    assert find_python(OWN, NOWHERE) == Path(sys.executable)
    assert find_python("3.99", NOWHERE) is None
    assert without("3.99").startswith("no python3.99 on the PATH")


@pytest.mark.parametrize("folder", ["bin", "versions/3.98.1/bin"])
def test_an_interpreter_counts_only_if_it_works_and_is_of_that_release(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir(parents=True)
    env = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path)}
    program = place / "python3.98"
    for script, is_found in (("exit 127", False), ("echo 3.97", False), ("echo 3.98", True)):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        assert (find_python("3.98", env) == program) == is_found, script
    os.chmod(program, 0o644)
    assert find_python("3.98", env) is None


def test_a_piece_without_its_interpreter_is_told_and_is_no_failure(tmp_path: Path) -> None:
    piece = evolve(
        Piece("old", "It is tried.", ((sys.executable, "-c", "raise SystemExit(1)"),), 60), python="3.99"
    )
    record = Record(tmp_path)
    command.run_all((piece,), record, tmp_path)
    assert record.of("old") == Outcome(Result.CANNOT, said=without("3.99"))


def test_what_is_installed_is_what_packages_and_tests_need() -> None:
    found = requirements()
    assert {"attrs>=23.2", 'uvloop>=0.19; sys_platform != "win32"', "pytest>=8.4", "ruff>=0.5"} <= set(found)
    assert not [line for line in found if line.startswith(("zraft", "pyspark", "mypy"))]


def test_tests_and_seeds_begin_with_the_seed_of_the_run() -> None:
    lines = [" ".join(words) for words in commands("python", 17, 2)]
    assert "--seed 17" in lines[0]
    assert all("--start 17" in line for line in lines[1:])
    assert any("tests.simulation cluster" in line for line in lines)
