"""A soak goes on where it was, and says what grows; the soak itself is a command of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak.diary import Diary, Piece, Place
from tests.soak.samples import SAMPLES_MIN, Sample, Used, growing, growth, used_by

EVEN = Used(80_000_000, 50, 30_000_000)


def samples(count: int, last_files: int) -> list[Sample]:
    """A soak whose servers have more open files in its second half."""
    half = Used(EVEN.memory_bytes, last_files, EVEN.disk_bytes)
    return [Sample(5.0 * n, 1, (EVEN if n < count // 2 else half, EVEN), (2.0, 3.0)) for n in range(count)]


def test_what_stays_as_it_is_does_not_grow_and_what_grows_is_named() -> None:
    assert growing(samples(200, 50)) == []
    (found,) = growing(samples(200, 100))
    assert found == "open files: 1.50 times as much in the last quarter as in the second one"


def test_the_first_quarter_and_single_outliers_are_not_judged() -> None:
    points = [(float(n), 1.0 if n < 50 else 7.0) for n in range(200)]
    points[-1] = (199.0, 1_000.0)
    assert growth(points) == 1.0


def test_few_samples_say_nothing() -> None:
    assert growing(samples(SAMPLES_MIN - 1, 1_000)) == []


def test_a_soak_goes_on_after_its_last_whole_piece_and_uses_no_number_twice(tmp_path: Path) -> None:
    place = Place(tmp_path / "soak")
    assert place.read() is None
    diary = Diary(7, (20_000, 20_001)).begin()
    place.write(diary)
    place.add(samples(1, 50)[0])
    diary = diary.end(Piece(diary.begun, 60.0, ()))
    place.write(diary.begin())
    place.add(Sample(65.0, 2, (EVEN,), ()))
    with (tmp_path / "soak/samples.jsonl").open("a") as file:
        file.write('{"at_s": 70.0, "pie\n')  # it was killed here
    found = place.read()
    assert found is not None
    assert (found.begun, found.load_s, found.pieces) == (2, 60.0, (Piece(1, 60.0, ()),))
    assert [one.piece for one in place.samples(found)] == [1]


def test_a_process_that_runs_is_measured_and_one_that_is_gone_is_not(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_bytes(bytes(1_000))
    used = used_by(os.getpid(), tmp_path)
    assert used is not None
    assert used.memory_bytes > 1_000_000
    assert used.files >= 3
    assert used.disk_bytes == 1_000
    assert used_by(2**22 + 1, tmp_path) is None


@pytest.mark.parametrize("wrong", [(), ("S4 entry 3: expected a, found b",)])
def test_the_diary_keeps_what_was_wrong(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    place = Place(tmp_path)
    diary = Diary(1, (20_000,)).begin().end(Piece(1, 30.0, wrong))
    place.write(diary)
    assert place.read() == diary
