"""Event loops of tests: which there are, calls in one that are known to block, and callbacks that took long."""

from __future__ import annotations

import asyncio
import builtins
import functools
import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import uvloop

from tests.onyxlog.simulation.virtual_time import VirtualLoop


class UvLoop(uvloop.Loop):
    """uvloop, which a test whose time is over ends: uvloop itself only logs what a signal's handler raises, and waits on."""

    _main: asyncio.Future[Any] | None = None
    _over: BaseException | None = None

    def run_until_complete(self, future: Any) -> Any:
        self._main = asyncio.ensure_future(future, loop=self)
        try:
            return super().run_until_complete(self._main)
        except asyncio.CancelledError:
            if self._over is None:
                raise
            raise self._over from None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, pytest.fail.Exception) or self._main is None:
            return super().call_exception_handler(context)
        self._over = error
        self._main.cancel()
        return None


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": UvLoop,
    "virtual": VirtualLoop,
}

SLOW_S = 0.1
"""What asyncio itself calls slow."""

PRODUCT = frozenset({"onyxlog", "zraft", "zraft_bench", "zraft_client", "zraft_core"})
"""Import packages whose calls are judged."""

NOT_JUDGED = {
    "tests": "a test may block its own loop",
    "asyncio": "what the loop does for its callers, such as to start a process, is its own affair",
    "_frozen_importlib": "an import happens once",
    "linecache": "a traceback reads the sources that it shows, and a traceback is rare",
}
"""Modules whose calls are theirs, whoever called them; with the reason."""

KNOWN = {
    "zraft.program.listening:_bind": "a program binds its sockets before it serves anybody",
    "zraft.server.process.node:Node.__init__": "a start reads and syncs its directory before it serves anybody",
    "zraft.storage.wal:Wal.close": "the end of a server, which serves nobody any more",
    "zraft.storage.directory:DataDirectory.set_cluster": "two syncs, once in the life of a data directory",
    "zraft.storage.wal:Wal.read_entries": "what a slow follower needs, as much as one message holds",
    "zraft_bench.result_files:ResultFile.save": "results are kept between measurements, while no load runs",
}
"""Functions of the product that block their loop on purpose, and why that is bounded."""

_BLOCKING: tuple[tuple[Any, str, str], ...] = (
    (builtins, "open", "open"),
    (io, "open", "open"),
    (os, "open", "os.open"),
    (os, "fsync", "os.fsync"),
    (os, "fdatasync", "os.fdatasync"),
    (time, "sleep", "time.sleep"),
    (subprocess.Popen, "__init__", "subprocess"),
    (socket, "getaddrinfo", "socket.getaddrinfo"),
)


def _to_blame(frame: FrameType | None) -> list[FrameType]:
    """The product's frames that led to a call from `frame`, innermost first; none if the call is not the product's."""
    found: list[FrameType] = []
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in PRODUCT:
            found.append(frame)
        elif package in NOT_JUDGED:
            break
        frame = frame.f_back
    return found


def _waits_for_a_disk(opened: object) -> bool:
    """Whether this is a file's path: neither a descriptor that is open already nor what the kernel makes up."""
    return not isinstance(opened, int) and not os.fsdecode(opened).startswith(("/proc/", "/sys/", "/dev/"))  # type: ignore[arg-type]


class BlockingCalls:
    """Notes which calls of the product blocked a running loop."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def watched(self) -> Iterator[BlockingCalls]:
        with pytest.MonkeyPatch.context() as patch:
            for place, name, shown in _BLOCKING:
                patch.setattr(place, name, self._watching(getattr(place, name), shown))
            yield self

    def _watching(self, function: Callable[..., Any], shown: str) -> Callable[..., Any]:
        opens = shown.endswith("open")

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if asyncio._get_running_loop() is not None and not (
                opens and args and not _waits_for_a_disk(args[0])
            ):
                self._note(shown, sys._getframe(1))
            return function(*args, **kwargs)

        return watched

    def _note(self, shown: str, called_from: FrameType) -> None:
        frames = _to_blame(called_from)
        names = [f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}" for frame in frames]
        if frames and KNOWN.keys().isdisjoint(names):
            where = f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}"
            self.found.append(f"{shown} at {where} in {', called by '.join(names)}")


class SlowCallbacks:
    """Notes how long callbacks of asyncio's loop took that took long. Of uvloop nothing is known."""

    def __init__(self, slow_s: float = SLOW_S) -> None:
        self._slow_s = slow_s
        self.found: list[tuple[float, str]] = []

    @contextmanager
    def watched(self) -> Iterator[SlowCallbacks]:
        run = asyncio.Handle._run  # type: ignore[attr-defined]
        found, slow_s = self.found, self._slow_s

        def timed(handle: asyncio.Handle) -> None:
            began = time.perf_counter()
            run(handle)
            took = time.perf_counter() - began
            if took > slow_s:
                found.append((took, _name_of(handle)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", timed)
            yield self


def _name_of(handle: asyncio.Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner))
    return str(getattr(callback, "__qualname__", callback))
