"""`zraft key`: the files of the procedure that changes the cluster key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.so_far import so_far
from zraft.cli.main import main
from zraft.server.process.security.cluster_keys import cluster_keys
from zraft.transport.keys import ClusterKey, read_key_file, replace_keys


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["key", *map(str, arguments)])


def ok(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def complaint(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return result.output


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "cluster.key", tmp_path / "next.key"
    ok("new", old)
    ok("new", new)
    return old, new


def test_the_three_steps_change_the_key(files: tuple[Path, Path]) -> None:
    file, fresh = files
    [old], [new] = read_key_file(file), read_key_file(fresh)
    assert f"seals with {old.key_id.hex()}, opens {new.key_id.hex()} as well" in ok("add", file, fresh)
    assert read_key_file(file) == (old, new)
    assert f"seals with {new.key_id.hex()}" in ok("swap", file)
    assert read_key_file(file) == (new, old)
    ok("drop", file)
    assert read_key_file(file) == (new,)
    assert ok("show", file) == f"{file}: seals with {new.key_id.hex()}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["cluster.key", "next.key"]


def test_a_step_that_is_repeated_does_no_harm(files: tuple[Path, Path]) -> None:
    file, fresh = files
    ok("add", file, fresh)
    ok("add", file, fresh)
    assert len(read_key_file(file)) == 2


def test_steps_in_the_wrong_order_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    file, fresh = files
    assert "`zraft key add` comes first" in complaint("swap", file)
    assert "nothing to drop" in complaint("drop", file)
    ok("add", file, fresh)
    third = tmp_path / "third.key"
    ok("new", third)
    assert "finish the change that is under way" in complaint("add", file, third)
    assert "expected one key, found 2" in complaint("add", fresh, file)
    assert "expected no file, found one" in complaint("new", file)


def test_no_command_prints_a_secret(files: tuple[Path, Path]) -> None:
    file, fresh = files
    secrets = [key.secret.hex() for path in files for key in read_key_file(path)]
    said = [
        run("show", file),
        run("add", file, fresh),
        run("swap", file),
        run("add", file, file),
        run("drop", file),
    ]
    assert not [secret for secret in secrets for result in said if secret in result.output]


def test_a_key_file_is_replaced_through_a_link_and_readers_never_see_half(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    file, fresh = files
    link = tmp_path / "link.key"
    link.symlink_to(file)
    inode = file.stat().st_ino
    ok("add", link, fresh)
    assert link.is_symlink()
    assert len(read_key_file(file)) == 2
    assert file.stat().st_ino != inode, "a new file took the name, the old one was never written to"


def test_what_an_interrupted_replacement_left_is_no_obstacle(files: tuple[Path, Path]) -> None:
    file, fresh = files
    (file.parent / "cluster.key.new").write_text("half")
    ok("add", file, fresh)
    assert not (file.parent / "cluster.key.new").exists()


def test_a_running_server_takes_new_keys_and_keeps_the_old_ones_when_the_file_is_broken(
    files: tuple[Path, Path],
) -> None:
    file, fresh = files
    keys = cluster_keys([file])
    assert keys is not None
    [old], [new] = read_key_file(file), read_key_file(fresh)
    ok("add", file, fresh)
    assert not keys.poll(), "it may be half written"
    assert keys.poll()
    assert so_far(keys.value) == (old, new)
    file.chmod(0o644)
    assert not keys.poll(now=True)
    assert so_far(keys.value) == (old, new)
    assert keys.failures_total == 1
    file.chmod(0o600)
    file.unlink()
    assert not keys.poll(now=True)
    assert so_far(keys.value) == (old, new)
    replace_keys_by_hand(file, new)
    assert keys.poll(now=True)
    assert keys.value == (new,)


def replace_keys_by_hand(file: Path, key: ClusterKey) -> None:
    """As an operator's own tools do."""
    file.touch(0o600)
    replace_keys(file, [key])


def test_a_server_without_a_key_has_nothing_to_read_again() -> None:
    assert cluster_keys([]) is None
