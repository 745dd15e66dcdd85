"""Reading of a snapshot's state, as a state machine. It blocks for seconds if the state is large."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zraft.storage.errors import CorruptionError
from zraft.tree.image.reader import ImageReader
from zraft.tree.machine import Machine
from zraft_core.errors import ProtocolError

ITEMS_PER_STEP = 10_000


def machine_of(
    blocks: Iterable[bytes], path: str, on_progress: Callable[[int], None] = lambda _: None
) -> Machine:
    """Return the state whose image the blocks are; `path` is their file, `on_progress` gets the items so far.

    Raises:
        CorruptionError: they are no image.
        FeatureLevelError: it is of a feature level that this release does not know.
    """
    reader = ImageReader()
    machine = Machine()
    try:
        for block in blocks:
            reader.feed(block)
            while reader.step(ITEMS_PER_STEP):
                on_progress(reader.items)
            on_progress(reader.items)
        machine.adopt(reader.finish())
    except ProtocolError as error:
        raise CorruptionError(path, 0, str(error), advice="take another snapshot") from error
    return machine
