"""Word counts on real peer processes and real servers, of which some are killed midway.

    python -m tests.onyxlog.word_count --segments 1000000 --peers 8 --kill 2

Two jobs, one after the other: `counted`, with checkpoints, whose output is a dictionary, idempotent by key; and `placed`,
with acks, whose output appends to files. Of the first every count must be exact; of the second every word must be there at
least once, and exactly once when what is there twice is dropped. Prints how long each took, and how fast that is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from attrs import frozen

from onyxlog.api import Client, JobState, connect
from onyxlog.errors import OnyxlogError
from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.checkpoints import decode_checkpoint, latest_path
from onyxlog.jobs.grouping import GroupBy
from onyxlog.jobs.specification import Delivery, Job, Plugin, Task, TaskKind
from onyxlog.jobs.triggers import Complete, Trigger
from onyxlog.jobs.windows import Global, Window
from onyxlog.peer.log.native import native_ports
from onyxlog.tasks.checkpoints import CheckpointStore
from tests.onyxlog import text
from tests.onyxlog.peer_processes import Processes
from tests.processes.cluster import Cluster
from zraft_client import Client as ServiceClient

TEXT: Final = "tests.onyxlog.text"
TENANCY: Final = "words"
DICTIONARY: Final = "counts"
PARTITIONS: Final = 16
DEADLINE_S: Final = 600.0
POLL_S: Final = 0.05


@frozen
class Size:
    segments: int = 1_000_000
    peers: int = 8
    killed: int = 2
    session_timeout_s: float = 4.0
    checkpoint_interval_ms: int = 1_000
    servers: int = 3
    jobs: tuple[str, ...] = ("counted", "placed")
    kill_at: float = 0.4
    """How much of the input is to be done when some are killed. Those that are left must be enough for four tasks."""


@frozen
class Outcome:
    """`written`: words in the output. `again`: how many of them are there more than once, each copy counted."""

    job: str
    seconds: float
    attempts: int
    written: int
    again: int

    def line(self, size: Size) -> str:
        return (
            f"{self.job}: {size.segments:,} segments in {self.seconds:.1f} s = {size.segments / self.seconds:,.0f}/s, "
            f"{self.attempts} attempts, {self.written:,} written, {self.again:,} more than once"
        )


def reading(size: Size) -> Task:
    options = {"function": f"{TEXT}:line", "count": size.segments, "partitions": PARTITIONS}
    return Task("read", TaskKind.INPUT, plugin=Plugin("generated", options))


def counted(size: Size) -> Job:
    return Job(
        id="counted",
        workflow=(("read", "split"), ("split", "count"), ("count", "write")),
        catalog=(
            reading(size),
            Task("split", function=f"{TEXT}:words"),
            Task("count", TaskKind.REDUCE, group_by=GroupBy(("word",))),
            Task(
                "write",
                TaskKind.OUTPUT,
                plugin=Plugin("dictionary", {"dictionary": DICTIONARY, "key": "group", "value": "result"}),
                max_peers=1,
            ),
        ),
        windows=(Window("by-word", "count", Global(), Aggregation("count")),),
        triggers=(Trigger("at-the-end", "by-word", Complete(), emit="result"),),
        delivery=Delivery.EXACTLY_ONCE_STATE,
        checkpoint_interval_ms=size.checkpoint_interval_ms,
    )


def placed(size: Size, directory: Path) -> Job:
    return Job(
        id="placed",
        workflow=(("read", "split"), ("split", "write")),
        catalog=(
            reading(size),
            Task("split", function=f"{TEXT}:places"),
            Task("write", TaskKind.OUTPUT, plugin=Plugin("lines", {"path": str(directory)})),
        ),
        delivery=Delivery.AT_LEAST_ONCE,
    )


async def share_counted(client: Client, size: Size) -> float:
    """How much of the input the last complete checkpoint has behind it."""
    versions = await client.port.states(latest_path("counted"))
    data = await client.port.state(f"{latest_path('counted')}/{versions[-1]}") if versions else None
    if not data:
        return 0.0
    checkpoint = decode_checkpoint(data, "latest")
    parts = await CheckpointStore(client.port, "counted").parts(
        checkpoint, "read", checkpoint.slots_of("read")
    )
    read: int = sum(at for part in parts.values() for at in part["positions"].values())
    return read / size.segments


async def share_placed(client: Client, size: Size) -> float:
    """How much of the input everybody is done with."""
    found = [await client.port.state(f"positions/placed/read/{number}") for number in range(PARTITIONS)]
    return sum(int(data) for data in found if data) / size.segments


async def run_job(
    client: Client,
    job: Job,
    size: Size,
    peers: Processes,
    victims: list[str],
    share: Callable[[Client, Size], Awaitable[float]],
) -> tuple[float, int]:
    """Submit it, kill the victims once enough is done; seconds, and how many attempts there were."""
    versions: set[int] = set()
    client.on_played(
        lambda played: versions.update(filter(None, [played.replica.allocation_versions.get(job.id)]))
    )
    began = time.monotonic()
    await client.submit_job(job)
    async with asyncio.timeout(DEADLINE_S):
        if victims:
            while await share(client, size) < size.kill_at:
                peers.check()
                assert job.id not in client.replica.completed, (
                    f"{job.id} was over before anybody was killed: take more segments"
                )
                assert job.id not in client.replica.killed, f"{job.id} is killed: {client.reason_of(job.id)}"
                await asyncio.sleep(POLL_S)
            peers.kill(victims)
            print(f"  killed {', '.join(victims)} after {time.monotonic() - began:.1f} s", flush=True)
        state = await client.await_job_completion(job.id)
    assert state is JobState.COMPLETED, f"{job.id} is {state}: {client.reason_of(job.id)}"
    peers.check()
    return time.monotonic() - began, len(versions)


async def check_counted(hosts: str, size: Size) -> int:
    """Every count is exact; how many words were counted."""
    async with ServiceClient(hosts) as service:
        found = {key: entry.value async for key, entry in service.dictionary(DICTIONARY).items()}
    # beside this loop, or the client that waits in it would lose its session
    expected = await asyncio.to_thread(text.counts, size.segments)
    assert found == expected, f"{len(found)} words, {len(expected)} expected; {_differences(found, expected)}"
    return sum(found.values())


def check_placed(directory: Path, size: Size) -> tuple[int, int]:
    """Every word is there, and is there once without copies; (how many lines, how many of them are copies)."""
    copies: Counter[tuple[int, int]] = Counter()
    distinct: Counter[str] = Counter()
    for path in sorted(directory.iterdir()):
        for line in path.read_bytes().splitlines():
            try:
                written = json.loads(line)
            except ValueError:
                continue  # cut off where its process was killed: it was not acknowledged
            place = (written["at"][0], written["at"][1])
            if not copies[place]:
                distinct[written["word"]] += 1
            copies[place] += 1
    expected = text.counts(size.segments)
    assert distinct == expected, _differences(distinct, expected)
    total = sum(copies.values())
    return total, total - len(copies)


def _differences(found: dict[str, int], expected: dict[str, int]) -> str:
    wrong = sorted(word for word in {*found, *expected} if found.get(word) != expected.get(word))
    return f"{len(wrong)} counts differ, such as {[(w, found.get(w), expected.get(w)) for w in wrong[:5]]}"


async def measure(cluster: Cluster, peers: Processes, size: Size, directory: Path) -> list[Outcome]:
    names = [f"peer{number}" for number in range(size.peers)]
    for name in names:
        peers.start(name)
    async with ServiceClient(cluster.hosts()) as service:
        await service.sync()
    client = await _connect_when_begun(cluster.hosts(), peers)
    async with client:
        await _until_peers(client, size.peers, peers)
        outcomes = []
        if "counted" in size.jobs:
            victims = names[1 : 1 + size.killed]
            seconds, attempts = await run_job(client, counted(size), size, peers, victims, share_counted)
            print(f"  counted: completed after {seconds:.1f} s, {attempts} attempts", flush=True)
            written = await check_counted(cluster.hosts(), size)
            outcomes.append(Outcome("counted", seconds, attempts, written, 0))
            print(outcomes[-1].line(size), flush=True)
            for number in range(size.killed):
                peers.start(f"again{number}")
            await _until_peers(client, size.peers, peers)
        if "placed" in size.jobs:
            files = directory / "placed"
            victims = names[-size.killed :] if size.killed else []
            seconds, attempts = await run_job(client, placed(size, files), size, peers, victims, share_placed)
            print(f"  placed: completed after {seconds:.1f} s, {attempts} attempts", flush=True)
            total, again = await asyncio.to_thread(check_placed, files, size)
            outcomes.append(Outcome("placed", seconds, attempts, total, again))
            print(outcomes[-1].line(size), flush=True)
    return outcomes


async def _connect_when_begun(hosts: str, peers: Processes) -> Client:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await connect(native_ports(hosts, TENANCY))
            except OnyxlogError:
                peers.check()
                await asyncio.sleep(POLL_S)


async def _until_peers(client: Client, count: int, peers: Processes) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len((await client.caught_up()).peers) != count:
            peers.check()
            await asyncio.sleep(POLL_S)


def run(size: Size, directory: Path) -> list[Outcome]:
    servers = directory / "servers"
    servers.mkdir()
    key = str(servers / "cluster.key")
    options = ["--tenancy", TENANCY, "--session-timeout", str(size.session_timeout_s), "--key", key]
    with Cluster(servers, servers=size.servers) as cluster:
        cluster.start_all()
        with Processes(directory, cluster.hosts(), options) as peers:
            return asyncio.run(measure(cluster, peers, size, directory))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Size()
    parser.add_argument("--segments", type=int, default=default.segments)
    parser.add_argument("--peers", type=int, default=default.peers)
    parser.add_argument("--kill", type=int, default=default.killed, help="of each job's workers, midway")
    parser.add_argument("--session-timeout", type=float, default=default.session_timeout_s)
    parser.add_argument("--checkpoint-interval-ms", type=int, default=default.checkpoint_interval_ms)
    parser.add_argument("--servers", type=int, default=default.servers)
    parser.add_argument("--jobs", default=",".join(default.jobs), help="which, one or both")
    given = parser.parse_args(argv)
    size = Size(
        given.segments,
        given.peers,
        given.kill,
        given.session_timeout,
        given.checkpoint_interval_ms,
        given.servers,
        tuple(given.jobs.split(",")),
    )
    with tempfile.TemporaryDirectory(prefix="word-count-") as directory:
        run(size, Path(directory))


if __name__ == "__main__":
    main(sys.argv[1:])
