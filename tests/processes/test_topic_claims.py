"""Marshal on real processes: consumers that are killed, stopped for longer than their leases, ended and started again, while
messages keep coming. Afterwards claims are worked out from the partitions' logs, and what was handed out is judged by them.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.processes.cluster import ROOT, Cluster, wait_until
from tests.processes.reachable import Reachable
from tests.processes.topics import PATIENT_S, Producers, created, groups_of, wait_count
from tests.simulation.claims.checks import Checks
from tests.topic_chaos.claims import (
    ClaimsJudged,
    Handed,
    judge_claims,
    read_consumer_journal,
    replay,
)
from zraft.raft.messages import Entry
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.inspection import read_records
from zraft.storage.records import EntryRecord, TruncateRecord
from zraft_client import Client
from zraft_client.topics import Topics
from zraft_core.claims.values import Mode
from zraft_core.ids import GroupId

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

StartCluster = Callable[..., Cluster]

GROUP: Final = "billing"
TOPIC: Final = "orders"
QUEUE_MAX: Final = 50


class ConsumerProcess:
    """One client: a process, and after it was killed another one of the same name."""

    def __init__(self, cluster: Reachable, directory: Path, number: int, mode: Mode) -> None:
        self.client = f"client-{number}"
        self.journal = directory / f"{self.client}.journal"
        self._log = directory / f"{self.client}.log"
        self._cluster = cluster
        self._mode = mode
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.runs
        self._starts += 1
        command = [sys.executable, "-m", "tests.processes.claims_consumer", "--hosts", self._cluster.hosts()]
        command += [
            "--client",
            self.client,
            "--group",
            GROUP,
            "--topic",
            TOPIC,
            "--journal",
            str(self.journal),
        ]
        command += ["--mode", str(int(self._mode)), "--queue-max", str(QUEUE_MAX)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self._cluster.environment(1) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
            )

    def wait_started(self) -> None:
        """Until it consumes, and ends in good order when it is told to."""

        def started() -> bool:
            self.require_running()
            text = self.journal.read_text() if self.journal.exists() else ""
            return sum(line.startswith("# started") for line in text.splitlines()) == self._starts

        wait_until(started, f"{self.client} to start", PATIENT_S)

    def send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def end(self, how: signal.Signals) -> None:
        if self.runs:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            code = self._process.wait(PATIENT_S)
            assert how is signal.SIGKILL or code == 0, (
                f"{self.client}: exit code {code}: {self._log.read_text()[-3000:]}"
            )

    def require_running(self) -> None:
        assert self.runs, f"{self.client} ended by itself: {self._log.read_text()[-3000:]}"

    def handed(self) -> list[Handed]:
        return read_consumer_journal(self.client, self.journal.read_text()) if self.journal.exists() else []


class Crowd:
    """All consumers of a test; leaving it kills every process."""

    def __init__(self, cluster: Reachable, directory: Path, partitions: int, count: int, mode: Mode) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self.consumers = [ConsumerProcess(cluster, directory, number, mode) for number in range(count)]
        self.stops = 0

    def __enter__(self) -> Crowd:
        for one in self.consumers:
            one.start()
        for one in self.consumers:
            one.wait_started()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.consumers:
            one.end(signal.SIGKILL)

    def handed(self) -> list[Handed]:
        return [handed for one in self.consumers for handed in one.handed()]

    def _owners(self) -> dict[str, int]:
        """How many partitions each client has."""
        return asyncio.run(owners(self._cluster, self._partitions))

    def _wait_expired(self, one: ConsumerProcess) -> None:
        wait_until(lambda: one.client not in self._owners(), f"claims of {one.client} to end", PATIENT_S)

    def trouble(self, rng: random.Random, rounds: int) -> None:
        """Each round an owner is killed and restarted, stopped or left dead until its claims end, or ended in good order."""
        for number in range(rounds):
            held = wait_until(self._owners, "somebody to own a partition", PATIENT_S)
            one = rng.choice([consumer for consumer in self.consumers if consumer.client in held])
            match ("kill", "stop", "end", "stay dead")[number % 4]:
                case "kill":
                    one.end(signal.SIGKILL)
                    one.start()
                case "stop":
                    one.send(signal.SIGSTOP)
                    self.stops += 1
                    self._wait_expired(one)
                    one.send(signal.SIGCONT)
                case "end":
                    one.end(signal.SIGTERM)
                    one.start()
                case _:
                    one.end(signal.SIGKILL)
                    self._wait_expired(one)
                    one.start()
            one.wait_started()
            time.sleep(rng.uniform(0, 1))
            for consumer in self.consumers:
                consumer.require_running()


def logs_of(cluster: Cluster, groups: Mapping[int, GroupId]) -> dict[int, list[Entry]]:
    """The whole log of each partition, of the server that has most of it. No server may run."""
    logs: dict[int, list[Entry]] = {}
    for server in cluster.servers.values():
        entries: dict[GroupId, dict[int, Entry]] = {group: {} for group in groups.values()}
        for placed in read_records(ReadOnlyFileSystem(), str(server.data)):
            record = placed.record
            if isinstance(record, EntryRecord) and record.group in entries:
                entries[record.group][record.entry.index] = record.entry
            elif isinstance(record, TruncateRecord) and record.group in entries:
                kept = {n: one for n, one in entries[record.group].items() if n < record.from_index}
                entries[record.group] = kept
        for partition, group in groups.items():
            log = [entries[group][index] for index in sorted(entries[group])]
            if not log or log[0].index != 1:
                continue  # it was compacted here
            if len(log) > len(logs.get(partition, [])):
                logs[partition] = log
    return logs


def durable(one: ConsumerProcess) -> int:
    return sum(handed.durable_ns is not None for handed in one.handed())


def processed(journals: list[Handed]) -> int:
    return len({(one.partition, one.offset) for one in journals if one.done_ns is not None})


def run(
    cluster: Cluster,
    directory: Path,
    mode: Mode,
    *,
    partitions: int,
    consumers: int,
    rounds: int,
    messages: int,
) -> ClaimsJudged:
    places = groups_of(asyncio.run(created(cluster, {TOPIC: partitions})))
    groups = {number: group for (_, number), group in places.items()}
    with (
        Producers(cluster, directory) as producers,
        Crowd(cluster, directory, partitions, consumers, mode) as crowd,
    ):
        producer = producers.start("orders", places, seed=3, window=8, pause_ms=20, fanout_max=2)
        producer.wait_delivered(messages // 4)
        crowd.trouble(random.Random(f"{mode} {consumers}"), rounds)
        wait_count(producer.delivered, messages, "messages to be delivered")
        producers.finish()
        ends = asyncio.run(bounds(cluster))
        if mode is Mode.AT_LEAST_ONCE:
            wait_count(lambda: processed(crowd.handed()), sum(ends.values()), "messages to be processed")
        else:
            wait_count(
                lambda: asyncio.run(claimed(cluster, ends)), sum(ends.values()), "messages to be claimed"
            )
        for one in crowd.consumers:
            one.end(signal.SIGTERM)
        stops = crowd.stops
        journals = crowd.handed()
    for number in cluster.servers:
        cluster.kill(number, signal.SIGTERM)
    checks = Checks()
    logs = logs_of(cluster, groups)
    assert sorted(logs) == sorted(groups), (
        "a partition's log was compacted on every server: fewer messages, please"
    )
    delivered = {number: replay(checks, number, groups[number], log) for number, log in logs.items()}
    assert delivered == ends
    return judge_claims(checks, journals, ends, group=GROUP, mode=mode, stops=stops)


async def owners(cluster: Reachable, partitions: int) -> dict[str, int]:
    """How many partitions each client of the group has."""
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
        port = topics.claims_port(timeout_s=PATIENT_S)
        seen = await asyncio.gather(*(port.look(TOPIC, number, GROUP) for number in range(partitions)))
    return dict(Counter(one.view.whole.owner.client for one in seen if one.view.whole is not None))


async def bounds(cluster: Reachable) -> dict[int, int]:
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
        return {number: one.end for number, one in (await topics.bounds(TOPIC)).items()}


async def claimed(cluster: Reachable, ends: Mapping[int, int]) -> int:
    """At most once: how many messages were claimed; all of them, and nothing is left to give."""
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
        port = topics.claims_port()
        seen = await asyncio.gather(*(port.look(TOPIC, number, GROUP) for number in ends))
    whole = [one.view.whole for one in seen]
    return sum(
        min(one.claimed, end) for one, end in zip(whole, ends.values(), strict=True) if one is not None
    )


@pytest.mark.parametrize("mode", list(Mode))
def test_a_few_consumers_share_a_topic_through_kills_stops_and_ends(
    mode: Mode, start_cluster: StartCluster, tmp_path: Path
) -> None:
    """M-5 to M-9: disjoint claims; at most once never twice, at least once nothing lost and little again."""
    found = run(start_cluster(), tmp_path, mode, partitions=4, consumers=3, rounds=4, messages=200)
    assert found.handed >= 150
    assert found.ended.get("expiry", 0) >= 1
    assert found.ended.get("release", 0) >= 1
    assert found.claims > 4


def test_what_a_killed_consumer_had_is_taken_over_in_seconds_and_no_durable_commit_comes_again(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """It stood still for two minutes; how long at most is told in time that jumps, `tests/client/claims/test_crash.py`."""
    cluster, partitions = start_cluster(), 4
    places = groups_of(asyncio.run(created(cluster, {TOPIC: partitions})))
    with Producers(cluster, tmp_path) as producers:
        producer = producers.start("orders", places, seed=5, window=8, pause_ms=10)
        with Crowd(cluster, tmp_path, partitions, 1, Mode.AT_LEAST_ONCE) as one:
            (killed,) = one.consumers
            wait_until(
                lambda: one._owners() == {killed.client: partitions}, "it to have everything", PATIENT_S
            )
            wait_count(lambda: durable(killed), 50, "durable commits")
            other = ConsumerProcess(cluster, tmp_path, 1, Mode.AT_LEAST_ONCE)
            other.start()
            try:
                other.wait_started()
                killed.end(signal.SIGKILL)
                began = time.monotonic()
                wait_until(
                    lambda: one._owners() == {other.client: partitions}, "the other to have everything"
                )
                assert time.monotonic() - began < 30
                before = len(other.handed())
                producer.wait_delivered(20)
                producers.finish()
                ends = asyncio.run(bounds(cluster))
                wait_count(
                    lambda: processed(killed.handed() + other.handed()),
                    sum(ends.values()),
                    "messages to be processed",
                )
                assert before < len(other.handed())
            finally:
                other.end(signal.SIGTERM)
    done = {(m.partition, m.offset) for m in killed.handed() if m.durable_ns is not None}
    assert len(done) >= 50
    assert not done & {(m.partition, m.offset) for m in other.handed()}


@pytest.mark.long
@pytest.mark.parametrize("mode", list(Mode))
def test_twenty_consumers_share_32_partitions(
    mode: Mode, start_cluster: StartCluster, tmp_path: Path
) -> None:
    found = run(start_cluster(), tmp_path, mode, partitions=32, consumers=20, rounds=24, messages=2000)
    assert found.handed >= 1500
    assert found.ended.get("expiry", 0) >= 4
    assert found.claims >= 50
