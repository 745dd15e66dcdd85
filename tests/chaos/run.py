"""One chaos run: servers, clients and faults together, then the end state, and the verdict on it all."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from attrs import field, frozen

from tests.chaos.client import Client, ConnectionEndedError
from tests.chaos.links import open_links
from tests.chaos.namespaces import NamespaceNetwork
from tests.chaos.schedule import FaultKind, plan
from tests.chaos.servers import NotReadyError, Servers, free_ports
from tests.chaos.shim import build, compiler
from tests.chaos.strikes import Strikes
from tests.chaos.workloads import (
    FIRST,
    MIX,
    ROOTS,
    SET_UP,
    TIMEOUTS_MS,
    Worker,
    acknowledged,
)
from tests.simulation.fault_proxy import FaultProxy
from zraft.checkers import check_histories
from zraft.checkers.final import Found, check_final
from zraft.checkers.history import Operation, Outcome, Record, Violation, encode, heading
from zraft.checkers.registers import Present, State
from zraft_core.address import Address
from zraft_core.errors import ConfigError

SETUP_TIMEOUT_MS: Final = 20_000
PROGRESS_S: Final = 60.0
"""After healing, every client must have been answered a request within this time."""

SHIM_KINDS: Final = frozenset({FaultKind.SLOW_FSYNC, FaultKind.FSYNC_ERROR, FaultKind.CLOCK})
OUTAGE_FAULTS_MAX: Final = 4


@frozen(kw_only=True)
class Settings:
    """What decides a run, as far as anything does on real machines."""

    seed: int
    duration_s: float
    servers: int
    faults: Collection[FaultKind]
    pause_ms: float
    """Mean of the time between two requests of a client."""
    out: Path
    namespaces: bool = False
    knobs: Mapping[str, str] = field(factory=dict)
    planted: str | None = None
    """A bug of `tests.simulation.planted` that every server has."""


@frozen(kw_only=True)
class Outage:
    """The longest time in which no write of any client was acknowledged, and what struck then."""

    seconds: float
    at_s: float
    faults: tuple[str, ...]


@frozen(kw_only=True)
class Summary:
    """What a run comes to."""

    operations: Mapping[str, Counter[str]]
    """By kind, how many of each outcome; watch events and expired sessions are kinds of their own."""
    faults: Mapping[str, int]
    missed: Mapping[str, int]
    outage: Outage
    elections: int
    client_writes_per_s: float
    violations: Sequence[Violation]


class _Acknowledgements:
    """When writes were acknowledged, as they are: only the longest gap is kept."""

    def __init__(self) -> None:
        self.last_s = time.monotonic()
        self.longest_s = 0.0
        self.longest_from_s = self.last_s
        self.count = 0

    def seen(self, record: Record) -> None:
        if isinstance(record, Operation) and acknowledged(record):
            self.count += 1
            self._gap(time.monotonic())

    def _gap(self, now_s: float) -> None:
        if now_s - self.last_s > self.longest_s:
            self.longest_s, self.longest_from_s = now_s - self.last_s, self.last_s
        self.last_s = now_s


class ChaosRun:
    """Runs once. `log` is told what happens, `tick` the seconds gone and the writes acknowledged, once per second."""

    def __init__(
        self, settings: Settings, log: Callable[[str], None], tick: Callable[[float, int], None]
    ) -> None:
        self._settings = settings
        self._log = log
        self._tick = tick
        self._rng = random.Random(f"{settings.seed}/run")
        self._acks = _Acknowledgements()
        self._files: list[TextIO] = []
        self._workers: list[Worker] = []
        self._readers: list[Client] = []
        self.servers: Servers | None = None

    async def run(self) -> Summary:
        """The run, from the first server to the verdict; what it started is ended in any case, on SIGTERM too.

        Raises ConfigError: what was asked for is not possible on this machine. NotReadyError: servers do not start."""
        settings = self._settings
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        shim = build(settings.out) if compiler() is not None else None
        if shim is None and set(settings.faults) & SHIM_KINDS:
            raise ConfigError(
                "faults of disk and clock need a C compiler; install one, or take them out of --faults"
            )
        network: FaultProxy | NamespaceNetwork
        addresses: Mapping[int, Address]
        peers: Mapping[int, Mapping[int, Address]]
        if settings.namespaces:
            numbers = range(1, settings.servers + 1)
            # Not from the seed: two runs of one seed must not meet on one port.
            network = NamespaceNetwork(len(numbers), free_ports(1, random.Random())[0])
            await network.open()
            addresses = {n: network.address(n) for n in numbers}
            peers = {n: {m: addresses[m] for m in numbers if m != n} for n in numbers}
        else:
            links = await open_links(settings.servers, self._rng)
            addresses, peers, network = links.addresses, links.peers, links.proxy
        servers = Servers(settings.out, addresses, peers, shim, settings.knobs, settings.planted)
        self.servers = servers
        try:
            if isinstance(network, NamespaceNetwork):
                for number, server in servers.all.items():
                    server.namespace = network.prefix(number)
            if FaultKind.FULL_DISK in settings.faults and not servers.mount_small_disk(1):
                self._log(
                    "server 1 has no disk of its own (mount is not allowed here): the shim says that it is full"
                )
            return await self._run(servers, network)
        finally:
            for worker in self._workers:
                worker.stop()
            servers.close()
            await network.close()
            for file in self._files:
                file.close()

    async def _run(self, servers: Servers, network: FaultProxy | NamespaceNetwork) -> Summary:
        settings = self._settings
        addresses = {number: server.address for number, server in servers.all.items()}
        for number in servers.all:
            servers.start(number)
        await servers.wait_ready()
        start = await self._set_up(addresses)
        makers = [make for make, count in MIX for _ in range(count)]
        for number, make in enumerate(makers, 1):
            rng = random.Random(f"{settings.seed}/client/{number}")
            client = Client(number, addresses, rng, rng.choice(TIMEOUTS_MS), self._sink(number))
            self._workers.append(make(client, rng, settings.pause_ms / 1000))
        tasks = [asyncio.ensure_future(worker.run()) for worker in self._workers]
        watching = asyncio.ensure_future(servers.watch())
        strikes = Strikes(servers, network, self._log)
        began = time.monotonic()
        self._acks.last_s = began
        striking = asyncio.ensure_future(
            strikes.run(plan(settings.seed, settings.duration_s, settings.faults))
        )
        extra: list[Violation] = []
        try:
            while (gone := time.monotonic() - began) < settings.duration_s:
                await asyncio.sleep(min(1.0, settings.duration_s - gone))
                self._tick(gone, self._acks.count)
                for task in [*tasks, watching, striking]:
                    if task.done():
                        task.result()
            await striking
            elapsed = time.monotonic() - began
            self._log("healing: every server runs, and every link is whole")
            await strikes.heal()
            extra += await self._progress(servers)
        finally:
            striking.cancel()
            for worker in self._workers:
                worker.stop()
            _, late = await asyncio.wait(tasks, timeout=PROGRESS_S)
            for task in late:
                task.cancel()
            watching.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(watching, striking, return_exceptions=True)
        extra += _mistakes(self._workers, ends)
        for worker in self._workers:
            await worker.client.settle()
            await worker.client.close()
        trees, digests = await self._end(servers, addresses)
        histories = [worker.client.records for worker in self._workers] + [r.records for r in self._readers]
        self._log("judging the histories")
        from_logs, events = servers.check_logs()
        violations = [
            *extra,
            *strikes.violations,
            *from_logs,
            *await asyncio.to_thread(check_final, histories, trees, digests),
            *await asyncio.to_thread(check_histories, histories, start=start, pauses=strikes.pauses),
        ]
        at_s = self._acks.longest_from_s
        # The loop's clock is the monotonic one.
        struck = [what for a, b, what in strikes.periods if a < at_s + self._acks.longest_s and b > at_s]
        return Summary(
            operations=_by_kind(histories),
            faults=strikes.struck,
            missed=strikes.missed,
            outage=Outage(
                seconds=self._acks.longest_s, at_s=at_s - began, faults=tuple(struck[:OUTAGE_FAULTS_MAX])
            ),
            elections=events["became leader"],
            client_writes_per_s=self._acks.count / elapsed,
            violations=violations,
        )

    def _sink(self, number: int) -> Callable[[Record], None]:
        file = (self._settings.out / f"client-{number:03}.jsonl").open("w")
        self._files.append(file)
        file.write(heading(number, self._settings.seed) + "\n")

        def sink(record: Record) -> None:
            self._acks.seen(record)
            file.write(encode(record) + "\n")

        return sink

    async def _set_up(self, addresses: Mapping[int, Address]) -> dict[str, State]:
        client = Client(0, addresses, random.Random(f"{self._settings.seed}/set-up"), SETUP_TIMEOUT_MS)
        await client.connect()
        for path in SET_UP:
            made = await client.create(path, FIRST)
            assert made.outcome is Outcome.OK, f"set-up: {made}"
        await client.close()
        return dict.fromkeys(SET_UP, Present(FIRST, 0))

    async def _progress(self, servers: Servers) -> list[Violation]:
        """`progress`: with everything healed, all servers serve, and every client gets on."""
        try:
            await servers.wait_ready(PROGRESS_S)
        except NotReadyError as error:
            return [Violation("progress", f"after healing: {error}")]
        before = {worker: worker.client.answered for worker in self._workers}
        deadline = time.monotonic() + PROGRESS_S
        while stuck := [w for w in self._workers if w.client.answered <= before[w]]:
            if time.monotonic() > deadline:
                return [
                    Violation(
                        "progress",
                        f"client {w.client.number} ({type(w).__name__}) had no answer for {PROGRESS_S:g} s after healing",
                    )
                    for w in stuck
                ]
            await asyncio.sleep(0.1)
        return []

    async def _end(
        self, servers: Servers, addresses: Mapping[int, Address]
    ) -> tuple[dict[int, dict[str, Found]], Mapping[int, str]]:
        """Every server's tree, read with sync and recorded as histories of further clients; and all digests."""
        trees: dict[int, dict[str, Found]] = {}
        for server in addresses:
            number = 900 + server
            client = Client(number, addresses, random.Random(server), SETUP_TIMEOUT_MS, self._sink(number))
            self._readers.append(client)
            with suppress(ConnectionEndedError):
                async with asyncio.timeout(PROGRESS_S):
                    await client.connect(only=server)
                tree: dict[str, Found] = {}
                for root in ROOTS:
                    await _walk(client, root, tree)
                trees[server] = tree
            await client.close()
        return trees, await servers.digests()


async def _walk(client: Client, path: str, tree: dict[str, Found]) -> None:
    shown = await client.sync_get(path)
    if shown.outcome is not Outcome.OK:
        return
    if not shown.owner:
        # Ephemerals of sessions that were left may go between two servers' turns: they have a checker of their own.
        tree[path] = Found(shown.value, shown.version or 0, shown.mzxid or 0)
    for name in (await client.children(path)).names:
        await _walk(client, f"{path}/{name}", tree)


def _mistakes(workers: Sequence[Worker], ends: Sequence[BaseException | None]) -> list[Violation]:
    """What clients were told that cannot be, and clients that ended by an error of their own."""
    found = [Violation("protocol", mistake) for worker in workers for mistake in worker.client.mistakes]
    for worker, end in zip(workers, ends, strict=True):
        if end is not None and not isinstance(end, asyncio.CancelledError):
            found.append(Violation("progress", f"client {worker.client.number} ended with {end!r}"))
    return found


def _by_kind(histories: Sequence[Sequence[Record]]) -> Mapping[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for history in histories:
        for record in history:
            if isinstance(record, Operation):
                found.setdefault(record.kind, Counter())[record.outcome] += 1
            else:
                found.setdefault(f"({type(record).__name__.lower()})", Counter())[Outcome.OK] += 1
    return found
