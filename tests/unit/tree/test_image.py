"""Images: the state of one moment, written while the machine goes on, and the same machine again from it."""

from __future__ import annotations

import pytest

from tests.unit.tree.histories import History, whole
from tests.unit.tree.scenario import ONE
from zraft.tree.image import ImageReader, ImageState, ImageWriter
from zraft.tree.machine import Machine


def written(writer: ImageWriter, items: int = 50, bytes_max: int = 4096) -> bytes:
    pieces = []
    while piece := writer.step(items, bytes_max):
        assert len(piece) <= bytes_max
        pieces.append(piece)
    assert writer.done
    return b"".join(pieces)


def read(image: bytes, items: int = 50, block: int = 1000) -> ImageState:
    reader = ImageReader()
    for begin in range(0, len(image), block):
        reader.feed(image[begin : begin + block])
        while reader.step(items):
            pass
    return reader.finish()


def restored(image: bytes) -> Machine:
    machine = Machine([ONE])
    machine.adopt(read(image))
    return machine


@pytest.mark.parametrize("seed", range(30))
def test_restored_machine_is_the_one_of_the_beginning_and_goes_on_alike(seed: int) -> None:
    """Whatever happens while the image is written: failing multis, ends of sessions, quotas, lifetimes."""
    history = History(seed)
    rng, machine = history.rng, history.machine
    for _ in range(rng.randint(0, 250)):
        history.step()
        if rng.random() < 0.05:
            machine.fold_digest(rng.randint(1, 20))
    at_begin, digest = whole(machine), machine.full_digest()
    if seed % 3 == 0:
        machine.digest()
    writer = ImageWriter(machine)
    # The same history must be played to what is restored, so it is remembered from here on.
    pieces, played = [], []
    play = history.play
    state = (history.index, history.term, history.wall_time, dict(history.next))

    def remembered(*call):  # type: ignore[no-untyped-def]
        told = play(*call)
        played.append((history.term, call, told))
        return told

    history.play = remembered  # type: ignore[method-assign]
    while piece := writer.step(rng.randint(1, 4), rng.randint(1, 400)):
        pieces.append(piece)
        for _ in range(rng.randint(0, 3)):
            history.step()
        if rng.random() < 0.1:
            machine.fold_digest(rng.randint(1, 20))
    assert machine.digest() == machine.full_digest()
    assert machine.image_writer is None
    assert machine.marks.dirty_nodes.__class__ is set
    assert writer.digest == digest

    again = restored(b"".join(pieces))
    assert whole(again) == at_begin
    assert again.digest() == again.full_digest() == digest
    # The same commands again, on the restored machine: same results, events and state.
    before = whole(machine)
    history.machine, history.play = again, play  # type: ignore[method-assign]
    history.index, history.term, history.wall_time, history.next = state
    for term, call, told in played:
        history.term = term
        assert history.play(*call) == told
    assert whole(again) == before
    assert again.digest() == again.full_digest() == machine.digest()
    # And on with both, with folding and digests now here, now there.
    history.machine, history.twin = machine, again
    for _ in range(150):
        history.step()
        if rng.random() < 0.1:
            assert machine.digest() == again.digest()
    assert whole(again) == whole(machine)
    assert len(history.kinds) > 12, "the history did next to nothing"
