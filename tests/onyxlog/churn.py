"""Many real peer processes join, die, are paused across a garbage collection, and agree in the end.

    python -m tests.onyxlog.churn --peers 50 --killed 10 --more 10 --join ring

Prints what each step took. Every entry is also played here, with all invariants of the replica checked after it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from onyxlog.api import Client, connect
from onyxlog.ids import GroupId
from onyxlog.peer.follower import Played
from onyxlog.peer.log.native import native_ports
from onyxlog.peer.publishing import Published
from onyxlog.replica.commands import KillJob
from onyxlog.replica.invariants import violations
from onyxlog.replica.replica import JoinMode, Parameters, PeerState, Replica
from onyxlog.status import is_closed
from tests.onyxlog.peer.jobs import a_job
from tests.onyxlog.peer_processes import Nursery, Processes
from tests.processes.cluster import Cluster
from zraft.transport.keys import create_key_file
from zraft_client.errors import DeadlineError

POLL_S: Final = 0.1
DEADLINE_S: Final = 600.0
QUIET_S: Final = 0.3
"""A peer publishes the newest digest after so long without entries: it is part of every time to agree."""

STEADY_S: Final = 40.0
"""Session timeout of the one that is paused for a while: nobody shall take it for dead."""
OVERFLOW: Final = 12
OVERFLOW_BYTES: Final = 200_000
"""More than a subscriber's credit: the rest is not sent to one that is paused, and is truncated in front of it."""


@frozen
class Size:
    peers: int = 50
    killed: int = 10
    more: int = 10
    join: JoinMode = JoinMode.RING
    session_timeout_s: float = 10.0
    fork: bool = False
    """Peers are forked from one process that has imported everything."""
    gossip: str = "off"
    """As `onyxlog peer` has it; sealed."""


@frozen
class Step:
    """`ring_s`: until the ring (or the list of groups) and the allocations were right; `agreed_s`: until every group had
    also published the same digest at the log's last position."""

    what: str
    ring_s: float
    agreed_s: float
    groups: int
    position: int


@define
class Outcome:
    steps: list[Step] = field(factory=list)
    entries: Counter[str] = field(factory=Counter)
    checked: int = 0
    wrong: list[str] = field(factory=list)


class Churn:
    """The run. `client` follows the log."""

    def __init__(self, size: Size, processes: Processes, client: Client) -> None:
        self.size = size
        self.outcome = Outcome()
        self._processes = processes
        self._client = client
        self._job: str | None = None
        self._numbers = itertools.count()
        client.on_played(self._played)

    def _played(self, played: Played) -> None:
        self.outcome.checked += 1
        if played.entry is not None:
            self.outcome.entries[type(played.entry.command).__name__] += 1
        if len(self.outcome.wrong) < 10:
            self.outcome.wrong += [f"{played.replica.version}: {one}" for one in violations(played.replica)]

    def start(self, count: int, options: Sequence[str] = ()) -> list[str]:
        names = [f"p{next(self._numbers):03}" for _ in range(count)]
        for name in names:
            self._processes.start(name, options)
        return names

    # -- what must be

    def _members_are_right(self, replica: Replica) -> str:
        """Empty, or what is missing: exactly the processes that live are members, each once, and nobody waits."""
        alive = set(self._processes.peers)
        members = Counter(_name(group) for group in replica.groups)
        if members != Counter(alive):
            missing, strange = len(alive - members.keys()), len(members.keys() - alive)
            return f"{missing} processes are missing, {strange} members have no process"
        if not is_closed(replica):
            return "the ring is open"
        if replica.prepared or replica.accepted or replica.aborted or replica.orphans:
            return "somebody is still joining"
        if len(replica.peers) != len(alive):
            return f"{len(replica.peers)} virtual peers, expected {len(alive)}"
        return ""

    def _allocations_are_right(self, replica: Replica) -> str:
        """Empty, or what is wrong, judged without a scheduler: all work, evenly, and their tasks run."""
        if self._job is None:
            return "" if not replica.allocations else "nobody should work"
        counts = {
            task: len(workers) for (job, task), workers in replica.allocations.items() if job == self._job
        }
        workers = Counter(worker for workers in replica.allocations.values() for worker in workers)
        if workers != Counter(replica.peers.keys()):
            return f"{len(workers)} of {len(replica.peers)} virtual peers work"
        if len(counts) != 3 or max(counts.values()) - min(counts.values()) > 1:
            return f"workers are divided as {counts}"
        if any(replica.peer_states.get(peer) is not PeerState.ACTIVE for peer in replica.peers):
            return "some tasks are not ready"
        return ""

    async def converge(self, what: str, began: float | None = None) -> Step:
        """Until everything is right and all agree; what it took since `began` (now)."""
        began = time.monotonic() if began is None else began
        ring_s = 0.0
        why = ""
        while time.monotonic() - began < DEADLINE_S:
            await asyncio.sleep(POLL_S)
            self._processes.check()
            try:
                replica = await self._client.caught_up()
            except DeadlineError as error:
                why = str(error)  # more processes than the machine can carry at once
                continue
            why = self._members_are_right(replica) or self._allocations_are_right(replica)
            if why:
                ring_s = 0.0
                continue
            ring_s = ring_s or time.monotonic() - began
            published = {one.group: one for one in await self._client.digests()}
            why = self._disagreement(self._client.replica, published)
            if not why and self._client.replica.version == replica.version:
                step = Step(what, ring_s, time.monotonic() - began, len(replica.groups), replica.version)
                self.outcome.steps.append(step)
                return step
        raise AssertionError(f"{what}: not after {DEADLINE_S:g} s: {why} {self._processes.mistakes()[:1]}")

    def _disagreement(self, replica: Replica, published: dict[GroupId, Published]) -> str:
        for group in replica.groups:
            shown = published.get(group)
            if shown is None or shown.position < replica.version:
                return f"{group} has not published position {replica.version}"
            if shown.position == replica.version and shown.chain != self._client.chain:
                raise AssertionError(
                    f"{group} has digest {shown.chain.hex()} at {shown.position}, expected {self._client.chain.hex()}"
                )
        return ""

    # -- the story

    async def run(self) -> Outcome:
        size, client = self.size, self._client
        (steady,) = self.start(1, ["--session-timeout", str(STEADY_S)])
        names = self.start(size.peers - 1)
        await self.converge(f"{size.peers} processes start")

        began = time.monotonic()
        first = await client.submit_job(a_job("first"))
        self._job = "first"
        await self.converge("a job is submitted", began)

        began = time.monotonic()
        self._processes.kill(names[1 : 1 + size.killed])
        await self.converge(
            f"{size.killed} are killed at once (their sessions take {size.session_timeout_s:g} s)", began
        )

        began = time.monotonic()
        self.start(size.more)
        await self.converge(f"{size.more} more start", began)

        assert await client.submit_job(a_job("first")) == first, "a repetition is no other job"
        began = time.monotonic()
        await client.kill_job("first", "to be submitted again")
        await client.submit_job(a_job("second"))
        self._job = "second"
        await self.converge("the job is killed and submitted again", began)

        await self._collect_while_one_is_paused(steady)
        await self._collect_while_one_is_declared_dead(names[0])
        assert not self.outcome.wrong, "\n".join(self.outcome.wrong)
        mistakes = self._processes.mistakes()
        assert not mistakes, f"{len(mistakes)} tracebacks, the first: {mistakes[0]}"
        return self.outcome

    def _group_of(self, name: str) -> GroupId:
        (group,) = [group for group in self._client.replica.groups if _name(group) == name]
        return group

    async def _collect_while_one_is_paused(self, name: str) -> None:
        """It must go on from the origin, as the same group."""
        process, group = self._processes.peers[name], self._group_of(name)
        process.signal(signal.SIGSTOP)
        try:
            await self._client.submit_job(a_job("waiting"))
            await self._client.kill_job("waiting")
            for _ in range(OVERFLOW):
                await self._client.append(KillJob("nobody", 0, "." * OVERFLOW_BYTES))
            collected = await self._client.gc()
        finally:
            process.signal(signal.SIGCONT)
        assert collected.stored
        assert set(collected.jobs) == {"first", "waiting"}
        await self.converge("gc while one is paused, who then goes on")
        assert self._group_of(name) == group, "it was not to begin again"
        assert "entries were truncated before they were read" in process.log_text()

    async def _collect_while_one_is_declared_dead(self, name: str) -> None:
        """It must begin again, as another group."""
        process, group = self._processes.peers[name], self._group_of(name)
        process.signal(signal.SIGSTOP)
        try:
            await self._until(lambda: group not in self._client.replica.groups, "a paused group to be out")
            assert (await self._client.gc()).stored
        finally:
            process.signal(signal.SIGCONT)
        await self.converge("gc while one is paused for longer than its session, who then begins again")
        assert self._group_of(name) != group

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            await asyncio.sleep(POLL_S)


def _name(group: GroupId) -> str:
    return group.rpartition("-")[0]


async def churn(size: Size, directory: Path, hosts: str) -> Outcome:
    """Raises AssertionError: something was not right in time, or never right."""
    options = [
        *("--idle", "--join", size.join.value, "--digests-every", "100"),
        *("--digest-after-quiet", str(QUIET_S), "--session-timeout", str(size.session_timeout_s)),
    ]
    if size.gossip != "off":
        key = directory / "peers.key"
        await asyncio.to_thread(create_key_file, key)
        options += ["--gossip", size.gossip, "--key", str(key)]
    open_port = native_ports(hosts, "default", session_timeout_s=30)
    port = await open_port()
    await port.begin(Parameters(join=size.join))
    await port.close()
    async with await connect(open_port) as client:
        nursery = Nursery() if size.fork else None
        with Processes(directory, hosts, options, nursery=nursery) as processes:
            return await Churn(size, processes, client).run()


def shown(outcome: Outcome) -> dict[str, Any]:
    return {
        "steps": [
            {
                "what": step.what,
                "right_after_s": round(step.ring_s, 2),
                "agreed_after_s": round(step.agreed_s, 2),
            }
            | {"groups": step.groups, "position": step.position}
            for step in outcome.steps
        ],
        "entries": dict(outcome.entries.most_common()),
        "replicas_checked": outcome.checked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--peers", type=int, default=50)
    parser.add_argument("--killed", type=int, default=10)
    parser.add_argument("--more", type=int, default=10)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--session-timeout", type=float, default=10.0)
    parser.add_argument("--join", choices=[mode.value for mode in JoinMode], default=JoinMode.RING.value)
    parser.add_argument(
        "--fork", action="store_true", help="fork peers: fifty interpreters take minutes to start"
    )
    parser.add_argument("--gossip", choices=["off", "pool", "plumtree"], default="off")
    found = parser.parse_args()
    size = Size(
        found.peers,
        found.killed,
        found.more,
        JoinMode(found.join),
        found.session_timeout,
        found.fork,
        found.gossip,
    )
    with tempfile.TemporaryDirectory() as name, Cluster(Path(name), servers=found.servers) as cluster:
        cluster.start_all()
        outcome = asyncio.run(churn(size, Path(name), cluster.hosts()))
    json.dump(shown(outcome), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
