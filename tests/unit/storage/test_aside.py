"""What is put aside when a state differs from the majority's, through crashes at every step (D-26)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zraft.storage import aside
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import RealFileSystem
from zraft_core.errors import StorageError
from zraft_core.ids import ServerId

REASON = "state differs since entry 1024"


class CrashError(Exception):
    """The process ends here."""


class CrashingFileSystem(RealFileSystem):
    """Ends the process before the `at`-th of the calls that change names."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CrashError

    def mkdir(self, path: str) -> None:
        self._count()
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def fsync_directory(self, path: str) -> None:
        self._count()
        super().fsync_directory(path)


def _entropy() -> Callable[[int], bytes]:
    drawn = 0

    def entropy(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return drawn.to_bytes(size, "big")

    return entropy


_ENTROPY = _entropy()


def _open(path: Path, fs: RealFileSystem | None = None) -> DataDirectory:
    return DataDirectory.open(fs or RealFileSystem(), str(path), server=ServerId(1), entropy=_ENTROPY)


def _filled(path: Path) -> bytes:
    """A data directory with contents; its instance."""
    directory = _open(path)
    (path / "wal").mkdir(exist_ok=True)
    (path / "wal" / "1").write_bytes(b"entries")
    (path / "groups" / "0").mkdir(parents=True, exist_ok=True)
    directory.close()
    return directory.instance


def _condemn(path: Path, wall_ms: int = 0) -> None:
    directory = _open(path)
    directory.condemn(REASON, wall_ms)
    directory.close()


def test_a_condemned_directory_is_put_aside_and_a_new_instance_begins(tmp_path: Path) -> None:
    old = _filled(tmp_path)
    _condemn(tmp_path)
    directory = _open(tmp_path)
    assert directory.instance != old
    assert directory.boot == 1
    kept = tmp_path / f"aside-{old.hex()}-1"
    assert directory.put_aside == str(kept)
    assert sorted(one.name for one in kept.iterdir()) == ["groups", "meta", "reason", "wal"]
    assert (kept / "wal" / "1").read_bytes() == b"entries"
    assert sorted(one.name for one in tmp_path.iterdir()) == [kept.name, "lock", "meta"]
    directory.close()
    again = _open(tmp_path)
    assert again.put_aside is None
    assert again.boot == 2
    again.close()


@pytest.mark.parametrize("at", range(16))
def test_a_crash_at_any_step_neither_loses_evidence_nor_lets_the_old_instance_run(
    tmp_path: Path, at: int
) -> None:
    """Whatever was cut short is taken up by the next start: the old instance opened nothing in between."""
    old = _filled(tmp_path)
    _condemn(tmp_path)
    try:
        _open(tmp_path, CrashingFileSystem(at)).close()
    except CrashError:
        pass
    directory = _open(tmp_path)
    assert directory.instance != old
    (kept,) = tmp_path.glob("aside-*")
    assert sorted(one.name for one in kept.iterdir()) == ["groups", "meta", "reason", "wal"]
    directory.close()


def test_without_meta_the_rest_is_a_data_directory_to_nobody(tmp_path: Path) -> None:
    """A release that knows nothing of all this, between two of the steps: it refuses, and formats nothing."""
    _filled(tmp_path)
    _condemn(tmp_path)
    for at in range(16):
        with pytest.raises((CrashError, StorageError)):
            aside.settle(CrashingFileSystem(at), str(tmp_path))
        if not (tmp_path / "meta").exists():
            break
    assert (tmp_path / "wal").exists()
    (tmp_path / "condemned").rename(tmp_path.parent / "away")
    with pytest.raises(StorageError, match="is missing although"):
        _open(tmp_path)


def test_a_state_that_parts_again_soon_stops_the_server_and_stays_stopped(tmp_path: Path) -> None:
    _filled(tmp_path)
    _condemn(tmp_path, 0)
    _open(tmp_path).close()
    _condemn(tmp_path, aside.INTERVAL_MS_MIN - 1)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"599 s earlier .*the server stops.*move the whole"):
            _open(tmp_path)
    assert len(list(tmp_path.glob("aside-*"))) == 1
    assert (tmp_path / "meta").exists(), "the evidence was moved"


def test_no_more_than_three_directories_are_kept_and_none_is_removed(tmp_path: Path) -> None:
    for n in range(aside.ASIDE_MAX):
        _filled(tmp_path)
        _condemn(tmp_path, n * aside.INTERVAL_MS_MIN)
    _open(tmp_path).close()
    assert len(list(tmp_path.glob("aside-*"))) == aside.ASIDE_MAX
    _condemn(tmp_path, 100 * aside.INTERVAL_MS_MIN)
    with pytest.raises(StorageError, match="at most 3 are kept"):
        _open(tmp_path)
    assert len(list(tmp_path.glob("aside-*"))) == aside.ASIDE_MAX


@pytest.mark.parametrize("note", [b"", b"\xff\xff", b"\x80", b"\x81\xa9directory\xa6../etc"])
def test_a_damaged_note_is_refused(tmp_path: Path, note: bytes) -> None:
    _filled(tmp_path)
    (tmp_path / "condemned").write_bytes(note)
    with pytest.raises(StorageError, match="not to be used any more"):
        _open(tmp_path)
