"""The file of a backup with topics: what was put in comes out, and anything else is told with its place."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from crc32c import crc32c

from tests.unit.offline.backups import A, B, C, Kept, backup, several, snapshot_file
from zraft.offline import archive as archives
from zraft.offline.archive import (
    MANIFEST,
    SNAPSHOT,
    ArchiveReader,
    ArchiveWriter,
    PartitionWriter,
    is_archive,
)
from zraft.offline.manifest import Manifest, decode_manifest, encode_manifest
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import ReadOnlyFileSystem, RealFileSystem
from zraft.storage.snapshot_format import SnapshotFileReader
from zraft_core.errors import ProtocolError

FS = ReadOnlyFileSystem()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Manifest]:
    """One of three partitions, of which one is in several parts, one begins later, and one is empty."""
    monkeypatch.setattr(archives, "PART_BYTES", 100)
    path = tmp_path / "backup"
    partitions = {
        A: Kept(several(A, 20), offsets={b"billing": 7}),
        B: Kept(several(B, 3, first=40), first=40),
        C: Kept(),
    }
    return path, backup(path, snapshot_file(tmp_path / "old"), partitions)


def verify(path: Path) -> None:
    with ArchiveReader(FS, str(path)) as found:
        for _ in found.verify():
            pass


def test_everything_that_was_put_in_comes_out(made: tuple[Path, Manifest]) -> None:
    path, manifest = made
    assert is_archive(FS, str(path))
    with ArchiveReader(FS, str(path)) as found:
        assert found.manifest == manifest
        assert [one.parts > 2 for one in manifest.partitions] == [True, False, False]
        read = {
            one.group: [delivery for part in found.parts(one) for delivery in part]
            for one in manifest.partitions
        }
        assert [one.offset for one in read[A]] == list(range(20))
        assert [one.payload for one in read[A]] == [one.payload for one in several(A, 20)]
        assert [one.offset for one in read[B]] == [40, 41, 42]
        assert read[C] == []
        with SnapshotFileReader(found.snapshot(), str(path)) as snapshot:
            assert sum(map(len, snapshot.blocks())) == snapshot.footer.size
    verify(path)


def test_it_is_a_tar_archive_that_other_programs_read(made: tuple[Path, Manifest]) -> None:
    path, _ = made
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert names[0] == SNAPSHOT
        assert names[-1] == MANIFEST
        member = archive.extractfile(SNAPSHOT)
        assert member is not None
        assert member.read(8) == b"\x8e\xa6format"
    assert path.stat().st_size % tarfile.RECORDSIZE == 0


def test_a_snapshot_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_bytes(snapshot_file(tmp_path / "old"))
    assert not is_archive(FS, str(path))


@pytest.mark.parametrize("left", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_is_told(made: tuple[Path, Manifest], left: float) -> None:
    path, _ = made
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data.rstrip(b"\0")) * left)])
    with pytest.raises(CorruptionError, match="copied in part"):
        verify(path)


def changed(path: Path, name: str, at: int = 20) -> None:
    """Flip a bit of a member."""
    with tarfile.open(path) as archive:
        place = archive.getmember(name).offset_data
    data = bytearray(path.read_bytes())
    data[place + at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("which", "complaint"),
    [
        (0, "does not match its digest"),
        (1, "topics/|do not match their digest"),
        (-1, "manifest"),
    ],
)
def test_a_bit_that_changed_is_found_wherever_it_is(
    made: tuple[Path, Manifest], which: int, complaint: str
) -> None:
    path, _ = made
    with tarfile.open(path) as archive:
        name = archive.getnames()[which]
    changed(path, name)
    with pytest.raises(CorruptionError, match=complaint):
        verify(path)


def test_whatever_byte_changes_the_archive_is_refused_or_says_the_same(made: tuple[Path, Manifest]) -> None:
    path, manifest = made
    data = path.read_bytes()
    refused = 0
    for at in range(0, len(data), 37):
        damaged = bytearray(data)
        damaged[at] ^= 0x15
        path.write_bytes(damaged)
        try:
            with ArchiveReader(FS, str(path)) as found:
                for _ in found.verify():
                    pass
                assert found.manifest == manifest, at
        except CorruptionError:
            refused += 1
    assert refused > 50, "the rest is what fills blocks"


def rebuilt(path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
    """Write the archive anew with other members."""
    with tarfile.open(path) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    with tarfile.open(path, "w") as archive:
        for name, data in change(members).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_a_member_that_nobody_knows_is_told(made: tuple[Path, Manifest]) -> None:
    path, _ = made
    rebuilt(path, lambda members: {**members, "notes.txt": b"of somebody"})
    with pytest.raises(CorruptionError, match=r"found member 'notes.txt', which its manifest does not name"):
        verify(path)


def test_a_member_that_is_missing_is_told(made: tuple[Path, Manifest]) -> None:
    path, _ = made

    def without(members: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in members.items() if not name.endswith("00000002")}

    rebuilt(path, without)
    with pytest.raises(CorruptionError, match=r"member topics/0000000100000002/00000002 is missing"):
        verify(path)


def test_two_members_that_were_exchanged_are_found(made: tuple[Path, Manifest]) -> None:
    path, _ = made

    def exchanged(members: dict[str, bytes]) -> dict[str, bytes]:
        one, other = f"topics/{A:016x}/00000001", f"topics/{A:016x}/00000002"
        return members | {one: members[other], other: members[one]}

    rebuilt(path, exchanged)
    with pytest.raises(CorruptionError, match="found offset"):
        verify(path)


def test_a_manifest_of_another_backup_does_not_pass(made: tuple[Path, Manifest], tmp_path: Path) -> None:
    path, manifest = made
    last = evolve(manifest.partitions[0], digest=b"d" * 16)
    other = encode_manifest(evolve(manifest, partitions=(last, *manifest.partitions[1:])))
    rebuilt(path, lambda members: members | {MANIFEST: other})
    with pytest.raises(CorruptionError, match="do not match their digest"):
        verify(path)


def test_a_newer_manifest_names_its_release(made: tuple[Path, Manifest]) -> None:
    path, manifest = made
    data = bytearray(encode_manifest(manifest))
    at = data.index(b"format") + 6
    data[at] = 9
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4)
    rebuilt(path, lambda members: members | {MANIFEST: bytes(data)})
    with pytest.raises(CorruptionError, match="format 9, this release knows 1; use the zraft of the release"):
        verify(path)


def test_a_manifest_that_contradicts_itself_is_refused(made: tuple[Path, Manifest]) -> None:
    _, manifest = made
    one = manifest.partitions[0]
    for wrong, complaint in (
        (evolve(manifest, partitions=manifest.partitions[1:]), "has other partitions|other partitions than"),
        (evolve(manifest, topics=(manifest.topics[0], manifest.topics[0])), "other partitions than"),
        (
            evolve(manifest, partitions=(evolve(one, offsets=((b"c", 21),)), *manifest.partitions[1:])),
            "up to its end 20",
        ),
    ):
        with pytest.raises(ProtocolError, match=complaint):
            decode_manifest(encode_manifest(wrong))


def test_a_partition_that_is_begun_anew_leaves_nothing_of_before(tmp_path: Path) -> None:
    """Retention has overtaken the reader."""
    path = tmp_path / "backup"
    fs = RealFileSystem()
    file = fs.create(str(path))
    archive = ArchiveWriter(fs, file, str(path), 0)
    archive.member(SNAPSHOT, 3, (b"abc",))
    size = archive.size
    writer = PartitionWriter(archive, A, 0)
    for one in several(A, 3):
        writer.add(one)
    writer.finish({}, b"")
    assert archive.size > size
    archive.cut(size)
    archive.member("next", 1, (b"x",))
    fs.close(file)
    with tarfile.open(path) as found:
        assert found.getnames() == [SNAPSHOT, "next"]
