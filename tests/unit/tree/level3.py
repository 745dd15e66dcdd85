"""A scenario at feature level 3, and its images."""

from __future__ import annotations

from typing import Any

from tests.unit.tree.scenario import ONE, Scenario
from zraft.tree.commands.outcomes import outcome_of
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.errors import Code
from zraft_core.znodes.txn import FEATURE, ONCE, Command


class Level3(Scenario):
    def __init__(self) -> None:
        super().__init__()
        assert self.by_leader((FEATURE, 3)) is Code.OK

    def outcome(self, command: Command, **how: Any) -> Any:
        result = self.run(command, **how)
        return outcome_of(command, result, self.machine.last_zxid, self.machine.position)

    def once(self, seq: int, floor: int, command: Any, **how: Any) -> Any:
        return self.outcome((ONCE, seq, floor, command), **how)


def image_of(machine: Machine) -> bytes:
    writer = ImageWriter(machine)
    pieces = []
    while piece := writer.step(50, 4096):
        pieces.append(piece)
    return b"".join(pieces)


def from_image(image: bytes) -> Machine:
    reader = ImageReader()
    reader.feed(image)
    while reader.step(50):
        pass
    machine = Machine([ONE])
    machine.adopt(reader.finish())
    return machine


def again(machine: Machine) -> Machine:
    """Another machine, restored from this one's image; both are alike."""
    restored = from_image(image_of(machine))
    assert restored.image() == machine.image()
    assert restored.digest() == restored.full_digest() == machine.digest() == machine.full_digest()
    return restored
