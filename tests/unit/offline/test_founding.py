"""A cluster is founded whole or not at all, and the directory that was there before is never lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit.offline.states import CLUSTER, FOUNDERS, ONE, ORIGIN, found_at, opened, rich, server_directory
from zraft.cli.offline_options import make_founders
from zraft.offline.errors import OfflineError
from zraft.offline.founders import Founders
from zraft.offline.founding import PARTS, Founded, claimed, found, take_back
from zraft.raft.membership.value import Membership
from zraft.raft.messages import UNKNOWN_INSTANCE, MemberRole
from zraft.storage.directory import DataDirectory, lock_directory, read_meta
from zraft.storage.filesystem import RealFileSystem
from zraft_core.errors import ConfigError, StorageError
from zraft_core.ids import Instance, ServerId, zxid_anew

CHANGES = (
    "create",
    "pwrite",
    "fdatasync",
    "fallocate",
    "ftruncate",
    "rename",
    "unlink",
    "mkdir",
    "fsync_directory",
)


class CutShortError(BaseException):
    """The process is gone."""


class CutShort(RealFileSystem):
    """A disk under a process that ends at its `at`-th change, before or after it."""

    def __init__(self, at: int, *, after: bool = False) -> None:
        self.changes = 0
        self._at = at
        self._after = after
        for name in CHANGES:
            setattr(self, name, self._counted(getattr(super(), name)))

    def _counted(self, real: object) -> object:
        def change(*args: object) -> object:
            self.changes += 1
            if self.changes == self._at and not self._after:
                raise CutShortError
            result = real(*args)  # type: ignore[operator]
            if self.changes == self._at:
                raise CutShortError
            return result

        return change


def test_a_server_finds_the_state_a_base_for_its_log_and_the_new_members(tmp_path: Path) -> None:
    machine = rich()
    before = {path: node.data for path, node in machine.nodes.items()}
    last = machine.last_zxid
    founded = found_at(tmp_path / "new", machine)
    directory, _, read, meta, hard_state = opened(tmp_path / "new")
    assert (directory.cluster, directory.instance) == (founded.cluster, founded.instance)
    assert (meta.index, meta.term, meta.next_position) == (ORIGIN.index, ORIGIN.term, ORIGIN.next_position)
    assert hard_state.term == ORIGIN.hard_term
    assert read.last_zxid == founded.zxid == zxid_anew(last)
    assert read.image() == machine.image()
    assert read.digest() == founded.digest
    assert {p: n.data for p, n in read.nodes.items() if p != "/zookeeper/config"} == {
        p: data for p, data in before.items() if p != "/zookeeper/config"
    }
    membership = Membership.decode(meta.membership)
    assert membership.voters == (ONE,)
    assert membership.members[ONE].instance == directory.instance
    for server in (ServerId(2), ServerId(3)):
        member = membership.members[server]
        assert (member.instance, member.role) == (UNKNOWN_INSTANCE, MemberRole.LEARNER)
    assert set(os.listdir(tmp_path / "new")) == {*PARTS, "lock"}


def test_d1_two_clusters_of_one_state_have_nothing_in_common(tmp_path: Path) -> None:
    one, two = found_at(tmp_path / "one"), found_at(tmp_path / "two")
    assert one.cluster != two.cluster
    assert one.instance != two.instance


@pytest.mark.parametrize("after", [False, True])
def test_cut_short_anywhere_it_refuses_to_start_and_can_be_repeated(tmp_path: Path, after: bool) -> None:
    """At every single change of the disk (and the removals of what is in the way in between)."""
    whole = CutShort(0)
    found_at(tmp_path / "whole", fs=whole)
    assert whole.changes > 30
    for at in range(1, whole.changes + 1):
        path = tmp_path / f"cut-{at}"
        with pytest.raises(CutShortError):
            found_at(path, fs=CutShort(at, after=after))
        if path.is_dir() and "founding" in os.listdir(path):
            with pytest.raises(StorageError, match="cut short"):
                DataDirectory.open(RealFileSystem(), str(path), server=ONE, entropy=os.urandom)
            founded = found_at(path)
        elif path.is_dir() and "meta" in os.listdir(path):
            # All was in its place: it is a cluster, and not to be founded again.
            with pytest.raises(OfflineError, match="is not empty"):
                found_at(path)
            opened(path)
            continue
        else:
            founded = found_at(path)
        assert opened(path)[0].cluster == founded.cluster
        assert not [name for name in os.listdir(path) if name not in {*PARTS, "lock"}]


def recover(path: Path, fs: RealFileSystem | None = None) -> Founded:
    """As `zraft recover` does it, with a state of ours."""
    fs = fs if fs is not None else RealFileSystem()
    with claimed(fs, str(path)):
        read_meta(fs, str(path))
    directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
    try:
        return found(
            fs,
            str(path),
            rich(),
            FOUNDERS,
            ORIGIN,
            replaces=directory.instance,
            entropy=os.urandom,
            wall_ms=1,
        )
    finally:
        directory.close()


@pytest.mark.parametrize("after", [False, True])
def test_cut_short_anywhere_the_old_directory_is_never_lost(tmp_path: Path, after: bool) -> None:
    server_directory(tmp_path / "whole", count=1)
    whole = CutShort(0)
    recover(tmp_path / "whole", whole)
    for at in range(1, whole.changes + 1):
        path = tmp_path / f"cut-{at}"
        instance = server_directory(path, count=1)
        with pytest.raises(CutShortError):
            recover(path, CutShort(at, after=after))
        names = os.listdir(path)
        if "founding" not in names:
            meta = read_meta(RealFileSystem(), str(path))
            if meta.instance != instance:
                assert (path / f"aside-{instance.hex()}" / "meta").exists(), "it was done"
                continue
        assert take_back(RealFileSystem(), str(path)) == ("founding" in names)
        meta = read_meta(RealFileSystem(), str(path))
        assert (meta.instance, meta.cluster) == (instance, CLUSTER)
        assert sorted(set(os.listdir(path)) - {"lock", "meta.tmp"}) == ["meta", "wal"], "as it was"
        founded = recover(path)
        assert founded.aside == f"aside-{instance.hex()}"
        assert sorted(os.listdir(path / founded.aside)) == ["meta", "wal"]
        assert opened(path)[0].cluster == founded.cluster


def test_two_recoveries_of_one_directory_have_two_places(tmp_path: Path) -> None:
    path = tmp_path / "d"
    instance = server_directory(path, count=1)
    (path / f"aside-{instance.hex()}").mkdir()
    assert recover(path).aside == f"aside-{instance.hex()}-2"


def test_a_directory_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("of somebody")
    with pytest.raises(OfflineError, match=r"is not empty \(found something\)"):
        found_at(tmp_path)
    assert (tmp_path / "something").read_text() == "of somebody"


@pytest.mark.parametrize("where", ["new", "new/and/deep", "empty", "full"])
def test_what_is_refused_leaves_nothing_behind(tmp_path: Path, where: str) -> None:
    """A directory and a lock were left; a server beside ZooKeeper's data took that for its own, and founded."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("of somebody")
    before = sorted(tmp_path.rglob("*"))
    machine = rich()
    machine.last_zxid = (2**31 - 2) << 32
    with pytest.raises(OfflineError):
        found_at(tmp_path / where, machine)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_that_fails_while_a_cluster_is_founded_leaves_nothing_behind(tmp_path: Path) -> None:
    class Full(RealFileSystem):
        def rename(self, source: str, target: str) -> None:
            if target == f"{tmp_path}/new/meta":
                raise OSError(errno.ENOSPC, "No space left on device", target)
            super().rename(source, target)

    with pytest.raises(StorageError, match="no space left"):
        found_at(tmp_path / "new", fs=Full())
    assert not list(tmp_path.iterdir())


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    fs = RealFileSystem()
    held = lock_directory(fs, str(tmp_path))
    with pytest.raises(StorageError, match=f"process {os.getpid()} uses this data directory"):
        found_at(tmp_path)
    fs.close(held)


def test_no_permission_says_whose_it_is_to_be(tmp_path: Path) -> None:
    class Forbidden(RealFileSystem):
        def create(self, path: str) -> int:
            raise PermissionError(errno.EACCES, "Permission denied", path)

    with pytest.raises(StorageError, match="not allowed to write"):
        found_at(tmp_path / "new", fs=Forbidden())
    found_at(tmp_path / "new")


def test_zxids_that_are_used_up_are_refused(tmp_path: Path) -> None:
    machine = rich()
    machine.last_zxid = (2**31 - 2) << 32
    with pytest.raises(OfflineError, match="D-15"):
        found_at(tmp_path / "new", machine)


def test_a_list_without_the_founder_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--cluster: lists servers 1, 2, but not this one, --id 3"):
        Founders(ServerId(3), {ServerId(1): "a:1", ServerId(2): "b:2"})


def test_observers_of_the_list_are_wanted_as_such() -> None:
    founders = Founders(
        ServerId(1), {ServerId(1): "a:1", ServerId(2): "b:2", ServerId(3): "c:3"}, frozenset({ServerId(3)})
    )
    assert {server: wish.voter for server, wish in founders.wanted().items()} == {1: True, 2: True, 3: False}
    roles = {s: m.role for s, m in founders.membership(Instance(b"i" * 16)).members.items()}
    assert roles == {1: MemberRole.VOTER, 2: MemberRole.LEARNER, 3: MemberRole.OBSERVER}
    assert Membership.decode(founders.membership(Instance(b"i" * 16)).encode()).members[ServerId(3)].role is (
        MemberRole.OBSERVER
    )


def test_an_observer_cannot_begin_a_cluster() -> None:
    with pytest.raises(ConfigError, match="server 2 is an observer"):
        Founders(ServerId(2), {ServerId(1): "a:1", ServerId(2): "b:2"}, frozenset({ServerId(2)}))


def test_the_command_line_marks_observers_as_zraft_serve_does() -> None:
    founders = make_founders(ServerId(1), None, "1=10.0.0.1:2181,2=10.0.0.2:2181:observer")
    assert founders.observers == {2}
    assert founders.addresses == {1: "10.0.0.1:2181", 2: "10.0.0.2:2181"}


def test_everything_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    found_at(tmp_path / "new")
    for path in (tmp_path / "new").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
