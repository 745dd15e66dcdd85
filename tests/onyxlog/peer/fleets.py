"""Fleets of groups on a log in memory and a virtual clock, and what must hold of them when nothing moves any more."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable

from attrs import define, evolve, field

from onyxlog.peer.fleet import Fleet
from onyxlog.peer.group import ID_BYTES, PeerGroup
from onyxlog.peer.idle_runner import IdleRunner
from onyxlog.peer.incarnation import Incarnation
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import TaskHost, TaskRunner
from onyxlog.replica.codec import decode_record, encode_record
from onyxlog.replica.commands import Record
from onyxlog.replica.replica import JoinMode, Parameters, Replica
from onyxlog.status import is_closed
from tests.onyxlog.simulation.memory_log import MemoryLog, MemoryPort

SETTLE_S = 30.0
"""Of virtual time: detectors, back-offs and restarts are over by then."""


def through_bytes(record: Record) -> Record:
    return decode_record(encode_record(record), "a test's log")


def seeded_ids(seed: int) -> Callable[[], str]:
    """Ids as groups draw them, the same ones for the same seed."""
    generator = random.Random(seed)
    return lambda: generator.randbytes(ID_BYTES).hex()


@define
class Scene:
    """A log, a fleet on it, and the runner of each incarnation. `seed`: of the groups' ids: who does what hangs on them."""

    join: JoinMode
    log: MemoryLog = field(factory=lambda: MemoryLog(copy=through_bytes))
    runners: dict[str, IdleRunner] = field(factory=dict)
    fleet: Fleet = field(init=False)
    seed: int = 1
    _names: itertools.count[int] = field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.fleet = Fleet(
            self.log.opened, self._make_runner, rng=random.Random(7), new_id=seeded_ids(self.seed)
        )

    async def _make_runner(self, host: TaskHost) -> TaskRunner:
        runner = self.runners[host.group] = IdleRunner(host, f"127.0.0.1:{1000 + len(self.runners)}")
        return runner

    @property
    def settings(self) -> GroupSettings:
        return GroupSettings(parameters=Parameters(join=self.join), offers=((), ()), digests_every=10)

    def start(
        self, groups: int = 1, change: Callable[[GroupSettings], GroupSettings] = lambda s: s
    ) -> list[PeerGroup]:
        return [
            self.fleet.start(change(evolve(self.settings, name=f"g{next(self._names)}")))
            for _ in range(groups)
        ]

    def port(self, group: PeerGroup) -> MemoryPort:
        incarnation = group.incarnation
        assert incarnation is not None
        port = incarnation.port
        assert isinstance(port, MemoryPort)
        return port

    def present(self) -> list[Incarnation]:
        found = [group.incarnation for group in self.fleet.groups]
        assert all(found), "a group is between two incarnations"
        return [one for one in found if one is not None]

    async def settled(self) -> Replica:
        """After a while in which everything that was under way has ended; the replica that all have."""
        await asyncio.sleep(SETTLE_S)
        present = self.present()
        assert len({one.core.version for one in present}) == 1
        assert len({one.core.chain for one in present}) == 1
        assert not any(one.core.unseen for one in present)
        replica = present[0].core.replica
        assert {one.group for one in present} == set(replica.groups)
        assert is_closed(replica)
        for one in present:
            if self.join is JoinMode.RING:
                assert one.watched == replica.pairs.get(one.group)
            allocated = {peer for peers in replica.allocations.values() for peer in peers}
            assert set(one.running) == allocated & one.core.viewer.peers
            assert set(self.runners[one.group].running) == set(one.running)
        return replica
