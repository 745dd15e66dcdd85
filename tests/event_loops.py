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
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import uvloop

from tests.onyxlog.simulation.virtual_time import VirtualLoop

CLEAN_UP_S = 5.0
"""How long what a failed test has left may take to end."""


class EndingLoop(asyncio.AbstractEventLoop):
    """A loop that ends when the test's time is over, whatever the test waits for.

    pytest-timeout raises in a signal's handler, once. Tasks that go on although they are cancelled would hold up the
    clean-up after that for ever, so it is bounded.
    """

    _failed: BaseException | None = None

    def run_until_complete(self, future: Any) -> Any:
        bound = None if self._failed is None else self.call_later(CLEAN_UP_S, self.stop)
        try:
            return super().run_until_complete(future)
        except pytest.fail.Exception as error:
            self._failed = error
            raise
        except RuntimeError:
            # What a loop says that was stopped.
            if self._failed is None:
                raise
            raise self._failed from None
        finally:
            if bound is not None:
                bound.cancel()

    def close(self) -> None:
        if self._failed is not None:
            for task in asyncio.all_tasks(self):
                # Else the next test would fail by it.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        super().close()


class AsyncioLoop(EndingLoop, asyncio.SelectorEventLoop):
    """asyncio's own, which closes a connection that it accepts while its server closes.

    By itself it only half makes a transport (`Server._attach` asserts that the server is open). The socket is closed as
    that is collected, with a warning, and where a warning is an error it is not closed at all.
    """

    async def _accept_connection2(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        conn: socket.socket,
        extra: dict[str, Any],
        sslcontext: Any = None,
        server: Any = None,
        *settings: Any,
    ) -> None:
        if server is not None and server._sockets is None:
            conn.close()
            return
        await super()._accept_connection2(protocol_factory, conn, extra, sslcontext, server, *settings)  # type: ignore[misc]


class UvLoop(EndingLoop, uvloop.Loop):  # type: ignore[misc]  # its stubs and asyncio's differ
    """uvloop, which by itself only logs what a signal's handler raises, and waits on."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, pytest.fail.Exception):
            self._failed = error
            self.stop()
        else:
            super().call_exception_handler(context)

    def close(self) -> None:
        # uvloop warns of each handle that is open, and then closes it. A warning that is an error would keep it from
        # that, and it would wait for ever until all are closed.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            super().close()
        for one in caught:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": AsyncioLoop,
    "uvloop": UvLoop,
    "virtual": VirtualLoop,
}

EVERY_LOOP = ("asyncio", "uvloop")
"""What programs run on: clients on either, servers on uvloop."""

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
    "zraft.server.process.wal_writer:WalWriter.submit": "one sync of a small frame, on a disk whose syncs are short",
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
        run = asyncio.Handle._run
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
