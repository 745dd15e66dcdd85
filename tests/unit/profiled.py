"""Watching what the interpreter calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Note = Callable[[FrameType, str, Any], object]
"""Takes (frame, event, argument) of `sys.setprofile`."""


@contextmanager
def profiled(note: Note) -> Iterator[None]:
    """Tell `note` of all calls and returns on this thread inside the context."""
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
