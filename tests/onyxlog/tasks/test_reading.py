"""What an input's worker remembers is where reading may go on, whatever positions its source has."""

from __future__ import annotations

from pathlib import Path
from random import Random

from onyxlog.plugins.lines import LinesInput
from onyxlog.plugins.plugin import Chunk
from onyxlog.tasks.items import Batch
from onyxlog.tasks.reading import Partitions, Pending
from tests.onyxlog.plugins.contexts import context


def acked(batch: Batch) -> list[tuple[int, int]]:
    """What the input is told once everybody is done with the batch."""
    assert batch.roots is not None
    assert batch.values is not None
    return list(zip(batch.roots, batch.values, strict=True))


async def test_reading_goes_on_at_a_whole_line_once_all_that_was_read_is_acknowledged(tmp_path: Path) -> None:
    """Positions of lines are offsets: the next is not the last and one."""
    path = tmp_path / "text"
    path.write_text("first\nsecond\nthird\n")
    source = LinesInput(context(), str(path))

    pending = Pending(0, Random(1), timeout_ms=1_000, pending_max=10)
    before = await Partitions.open(source, range(1), {})
    found = await before.read(2)
    assert found is not None
    batch = pending.begin(*found, now_ms=0)
    assert pending.positions() == {0: 0}
    pending.settle(acked(batch))
    after = await Partitions.open(source, range(1), pending.positions())
    rest = await after.read(10)
    assert rest is not None
    await before.close()
    await after.close()
    assert (rest[1].segments) == [{"line": "third"}]


def test_reading_goes_on_at_the_first_segment_that_is_under_way() -> None:
    pending = Pending(0, Random(1), timeout_ms=1_000, pending_max=10)
    first = pending.begin(0, Chunk([{"n": 1}, {"n": 2}], [10, 20], 30), now_ms=0)
    second = pending.begin(0, Chunk([{"n": 3}], [30], 50), now_ms=0)
    pending.settle(acked(second))
    assert pending.positions() == {0: 10}
    pending.settle(acked(first)[:1])
    assert pending.positions() == {0: 20}
    pending.settle(acked(first)[1:])
    assert pending.positions() == {0: 50}


async def test_progress_counts_what_was_read_of_all_partitions(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("0123456\n" * 10)
    source = LinesInput(context(), str(path), partitions=2)
    both = await Partitions.open(source, range(2), {})
    assert both.progress() == (0, 80)
    await both.read(2)
    await both.read(1)
    assert both.progress() == (24, 80)
    while not both.exhausted:
        await both.read(10)
    assert both.progress() == (80, 80)
    await both.close()
    (one,) = (await Partitions.open(source, [1], {1: 56}),)
    assert one.progress() == (16, 40), "where the checkpoint had read to"
    await one.close()


class Endless:
    """A reader of somebody's own, which knows nothing of extents."""

    exhausted = False

    async def read(self, count: int) -> Chunk:
        return Chunk([], [], 0)

    async def close(self) -> None:
        return


class Mistaken(Endless):
    extent = (7, 3)


def test_a_reader_that_does_not_know_its_end_makes_no_progress_known() -> None:
    assert Partitions({0: Endless()}, {}).progress() is None
    assert Partitions({0: Mistaken()}, {}).progress() is None
    assert Partitions({}, {}).progress() == (0, 0)
