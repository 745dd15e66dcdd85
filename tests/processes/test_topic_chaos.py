"""Topics while servers die: the leader of each destination at each step, a group's whole quorum, producers themselves.

Afterwards every replica of every partition is read, and judged against what producers were told.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from tests.processes.cluster import Cluster, wait_until
from tests.processes.dying_server import Step
from tests.processes.topic_producer import BURST_MAX
from tests.processes.topics import (
    PATIENT_S,
    Producers,
    created,
    groups_of,
    judge_all,
    pending,
    wait_leader,
)
from zraft_core.ids import GroupId, ServerId

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

StartCluster = Callable[..., Cluster]


class DyingCluster(Cluster):
    """Its servers end by themselves, at the step of a message's life that is ordered."""

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        place = command.index("zraft")
        return [*command[:place], "tests.processes.dying_server", str(self._order), *command[place + 1 :]]

    @property
    def _order(self) -> Path:
        return self.directory / "die"

    @property
    def _done(self) -> Path:
        return self._order.with_suffix(".done")

    def wait_death(self, group: GroupId, step: Step) -> int:
        """Until the server that leads `group` has died at that step; which one it was."""
        self._done.unlink(missing_ok=True)
        written = self._order.with_suffix(".new")
        written.write_text(f"{group} {step.value}")
        written.rename(self._order)
        wait_until(self._done.exists, f"a leader of group {group} to die when it is {step.value}", PATIENT_S)
        alive = set(self.servers)
        wait_until(lambda: len(alive & set(self.running())) < len(alive), "the process to end")
        (lost,) = alive - set(self.running())
        assert self.wait_exit(lost) == -signal.SIGKILL
        return lost


def test_the_leader_of_each_destination_is_killed_at_each_step(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """4.10.7: nothing is lost, comes twice, or is reordered.

    Each step is hit for certain, because the leader itself stops there, amid two producers that never rest: one tells all
    destinations, one tells one.
    """
    cluster = start_cluster(kind=DyingCluster)
    assert isinstance(cluster, DyingCluster)
    places = groups_of(asyncio.run(created(cluster, {"one": 1, "two": 1, "three": 1})))
    with Producers(cluster, tmp_path) as producers:
        busy = [
            producers.start("tells-all", places, seed=1, window=4, pause_ms=20),
            producers.start("tells-one", places, seed=2, window=4, pause_ms=20, reach="one"),
        ]
        for one in busy:
            one.wait_delivered(5)
        for group in places.values():
            for step in Step:
                lost = cluster.wait_death(group, step)
                for one in busy:
                    one.wait_delivered(3)
                cluster.start(lost)
                cluster.wait_ready()
        producers.finish()
        found = judge_all(cluster, producers, places, replicas=3)
    assert found.open == 0, "who lives is told, whatever breaks"
    assert found.delivered == found.sent >= 2 * 3 * len(places) * len(Step)
    assert found.several >= len(places) * len(Step)


def test_producers_are_killed_amid_their_messages_and_servers_with_them(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """4.6: what a dead producer has begun somewhere is delivered everywhere, the rest nowhere; nobody waits for it."""
    cluster = start_cluster()
    places = groups_of(asyncio.run(created(cluster, {"one": 2, "two": 2})))
    with Producers(cluster, tmp_path) as producers:
        lasting = producers.start("lasting", places, seed=7, window=4, pause_ms=10)
        for number in range(6):
            doomed = producers.start(
                f"doomed-{number}", places, seed=number, window=16, reach=("one", "all")[number % 2]
            )
            doomed.wait_delivered(5)
            if number % 3 == 2:
                lost = wait_leader(cluster, list(places.values())[number % 4])
                cluster.kill(lost)
                doomed.kill()
                lasting.wait_delivered(3)
                cluster.start(lost)
                cluster.wait_ready()
            doomed.kill()
        lasting.wait_delivered(10)
        producers.finish()
        found = judge_all(cluster, producers, places, replicas=3)
    assert found.open <= 6 * 16 * BURST_MAX, "of each at most its window"
    assert found.delivered >= 60
    assert found.several >= 20


def victims_of(
    replicas: Mapping[GroupId, tuple[ServerId, ...]],
) -> tuple[frozenset[int], set[GroupId], set[GroupId]]:
    """Two servers, without which some groups have no quorum and others have: (servers, those groups, the others)."""
    servers = sorted({server for several in replicas.values() for server in several})
    for pair in combinations(servers, 2):
        stuck = {group for group, several in replicas.items() if len(set(several) & set(pair)) > 1}
        if stuck and len(stuck) < len(replicas):
            return frozenset(map(int, pair)), stuck, set(replicas) - stuck
    raise AssertionError(f"no two servers are a quorum of some groups only: {replicas}")


def test_a_group_without_its_quorum_holds_up_what_is_sent_to_it_and_nothing_elsewhere(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """4.10.9: messages to one partition go on where there is a quorum; everything drains when the servers are back."""
    cluster = start_cluster(servers=5)
    metadata = asyncio.run(created(cluster, {"spread": 10}))
    places = groups_of(metadata)
    replicas = {group: metadata.placements[group].servers for group in places.values()}
    victims, stuck, others = victims_of(replicas)
    place_of = {group: place for place, group in places.items()}
    held, free = place_of[min(stuck)], place_of[min(others)]
    with Producers(cluster, tmp_path) as producers:
        both = producers.start("both", [held, free], seed=1, window=4, pause_ms=10)
        single = producers.start("single", [free], seed=2, window=4, pause_ms=10)
        for one in (both, single):
            one.wait_delivered(10)
        for number in victims:
            cluster.kill(number)
        single.wait_delivered(30)
        assert (pending(cluster) or 0) > 0 or both.sent(), "what is addressed to the group waits"
        before = both.delivered(frozenset({held, free}))
        single.wait_delivered(30)
        assert both.delivered(frozenset({held, free})) == before, (
            "nobody is told of what half of its destinations lack"
        )
        for number in victims:
            cluster.start(number)
        cluster.wait_ready()
        both.wait_delivered(10)
        producers.finish()
        found = judge_all(cluster, producers, {held: places[held], free: places[free]}, replicas=3)
    assert found.open == 0
    assert found.delivered == found.sent >= 80


@pytest.mark.long
def test_all_servers_are_killed_again_and_again_under_load(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """Every server in turn, and all at once: logs, snapshots and deliveries on the disks are what is left."""
    cluster = start_cluster()
    places = groups_of(asyncio.run(created(cluster, {"one": 3, "two": 2})))
    with Producers(cluster, tmp_path) as producers:
        busy = [producers.start(f"busy-{n}", places, seed=n, window=16) for n in range(3)]
        for cycle in range(8):
            for one in busy:
                one.wait_delivered(20)
            lost = list(cluster.servers) if cycle % 4 == 3 else [cycle % 3 + 1]
            for number in lost:
                cluster.kill(number)
            for number in lost:
                cluster.start(number)
            cluster.wait_ready()
        producers.finish()
        found = judge_all(cluster, producers, places, replicas=3)
    assert found.open == 0
    assert found.delivered == found.sent >= 480
