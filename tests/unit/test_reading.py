"""Buffers that connections read into: loops of different threads never share one, connections of one loop do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from zraft.program.reading import read_buffer


def test_a_thread_has_one_buffer_of_each_name_and_threads_share_none() -> None:
    both = Barrier(2)

    def ask() -> list[memoryview]:
        both.wait(10)  # each in a thread of its own
        return [read_buffer("a", 8), read_buffer("a", 8), read_buffer("b", 8)]

    with ThreadPoolExecutor(2) as threads:
        (one, again, other), (elsewhere, _, _) = (f.result() for f in [threads.submit(ask) for _ in range(2)])
    assert one is again
    for different in (other, elsewhere):
        one[:] = b"mine    "
        different[:] = b"not mine"
        assert bytes(one) == b"mine    "
