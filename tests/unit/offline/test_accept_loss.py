"""`zraft log accept-loss`: a server that is alone goes on with what is left of a log that was cut, if it is told to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.offline.states import CLUSTER, ONE, entries, opened, server_directory, snapshot_of
from tests.unit.offline.test_replay import applied
from zraft.cli import offline_options
from zraft.cli.main import main
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, Member
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CutShortError
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.records import EntryRecord
from zraft.storage.wal import Wal
from zraft_core.ids import EPOCHS_SKIPPED, Instance, ServerId

COUNT = 20
YES = ("--yes-i-lose-writes", CLUSTER.hex()[:8])


def run(*words: object, text: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], input=text)


def segment(path: Path) -> Path:
    (found,) = (path / "wal").glob("*.seg")
    return found


def cut(path: Path, *, left: int) -> None:
    """Take the end of the log's file away, so that of its entries `left` are whole."""
    file = segment(path)
    data = file.read_bytes()
    os.truncate(file, data.index(b"/n%d" % (left - 5)) - 10)


def starts(path: Path) -> None:
    """What a server does with its log."""
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
    try:
        wal, _ = Wal.open(fs, directory)
        wal.close()
    finally:
        directory.close()


def test_what_is_left_becomes_a_cluster_of_this_server(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=COUNT)
    last_zxid = applied(instance, COUNT).last_zxid
    cut(tmp_path, left=15)
    with pytest.raises(CutShortError, match=f"`zraft log accept-loss {tmp_path}`"):
        starts(tmp_path)
    result = run("log", "accept-loss", tmp_path, *YES)
    assert result.exit_code == 0, result.output
    assert "at least one write is lost: frame 17 of" in result.output
    assert "last entry:   index 15" in result.output
    directory, _, machine, meta, _ = opened(tmp_path)
    assert directory.cluster != CLUSTER
    assert meta.index == 15
    assert all(f"/n{number}" in machine.nodes for number in range(10))
    assert "/n10" not in machine.nodes
    assert machine.last_zxid >> 32 >= EPOCHS_SKIPPED + (last_zxid >> 32), "none means two things (D-15)"
    members = Membership.decode(meta.membership).members
    assert {server: member.address for server, member in members.items()} == {ONE: "a:1"}


def test_it_is_noted_beside_what_was_there(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=COUNT)
    made = segment(tmp_path).stat().st_size
    cut(tmp_path, left=15)
    left = segment(tmp_path).stat().st_size
    assert run("log", "accept-loss", tmp_path, *YES).exit_code == 0
    aside = tmp_path / f"aside-{instance.hex()}" / "wal"
    note = json.loads((aside / "accepted-loss").read_text())
    assert (note["bytes_left"], note["bytes_made"]) == (left, made)
    assert (note["file"], note["last_index"], note["last_frame"]) == ("0000000001.seg", 15, 16)
    assert "frame 17 of" in note["known"]
    assert (aside / "0000000001.seg").stat().st_size == left


def test_it_asks_and_an_answer_that_is_no_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server_directory(tmp_path, count=COUNT)
    cut(tmp_path, left=15)
    before = segment(tmp_path).read_bytes()
    in_a_script = run("log", "accept-loss", tmp_path)
    assert in_a_script.exit_code == 1
    assert "add --yes-i-lose-writes" in in_a_script.output
    monkeypatch.setattr(offline_options, "_somebody_is_there", lambda: True)
    refused = run("log", "accept-loss", tmp_path, text="no\n")
    assert refused.exit_code == 1
    assert "GIVES UP WRITES" in refused.output
    assert "not confirmed, nothing was changed" in refused.output
    assert segment(tmp_path).read_bytes() == before
    with pytest.raises(CutShortError):
        starts(tmp_path)
    assert run("log", "accept-loss", tmp_path, text=f"{CLUSTER.hex()[:8]}\n").exit_code == 0


def test_a_member_of_a_larger_cluster_is_told_to_join_again(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=COUNT)
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(tmp_path), server=ONE, entropy=os.urandom)
    wal, recovered = Wal.open(fs, directory)
    group = recovered.groups[0]  # type: ignore[index]
    other = ServerId(2)
    members = {ONE: Member(instance, address="a:1"), other: Member(Instance(b"2" * 16), address="b:2")}
    index = group.last_index + 1
    wal.append(
        [
            EntryRecord(
                0,  # type: ignore[arg-type]
                Entry(index, 1, EntryKind.MEMBERSHIP, group.next_position, 0, Membership(members).encode()),
            )
        ]
    )
    directory.close()
    os.truncate(segment(tmp_path), segment(tmp_path).stat().st_size - 1)
    result = run("log", "accept-loss", tmp_path, *YES)
    assert result.exit_code == 1
    assert "other members (server 2)" in result.output
    assert "start the server with an empty one" in result.output
    with pytest.raises(CutShortError):
        starts(tmp_path)


def test_a_log_that_is_whole_has_no_loss_to_accept(tmp_path: Path) -> None:
    server_directory(tmp_path, count=COUNT)
    result = run("log", "accept-loss", tmp_path, *YES)
    assert result.exit_code == 1
    assert "there is no loss to accept; nothing was changed" in result.output
    starts(tmp_path)


def test_nothing_is_left_of_the_log_but_a_snapshot_is(tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=COUNT)
    log = entries(instance, COUNT)
    machine = applied(instance, COUNT, until=12)
    snapshot_of(tmp_path, machine, SnapshotMeta(12, 1, log[11].next_position, log[0].payload))
    os.truncate(segment(tmp_path), 0)
    result = run("log", "accept-loss", tmp_path, *YES)
    assert result.exit_code == 0, result.output
    assert "not even what the segment begins with is left" in result.output
    found = opened(tmp_path)[2]
    assert [f"/n{number}" in found.nodes for number in range(COUNT)] == [
        number < 7 for number in range(COUNT)
    ]


def test_recover_shows_a_cut_and_takes_what_is_left(tmp_path: Path) -> None:
    """The only one that is left of its cluster may be cut, too: the command loses writes, and says so."""
    server_directory(tmp_path, count=COUNT)
    cut(tmp_path, left=15)
    result = run("recover", "--data", tmp_path, "--id", 1, "--address", "127.0.0.1:2181", *YES)
    assert result.exit_code == 0, result.output
    assert "CUT SHORT" in result.output
    assert "/n9" in opened(tmp_path)[2].nodes
