"""A simulated client that plays the log in order to collect its garbage."""

from __future__ import annotations

from attrs import define, field

from onyxlog.ids import GroupId, Position
from onyxlog.replica.commands import Gc, Record
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import effects, play
from onyxlog.replica.replica import Replica
from tests.onyxlog.simulation.simulated_log import SimulatedLog, insist


@define(eq=False)
class Caller:
    """`asked`: where its gc entry stands; None: not appended yet. `done`: it played that entry, or something newer."""

    name: str
    log: SimulatedLog
    gone: tuple[GroupId, ...] = ()
    asked: Position | None = None
    done: bool = False
    replica: Replica = field(init=False)
    _chain: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.replica, self._chain = self.log.origin()

    def append_one(self) -> None:
        self.asked = self.log.append(Record(Gc(self.name, self.gone), self.name))

    def play(self, entries: int) -> None:
        for _ in range(entries):
            if self.replica.version >= self.log.end - 1 or self.done:
                return
            entry = self.log.entry(self.replica.version + 1)
            if entry is None:
                self.replica, self._chain = self.log.origin()
                # Another collection overtook it; that one's origin is as good.
                self.done = self.asked is not None and self.asked <= self.replica.version
                continue
            step = play(self.replica, entry, self._chain)
            self.replica, self._chain = step.replica, step.chain
            same = self._chain == self.log.chains[self.replica.version]
            insist(same, f"{self.name} differs after entry {self.replica.version}")
            if self.replica.version == self.asked:
                insist(
                    bool(effects(step, Viewer(client=self.name))), "who asked for it is to store the origin"
                )
                self.log.store_origin(self.replica, self._chain)
                self.done = True
