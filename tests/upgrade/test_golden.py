"""What the last release wrote is read by this one as it read it itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.upgrade.golden import NAMES, golden
from zraft.groups.recovery import Recovery, recover
from zraft.offline.replay import Replayed, replay
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.settings import WalSettings
from zraft_core.ids import COORDINATION_GROUP, ServerId


def read(directory: Path) -> Replayed:
    fs = RealFileSystem()
    opened = DataDirectory.open(fs, str(directory), server=ServerId(1), entropy=os.urandom)
    try:
        return replay(fs, opened)
    finally:
        opened.close()


def recovered(directory: Path) -> Recovery:
    """What a start finds there."""
    fs = RealFileSystem()
    opened = DataDirectory.open(fs, str(directory), server=ServerId(1), entropy=os.urandom)
    return recover(fs, opened, WalSettings())


@pytest.mark.parametrize("name", NAMES)
def test_the_state_is_the_one_that_the_last_release_read(name: str, tmp_path: Path) -> None:
    """To the last znode, and by the digest, which must not change while levels are the same (D-26)."""
    kept = golden(name)
    kept.write(tmp_path)
    replayed = read(tmp_path)
    machine, content = replayed.machine, kept.content
    assert {
        path: [
            None if node.data is None else node.data.decode("latin-1"),
            list(node.stat()),
            [list(one) for one in node.acl],
        ]
        for path, node in machine.nodes.items()
    } == content["znodes"]
    assert {
        f"{number:#x}": [one.timeout_ms, one.password.hex()] for number, one in machine.sessions.items()
    } == content["sessions"]
    assert {"index": replayed.origin.index, "snapshot": replayed.snapshot_index} == content["log"]
    assert (machine.last_zxid, machine.feature_level) == (content["zxid"], content["level"])
    assert machine.full_digest() == content["digest"]


def test_the_directories_are_what_their_names_say() -> None:
    """Or tests of them would show nothing."""
    kept = {name: golden(name) for name in NAMES}
    first = "wal/0000000001.seg"
    assert kept["founded"].content["zxid"] < kept["torn"].content["zxid"]
    assert first not in kept["znodes"].files
    assert kept["znodes"].content["log"]["index"] > kept["znodes"].content["log"]["snapshot"] > 0
    assert len(kept["znodes"].content["sessions"]) == 2
    owners = {stat[7] for _, stat, _ in kept["znodes"].content["znodes"].values()}
    assert {int(one, 16) for one in kept["znodes"].content["sessions"]} < owners
    assert any(one[1] == "digest" for _, _, acl in kept["znodes"].content["znodes"].values() for one in acl)
    assert {place: len(log) for place, log in kept["topics"].content["deliveries"].items()} == {
        "orders/0": 40,
        "orders/1": 40,
    }
    images = [path for path in kept["topics"].files if path.endswith(".snap") and "groups/0/" not in path]
    assert len({path.split("/")[1] for path in images}) == 2


def test_the_torn_frame_is_cut_off_and_the_groups_start_from_what_is_whole(tmp_path: Path) -> None:
    kept = golden("torn")
    kept.write(tmp_path)
    recovery = recovered(tmp_path)
    tail = recovery.recovered.report.torn_tail
    assert tail is not None
    assert tail.size > 1_000
    assert recovery.coordination.log.last_index == kept.content["log"]["index"]
    recovery.wal.close()


def test_groups_of_topics_start_from_their_images(tmp_path: Path) -> None:
    kept = golden("topics")
    kept.write(tmp_path)
    recovery = recovered(tmp_path)
    groups = recovery.groups.present
    assert len(groups) == 2
    assert COORDINATION_GROUP not in groups
    for group in groups:
        stored = recovery.groups.take(group)
        assert stored.snapshot is not None
    recovery.wal.close()
