"""`zraft log` and `zraft snapshot inspect`: what is there is shown, secrets are not, damage has an exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from tests.unit.server.partitions.test_machine import filled
from tests.unit.storage.delivery.scenario import SMALL, feed, history
from tests.unit.storage.lifetime import header_of
from zraft.cli.main import main
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, HardState, Member
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.partitions.machine import mark_of_image
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.directory import DataDirectory, decode_meta, encode_meta
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.records import EntryRecord, HardStateRecord, TruncateRecord
from zraft.storage.settings import WalSettings
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.znodes import txn

GROUP = header_of(SnapshotMeta(1, 1, 1, b"")).group
SERVER = ServerId(1)
SETTINGS = WalSettings(segment_bytes_max=4096)


class Server:
    """An open data directory: as a running server's, for what reads it."""

    def __init__(self, path: Path) -> None:
        fs = RealFileSystem()
        self.path = path
        self.directory = DataDirectory.open(fs, str(path), server=SERVER, entropy=os.urandom)
        self.store = SnapshotStore.open(fs, self.directory, GROUP)
        self.wal, _ = Wal.open(fs, self.directory, settings=SETTINGS)
        self.membership = Membership({SERVER: Member(Instance(bytes(16)))}).encode()
        self.wal.append(
            [
                HardStateRecord(GROUP, HardState(1, SERVER)),
                EntryRecord(GROUP, Entry(1, 1, EntryKind.MEMBERSHIP, 1, 0, self.membership)),
            ]
        )
        self.last = 1

    def append(self, *commands: tuple[object, ...]) -> None:
        self.last += 1
        batch = txn.pack_batch(SERVER, self.directory.instance, 1, self.last, [(0x1000, (), commands)])
        payload = txn.pack_entry(5, 1_700_000_000_000, [batch])
        entry = Entry(self.last, 1, EntryKind.COMMANDS, self.last - 1, 1, payload)
        self.wal.append([EntryRecord(GROUP, entry)])

    def snapshot(self, index: int) -> str:
        self.store.begin(header_of(SnapshotMeta(index, 1, index, self.membership)))
        self.store.write(b"image" * 1000)
        return self.store.finish(12, 1 << 100, 77).path

    def close(self) -> None:
        self.wal.close()
        self.directory.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "data")
    server.append((txn.CREATE, "/a", b"treasure", ((31, "digest", "bob:c2VjcmV0"),), 0, 0))
    server.append((txn.MULTI, ((txn.DELETE, "/b", -1), (txn.SET_DATA, "/c", b"treasure", 3))))
    yield server
    server.close()


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_dump_of_a_running_server_names_commands_and_hides_data_and_secrets(server: Server) -> None:
    server.append(
        (txn.CREATE_SESSION, 30_000, b"sesspassword1234"), (txn.SETTINGS, {"super_digest": "super:c2VjcmV0"})
    )
    out = run("log", "dump", server.path).output
    assert "entry      group=0 index=2 term=1 position=1 count=1 kind=commands" in out
    assert "create '/a' data=(8 bytes) acl=[[31, digest, bob:(hidden)]] flags=0 ttl=0" in out
    assert "multi {delete '/b' version=-1; set_data '/c' data=(8 bytes) version=3}" in out
    assert "hard_state group=0 term=1 voted_for=1" in out
    assert "members=[{server=1" in out
    with_data = run("log", "dump", server.path, "--data").output
    assert b"treasure".hex() in with_data
    for secret in ("c2VjcmV0", "sesspassword", b"sesspassword1234".hex(), "treasure"):
        assert secret not in out
        assert secret not in with_data or secret == "treasure"


def test_dump_hides_what_a_numbered_command_holds_as_well(server: Server) -> None:
    """The hash of a digest in its ACL, and data."""
    acl = ((31, "digest", "amy:aGFzaA=="),)
    server.append(
        (txn.ONCE, 1, 0, (txn.CREATE, "/a", b"secret", acl, 0, None)), (txn.WILL, "/log", "x-", b"secret")
    )
    dump = run("log", "dump", str(server.path)).output
    assert "amy" in dump
    assert "ONCE" in dump.upper()
    assert "aGFzaA" not in dump
    assert "secret" not in dump
    assert b"secret".hex() not in dump


def test_dump_as_json_is_an_object_per_record_of_the_range(server: Server) -> None:
    server.wal.append([TruncateRecord(GROUP, 3)])
    lines = run(
        "log", "dump", server.path, "--json", "--from", 2, "--to", 3, "--group", 0
    ).output.splitlines()
    values = [json.loads(line) for line in lines]
    assert [(value["record"], value.get("index")) for value in values] == [
        ("entry", 2),
        ("entry", 3),
        ("truncate", None),
    ]
    assert values[0]["batches"][0]["runs"][0]["commands"][0]["path"] == "/a"
    assert run("log", "dump", server.path, "--group", 5).output == ""


def test_verify_of_a_running_server_counts_and_checks_everything(server: Server) -> None:
    for _ in range(30):
        server.append((txn.SET_DATA, "/a", bytes(500), -1))
    server.snapshot(10)
    found = run("log", "verify", server.path)
    assert found.exit_code == 0, found.output
    assert "wal/0000000004.seg" in found.output
    assert "up to entry 10, 12 items" in found.output
    assert "entries 1 to 33" in found.output
    assert "everything is whole" in found.output


def test_verify_and_dump_name_damage_and_fail(server: Server) -> None:
    for _ in range(30):
        server.append((txn.SET_DATA, "/a", bytes(500), -1))
    snapshot = Path(server.snapshot(10))
    segment = server.path / "wal" / "0000000002.seg"
    for path, offset in ((snapshot, snapshot.stat().st_size // 2), (segment, 2000)):
        good = path.read_bytes()
        path.write_bytes(good[:offset] + b"??" + good[offset + 2 :])
        found = run("log", "verify", server.path)
        assert found.exit_code == 1
        assert f"{path}: corrupt at offset" in found.output
        assert "everything is whole" not in found.output
        dumped = run("log", "dump", server.path)
        assert (dumped.exit_code == 1) == (path == segment)
        if path == snapshot:
            inspected = run("snapshot", "inspect", path)
            assert inspected.exit_code == 1
            assert f"{path}: damaged at offset" in inspected.output
            assert "use another copy" in inspected.output
            assert "move the data directory" not in inspected.output
        path.write_bytes(good)
    assert run("log", "verify", server.path).exit_code == 0


def test_verify_says_that_a_compacted_log_lacks_its_snapshot(server: Server) -> None:
    for _ in range(30):
        server.append((txn.SET_DATA, "/a", bytes(500), -1))
    snapshot = server.snapshot(30)
    assert server.wal.compact(GROUP, 30) > 0
    assert run("log", "verify", server.path).exit_code == 0
    assert "base       group=0" in run("log", "dump", server.path).output
    os.unlink(snapshot)
    found = run("log", "verify", server.path)
    assert found.exit_code == 1
    assert "no good snapshot reaches there" in found.output


def test_verify_says_that_the_last_file_was_cut(server: Server) -> None:
    for _ in range(30):
        server.append((txn.SET_DATA, "/a", bytes(500), -1))
    segment = server.path / "wal" / "0000000005.seg"
    assert segment.stat().st_size == 4096
    for length in (4095, 1200, 300, 10):
        os.truncate(segment, length)
        found = run("log", "verify", server.path)
        assert found.exit_code == 1, found.output
        assert (
            f"{segment}: corrupt at offset {length}: the file was cut: {length} bytes are left of 4096"
            in found.output
        )
        assert "everything is whole" not in found.output
        assert ("CUT SHORT" in found.output) == (length > 10)
        assert "entries 1 to " in found.output, "what is left is shown"


def test_verify_says_that_it_could_not_see_a_cut(server: Server) -> None:
    meta = server.path / "meta"
    meta.write_bytes(encode_meta(evolve(decode_meta(meta.read_bytes(), "meta"), newest_bytes=None)))
    found = run("log", "verify", server.path)
    assert found.exit_code == 0
    assert "how long it was made is not recorded" in found.output


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_verify_says_which_segment_is_missing(server: Server, number: int) -> None:
    for _ in range(30):
        server.append((txn.SET_DATA, "/a", bytes(500), -1))
    (server.path / "wal" / f"{number:010d}.seg").unlink()
    found = run("log", "verify", server.path)
    assert found.exit_code == 1, found.output
    assert "everything is whole" not in found.output
    if number in (1, 5):
        assert (
            f"wal/{number:010d}.seg: corrupt at offset 0: the file is missing" in found.output or number == 1
        )
        assert number == 5 or "begins after entry" in found.output
    else:
        assert (
            f"{server.path}/wal: segment {number} is missing, and with it what the groups above lack"
            in found.output
        )


def test_verify_says_that_a_gap_is_covered_by_snapshots(server: Server) -> None:
    for _ in range(30):
        server.append((txn.SET_DATA, "/a", bytes(500), -1))
    server.snapshot(30)
    for number in (2, 3):
        (server.path / "wal" / f"{number:010d}.seg").unlink()
    found = run("log", "verify", server.path)
    assert found.exit_code == 0, found.output
    assert "segments 2 to 3 are missing, which snapshots cover" in found.output


def test_frame_being_written_is_no_damage(server: Server) -> None:
    segment = server.path / "wal" / "0000000001.seg"
    end = server.wal.statistics().length
    with segment.open("r+b") as file:
        file.seek(end)
        file.write(b"\x95\x01\xcf half a frame")
    assert run("log", "dump", server.path).exit_code == 0
    found = run("log", "verify", server.path)
    assert found.exit_code == 0
    assert f"after the last whole frame at {end}: being written, or cut short" in found.output


def test_inspect_shows_what_a_snapshot_is_of(server: Server) -> None:
    path = server.snapshot(2)
    value = json.loads(run("snapshot", "inspect", path, "--json").output)
    assert value["index"] == 2
    assert value["items"] == 12
    assert value["bytes"] == 5000
    assert value["digest"] == f"{1 << 100:032x}"
    assert value["members"][0]["server"] == 1
    assert "whole:          yes" in run("snapshot", "inspect", path).output


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a backup of something else", bytes(100_000)])
@pytest.mark.parametrize("command", ["inspect", "restore"])
def test_a_file_that_is_no_snapshot_is_told_as_that_and_no_disk_is_blamed(
    tmp_path: Path, content: bytes, command: str
) -> None:
    file = tmp_path / "backup.zip"
    file.write_bytes(content)
    founding = ("--data", tmp_path / "data", "--id", "1", "--cluster", "1=127.0.0.1:2999")
    found = run("snapshot", command, file, *(founding if command == "restore" else ()))
    assert found.exit_code == 2
    assert f"{file}: is no snapshot of zraft" in found.output
    assert "zraft snapshot save" in found.output
    assert "disk" not in found.output
    assert [path.name for path in tmp_path.iterdir()] == ["backup.zip"], "no directory is made for it"


def test_a_snapshot_of_a_format_to_come_is_left_to_its_release(server: Server) -> None:
    path = Path(server.snapshot(2))
    content = bytearray(path.read_bytes())
    content[content.index(b"format") + len(b"format")] = 9
    path.write_bytes(content)
    found = run("snapshot", "inspect", path)
    assert found.exit_code == 1
    assert (
        "snapshot of format 9, this release knows 1; use the zraft of the release that wrote it"
        in found.output
    )


def test_a_snapshot_that_was_copied_in_part_is_told_to_be_copied_again(server: Server) -> None:
    path = Path(server.snapshot(2))
    path.write_bytes(path.read_bytes()[:-100])
    found = run("snapshot", "inspect", path)
    assert found.exit_code == 1
    assert f"{path}: damaged at offset" in found.output
    assert "copied in part" in found.output


def test_what_is_no_data_directory_is_told(tmp_path: Path) -> None:
    for words in (("log", "dump"), ("log", "verify")):
        found = run(*words, tmp_path)
        assert found.exit_code == 1
        assert f"{tmp_path}: is not a data directory" in found.output
    assert run("log", "verify", tmp_path / "absent").exit_code == 2


DELIVERED = history(60)
PARTITION = GroupId(300)


def deliver(server: Server) -> DeliveryLog:
    """A partition of the running server, of which the last deliveries are not synced."""
    log, _ = DeliveryDisk(RealFileSystem(), server.directory, SMALL).open(PARTITION)
    feed(log, DELIVERED)
    return log


def test_dump_shows_deliveries_of_a_running_server_by_offset_and_hides_payloads(server: Server) -> None:
    deliver(server)
    result = run("log", "dump", server.path, "--deliveries", "--from", 7, "--to", 9)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[1] for line in lines] == ["offset=7", "offset=8", "offset=9"]
    assert f"group={PARTITION}" in lines[0]
    assert "payload" not in result.output
    result = run("log", "dump", server.path, "--deliveries", "--group", PARTITION, "--json", "--data")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["offset"] for row in rows] == list(range(len(DELIVERED)))
    assert [bytes.fromhex(row["payload"]) for row in rows] == [one.payload for one in DELIVERED]
    assert rows[3]["stamp"] == list(DELIVERED[3].stamp)
    assert rows[0]["file"].endswith(".seg")
    assert "deliveries" not in run("log", "dump", server.path).output


def test_verify_reads_deliveries_and_finds_their_damage(server: Server) -> None:
    log = deliver(server)
    result = run("log", "verify", server.path)
    assert result.exit_code == 0
    assert "everything is whole" in result.output
    assert "deliveries 0 to " in result.output
    assert f"to {len(DELIVERED) - 1} " in result.output, "what is written and not synced, too"
    segment = log.manifest().segments[1]
    path = Path(log.path) / segment.name
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(bytes(data))
    result = run("log", "verify", server.path)
    assert result.exit_code == 1
    assert f"{path}: corrupt at offset" in result.output
    assert "DAMAGED" in result.output
    assert "everything is whole" not in result.output


def test_verify_finds_deliveries_that_end_before_what_an_image_of_the_partition_needs(server: Server) -> None:
    """A start stops at that; the files that are there may each be whole."""
    machine, _ = filled()
    mark = mark_of_image(machine.group, machine.snapshot(), 9)
    assert mark.offset > 0
    store = SnapshotStore.open(RealFileSystem(), server.directory, machine.group)
    store.begin(evolve(header_of(SnapshotMeta(9, 1, 9, server.membership)), group=machine.group))
    store.write(machine.snapshot())
    store.finish(1, machine.digest(), 0)
    found = run("log", "verify", server.path)
    assert found.exit_code == 1
    assert (
        f"groups/{machine.group}/deliveries: end at 0, the newest snapshot of group {machine.group} needs them up to "
        f"{mark.offset}" in found.output
    )


def test_dump_of_a_partition_that_is_not_here_says_so(server: Server) -> None:
    result = run("log", "dump", server.path, "--deliveries", "--group", 4)
    assert result.exit_code == 1
    assert "groups/4/deliveries" in result.output
    assert run("log", "dump", server.path, "--deliveries").output == ""
