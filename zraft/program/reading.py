"""Buffers that connections read into: one for each thread, because all connections of a loop take turns.

A server has one loop, so it has one buffer of each kind, and a read allocates nothing. Servers inside a test have a thread
and a loop each, and one loop reads while another thread runs.
"""

from __future__ import annotations

import threading

_of_thread = threading.local()


def read_buffer(name: str, size: int) -> memoryview:
    """Return the calling thread's buffer of this name, of `size` bytes; what is read into it must be copied at once."""
    buffers: dict[str, memoryview] = _of_thread.__dict__
    found = buffers.get(name)
    if found is None:
        found = buffers[name] = memoryview(bytearray(size))
    return found
