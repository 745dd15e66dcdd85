"""Faults that an operator's commands are part of: what is begun is carried through, whatever a command could say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import strikes
from tests.chaos.schedule import Fault, FaultKind, Target
from tests.chaos.strikes import Strikes

MEMBER = Fault(
    number=1, at_s=0.0, duration_s=0.0, kind=FaultKind.MEMBER, target=Target.ANY, choice=0, strength=0.5
)


class Cluster:
    """Servers without processes, and what `zraft member` says of them."""

    def __init__(self, removals: list[tuple[int, bool]], moving: Sequence[int] = ()) -> None:
        self.removals = list(removals)
        """Exit code of each command, and whether it took the server out nevertheless."""
        self.moving = list(moving)
        """Partitions that are on their way, at each look; none after those."""
        self.voters = {1, 2, 3}
        self.done: list[str] = []
        self.all = {n: SimpleNamespace(may_log=set(), address=f"127.0.0.1:{n}") for n in self.voters}

    async def end(self, number: int) -> None:
        self.done.append(f"end {number}")

    def wipe(self, number: int) -> None:
        self.done.append(f"wipe {number}")

    def start(self, number: int) -> None:
        self.done.append(f"start {number}")

    def zraft(self, *words: str) -> tuple[int, str]:
        match words:
            case ("topic", "list", _):
                moving = self.moving.pop(0) if self.moving else 0
                self.done.append(f"{moving} moving")
                return 0, "\n".join(json.dumps({"moving": n}) for n in (0, moving))
            case ("member", "list", _):
                rows = [{"server": n, "disk": f"disk {n}", "role": "voter"} for n in sorted(self.voters)]
                return 0, json.dumps({"members": rows})
            case ("member", "remove", number):
                code, taken_out = self.removals.pop(0)
                if taken_out:
                    self.voters.discard(int(number))
                return code, ""
            case ("member", "add", number, _):
                self.voters.add(int(number))
                return 0, ""
        raise AssertionError(words)


async def at_once(seconds: float) -> None:
    """Time does not matter here."""


async def replaced(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> bool:
    class Told(Strikes):
        async def _administer(self, *words: str) -> tuple[int | None, str]:
            return cluster.zraft(*words)

    servers: Any = cluster
    network: Any = SimpleNamespace(pairs=())
    monkeypatch.setattr(strikes, "REJOIN_S", 0.0 if not cluster.moving else 60.0)
    monkeypatch.setattr(asyncio, "sleep", at_once)
    return await Told(servers, network, lambda text: None)._replace_member(MEMBER, 1)


@pytest.mark.parametrize("removals", [[(0, True)], [(1, True)]], ids=["said", "unknown"])
async def test_a_server_that_was_taken_out_is_taken_in_again_though_nobody_knew(
    removals: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(removals)
    assert await replaced(cluster, monkeypatch)
    looks = ["0 moving"] * 2
    assert cluster.done == [*looks, *looks, "end 1", "wipe 1", "start 1", *looks]
    assert cluster.voters == {1, 2, 3}


async def test_a_removal_that_is_refused_leaves_the_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([(1, False), (1, False)])
    assert not await replaced(cluster, monkeypatch)
    assert cluster.done == ["0 moving"] * 2


async def test_a_disk_is_emptied_only_when_every_partition_has_its_copies_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run lost two of three copies: one disk was being replaced in groups of partitions while the next one was emptied."""
    assert not await replaced(busy := Cluster([(0, True)], moving=[3]), monkeypatch)
    assert busy.done == ["3 moving"], "another disk is being replaced"
    assert not await replaced(late := Cluster([(0, True)], moving=[0, 3]), monkeypatch)
    assert late.done == ["0 moving", "3 moving"], "what was changed shows a moment later"
    cluster = Cluster([(0, True)], moving=[0, 0, 2, 0, 1, 0, 0])
    assert await replaced(cluster, monkeypatch)
    looks = cluster.done[: cluster.done.index("end 1")]
    assert looks == [f"{n} moving" for n in (0, 0, 2, 0, 1, 0, 0)]
