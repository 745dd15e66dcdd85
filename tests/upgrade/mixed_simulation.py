"""Three simulated servers, each of this release or of the last one, that change releases as they go down and come up again.

    python -m tests.upgrade.mixed_simulation --seeds 500 [--start N]

It is `tests.simulation.hosting_simulation` with the last release's own code for some of the servers: its package is loaded a
second time, and between both nothing passes but bytes: messages as they are on the wire, files as they are on the disk. No
server announces more than the last release's feature level, so that a server may also go back (D-5). What was delivered must
be the same everywhere, and members compare their states meanwhile (D-26).
"""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from attrs import evolve, frozen

from tests.simulation import disk, hosting_server, topic_clients
from tests.simulation.hosting_simulation import SERVERS, SETTINGS, HostingSimulation, HostingStatistics
from tests.upgrade.golden import extract_release
from tests.upgrade.releases import OLD_LEVEL
from zraft.server.clients import errands
from zraft.server.engine.driver import ERRAND_BYTES
from zraft.transport import codec, messages
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics import codec as topics_codec
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.producer import Ended, ProducerCore
from zraft_core.topics.registry_commands import CreateTopic, RegisterProducer, RegistryCommand
from zraft_core.wire.client import ZkClientCodec
from zraft_core.znodes.txn import TOPICS

OF_RELEASES: Final = ("zraft", "zraft_client", "zraft_core", "onyxlog")
PARTITIONS: Final = 3
SESSION_MS: Final = SETTINGS.tree.session_timeout_ms_max
CHANGES: Final = 0.4
"""How often a server that comes up again is of the other release."""


OLD_NAMES: Final = {
    "hosting_server": "zraft.testing.hosting_server",
    "disk": "zraft.testing.disk",
    "topic_clients": "zraft.testing.topic_clients",
    "codec": "zraft.transport.codec",
    "messages": "zraft.transport.messages",
    "topics_codec": "zraft.topics.codec",
    "errands": "zraft.server.errands",
    "driver_types": "zraft.server.driver_types",
    "settings": "zraft.groups.settings",
    "snapshot_keeper": "zraft.server.snapshot_keeper",
    "tree_settings": "zraft.tree.settings",
}


@frozen
class Release:
    """The code of one release, as far as the simulation touches it.

    Attributes:
        codec, messages: of what servers say.
        topics: the codec of what producers say.
    """

    name: str
    server: Any
    disk: Any
    codec: Any
    messages: Any
    topics: Any
    remembering: Any
    errand: Any
    settings: Any


NEW: Final = Release(
    "this",
    hosting_server.HostingServer,
    disk.SimulatedDisk,
    codec,
    messages,
    topics_codec,
    topic_clients.Remembering,
    errands.Errand,
    evolve(SETTINGS, features=OLD_LEVEL),
)


def load_release(tree: Path) -> Release:
    """The last release's code, beside this one's. No module of it imports anything later, or it would get this one's."""
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in OF_RELEASES}
    path = list(sys.path)
    for name in ours:
        del sys.modules[name]
    sys.path[:0] = [str(tree), str(tree / "client")]
    try:
        found = {name: importlib.import_module(module) for name, module in OLD_NAMES.items()}
        theirs = {
            name: module for name, module in sys.modules.items() if name.partition(".")[0] in OF_RELEASES
        }
        mixed = [name for name, module in theirs.items() if not str(module.__file__).startswith(str(tree))]
        assert not mixed, f"not of the last release's tree: {mixed}"
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name.partition(".")[0] in OF_RELEASES]:
            del sys.modules[name]
        sys.modules.update(ours)
    settings = found["driver_types"].DriverSettings(
        groups=found["settings"].GroupSettings(
            **{
                name: getattr(SETTINGS.groups, name)
                for name in (
                    "snapshot_bytes",
                    "keep_log_bytes_max",
                    "wal_bytes_max",
                    "log_bytes_max",
                    "digest_interval",
                )
            }
        ),
        snapshots=found["snapshot_keeper"].SnapshotSettings(
            log_bytes_min=SETTINGS.snapshots.log_bytes_min, retain_bytes=SETTINGS.snapshots.retain_bytes
        ),
        tree=found["tree_settings"].Settings(
            session_timeout_ms_min=SESSION_MS, session_timeout_ms_max=SESSION_MS
        ),
    )
    return Release(
        "last",
        found["hosting_server"].HostingServer,
        found["disk"].SimulatedDisk,
        found["codec"],
        found["messages"],
        found["topics_codec"],
        found["topic_clients"].Remembering,
        found["errands"].Errand,
        settings,
    )


class MixedSimulation(HostingSimulation):
    """One run.

    Attributes:
        changes: how often a server came up with the other release.
        mixed_ms: for how long servers of both releases were up.
    """

    def __init__(self, seed: int, old: Release, *, messages: int = 120) -> None:
        super().__init__(seed, messages=messages)
        self._seed = seed
        self._old = old
        self._roll = random.Random(f"mixed/{seed}")
        self._release: dict[ServerId, Release] = {}
        self.changes = self.mixed_ms = 0
        for server in SERVERS:
            self._place(server, self._roll.choice((NEW, old)))

    def _place(self, server: ServerId, release: Release) -> None:
        self._release[server] = release
        placed = release.server(server, SERVERS, release.settings, f"{self._seed}")
        placed.hear = partial(self._arrive, placed, release)
        self.servers[server] = placed

    def run(self) -> HostingStatistics:
        """Found, produce among faults and changes of releases, heal, compare.

        Raises:
            BrokenPromiseError: says what should have been; the last release has an exception of its own for it.
        """
        for server in self.servers.values():
            server.boot(self.now_ms)
        producer = self._prepare()
        ended = self._produce(producer)
        self._calm = True
        self._cut.clear()
        self._until(lambda: self._finish(producer, ended), "every message is decided")
        self._compare(ended)
        self.statistics.decided = len(ended)
        levels = {server.driver.machine.feature_level for server in self.servers.values() if server.driver}
        assert levels == {OLD_LEVEL}, levels
        for server in self.servers.values():
            server._count()
        every = self.servers.values()
        self.statistics.crashes = sum(one.crashes_total for one in every)
        self.statistics.snapshots = sum(one.snapshots_total for one in every)
        self.statistics.installed = sum(one.installed_total for one in every)
        return self.statistics

    def _step(self) -> None:
        for number, server in self.servers.items():
            if not server.up and not self._calm and server.boots and server.ended is None:
                self._change_now_and_then(number)
        up = {self._release[number].name for number, server in self.servers.items() if server.up}
        before = self.now_ms
        super()._step()
        self.mixed_ms += (self.now_ms - before) * (len(up) > 1)

    def _change_now_and_then(self, number: ServerId) -> None:
        """It is down; with the chance of coming up in this step, it may become one of the other release."""
        if self._roll.random() >= 0.01 * CHANGES:
            return
        before, was = self.servers[number], self._release[number]
        self._place(number, self._old if was is NEW else NEW)
        after = self.servers[number]
        for path, inode in sorted(before.disk._names.items()):
            if inode.is_directory and path != "/":
                after.disk.mkdir(path)
            elif path != "/":
                after.disk.replace(path, before.disk.contents(path))
        for path, inode in before.disk._names.items():
            if inode.is_directory:
                after.disk.fsync_directory(path)
        after.boots = before.boots
        for total in ("crashes_total", "snapshots_total", "installed_total"):
            setattr(after, total, getattr(before, total))
        self.changes += 1

    # -- what passes from one release to another

    def _send(self, sender: Any, to: ServerId, said: Sequence[Any]) -> None:
        encode = self._release[sender.server].codec.encode
        packets = [encode(message) for message in said]
        if self._calm:
            self._flying.append((self.now_ms + 1, to, sender, packets))
            return
        rng = self._rng
        if (sender.server, to) in self._cut or rng.random() < 0.03:
            return
        for _ in range(2 if rng.random() < 0.02 else 1):
            self._flying.append((self.now_ms + rng.randint(1, 30), to, sender, packets))

    def _arrive(self, server: Any, release: Release, sender: Any, packets: Sequence[bytes]) -> None:
        """Read by whoever is there when it arrives, which may be another release than when it was sent."""
        known = release.messages.Sender(sender.server, sender.instance, sender.boot)
        release.server.hear(server, known, [release.codec.decode(packet) for packet in packets])

    def _leads(self, group: GroupId) -> Any:
        for server in self.servers.values():
            groups = None if server.driver is None else server.driver.groups
            replica = None if groups is None else groups.host.groups.get(group)
            if replica is not None and replica.raft.role.name == "LEADER":
                return server
        return None

    def _command(self, command: RegistryCommand, session: int = 0) -> Any:
        results: list[Any] = []
        leader = self._leading_server()
        errand = self._release[leader.server].errand(results.append)
        leader.driver.origin.add(errand, session, (), [(TOPICS, encode_registry(command))], ERRAND_BYTES)
        self._until(lambda: results, "group 0 answers")
        return results[0]

    def _leading_server(self) -> Any:
        self._until(self._leader, "somebody leads group 0")
        return self._leader()

    def _prepare(self) -> ProducerCore:
        self._until(self._serves, "the cluster has topics")
        leader = self._leading_server()
        wire, opened = ZkClientCodec(), list[object]()
        connection = leader.driver.connect("10.0.0.1:1", ())
        connection.handle = lambda data: opened.extend(wire.receive(data))
        connection.data_received(wire.connect(timeout_ms=SESSION_MS))
        self._until(lambda: opened, "a session")
        self._command(CreateTopic("orders", PARTITIONS))
        self._until(lambda: len(self._groups()) == PARTITIONS, "all partitions")
        (session,) = leader.driver.machine.sessions
        created = self._command(RegisterProducer(session), session).created
        self._until(lambda: all(self._leads(group) for group in self._groups()), "all are led")
        return ProducerCore(ProducerId(created), leader.driver.machine.registry.table(), window=64)

    def _request(self, producer: ProducerCore, seqs: Sequence[int]) -> None:
        for seq in seqs:
            for group, request in producer.requests(seq):
                server = self._leads(group)
                if server is None or server.partitions is None:
                    continue
                release = self._release[server.server]
                client = self._clients.setdefault((server.server, server.boots), release.remembering())
                asked = release.topics.decode_edge(topics_codec.encode_edge(request))
                server.partitions.topics.produce(client, 1, group, asked)

    def _hear(self, producer: ProducerCore, ended: dict[Any, Ended]) -> None:
        for client in self._clients.values():
            replies, client.replies = client.replies, []
            encode = (self._old if type(client) is self._old.remembering else NEW).topics.encode_edge
            for reply in replies:
                for one in producer.on_reply(topics_codec.decode_edge(encode(reply))):
                    ended[one.mid] = one


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=20, show_default=True)
@click.option("--start", type=click.IntRange(0), default=1, show_default=True)
def main(seeds: int, start: int) -> None:
    """Run seeds one after the other; the first that breaks a promise ends it."""
    changes = mixed_ms = 0
    with tempfile.TemporaryDirectory() as scratch:
        old = load_release(extract_release(Path(scratch)))
        for seed in range(start, start + seeds):
            simulation = MixedSimulation(seed, old)
            try:
                found = simulation.run()
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            changes += simulation.changes
            mixed_ms += simulation.mixed_ms
            print(seed, found, simulation.changes, simulation.mixed_ms, flush=True)
    print(f"{seeds} seeds, {changes} changes of release, {mixed_ms} ms with both")


if __name__ == "__main__":
    main()
