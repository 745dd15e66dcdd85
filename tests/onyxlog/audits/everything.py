"""Topics, claims, peers and clients on real servers amid faults of all kinds; then all rules over what they left.

    python -m tests.onyxlog.audits.everything --minutes 2 --seed 7 --out DIRECTORY

Producers and consumers, peers that gossip and record, and clients of the ZooKeeper protocol with recorded histories work
on three servers. Servers suffer what those of chaos runs do: deaths, stops, full and failing disks, clocks that jump, and a
network that loses, delays, reorders, repeats and cuts. Producers, consumers and peers are killed. It ends in good order, and
`onyxlog audit` reads all data directories, recordings and histories. Every rule that such data can break must have been
judged, and none may be broken. Exit code 0 if so, 1 if not; DIRECTORY keeps it all.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, TextIO

import click
from attrs import field, frozen

from onyxlog.api import Client as OnyxClient
from onyxlog.api import connect
from onyxlog.errors import OnyxlogError
from onyxlog.peer.log.native import native_ports
from onyxlog.replica.commands import BackpressureOff
from onyxlog.replica.replica import JoinMode, Parameters
from tests.chaos.client import Client as RecordingClient
from tests.chaos.schedule import FaultKind, parse_faults
from tests.chaos.schedule import plan as plan_faults
from tests.chaos.workloads import (
    FIRST,
    ROOTS,
    SET_UP,
    TIMEOUTS_MS,
    CounterWorker,
    ExclusiveWorker,
    FencedWorker,
    OnceWatcher,
    QueueWorker,
    RecursiveWatcher,
    RegisterWorker,
    ToggleWorker,
    WatchedWriter,
    Worker,
)
from tests.onyxlog.audits.everything_plan import (
    CONSUMERS,
    PEERS,
    PRODUCERS,
    SERVERS,
    Kind,
    mode_of,
    plan,
)
from tests.onyxlog.audits.struck import SETTINGS, StruckServers, opened
from tests.onyxlog.peer.jobs import a_job
from tests.onyxlog.peer_processes import Processes
from tests.processes.cluster import ROOT, wait_until
from tests.processes.test_topic_claims import TOPIC, Crowd, bounds, processed
from tests.processes.topics import Producers, created, groups_of, pending, settled_readings
from zraft.checkers.history import Outcome, encode, heading
from zraft.transport.keys import create_key_file
from zraft_client import Client, ClientError, NoNodeError

PARTITIONS: Final = 4
OTHER: Final = "audit"
OTHER_PARTITIONS: Final = 2
WORKERS: Final = (
    *(RegisterWorker, RegisterWorker, CounterWorker, ToggleWorker, QueueWorker, QueueWorker),
    *(
        ExclusiveWorker,
        ExclusiveWorker,
        FencedWorker,
        FencedWorker,
        WatchedWriter,
        RecursiveWatcher,
        OnceWatcher,
    ),
)
PAUSE_S: Final = 0.05
SETUP_TIMEOUT_MS: Final = 20_000
END_S: Final = 120.0
ENTRIES_EVERY_S: Final = 0.2
NOT_OF_DIRECTORIES: Final = frozenset({"S22"})
"""About results of benchmarks."""


@frozen(kw_only=True)
class Stage:
    """Servers and numbers that a run uses. Several runs can follow each other on one stage.

    Attributes:
        data: a directory of the servers' data, which may be there already.
        servers: how many there are.
        ports: all that they and the links between them need; free ones if it is empty.
        settings: of servers.
        retention_bytes: of each partition; None keeps everything.
        first: what numbers of clients, producers, peers and jobs begin with, so that no two runs share one.
    """

    data: Path
    servers: int = SERVERS
    ports: Sequence[int] = ()
    settings: Mapping[str, object] = field(factory=lambda: SETTINGS)
    retention_bytes: int | None = None
    first: int = 0


class Histories:
    """Clients that record, in this process. Their numbers begin with `first`."""

    def __init__(self, cluster: StruckServers, directory: Path, seed: int, first: int) -> None:
        self._cluster = cluster
        self._directory = directory
        self._seed = seed
        self._first = first
        self._files: list[TextIO] = []
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []

    def _client(self, place: int, timeout_ms: int) -> RecordingClient:
        number = self._first + place
        file = (self._directory / f"client-{number:03}.jsonl").open("w")
        self._files.append(file)
        file.write(heading(number, self._seed) + "\n")
        addresses = {n: server.address for n, server in self._cluster.servers.items()}
        rng = random.Random(f"{self._seed}/client/{number}")
        return RecordingClient(
            number, addresses, rng, timeout_ms, lambda record: void(file.write(encode(record) + "\n"))
        )

    async def begin(self) -> None:
        async with Client(self._cluster.hosts(), timeout_s=END_S) as former:
            for path in ROOTS:
                await remove_tree(former, path)
        client = self._client(0, SETUP_TIMEOUT_MS)
        await client.connect()
        for path in SET_UP:
            # The log may still have what earlier clients made there.
            made = await client.create(path, f"{FIRST} {self._first}" if self._first else FIRST)
            assert made.outcome is Outcome.OK, f"set-up: {made}"
        await client.close()
        for number, make in enumerate(WORKERS, 1):
            rng = random.Random(f"{self._seed}/worker {number}")
            self._workers.append(make(self._client(number, rng.choice(TIMEOUTS_MS)), rng, PAUSE_S))
        self._tasks = [asyncio.ensure_future(worker.run()) for worker in self._workers]

    def check(self) -> None:
        """Raises what a client ended with, and AssertionError for what no server may say."""
        for task in self._tasks:
            if task.done():
                task.result()
        mistakes = [mistake for worker in self._workers for mistake in worker.client.mistakes]
        assert not mistakes, mistakes[0]

    async def end(self) -> int:
        """Until each has ended its step and closed its session; how many operations they recorded."""
        for worker in self._workers:
            worker.stop()
        _, late = await asyncio.wait(self._tasks, timeout=END_S)
        assert not late, f"{len(late)} clients did not end within {END_S:g} s of healing"
        self.check()
        for worker in self._workers:
            await worker.client.settle()
            await worker.client.close()
        for file in self._files:
            file.close()
        return sum(len(worker.client.records) for worker in self._workers)


async def remove_tree(client: Client, path: str) -> None:
    """Remove a znode and all below it, if it is there."""
    with suppress(NoNodeError):
        for name in (await client.children(path)).names:
            await remove_tree(client, f"{path}/{name}")
        await client.remove(path)


def void(_: object) -> None:
    """For callbacks that return nothing."""


class Everything:
    """One run."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        duration_s: float,
        faults: Collection[FaultKind],
        log: Callable[[str], None],
        stage: Stage | None = None,
        beside: Callable[[StruckServers], Awaitable[None]] | None = None,
    ) -> None:
        """Make a run whose own files are in `directory`, which is new.

        Args:
            duration_s: how long all work before the end.
            stage: what it happens on; by default three new servers.
            beside: what else is done while all work. It is cancelled in the end.
        """
        self._directory = directory
        self._stage = stage or Stage(data=directory / "servers")
        self._beside = beside
        self._seed = seed
        self._faults = plan_faults(seed, duration_s, faults)
        self._duration_s = duration_s
        self._log = log
        self._numbers = self._stage.first
        self._rng = random.Random(f"{seed} run")

    async def run(self) -> list[str]:
        """From the first server to the last one's end; what it started is ended in any case.

        What servers did or logged that no fault accounts for.
        """
        directory, stage = self._directory, self._stage
        for name in ("recordings", "histories", "work"):
            (directory / name).mkdir(parents=True)
        stage.data.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                opened(
                    *(stage.data, directory / "work", stage.servers, self._seed, self._log),
                    ports=stage.ports,
                    settings=stage.settings,
                )
            )
            await cluster.start()
            self._log(f"{stage.servers} servers serve")
            topics = {TOPIC: PARTITIONS, OTHER: OTHER_PARTITIONS}
            metadata = await created(
                cluster, topics, retention_bytes=stage.retention_bytes, may_exist=bool(stage.first)
            )
            places = groups_of(metadata)
            before = sum((await bounds(cluster)).values())
            producers = stack.enter_context(Producers(cluster, directory / "work"))
            for _ in range(PRODUCERS):
                self._produce(producers, list(places))
            crowd = Crowd(cluster, directory / "work", PARTITIONS, CONSUMERS, mode_of(self._seed))
            stack.callback(crowd.__exit__)
            await asyncio.to_thread(crowd.__enter__)
            histories = Histories(cluster, directory / "histories", self._seed, stage.first)
            opener = native_ports(cluster.hosts(), "default", session_timeout_s=30)
            port = await opener()
            await port.begin(Parameters(join=JoinMode.RING))
            await port.close()
            key = directory / "work/peers.key"
            create_key_file(key)
            options = ["--idle", "--join", "ring", "--digests-every", "20", "--digest-after-quiet", "0.3"]
            options += ["--session-timeout", "6", "--gossip", "pool", "--key", str(key)]
            options += ["--record", str(directory / "recordings")]
            peers = stack.enter_context(Processes(directory / "work", cluster.hosts(), options))
            async with await connect(opener) as onyx:
                for _ in range(PEERS):
                    self._join(peers)
                await self._wait(lambda: len(onyx.replica.groups) >= PEERS, "peers to join")
                await histories.begin()
                self._log("producers, consumers, peers and clients work")
                writing = asyncio.ensure_future(self._write_entries(onyx))
                suffering = asyncio.ensure_future(cluster.suffer(self._faults))
                further = [] if self._beside is None else [asyncio.ensure_future(self._beside(cluster))]
                try:
                    await self._strike(producers, crowd, peers, onyx, list(places), histories)
                    await suffering
                    for task in further:
                        assert not task.done(), f"what is done beside the work ended: {task}"
                finally:
                    for task in (writing, suffering, *further):
                        task.cancel()
                    await asyncio.gather(writing, suffering, *further, return_exceptions=True)
                self._log("healing")
                await cluster.heal()
                recorded = await histories.end()
                await asyncio.to_thread(producers.finish)
                if not mode_of(self._seed).value:
                    sent = sum((await bounds(cluster)).values()) - before
                    await self._wait(lambda: processed(crowd.handed()) >= sent // 2, "consumers")
                if stage.retention_bytes is None:
                    await asyncio.to_thread(settled_readings, cluster, places, SERVERS)
                else:
                    await self._wait(lambda: pending(cluster) == 0, "messages under way to be delivered")
                for consumer in crowd.consumers:
                    await asyncio.to_thread(consumer.end, signal.SIGTERM)
                last = await onyx.append(BackpressureOff("nobody"))
                await self._wait(lambda: onyx.replica.version >= last, "the last entry")
            for peer in peers.peers.values():
                await asyncio.to_thread(peer.stop)
            mistakes = peers.mistakes()
            assert not mistakes, mistakes[0]
            await cluster.end()
            struck = ", ".join(f"{count} {kind}" for kind, count in sorted(cluster.struck().items()))
            self._log(f"all ended; clients recorded {recorded:,} operations; faults of servers: {struck}")
            return [f"{one.checker}: {one.found}" for one in cluster.violations()]

    # -- who works

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _produce(self, producers: Producers, places: list[Any]) -> None:
        number = self._number()
        reach = ("all", "one")[number % 2]
        producers.start(
            f"producer-{number}", places, seed=number, window=4, pause_ms=30, fanout_max=3, reach=reach
        )

    def _join(self, peers: Processes) -> None:
        peers.start(f"p{self._number():03}")

    async def _write_entries(self, onyx: OnyxClient) -> None:
        """Entries of all kinds, as long as somebody takes them."""
        first = self._stage.first
        for number in range(first, first + 1_000_000):
            with suppress(OnyxlogError, ClientError):
                if number % 40 == 0:
                    await onyx.submit_job(a_job(f"job-{number}"))
                elif number % 40 == 20:
                    await onyx.kill_job(f"job-{number - 20}", "enough")
                else:
                    await onyx.append(BackpressureOff("nobody"))
            await asyncio.sleep(ENTRIES_EVERY_S)

    # -- who dies

    async def _strike(
        self,
        producers: Producers,
        crowd: Crowd,
        peers: Processes,
        onyx: OnyxClient,
        places: list[Any],
        histories: Histories,
    ) -> None:
        began = time.monotonic()
        for strike in plan(self._seed, self._duration_s):
            await asyncio.sleep(max(0.0, began + strike.at_s - time.monotonic()))
            histories.check()
            self._log(f"{time.monotonic() - began:5.1f} s: {strike.kind.value}")
            match strike.kind:
                case Kind.PRODUCER:
                    lasting = [one for one in producers.all if one.process.poll() is None]
                    if lasting:
                        await asyncio.to_thread(lasting[strike.number % len(lasting)].kill)
                    self._produce(producers, places)
                case Kind.CONSUMER:
                    consumer = crowd.consumers[strike.number % CONSUMERS]
                    await asyncio.to_thread(consumer.end, signal.SIGKILL)
                    await asyncio.sleep(strike.after_s)
                    consumer.start()
                    await asyncio.to_thread(consumer.wait_started)
                case Kind.PEER:
                    names = sorted(peers.peers)
                    await asyncio.to_thread(peers.kill, [names[strike.number % len(names)]])
                    self._join(peers)
                case Kind.COLLECT:
                    with suppress(OnyxlogError, ClientError):
                        await onyx.gc()
        await asyncio.sleep(max(0.0, began + self._duration_s - time.monotonic()))

    async def _wait(self, condition: Callable[[], object], what: str) -> None:
        await asyncio.to_thread(wait_until, condition, what, END_S)


def audit(directory: Path, master: str, costs: bool) -> dict[str, Any]:
    """What `onyxlog audit` finds in all that was left; its report is beside it."""
    out = directory / "audit"
    command = [sys.executable, "-m", "onyxlog", "audit", "--out", str(out), "--master", master]
    command += [str(directory / name) for name in ("servers", "recordings", "histories")]
    paths = f"{ROOT}:{ROOT / 'client'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    done = subprocess.run(
        [*command, *(["--costs"] if costs else [])], env=os.environ | {"PYTHONPATH": paths}, check=False
    )
    assert done.returncode in (0, 1), f"onyxlog audit ended with code {done.returncode}"
    assert (out / "report.html").exists()
    found: dict[str, Any] = json.loads((out / "audit.json").read_text())
    assert found["broken"] == (done.returncode == 1)
    return found


def judged(found: dict[str, Any]) -> list[str]:
    """What is wrong with an audit of everything: rules that are broken, and rules that had nothing to judge."""
    wrong = [
        f"{rule['rule']} {rule['title']}: {rule['verdict']}"
        for rule in found["rules"]
        if rule["verdict"] != "holds" and rule["rule"] not in NOT_OF_DIRECTORIES
    ]
    return wrong + [
        f"{one['rule']} {one['subject']}: expected {one['expected']}, found {one['found']}"
        for one in found["violations"]
    ]


@click.command()
@click.option(
    "--minutes", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Of work, before the end."
)
@click.option("--seed", type=int, help="Decides who dies when.  [default: a fresh one]")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="New; everything stays there.",
)
@click.option(
    "--faults",
    default="default",
    show_default=True,
    metavar="NAMES",
    help="Of servers, as `python -m tests.chaos` takes them.",
)
@click.option("--master", default="local[*]", show_default=True, help="Where the audit runs.")
@click.option("--audit/--no-audit", "audited", default=True, show_default=True)
@click.option("--costs", is_flag=True, help="What each check costs.")
def main(
    minutes: float, seed: int | None, out: Path, faults: str, master: str, audited: bool, costs: bool
) -> None:
    """Chaos with topics, claims, peers and clients together, and an audit of all they left."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}")
    out = out.absolute()
    if out.exists():
        shutil.rmtree(out) if not any(out.iterdir()) else click.get_current_context().fail(
            f"{out} is not empty"
        )
    wrong = asyncio.run(Everything(out, seed, 60 * minutes, parse_faults(faults), click.echo).run())
    if audited:
        wrong += audited_in(out, master, costs)
    for line in wrong:
        click.secho(line, fg="red")
    sys.exit(1 if wrong else 0)


def audited_in(out: Path, master: str, costs: bool) -> list[str]:
    """What an audit of everything below a directory finds wrong; says what it could not judge."""
    found = audit(out, master, costs)
    silent = [
        check["promise"]
        for rule in found["rules"]
        for check in rule["checks"]
        if check["verdict"] == "no data"
    ]
    click.echo(f"without data: {', '.join(silent) or 'nothing'}")
    click.echo(f"report: {out}/audit/report.html")
    return judged(found)


if __name__ == "__main__":
    main()
