"""Damaged files: each is a violation with its place, and no other rule takes what is missing for broken."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from onyxlog.audits.errors import AuditError
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.damage import Damaged, damaged
from onyxlog.audits.rules.log_integrity import FILES
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.source import directories
from onyxlog.audits.source.plan import plan
from onyxlog.audits.tables import TABLES
from onyxlog.audits.tables.events import EventRow
from tests.onyxlog.audits.conftest import age
from tests.onyxlog.audits.reading import chosen, rows_of
from tests.onyxlog.audits.sound import sound
from zraft.checkers.history import Kind, Operation, Outcome, encode, heading
from zraft.storage.errors import CorruptionError

Harm = Callable[[Path, random.Random], int]
"""Harms a file; the offset at or before which that must be noticed."""


def flip(path: Path, rng: random.Random) -> int:
    """One bit, not in what follows the last record."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data.rstrip(b"\0")) * 2 // 3)
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return at


def flip_at(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data.rstrip(b"\0")) * share)] ^= 1
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> int:
    """The end is gone; of a file whose end is known that is damage."""
    data = path.read_bytes()
    at = rng.randrange(1, len(data.rstrip(b"\0")) - 16)
    path.write_bytes(data[:at])
    return at


def read_whole(path: Path, table: str, **given: str) -> list[Any]:
    options = chosen(path, table, damage="stop", **given)
    return rows_of(options, plan(options, directories.find(options.paths, damaged_too=True)))


def found_in(path: Path) -> list[Violation]:
    """What all rules find, of tables as an audit reads them."""
    tables = {name: read_whole(path, name, entries="written", payloads="true") for name in TABLES}
    tables["entry_payloads"] = read_whole(path, "entries", entries="live", payloads="true", group="0")
    left = damaged(tables["files"])
    for name in ("events", "histories"):
        tables[name] = [row for row in tables[name] if left.keeps(row)]
    return [one for rule in RULES.values() for one in rule.judged(tables)]


def expect_one(path: Path, victim: Path, at: int) -> Violation:
    found = found_in(path)
    assert [(one.rule, one.promise, one.file) for one in found] == [("S6", FILES, str(victim))], "\n".join(
        one.line() for one in found
    )
    assert found[0].offset is not None
    assert found[0].offset <= at
    assert found[0].expected
    assert found[0].found
    return found[0]


def harmed(source: Path, tmp_path: Path, pattern: str, harm: Harm, rng: random.Random) -> Violation:
    path = tmp_path / "harmed"
    shutil.copytree(source, path)
    victim = rng.choice(sorted(path.glob(pattern)))
    at = harm(victim, rng)
    age(path)
    return expect_one(path, victim, at)


SERVED = {
    "log": "*/wal/*.seg",
    "journal": "*/journal/*.jnl",
    "deliveries": "*/groups/*/deliveries/*.seg",
    "manifest": "*/groups/*/deliveries/manifest",
    "meta": "*/meta",
}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kind", SERVED)
def test_a_flipped_bit_of_a_server_is_one_violation(
    kind: str, number: int, served: Path, tmp_path: Path
) -> None:
    found = harmed(served, tmp_path, SERVED[kind], flip, random.Random(f"{kind} {number}"))
    if kind == "meta":
        assert found.server is None, "nobody can say whose it was"
        return
    assert found.server in (1, 2, 3)
    if kind in ("deliveries", "manifest"):
        assert f"/groups/{found.group}/" in found.file


@pytest.mark.parametrize("kind", ["deliveries", "manifest", "meta"])
def test_a_file_that_lost_its_end_is_one_violation(kind: str, served: Path, tmp_path: Path) -> None:
    """Logs and journals may end anywhere: that is what a crash does."""
    harmed(served, tmp_path, SERVED[kind], cut, random.Random(kind))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["snapshot", "log"])
def test_logs_with_truncations_and_snapshots_are_judged_as_far_as_they_are_whole(
    kind: str, number: int, generated: Path, tmp_path: Path
) -> None:
    pattern = {"snapshot": "*/groups/0/snap/*.snap", "log": "*/wal/*.seg"}[kind]
    harmed(generated, tmp_path, pattern, flip, random.Random(f"{kind} {number}"))


def test_a_log_that_lost_the_end_of_a_segment_in_its_middle_is_one_violation(
    generated: Path, tmp_path: Path
) -> None:
    first = sorted((generated / "server-2/wal").iterdir())[0]
    harmed(generated, tmp_path, f"server-2/wal/{first.name}", cut, random.Random(1))


@pytest.mark.parametrize("number", range(4))
def test_a_flipped_bit_of_a_recording_is_one_violation(number: int, recorded: Path, tmp_path: Path) -> None:
    found = harmed(recorded, tmp_path, "*.onyx", flip, random.Random(f"recording {number}"))
    assert found.server is None


def operations(path: Path, count: int) -> None:
    """A history in which each read is of what was written before."""
    lines = [heading(1, 7)]
    for number in range(count):
        common: dict[str, Any] = {
            "client": 1,
            "session": 5,
            "server": 1,
            "path": "/k",
            "outcome": Outcome.OK,
            "code": 0,
        }
        at = 10 * number
        if number % 2:
            more: dict[str, Any] = {"kind": Kind.SYNC_GET, "value": f"v{number - 1}", "version": number // 2}
        else:
            more = {"kind": Kind.SET, "value": f"v{number}", "version": number // 2}
        lines.append(encode(Operation(**common, **more, invoked_us=at, returned_us=at + 5, zxid=number + 1)))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("line", [0, 4])
def test_a_history_that_cannot_be_read_is_one_violation_and_judges_nobody(line: int, tmp_path: Path) -> None:
    """Without its line 4 a value is read that nobody has written."""
    for client in (1, 2):
        operations(tmp_path / f"client-00{client}.jsonl", 12)
    victim = tmp_path / "client-001.jsonl"
    lines = victim.read_bytes().splitlines(keepends=True)
    at = sum(map(len, lines[:line]))
    lines[line] = lines[line].replace(b'"record"', b'"rec\xffrd"')
    victim.write_bytes(b"".join(lines))
    one = expect_one(tmp_path, victim, at)
    assert one.offset == at
    tables = {"histories": read_whole(tmp_path, "histories"), "files": read_whole(tmp_path, "files")}
    assert not damaged(tables["files"]).keeps(tables["histories"][0])


def test_who_reads_a_damaged_file_by_itself_is_told_so(served: Path, tmp_path: Path) -> None:
    """The default: an error with the place."""
    path = tmp_path / "harmed"
    shutil.copytree(served, path)
    victim = sorted(path.glob(SERVED["deliveries"]))[0]
    flip_at(victim, 0.6)
    options = chosen(path, "deliveries")
    with pytest.raises(CorruptionError, match=str(victim)):
        rows_of(options, plan(options, directories.find(options.paths)))
    meta = sorted(path.glob("*/meta"))[0]
    flip_at(meta, 0.5)
    with pytest.raises(AuditError, match=str(meta)):
        directories.find([str(path)])


def test_a_segment_that_is_missing_is_no_end_of_what_was_delivered(served: Path, tmp_path: Path) -> None:
    path = tmp_path / "short"
    shutil.copytree(served, path)
    victim = sorted(path.glob(SERVED["deliveries"]))[0]
    victim.unlink()
    options = chosen(path, "deliveries")
    with pytest.raises(CorruptionError, match=f"{victim}.*the file is missing"):
        rows_of(options, plan(options, directories.find(options.paths)))
    options = chosen(path, "deliveries", damage="stop")
    whole = {row.file for row in rows_of(options, plan(options, directories.find(options.paths)))}
    assert {one for one in path.glob(SERVED["deliveries"]) if one.parent != victim.parent} <= set(
        map(Path, whole)
    )
    (found,) = (row for row in read_whole(path, "files") if row.damage is not None)
    assert found.file == str(victim)


def test_notes_of_a_boot_end_where_its_journal_is_damaged() -> None:
    names = [f"/d/journal/0000000002-00000{n}.jnl" for n in (1, 2, 3)] + ["/d/journal/0000000003-000001.jnl"]
    event = next(row for row in sound()["events"] if isinstance(row, EventRow))
    left = Damaged(journals=frozenset({names[1]}))
    assert [left.keeps(evolve(event, file=name)) for name in names] == [True, True, False, True]
    assert left.conditions() == {
        "events": "NOT (file > '/d/journal/0000000002-000002.jnl' AND "
        "startswith(file, '/d/journal/0000000002-'))"
    }
