"""Where to start reading: never behind the entry, never across a seam, never more points than allowed."""

from __future__ import annotations

from random import Random

import pytest

from zraft.storage.sparse_index import Place, SparseIndex


@pytest.mark.parametrize("seed", range(10))
def test_index_always_leads_to_the_surviving_entry(seed: int) -> None:
    """Against a list of every entry ever written, truncated ones included."""
    rng = Random(seed)
    index = SparseIndex(stride_bytes=rng.choice((0, 50, 400)), points_max=rng.choice((1, 3, 100)))
    written: list[tuple[int, int]] = []  # (index, frame) in the order of the disk
    alive: list[int] = []  # frame of each surviving entry
    log_bytes = 0
    for frame in range(1, 400):
        log_bytes += 60
        if alive and rng.random() < 0.05:
            keep = rng.randrange(len(alive))
            del alive[keep:]
            index.truncate(keep + 1)
        alive.append(frame)
        written.append((len(alive), frame))
        if log_bytes >= index.due_at:
            index.add(len(alive), Place(1, log_bytes, frame), log_bytes)
        wanted = rng.randint(1, len(alive))
        place, seam = index.find(wanted)
        assert seam is None or seam > wanted
        following = [(i, f) for i, f in written if f >= place.frame and i == wanted]
        assert following[0] == (wanted, alive[wanted - 1])
        if seam is not None:
            assert alive[seam - 1] > alive[seam - 2]


def test_points_are_bounded_and_spread_over_the_whole_log() -> None:
    index = SparseIndex(stride_bytes=10, points_max=16)
    for number in range(1, 10_001):
        if number * 10 >= index.due_at:
            index.add(number, Place(1, number * 10, number), number * 10)
    assert len(index) <= 17
    gaps = [number - index.find(number)[0].frame for number in range(1, 10_001)]
    assert max(gaps) <= 10_000 // 7
