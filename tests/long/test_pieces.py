"""Nothing that takes long is left out of `.ci/long`, and its pieces fit into its runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.long.pieces import FOLDERS, RUN_S_MAX, Piece, long_tests_of, piece_of, pieces
from tests.packaging.modules import REPOSITORY
from tests.simulation.scenarios import SCENARIOS


def all_pieces() -> tuple[Piece, ...]:
    return pieces("python", 17, Path("out"))


def command_lines(*, marked: str = "") -> list[str]:
    lines = [" ".join(words) for piece in all_pieces() for words in piece.commands]
    return [line for line in lines if marked in line]


def test_every_piece_fits_into_a_run_of_two_hours() -> None:
    assert RUN_S_MAX == 2 * 3_600
    assert all(piece.bound_s <= RUN_S_MAX / 4 for piece in all_pieces())


def test_names_are_different_and_said_in_a_sentence() -> None:
    names = [piece.name for piece in all_pieces()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Z].*\.", piece.about) for piece in all_pieces())


@pytest.mark.parametrize(
    ("path", "piece"),
    [
        ("tests/sim/test_power_cuts.py", "power-cuts"),
        ("tests/sim/test_groups.py", "computed"),
        ("tests/onyxlog/test_word_count.py", "peers"),
        ("tests/onyxlog/audits/test_killed_audit.py", "audits"),
        ("tests/images/test_containers.py", "images"),
        ("tests/a_new_folder/test_something.py", "other-tests"),
    ],
)
def test_a_long_test_is_of_the_piece_that_names_its_folder_most_closely(path: str, piece: str) -> None:
    assert piece_of(path) == piece
    selecting = []
    for name in FOLDERS:
        words = long_tests_of(name)
        ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
        taken = [folder for folder in FOLDERS[name] if path == folder or path.startswith(f"{folder}/")]
        if taken and not [folder for folder in ignored if path == folder or path.startswith(f"{folder}/")]:
            selecting.append(name)
    assert selecting == [piece]


def test_every_folder_that_is_named_is_there_and_has_its_piece() -> None:
    assert set(FOLDERS) <= {piece.name for piece in all_pieces()}
    for folders in FOLDERS.values():
        for folder in folders:
            assert (REPOSITORY / folder).exists(), folder


def test_what_is_not_marked_long_but_no_part_of_a_usual_run_has_its_piece() -> None:
    for mark in ("compat", "chaos"):
        assert len(command_lines(marked=f"-m {mark} tests")) == 1


def test_every_coroutine_test_runs_on_uvloop() -> None:
    """Where the usual run leaves that out, which is for tests with real processes, its piece does it."""
    (line,) = command_lines(marked="--every-loop")
    assert "-m processes and not long " in line
    assert line.endswith(" tests")


def test_every_simulator_and_the_fuzzer_run_with_fresh_seeds_and_planted_bugs() -> None:
    assert len(SCENARIOS) >= 6
    for name in SCENARIOS:
        fresh = command_lines(marked=f"tests.simulation {name} --seeds")
        assert fresh
        assert all("--start 17 " in line for line in fresh)
        assert command_lines(marked=f"tests.simulation {name} --planted all")
    assert command_lines(marked="tests.simulation controls")
    assert command_lines(marked="tests.fuzz --seed 17")


def test_tests_draw_from_the_seed_that_the_run_prints() -> None:
    for line in command_lines(marked="-m pytest"):
        assert "--seed 17" in line
