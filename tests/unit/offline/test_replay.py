"""A directory's log makes the state that its server had, also with a snapshot in the middle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.offline.states import CLUSTER, ONE, entries, server_directory, snapshot_of
from tests.unit.server.one_server import OneServer
from zraft.offline.errors import OfflineError
from zraft.offline.replay import Replayed, apply_entry, replay
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import RealFileSystem
from zraft.tree.machine import Machine
from zraft_core.errors import StorageError
from zraft_core.ids import Instance


def replayed(path: Path) -> Replayed:
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
    try:
        assert directory.cluster == CLUSTER
        return replay(fs, directory)
    finally:
        directory.close()


def applied(instance: Instance, count: int, until: int = 1 << 30) -> Machine:
    machine = Machine()
    for entry in entries(instance, count):
        if entry.index <= until:
            apply_entry(machine, entry)
    return machine


def test_it_applies_what_a_server_applies(tmp_path: Path) -> None:
    """The same entries through the apply loop of a server."""
    instance = Instance(b"1" * 16)
    server = OneServer()
    server.machine.origins.set_members(())
    assert all(server.applier.apply(entry) for entry in entries(instance, 20))
    machine = applied(instance, 20)
    assert machine.image() == server.machine.image()
    assert machine.digest() == server.machine.digest()
    assert "/n19" in machine.nodes
    assert machine.settings.quota_enforced == 1


def test_the_whole_log_is_applied_without_a_snapshot(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=20)
    found = replayed(tmp_path)
    assert found.machine.image() == applied(instance, 20).image()
    assert (found.snapshot_index, found.entries) == (0, 25)
    assert (found.origin.index, found.origin.term, found.origin.hard_term) == (25, 1, 4)
    assert found.origin.next_position == found.machine.position + 1
    assert found.membership is not None
    assert found.membership.voters == (ONE,)


def test_only_what_follows_the_snapshot_is_applied_to_it(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=20)
    at = 12
    machine = applied(instance, 20, until=at)
    log = entries(instance, 20)
    snapshot_of(tmp_path, machine, SnapshotMeta(at, 1, log[at - 1].next_position, log[0].payload))
    found = replayed(tmp_path)
    assert found.machine.image() == applied(instance, 20).image()
    assert (found.snapshot_index, found.entries) == (at, 25 - at)


def test_a_snapshot_without_a_log_after_it_is_enough(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=20)
    log = entries(instance, 20)
    snapshot_of(tmp_path, applied(instance, 20), SnapshotMeta(25, 1, log[-1].next_position, log[0].payload))
    found = replayed(tmp_path)
    assert found.machine.image() == applied(instance, 20).image()
    assert (found.snapshot_index, found.entries) == (25, 0)
    assert found.origin.index == 25


def test_an_empty_log_is_nothing_to_recover(tmp_path: Path) -> None:
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(tmp_path), server=ONE, entropy=os.urandom)
    with pytest.raises(OfflineError, match="its log is empty"):
        replay(fs, directory)
    directory.close()


def test_a_damaged_log_is_not_guessed_at(tmp_path: Path) -> None:
    server_directory(tmp_path, count=20)
    segment = next((tmp_path / "wal").glob("*.seg"))
    data = bytearray(segment.read_bytes())
    at = data.index(b"/n3")
    data[at] ^= 1
    segment.write_bytes(data)
    with pytest.raises(StorageError, match="corrupt at offset"):
        replayed(tmp_path)
