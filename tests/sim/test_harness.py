"""What seeds found to be wrong with the simulator itself: each of these ended runs that had nothing the matter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.directed import Scene, leaves
from tests.simulation.disk_image import DiskImage
from tests.simulation.process import Process
from zraft.storage.errors import WriteError
from zraft.transport.messages import Hello
from zraft_core.ids import Instance
from zraft_core.znodes import txn
from zraft_core.znodes.member_roles import REMOVE


def _fails_once(image: DiskImage, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The next call of this method of a disk raises; the list says whether it did."""
    called: list[str] = []
    method = getattr(image, name)

    def once(*arguments: Any) -> Any:
        if not called:
            called.append(name)
            raise WriteError("/data/planted: cannot be written")
        return method(*arguments)

    monkeypatch.setattr(image, name, once)
    return called


def _take_part(scene: Scene, *servers: Process) -> None:
    """All of them apply what clients write now."""
    scene.work(5)
    goal = len(scene.simulation.raft_checks.committed) - 1
    scene.until(lambda: all(scene.applied(server) >= goal for server in servers), "all take part")


def test_process_whose_disk_fails_while_it_compacts_takes_part_after_its_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 400290: the turn that the dead process had asked for stood in the way of every later one."""
    with Scene() as scene:
        leader, second, third = scene.found()
        called = _fails_once(second.image, "compact", monkeypatch)
        scene.clients[0].busy = True
        scene.until(lambda: bool(second.frame_in_flight), "it writes")
        second._compact_to = 1  # as if its last turn had asked for this, too
        scene.until(lambda: bool(called) and second.boots == 2, "it ends, and is started again")
        _take_part(scene, leader, second, third)
        scene.heal()


@pytest.mark.parametrize("name", ["join", "open"])
def test_process_whose_disk_fails_while_it_starts_or_joins_is_started_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 400012, 500187: the failure passed for the product's."""
    with Scene() as scene:
        third = scene.processes[2]
        called = _fails_once(third.image, name, monkeypatch)
        servers = scene.found()
        assert called == [name]
        _take_part(scene, *servers)
        scene.heal()


def test_operators_forget_what_they_asked_at_a_server_that_was_removed_and_never_said_so() -> None:
    """Seed 300016: whatever is pending keeps disks from being replaced, because it may still be carried out."""
    with Scene(servers=5) as scene:
        leader, second, _, _, fifth = scene.found()
        operators, survival = scene.simulation.operators, scene.simulation.survival
        scene.cut(fifth, [other for other in scene.processes if other is not fifth])
        change = ((int(second.server), REMOVE, ""),)
        operators._processes = {fifth.server: fifth}
        assert operators._submit("remove", (txn.MEMBERS, False, -1, change), change)
        operators._processes = {process.server: process for process in scene.processes}
        scene.ask(leader, leaves(fifth))
        assert survival.pending == [change]
        fifth.in_service = False
        fifth.crash()
        scene.until(lambda: not survival.pending, "it is forgotten")
        assert second.server in scene.simulation.history.wanted
        scene.heal()


def test_datagram_does_not_outlive_the_disk_that_it_was_sealed_for() -> None:
    """Seed 400246: what the old disk's boot 4 was told passed for news of a copy at the new disk's boot 1."""
    with Scene() as scene:
        leader, second, _ = scene.found()
        network = scene.network
        old, new = second.sender, Instance(b"the second disk.")
        arrived: list[tuple[object, ...]] = []
        hello = [Hello(None, None, wants_reply=False)]

        def said(sender: Any, to: Any) -> list[tuple[object, ...]]:
            network.send(sender, to, hello)
            scene.run(10)
            taken = arrived[:]
            arrived.clear()
            return taken

        scene.run(50)
        for process in scene.processes:
            process.crash()  # nobody else says anything
        scene.run(50)
        there = {second.server: old, leader.server: leader.sender}
        network._run_of = there.__getitem__
        network._deliver = lambda to, sender, data: arrived.append((to, sender.instance))
        assert said(leader.sender, second.server) == [(second.server, leader.sender.instance)]
        network.send(leader.sender, second.server, hello)
        there[second.server] = type(old)(old.server, new, 1)
        scene.run(10)
        assert arrived == [], "it was on its way to the old disk"
        assert said(leader.sender, second.server) == [], "the leader has not met the new one"
        assert said(old, leader.server) == [(leader.server, old.instance)], "nor does it know that it is new"
        assert said(there[second.server], leader.server) == [(leader.server, new)]
        assert said(leader.sender, second.server) == [(second.server, leader.sender.instance)]
        assert said(old, leader.server) == [], "it has met the new one"


def test_disk_that_was_spoiled_and_not_opened_since_is_not_counted_on() -> None:
    """Seed 500350: a second one of three was spoiled before the first one said that it cannot start."""
    with Scene() as scene:
        _, second, third = scene.found()
        survival = scene.simulation.survival
        assert survival.survives([third.server])
        second.crash()
        second.may_be_damaged = True
        assert not survival.survives([third.server])
        second.boot()
        assert survival.survives([third.server])
