"""The cluster key's file: made once, readable by its owner only, and no error ever shows the key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from zraft.transport.keys import KEY_BYTES, ClusterKey, create_key_file, read_key_file
from zraft_core.errors import ConfigError

SECRET = bytes(range(KEY_BYTES))


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_created_key_reads_back_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    created = create_key_file(path)
    assert read_key_file(path) == (created,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert create_key_file(tmp_path / "other.key") != created


def test_the_file_is_the_documented_line(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    key = create_key_file(path, entropy=lambda size: bytes(range(size)))
    assert path.read_text() == f"zraft-cluster-key-1 {key.key_id.hex()} {SECRET.hex()}\n"


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "cluster.key", "precious")
    with pytest.raises(ConfigError, match="never overwritten"):
        create_key_file(path)
    assert path.read_text() == "precious"


def test_a_failed_create_leaves_no_half_key_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.key"
    monkeypatch.setattr(os, "write", lambda descriptor, data: 10)
    with pytest.raises(ConfigError, match="only 10 of 94 bytes"):
        create_key_file(path)
    assert not path.exists()


def test_create_names_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        create_key_file(tmp_path / "missing" / "cluster.key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_file_open_to_others_is_refused_and_says_what_to_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "cluster.key"
    create_key_file(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"found mode {mode:04o}; run `chmod 600"):
        read_key_file(path)


def test_a_read_only_file_of_the_owner_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    key = create_key_file(path)
    path.chmod(0o400)
    assert read_key_file(path) == (key,)


ROOT, SERVICE, OTHER = 0, 10_001, 1_000


@pytest.mark.parametrize(
    ("owner", "user", "mode", "taken"),
    [
        (ROOT, SERVICE, 0o440, True),
        (ROOT, SERVICE, 0o640, True),
        (ROOT, SERVICE, 0o444, False),
        (ROOT, SERVICE, 0o460, False),
        (ROOT, SERVICE, 0o450, False),
        (ROOT, ROOT, 0o440, False),
        (SERVICE, SERVICE, 0o440, False),
        (OTHER, SERVICE, 0o440, False),
    ],
)
def test_a_group_may_read_a_key_only_if_root_handed_it_to_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, user: int, mode: int, taken: bool
) -> None:
    """A secret of Kubernetes belongs to root, its group is the pod's `fsGroup`, and its mode is 0440."""
    path = tmp_path / "cluster.key"
    key = create_key_file(path)
    found = os.stat(path)

    def fstat(_: int) -> os.stat_result:
        return os.stat_result((stat.S_IFREG | mode, *found[1:4], owner, *found[5:]))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fstat)
        patched.setattr(os, "geteuid", lambda: user)
        if taken:
            assert read_key_file(path) == (key,)
        else:
            with pytest.raises(ConfigError, match=f"found mode {mode:04o}"):
                read_key_file(path)


ID = ClusterKey(SECRET).key_id.hex()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "found 0 lines in 0 bytes"),
        (SECRET.hex(), "found a line of 1 words"),
        (f"zraft-cluster-key-2 {ID} {SECRET.hex()}", "expected one line `zraft-cluster-key-1"),
        (f"zraft-cluster-key-1 {ID} {SECRET.hex()[:-2]}", "found a key of 31 bytes; was the line cut"),
        (f"zraft-cluster-key-1 {ID} {SECRET.hex()[:-2]}zz", "not hexadecimal"),
        (f"zraft-cluster-key-1 {ID} {SECRET.hex()[:-2]}00", f"the line names key {ID} but holds key"),
        (f"zraft-cluster-key-1 {ID} {SECRET.hex()}" + " " * 2_000, "is it a key file"),
        ("\N{SNOWMAN} \N{SNOWMAN} \N{SNOWMAN}", "expected one line"),
    ],
)
def test_anything_but_a_key_is_refused_without_showing_it(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path / "cluster.key", text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_key_file(path)
    assert SECRET.hex()[:20] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_key_file(tmp_path / "missing")
    with pytest.raises(ConfigError, match="regular file"):
        read_key_file(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="regular file"):
        read_key_file(tmp_path / "pipe")


def test_printing_a_key_shows_its_id_only() -> None:
    key = ClusterKey(SECRET)
    for text in (repr(key), str(key), f"{key}"):
        assert SECRET.hex()[:8] not in text
        assert repr(SECRET)[2:10] not in text
    assert str(key) == f"cluster key {ID}"


def test_a_key_of_another_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected 32 bytes, found 31"):
        ClusterKey(SECRET[:-1])
