"""Following files that become damaged: told once, with its place; what is whole is followed on."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.followed import FOLLOWED, violations_in
from onyxlog.audits.source import directories
from onyxlog.audits.source.file_tables import SizedFile
from onyxlog.audits.source.follow import Following, follow
from onyxlog.audits.source.live_damage import SMALL_BYTES, LiveDamage
from onyxlog.audits.tables import TABLES
from tests.onyxlog.audits.conftest import age
from tests.onyxlog.audits.reading import chosen, rows_of
from tests.onyxlog.audits.test_damage import SERVED, flip, read_whole
from zraft.storage.filesystem import ReadOnlyFileSystem

FILES = next(one for one in FOLLOWED if one.table == "files")


def following(path: Path, table: str = "files") -> Following:
    options = chosen(path, table, entries="written", damage="stop")
    return follow(options, directories.find(options.paths, damaged_too=True))


def given(live: Following, path: Path, table: str, start: Any) -> tuple[Any, list[Any]]:
    """(where it ends, rows) of one batch, its offsets as Spark stores them. Damage counts at the second look."""
    live.latest(start, None)
    end = live.latest(start, None)
    rows = rows_of(chosen(path, table, entries="written", damage="stop"), live.pieces(start, end))
    live.done(end)
    return json.loads(json.dumps(end)), rows


def harmed(source: Path, tmp_path: Path, pattern: str, seed: str) -> tuple[Path, Path, int]:
    """(copy, victim, where)."""
    path = tmp_path / "harmed"
    shutil.copytree(source, path)
    rng = random.Random(seed)
    victim = rng.choice(sorted(path.glob(pattern)))
    at = flip(victim, rng)
    age(path)
    return path, victim, at


def expect_told_once(path: Path, victim: Path, at: int) -> None:
    live = following(path)
    start = live.initial()
    end, rows = given(live, path, "files", start)
    assert [row.file for row in rows] == [str(victim)]
    assert rows == [row for row in read_whole(path, "files") if row.damage is not None]
    assert rows[0].file_offset <= at
    (violation,) = violations_in(FILES, rows, ())
    assert (violation.rule, violation.file, violation.found) == ("S6", str(victim), rows[0].damage)
    assert given(live, path, "files", end) == (end, [])
    # A process that begins after a crash: the same batch again, and then nothing.
    assert rows_of(chosen(path, "files"), following(path).pieces(start, end)) == rows
    assert given(following(path), path, "files", end) == (end, [])


@pytest.mark.parametrize("kind", SERVED)
def test_damage_of_a_server_is_told_once_with_its_place(kind: str, served: Path, tmp_path: Path) -> None:
    expect_told_once(*harmed(served, tmp_path, SERVED[kind], f"live {kind}"))


def test_a_damaged_snapshot_is_told_once(generated: Path, tmp_path: Path) -> None:
    expect_told_once(*harmed(generated, tmp_path, "*/groups/0/snap/*.snap", "live snapshot"))


def test_a_damaged_recording_is_told_once(recorded: Path, tmp_path: Path) -> None:
    expect_told_once(*harmed(recorded, tmp_path, "*.onyx", "live recording"))


def test_two_damaged_files_of_a_kind_are_two_violations(served: Path, tmp_path: Path) -> None:
    path = tmp_path / "harmed"
    shutil.copytree(served, path)
    rng = random.Random("two of a kind")
    for journal in sorted(path.glob(SERVED["journal"]))[:2]:
        flip(journal, rng)
    age(path)
    live = following(path)
    _, rows = given(live, path, "files", live.initial())
    assert len(rows) == len(violations_in(FILES, rows, ())) == 2


def test_files_that_are_whole_are_never_told(served: Path, generated: Path, recorded: Path) -> None:
    for path in (served, generated, recorded):
        live = following(path)
        assert given(live, path, "files", live.initial()) == ({}, [])


def test_what_is_removed_between_two_looks_is_never_told(served: Path, tmp_path: Path) -> None:
    """A server that removes a partition: for a moment its manifest is gone and segments are not, and then all of it."""
    path = tmp_path / "removing"
    shutil.copytree(served, path)
    gone = sorted(path.glob("*/groups/*/deliveries"))[0]
    live = following(path)
    assert live.latest(live.initial(), None) == {}
    (gone / "manifest").unlink()
    assert live.latest({}, None) == {}, "seen once"
    shutil.rmtree(gone.parent)
    assert live.latest({}, None) == live.latest({}, None) == {}


def test_a_manifest_that_stays_away_is_told(served: Path, tmp_path: Path) -> None:
    path = tmp_path / "lost"
    shutil.copytree(served, path)
    lost = sorted(path.glob("*/groups/*/deliveries"))[0] / "manifest"
    lost.unlink()
    live = following(path)
    _, rows = given(live, path, "files", live.initial())
    assert [row.file for row in rows] == [str(lost)]


def test_what_is_damaged_when_it_comes_is_told_then(generated: Path, tmp_path: Path) -> None:
    path = tmp_path / "grows"
    shutil.copytree(generated, path)
    victim = sorted(path.glob("server-2/wal/*.seg"))[-1]
    held = victim.read_bytes()
    victim.unlink()
    age(path)
    live = following(path)
    end, rows = given(live, path, "files", live.initial())
    assert rows == []
    victim.write_bytes(held)
    flip(victim, random.Random(5))
    age(path)
    _, rows = given(live, path, "files", end)
    assert [row.file for row in rows] == [str(victim)]


@pytest.mark.parametrize("table", ["entries", "hard_states", "events", "deliveries"])
@pytest.mark.parametrize("kind", ["log", "journal", "deliveries", "manifest"])
def test_streams_give_what_is_whole_and_go_on(kind: str, table: str, served: Path, tmp_path: Path) -> None:
    path, victim, _ = harmed(served, tmp_path, SERVED[kind], f"on {kind}")
    live = following(path, table)
    end, rows = given(live, path, table, live.initial())
    sound = following(served, table)
    _, wanted = given(sound, served, table, sound.initial())
    assert wanted
    hurt = victim.relative_to(path).parts[0]

    def of(rows: list[Any], top: Path) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for row in rows:
            relative = Path(row.file).relative_to(top)
            plain = {c.name: getattr(row, c.name) for c in TABLES[table].columns if c.name != "file"}
            found.setdefault(relative.parts[0], []).append(plain)
        return found

    have, want = of(rows, path), of(wanted, served)
    for server in want.keys() - {hurt}:
        if table not in ("entries", "hard_states") or kind != "log":
            assert have[server] == want[server]
    for row in have.get(hurt, []):
        assert row in want[hurt], "nothing of what is damaged"
    assert given(live, path, table, end) == (end, []), "no error, and nothing twice"


def test_a_small_file_is_read_again_when_it_grew_and_a_large_one_when_it_grew_by_a_tenth(
    recorded: Path,
) -> None:
    live = LiveDamage(directories.find([str(recorded)]), ReadOnlyFileSystem())
    due = live._is_due

    def sizes(*sizes: int) -> list[bool]:
        return [due(SizedFile(str(sizes[0]), size)) for size in sizes]

    assert sizes(10, 10, 11, 12) == [True, False, True, True]
    large = 10 * SMALL_BYTES
    assert sizes(large, large + 1, int(1.1 * large) + 1) == [True, False, True]
