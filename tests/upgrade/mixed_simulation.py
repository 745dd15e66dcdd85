"""Three simulated servers, each of this release or of the last one, that change releases as they go down and come up again.

    python -m tests.upgrade.mixed_simulation --seeds 500 [--start N]

It is `tests.simulation.hosting_simulation` with the last release's own code for some of the servers: its package is loaded a
second time, and between both nothing passes but bytes: messages as they are on the wire, files as they are on the disk. No
server announces more than the last release's feature level, so that a server may also go back (D-5). What was delivered must
be the same everywhere, and members compare their states meanwhile (D-26). The last release's simulated server goes step by
step; `OldProcess` lets it take them on the simulation's clock, network and faults.
"""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.disk import SimulatedDisk
from tests.simulation.hosting_process import HostingProcess
from tests.simulation.hosting_simulation import SERVERS, SETTINGS, STEP_MS, HostingSimulation
from tests.simulation.partitions.programs import Producing
from tests.simulation.topic_clients import Deaf
from tests.upgrade.golden import extract_release
from tests.upgrade.releases import OLD_LEVEL
from zraft.server.engine.applier import SESSION_COMMANDS
from zraft.server.engine.driver import ERRAND_BYTES
from zraft.topics.service import TopicClient
from zraft.transport import codec
from zraft.transport.messages import Sender
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.codec import decode_edge, encode_edge
from zraft_core.topics.messages import Reply, StartRequest
from zraft_core.znodes.txn import Command

OF_RELEASES: Final = ("zraft", "zraft_client", "zraft_core", "onyxlog")
SESSION_MS: Final = SETTINGS.tree.session_timeout_ms_max
CHANGES: Final = 0.4
"""How often a server that comes up again is of the other release."""
POWER: Final = 0.75
"""Share of crashes in which the machine loses its power."""

OLD_NAMES: Final = {
    "hosting_server": "zraft.testing.hosting_server",
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
    """The code of the last release, as far as the simulation touches it.

    Attributes:
        codec, messages: of what servers say.
        topics: the codec of what producers say.
    """

    server: Any
    codec: Any
    messages: Any
    topics: Any
    errand: Any
    settings: Any


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
        found["hosting_server"].HostingServer,
        found["codec"],
        found["messages"],
        found["topics_codec"],
        found["errands"].Errand,
        settings,
    )


class OldTopics(Deaf):
    """Partitions of the last release's server, as this release's clients see them."""

    def __init__(self, process: OldProcess) -> None:
        self._release = process.release
        self._topics = process.partitions.topics
        self._hears: TopicClient | None = None

    def produce(self, client: TopicClient, id: int, group: GroupId, requests: Sequence[StartRequest]) -> None:
        self._hears = client
        for request in requests:
            self._topics.produce(self, id, group, self._release.topics.decode_edge(encode_edge(request)))

    def on_reply(self, id: int, reply: Any) -> None:
        found = decode_edge(self._release.topics.encode_edge(reply))
        assert isinstance(found, Reply)
        assert self._hears is not None
        self._hears.on_reply(id, found)

    def fetch(self, *arguments: Any) -> None:
        self._topics.fetch(*arguments)


class OldProcess:
    """A server of the last release in the place of a `HostingProcess`; it takes a step every `STEP_MS`."""

    def __init__(self, server: ServerId, world: MixedSimulation) -> None:
        self.release = world.old
        self.calm = False
        self.stopped_until_ms = 0
        self.on_death: Callable[[], None] = lambda: None
        self._world = world
        self._old = self.release.server(server, SERVERS, self.release.settings, f"{world.seed}")
        world.schedule.after(STEP_MS, self._step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._old, name)

    @property
    def sender(self) -> Sender:
        sender = self._old.sender
        return Sender(self.server, sender.instance if sender else Instance(b""), sender.boot if sender else 0)

    @property
    def boots(self) -> int:
        boots: int = self._old.boots
        return boots

    @boots.setter
    def boots(self, boots: int) -> None:
        self._old.boots = boots

    def _step(self) -> None:
        world, old = self._world, self._old
        if world.processes[self.server].current is not self:  # type: ignore[attr-defined]
            return  # it is of the other release by now
        world.schedule.after(STEP_MS, self._step)
        if old.up and world.schedule.now_ms >= self.stopped_until_ms:
            old.step(world.schedule.now_ms, self._send, calm=self.calm)
            self._look()

    def _look(self) -> None:
        if not self._old.up:
            self.on_death()

    def _send(self, sender: Any, to: ServerId, said: Sequence[Any]) -> None:
        packets = [self.release.codec.encode(message) for message in said]
        read = [codec.decode(packet) for packet in packets]
        if [codec.encode(message) for message in read] != packets:
            raise BrokenPromiseError("codec", f"server {self.server}: {said} is read as {read}")
        self._world.sending(self.sender, to, read)

    # -- what is done to it

    def boot(self) -> None:
        if not self._old.up:
            self._old.boot(self._world.schedule.now_ms)
            self._look()

    def crash(self) -> None:
        self._old.crash(power=self._world.roll.random() < POWER)

    def stop(self, until_ms: int) -> None:
        self.stopped_until_ms = max(self.stopped_until_ms, until_ms)

    def resume(self) -> None:
        self.stopped_until_ms = 0

    def wake(self) -> None:
        """It takes a step soon enough."""

    def datagram(self, sender: Sender, data: bytes) -> None:
        if self._old.up:
            known = self.release.messages.Sender(sender.server, sender.instance, sender.boot)
            messages, errors = self.release.codec.decode_sequence(data)
            assert not errors, errors
            self._old.hear(known, messages)

    # -- what it is asked

    @property
    def topics(self) -> OldTopics:
        return OldTopics(self)

    def hosts(self, group: GroupId) -> bool:
        return self._old.up and group in self._old.partitions.hosted

    def term_led(self, group: GroupId) -> int:
        groups = None if self._old.driver is None else self._old.driver.groups
        replica = None if groups is None else groups.host.groups.get(group)
        return replica.raft.term if replica is not None and replica.raft.role.name == "LEADER" else 0

    @property
    def compared(self) -> int:
        groups = None if self._old.driver is None else self._old.driver.groups
        return 0 if groups is None else groups.digests.compared_total

    def log(
        self, command: Command, session: int, done: Callable[[object], None] = lambda result: None
    ) -> None:
        owner = None if command[0] in SESSION_COMMANDS else self.release.errand(done)
        self._old.driver.origin.add(owner, session, (), [command], ERRAND_BYTES)

    def seen(self) -> Counter[str]:
        self._old._count()
        return Counter(
            crashes=self.crashes_total, snapshots=self.snapshots_total, installed=self.installed_total
        )


class MixedProcess:
    """One server, which may become one of the other release whenever it starts.

    Attributes:
        current: what it is now.
    """

    def __init__(self, server: ServerId, name: str, world: MixedSimulation) -> None:
        self._server = server
        self._name = name
        self._world = world
        self._calm = False
        self._seen: Counter[str] = Counter()
        self.current: HostingProcess | OldProcess = self._made(old=world.roll.random() < 0.5)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    @property
    def is_old(self) -> bool:
        return isinstance(self.current, OldProcess)

    @property
    def calm(self) -> bool:
        return self._calm

    @calm.setter
    def calm(self, calm: bool) -> None:
        self._calm = self.current.calm = calm

    def seen(self) -> Counter[str]:
        return self._seen + self.current.seen()

    def _made(self, *, old: bool) -> HostingProcess | OldProcess:
        made = OldProcess(self._server, self._world) if old else self._world.new(self._server, self._name)
        made.on_death = lambda: self._world.faults.start_again(self)  # type: ignore[arg-type]
        return made

    def boot(self) -> None:
        before = self.current
        if not (before.up or self._calm or not before.boots) and self._world.roll.random() < CHANGES:
            self._change()
        self.current.boot()

    def _change(self) -> None:
        """Its disk goes on with the other release."""
        before, self._seen = self.current, self.seen()
        self.current = after = self._made(old=not self.is_old)
        source, target = (_disk_of(one) for one in (before, after))
        for path, inode in sorted(source._names.items()):
            if inode.is_directory and path != "/":
                target.mkdir(path)
            elif path != "/":
                target.replace(path, source.contents(path))
        for path, inode in source._names.items():
            if inode.is_directory:
                target.fsync_directory(path)
        after.boots = before.boots
        after.calm = self._calm
        self._world.changes += 1


def _disk_of(process: HostingProcess | OldProcess) -> SimulatedDisk:
    """One of the release that the process is of."""
    disk: SimulatedDisk = process.disk if isinstance(process, OldProcess) else process.image.disk
    return disk


class MixedSimulation(HostingSimulation):
    """One run.

    Attributes:
        changes: how often a server came up with the other release.
        mixed_ms: for how long servers of both releases were up.
    """

    def __init__(self, seed: int, old: Release, *, messages: int = 120) -> None:
        self.seed = seed
        self.old = old
        self.roll = random.Random(f"mixed/{seed}")
        self.changes = self.mixed_ms = 0
        super().__init__(seed, messages=messages, batches=False)

    def _process(self, server: ServerId, name: str) -> Any:
        return MixedProcess(server, name, self)

    def new(self, server: ServerId, name: str) -> HostingProcess:
        """One of this release, which announces no more than the last one knows."""
        process = super()._process(server, name)
        process.features = OLD_LEVEL
        return process

    def _step(self) -> None:
        releases = {process.is_old for process in self.processes.values() if process.up}  # type: ignore[attr-defined]
        before = self.now_ms
        super()._step()
        self.mixed_ms += (self.now_ms - before) * (len(releases) > 1)

    def _check_votes(self, sender: Sender, messages: Sequence[Any]) -> None:
        """The last release does not show what its disk says of the founders."""

    def _write_long(self, producing: Producing) -> None:
        """The last release's log is as long as it was."""
        levels = {
            process.driver.machine.feature_level for process in self.processes.values() if process.driver
        }
        assert levels == {OLD_LEVEL}, levels


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
