"""Writes the golden data directories. It runs in a tree of the last release, and uses that tree's simulator of a server.

    python writer.py NAME       from inside the tree; the directory and its content go to stdout as JSON

The simulated disk is in memory, and time, identities and passwords come from one seed: the same tree writes the same bytes
again. `tests.upgrade.golden` calls this, and nothing else does: its names are those of the last release.
"""

# Which of these names are the repository's, ruff looks up in another tree.
# ruff: noqa: I001

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from zraft.groups.settings import GroupSettings
from zraft.ids import GroupId, ProducerId, ServerId
from zraft.offline.replay import replay
from zraft.raft.role import Role
from zraft.server.driver import ERRAND_BYTES
from zraft.server.driver_types import DriverSettings
from zraft.server.errands import Errand
from zraft.server.snapshot_keeper import SnapshotSettings
from zraft.storage.directory import DataDirectory
from zraft.storage.wal import Wal
from zraft.testing.disk import SimulatedDisk, Trouble
from zraft.testing.hosting_server import PATH, HostingServer
from zraft.testing.topic_clients import Remembering
from zraft.topics.codec import decode_message, encode_registry
from zraft.topics.producer import Producer
from zraft.topics.registry_commands import CreateTopic, RegisterProducer
from zraft.tree.settings import Settings
from zraft.tree.txn import (
    CREATE,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    FLAG_EPHEMERAL,
    FLAG_SEQUENTIAL,
    MULTI,
    SET_ACL,
    SET_DATA,
    TOPICS,
    Command,
)
from zraft.wire.client import ZkClientCodec

SERVER = ServerId(1)
STEP_MS = 5
PATIENT_MS = 60_000
AGAIN_MS = 100
SESSION_MS = 600_000
ALICE = (("digest", "alice:zMr7NGSJC8xGc4J0Bbvj5q51MxE="),)
"""As ZooKeeper writes the identity of who proved "alice:alice"."""
SETTINGS = DriverSettings(
    groups=GroupSettings(
        snapshot_bytes=3_000, keep_log_bytes_max=2_000, wal_bytes_max=24_000, digest_interval=8
    ),
    snapshots=SnapshotSettings(log_bytes_min=4_000, retain_bytes=1_000),
    tree=Settings(session_timeout_ms_max=SESSION_MS),
)


class Lone:
    """A cluster of one server, whose steps are those of the simulator."""

    def __init__(self, seed: str) -> None:
        self.server = HostingServer(SERVER, [SERVER], SETTINGS, seed)
        self.now_ms = 0
        self.deliveries: dict[str, list[Any]] = {}
        self.server.boot(0)
        self.until(lambda: self.driver.leadership is not None)

    @property
    def driver(self) -> Any:
        return self.server.driver

    def until(self, holds: Callable[[], object]) -> None:
        give_up_at = self.now_ms + PATIENT_MS
        while not holds():
            assert self.now_ms < give_up_at, "it does not come to be so"
            self.step()

    def step(self) -> None:
        self.now_ms += STEP_MS
        self.server.step(self.now_ms, lambda *_: None, calm=True)

    def rest(self, ms: int) -> None:
        until = self.now_ms + ms
        self.until(lambda: self.now_ms >= until)

    def raise_level(self) -> None:
        """The level rises by itself, to the newest that this release has."""
        self.until(lambda: self.driver.topics is not None)

    def session(self) -> int:
        """Opens a session, whose connection stays; its id."""
        wire, opened = ZkClientCodec(), []
        before = set(self.driver.machine.sessions)
        connection = self.driver.connect("10.0.0.1:1", ())
        connection.handle = lambda data: opened.extend(wire.receive(data))
        connection.data_received(wire.connect(timeout_ms=SESSION_MS))
        self.until(lambda: opened)
        (session,) = set(self.driver.machine.sessions) - before
        return session

    def ask(self, session: int, *commands: Command, ids: Sequence[tuple[str, str]] = ()) -> list[Any]:
        """What commands of a session come to."""
        results: list[Any] = []
        for command in commands:
            self.driver.origin.add(Errand(results.append), session, tuple(ids), [command], ERRAND_BYTES)
        self.until(lambda: len(results) == len(commands))
        return results

    def read(self, group: GroupId) -> list[Any]:
        """What a partition delivered: (offset, stamp, message id, payload) of each message, in order."""
        client, offset, end = Remembering(), 0, 1
        found: list[Any] = []
        while offset < end:
            self.server.partitions.topics.fetch(client, 1, group, offset, 4_000, 1_000)
            self.until(lambda: client.fetched)
            fetched = client.fetched.pop()
            for at, stamp, packed in fetched.deliveries:
                message = decode_message(packed)
                found.append([at, list(stamp), list(message.mid), message.payload.decode()])
            offset, end = fetched.next, fetched.end
        return found


def some_of_everything(lone: Lone) -> None:
    lone.raise_level()
    first, second = lone.session(), lone.session()
    lone.ask(
        first,
        (CREATE, "/plain", b"first", None, 0, None),
        (CREATE, "/nothing", None, None, 0, None),
        (CREATE, "/ephemeral", b"mine", None, FLAG_EPHEMERAL, None),
        (CREATE, "/queue", b"", None, 0, None),
        *[(CREATE, "/queue/item-", b"%d" % n, None, FLAG_SEQUENTIAL, None) for n in range(5)],
        (CREATE_CONTAINER, "/container", b"", None, 0, None),
        (CREATE, "/container/child", b"", None, 0, None),
        (CREATE_TTL, "/ttl", b"", None, 0, 1_000_000_000),
        (MULTI, ((CREATE, "/multi", b"a", None, 0, None), (SET_DATA, "/multi", b"b", 0))),
    )
    lone.ask(
        second,
        (CREATE, "/secret", b"of alice", ((31, "auth", ""),), 0, None),
        (CREATE, "/read-only", b"anybody reads", ((1, "world", "anyone"), (31, *ALICE[0])), 0, None),
        (CREATE, "/opened", b"", None, 0, None),
        (SET_ACL, "/opened", ((31, *ALICE[0]), (1, "world", "anyone")), 0),
        (CREATE, "/theirs", b"", None, FLAG_EPHEMERAL, None),
        ids=ALICE,
    )


def write_much(lone: Lone) -> None:
    """Until the log begins behind a snapshot."""
    first, number = f"{PATH}/wal/0000000001.seg", 0
    while first in lone.server.disk._names:
        number += 1
        lone.ask(
            0,
            (CREATE, f"/written-{number}", b"%d " % number * 500, None, 0, None),
            (SET_DATA, "/plain", b"%d" % number, -1),
            (DELETE, f"/written-{number - 3}", -1),
        )


def founded() -> Lone:
    """It leads, and has written nothing of a client."""
    lone = Lone("golden/founded")
    lone.rest(100)
    lone.server.crash(power=False)
    return lone


def znodes() -> Lone:
    """Znodes of all kinds, sessions, ACLs, and a log that begins behind a snapshot; it was killed."""
    lone = Lone("golden/znodes")
    some_of_everything(lone)
    write_much(lone)
    lone.rest(3_000)
    lone.ask(0, (SET_DATA, "/plain", b"after the snapshot", -1))
    lone.server.crash(power=False)
    return lone


def torn() -> Lone:
    """The power failed while a frame was being written, of which a part is there."""
    for attempt in range(100):
        lone = Lone(f"golden/torn/{attempt}")
        some_of_everything(lone)
        lone.rest(200)
        rng = random.Random(attempt)
        results: list[Any] = []
        write = (CREATE, "/torn", b"lost" * 1_500, None, 0, None)
        lone.driver.origin.add(Errand(results.append), 0, (), [write], ERRAND_BYTES)
        lone.server.disk.fail_at(1, Trouble.DIE_DURING, rng)
        while lone.server.up:
            lone.step()
        assert not results
        if tail_of(files_of(lone.server.disk)):
            return lone
    raise AssertionError("no attempt left a part of a frame")


def tail_of(files: dict[str, bytes | None]) -> int:
    """How many bytes behind the last whole frame a start would cut off."""
    disk = SimulatedDisk()
    disk.mkdir(PATH)
    for path, data in files.items():
        if data is None:
            disk.mkdir(f"{PATH}/{path}")
        else:
            disk.replace(f"{PATH}/{path}", data)
    directory = DataDirectory.open(disk, PATH, server=SERVER, entropy=random.Random(0).randbytes)
    wal, recovered = Wal.open(disk, directory)
    wal.close()
    tail = recovered.report.torn_tail
    return 0 if tail is None else tail.size


def topics() -> Lone:
    """Two partitions with messages to one of them and to both, images of both, deliveries in several files."""
    lone = Lone("golden/topics")
    lone.raise_level()
    session = lone.session()
    lone.ask(session, (TOPICS, encode_registry(CreateTopic("orders", 2))))
    registry, host = lone.driver.machine.registry, lone.driver.groups.host
    lone.until(lambda: len(host.groups) == 2)
    lone.until(lambda: all(one.raft.role is Role.LEADER for one in host.groups.values()))
    (topic,) = registry.topics.values()
    (registered,) = lone.ask(session, (TOPICS, encode_registry(RegisterProducer(session))))
    producer = Producer(ProducerId(registered.created), registry.table(), window=64)
    client, ended = Remembering(), 0
    for number in range(60):
        destinations = [topic.partitions[number % 2]] if number % 3 else topic.partitions
        message = producer.multicast(destinations, b"message %d " % number * (1 + number % 70))
        while ended <= number:
            for group, request in producer.requests(message.mid.seq):
                lone.server.partitions.topics.produce(client, 1, group, request)
            lone.rest(AGAIN_MS)
            replies, client.replies = client.replies, []
            ended += sum(len(producer.on_reply(reply)) for reply in replies)
    lone.rest(3_000)
    for number, group in enumerate(topic.partitions):
        lone.deliveries[f"orders/{number}"] = lone.read(group)
    assert lone.driver.groups.snapshots.taken_total >= 2
    lone.server.crash(power=False)
    return lone


MAKERS = {maker.__name__: maker for maker in (founded, znodes, torn, topics)}


def files_of(disk: SimulatedDisk) -> dict[str, bytes | None]:
    """What the disk holds below the data directory, by relative path; None for a directory."""
    found: dict[str, bytes | None] = {}
    for path, inode in sorted(disk._names.items()):
        if path.startswith(PATH + "/"):
            found[path[len(PATH) + 1 :]] = None if inode.is_directory else disk.contents(path)
    return found


def content(disk: SimulatedDisk) -> dict[str, Any]:
    """What this release finds in it."""
    directory = DataDirectory.open(disk, PATH, server=SERVER, entropy=random.Random(0).randbytes)
    replayed = replay(disk, directory)
    directory.close()
    disk.kill()
    machine = replayed.machine
    return {
        "digest": machine.full_digest(),
        "zxid": machine.last_zxid,
        "level": machine.feature_level,
        "log": {"index": replayed.origin.index, "snapshot": replayed.snapshot_index},
        "sessions": {
            f"{one:#x}": [s.timeout_ms, s.password.hex()] for one, s in sorted(machine.sessions.items())
        },
        "znodes": {
            path: [
                None if node.data is None else node.data.decode("latin-1"),
                list(node.stat()),
                list(node.acl),
            ]
            for path, node in sorted(machine.nodes.items())
        },
    }


def main(name: str) -> None:
    lone = MAKERS[name]()
    files = files_of(lone.server.disk)
    found = content(lone.server.disk) | {"deliveries": lone.deliveries}
    packed = {path: None if data is None else base64.b64encode(data).decode() for path, data in files.items()}
    json.dump({"files": packed, "content": found}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
