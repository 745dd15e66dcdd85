"""That what blocks a loop is noticed, by whom, and what is left alone."""

from __future__ import annotations

import asyncio
import importlib
import operator
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import event_loops
from tests.event_loops import EVERY_LOOP, KNOWN, LOOPS, PRODUCT, BlockingCalls, SlowCallbacks

BLOCKING = {
    "open": "open(path).close()",
    "open of a path": "pathlib.Path(path).read_text()",
    "os.open": "os.close(os.open(path, os.O_RDONLY))",
    "os.fsync": "os.fsync(file.fileno())",
    "os.fdatasync": "os.fdatasync(file.fileno())",
    "time.sleep": "time.sleep(0)",
    "subprocess": "subprocess.run(['true'])",
    "socket.getaddrinfo": "socket.getaddrinfo('127.0.0.1', 1)",
}


def planted(statement: str, path: Path, module: str = "zraft.planted") -> Callable[[], None]:
    """A function of a module of that name, which does this."""
    # Opened here, where nobody watches.
    names = {"__name__": module, "path": str(path), "file": path.open()}
    names |= {one.__name__: one for one in (os, pathlib, socket, subprocess, time)}
    exec(f"def function():\n    {statement}", names)
    function: Callable[[], None] = names["function"]  # type: ignore[assignment]
    return function


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_text("text")
    return made


@pytest.mark.parametrize("name", list(BLOCKING))
async def test_a_call_that_blocks_the_loop_is_noticed_with_its_place(name: str, path: Path) -> None:
    function = planted(BLOCKING[name], path)
    with BlockingCalls().watched() as calls:
        function()
    (found,) = calls.found
    assert found == f"{name.removesuffix(' of a path')} at <string>:2 in zraft.planted:function"
    function.__globals__["file"].close()


async def test_who_called_it_is_told_too(path: Path) -> None:
    function = planted("time.sleep(0)", path)
    outer = planted("inner()", path, "zraft_client.planted")
    outer.__globals__["inner"] = function
    with BlockingCalls().watched() as calls:
        outer()
    assert calls.found[0].endswith("in zraft.planted:function, called by zraft_client.planted:function")
    for one in (function, outer):
        one.__globals__["file"].close()


@pytest.mark.parametrize("name", list(BLOCKING))
async def test_in_a_thread_it_is_nobodys_business(name: str, path: Path) -> None:
    function = planted(BLOCKING[name], path)
    with BlockingCalls().watched() as calls:
        await asyncio.to_thread(function)
    assert calls.found == []
    function.__globals__["file"].close()


def test_where_no_loop_runs_it_is_nobodys_business(path: Path) -> None:
    function = planted("time.sleep(0)", path)
    with BlockingCalls().watched() as calls:
        function()
    assert calls.found == []
    function.__globals__["file"].close()


@pytest.mark.parametrize("module", ["tests.planted", "json"])
async def test_others_may_block_their_loop(module: str, path: Path) -> None:
    function = planted("open(path).close()", path, module)
    with BlockingCalls().watched() as calls:
        function()
    assert calls.found == []
    function.__globals__["file"].close()


@pytest.mark.parametrize("statement", ["open('/proc/self/stat').close()", "os.fdopen(os.dup(0)).close()"])
async def test_what_waits_for_no_disk_is_left_alone(statement: str, path: Path) -> None:
    function = planted(statement, path)
    with BlockingCalls().watched() as calls:
        function()
    assert calls.found == []
    function.__globals__["file"].close()


async def test_a_process_that_the_loop_starts_is_left_alone(path: Path) -> None:
    names: dict[str, object] = {"__name__": "zraft.planted", "asyncio": asyncio}
    exec(
        "async def function():\n    return await (await asyncio.create_subprocess_exec('true')).wait()", names
    )
    with BlockingCalls().watched() as calls:
        assert await names["function"]() == 0  # type: ignore[operator]
    assert calls.found == []


@pytest.mark.parametrize("name", list(KNOWN))
def test_what_is_known_to_block_is_there(name: str) -> None:
    module, _, function = name.partition(":")
    assert module.partition(".")[0] in PRODUCT
    assert operator.attrgetter(function)(importlib.import_module(module))


@pytest.mark.loops("asyncio")
async def test_slow_callbacks_are_named() -> None:
    async def dawdle() -> None:
        time.sleep(0.02)  # noqa: ASYNC251

    with SlowCallbacks(0.01).watched() as callbacks:
        await asyncio.create_task(dawdle())
    assert [name.rpartition(".")[2] for _, name in callbacks.found] == ["dawdle"]
    assert callbacks.found[0][0] > 0.01


def test_a_loop_that_has_something_open_ends_and_tells() -> None:
    runner = asyncio.Runner(loop_factory=LOOPS["uvloop"])
    kept = runner.run(asyncio.start_server(lambda *_: None, "127.0.0.1", 0))
    address = kept.sockets[0].getsockname()
    with pytest.raises(ResourceWarning, match="unclosed"):
        runner.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def wait() -> None:
    await asyncio.sleep(20)


async def wait_on() -> None:
    """Although it is cancelled."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(20)


async def leave_one_that_waits_on() -> None:
    asyncio.get_running_loop().left = asyncio.create_task(wait_on())  # type: ignore[attr-defined]
    await asyncio.sleep(0)


async def hold_up() -> None:
    while True:  # noqa: ASYNC110  it waits for nothing
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", EVERY_LOOP)
@pytest.mark.parametrize("hang", [wait, wait_on, leave_one_that_waits_on, hold_up])
def test_a_test_whose_time_is_over_ends_on_every_loop(
    name: str, hang: Callable[[], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest-timeout raises in a signal's handler, which uvloop would log while it waits on."""
    monkeypatch.setattr(event_loops, "CLEAN_UP_S", 0.1)

    def over(*_: object) -> None:
        pytest.fail("its time is over")

    before = signal.signal(signal.SIGUSR1, over)
    clock = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))

    async def test() -> None:
        clock.start()
        await hang()

    try:
        with (
            pytest.raises(pytest.fail.Exception, match="its time is over"),
            asyncio.Runner(loop_factory=LOOPS[name]) as runner,
        ):
            runner.run(test())
    finally:
        clock.join()
        signal.signal(signal.SIGUSR1, before)
