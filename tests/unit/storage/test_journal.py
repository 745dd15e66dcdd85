"""The journal: what is noted comes back, a torn end is left out, damage is told, and a full disk stops nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.journal import (
    JournalHeader,
    JournalNote,
    JournalWriter,
    NoteKind,
    encode_header,
    encode_note,
    read_journal,
)

HEADER = JournalHeader(3, bytes(range(16)), 7)
NOTES = [
    JournalNote(NoteKind.OPENED, 0, 4, 100, 1_000),
    JournalNote(NoteKind.BECAME_LEADER, 0, 5, 101, 1_010, (1, 3)),
    JournalNote(NoteKind.DIGEST, 0, 0, 1_024, 1_020, (), bytes(16)),
    JournalNote(NoteKind.COMMITTED, 9, 5, 1_030, 1_030),
]


def written(notes: list[JournalNote] = NOTES) -> bytes:
    return encode_header(HEADER) + b"".join(encode_note(at, note) for at, note in enumerate(notes, 1))


def read(data: bytes) -> list[JournalNote]:
    header, notes = read_journal(data, "j")
    assert header == HEADER
    return [placed.note for placed in notes]


def test_notes_come_back_in_order_with_their_places() -> None:
    header, notes = read_journal(written(), "j")
    placed = list(notes)
    assert header == HEADER
    assert [one.note for one in placed] == NOTES
    assert [one.seq for one in placed] == [1, 2, 3, 4]
    assert placed[0].offset == len(encode_header(HEADER))


def test_a_file_that_ends_anywhere_in_a_note_gives_those_before_it() -> None:
    data = written()
    whole = len(written(NOTES[:3]))
    for end in range(whole, len(data)):
        assert read(data[:end]) == NOTES[:3]


def test_a_damaged_note_that_others_follow_is_corruption_with_its_offset() -> None:
    data = bytearray(written())
    at = len(written(NOTES[:1]))
    data[at + 3] ^= 1
    with pytest.raises(CorruptionError) as caught:
        read(bytes(data))
    assert caught.value.offset == at


def test_any_flipped_bit_before_the_last_note_is_corruption() -> None:
    """Also one of a length that then reaches to the end of the file."""
    data = written()
    header, last = len(encode_header(HEADER)), len(written(NOTES[:3]))
    for bit in range(header * 8, last * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            read(bytes(damaged))


def test_a_damaged_header_is_corruption() -> None:
    data = bytearray(written())
    data[12] ^= 1
    with pytest.raises(CorruptionError, match="header"):
        read(bytes(data))


def test_a_writer_goes_on_in_another_file_and_keeps_a_few(tmp_path: Path) -> None:
    writer = JournalWriter(RealFileSystem(), str(tmp_path), HEADER, file_bytes_max=100, files_kept=3)
    for at in range(40):
        writer.add(JournalNote(NoteKind.COMMITTED, 0, 1, at, at))
    writer.close()
    files = sorted((tmp_path / "journal").iterdir())
    assert len(files) == 3
    last = [placed.note.index for path in files for placed in read_journal(path.read_bytes(), str(path))[1]]
    assert last == list(range(last[0], 40))


class FullDisk(RealFileSystem):
    full = False

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().pwrite(file, data, offset)


def test_a_full_disk_loses_notes_says_so_once_and_stops_nobody(tmp_path: Path) -> None:
    disk, said = FullDisk(), list[OSError | None]()
    writer = JournalWriter(disk, str(tmp_path), HEADER, on_error=said.append)
    assert writer.add(NOTES[0])
    disk.full = True
    assert not writer.add(NOTES[1])
    assert not writer.add(NOTES[1])
    disk.full = False
    assert writer.add(NOTES[2])
    writer.close()
    (path,) = (tmp_path / "journal").iterdir()
    assert read(path.read_bytes()) == [NOTES[0], NOTES[2]]
    assert writer.lost_total == 2
    assert [error is None for error in said] == [False, True]
