"""Several records of one group in one write: what was written first counts first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.violation import Violation
from tests.onyxlog.audits.conftest import age
from tests.onyxlog.audits.reading import read
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import UnsyncedFileSystem
from zraft.storage.records import EntryRecord, HardStateRecord, Record, TruncateRecord
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.ids import COORDINATION_GROUP, ServerId

GROUP = COORDINATION_GROUP


def entry(index: int, term: int) -> EntryRecord:
    return EntryRecord(GROUP, Entry(index, term, EntryKind.NOOP, 1, 0, b""))


def state(term: int, vote: int | None) -> HardStateRecord:
    return HardStateRecord(GROUP, HardState(term, None if vote is None else ServerId(vote)))


def written(path: Path, writes: Sequence[Sequence[Record]]) -> Path:
    """A data directory whose log has these writes, a frame each."""
    fs = UnsyncedFileSystem()
    directory = DataDirectory.open(
        fs, str(path / "server-1"), server=ServerId(1), entropy=lambda size: bytes(range(size))
    )
    wal, _ = Wal.open(fs, directory, settings=WalSettings())
    for write in writes:
        wal.append(list(write))
    wal.close()
    directory.close()
    age(path)
    return path


def tables_of(path: Path) -> dict[str, list[Any]]:
    names = ("entries", "truncations", "hard_states", "members", "events")
    return {name: read(path, name, entries="written") for name in names}


def found(tables: dict[str, list[Any]]) -> list[Violation]:
    return [one for rule in ("S1", "S6") for one in RULES[rule].judged(tables)]


def test_an_entry_is_written_taken_back_and_followed_by_another_in_one_write(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [
            [state(2, 1), entry(1, 2), entry(2, 2)],
            [entry(3, 2), state(3, None), TruncateRecord(GROUP, 3), entry(3, 3)],
            [entry(4, 3)],
        ],
    )
    tables = tables_of(path)
    rows = [(row.index, row.term, row.record) for row in tables["entries"]]
    assert rows == [(1, 2, 1), (2, 2, 2), (3, 2, 0), (3, 3, 3), (4, 3, 0)]
    (cut,) = tables["truncations"]
    assert (cut.from_index, cut.record) == (3, 2)
    assert found(tables) == []
    # Taken back at the end of the write: then entry 3 comes twice, and 4 after 2.
    gaps = found({**tables, "truncations": [evolve(cut, record=4)]})
    assert [(one.rule, one.index, one.expected[:7]) for one in gaps] == [
        ("S6", 3, "index 4"),
        ("S6", 4, "index 3"),
    ]


def test_two_votes_of_one_write_count_in_their_order(tmp_path: Path) -> None:
    tables = tables_of(written(tmp_path, [[state(2, 1), state(3, None), state(3, 2)]]))
    assert found(tables) == []
    first, second, third = tables["hard_states"]
    turned = [first, evolve(second, record=third.record), evolve(third, record=second.record)]
    (lost,) = found({**tables, "hard_states": turned})
    assert (lost.rule, lost.index, lost.expected, lost.found) == ("S1", 3, "server 2, as before", "none")
