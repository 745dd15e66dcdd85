"""What every test gets: a printed seed, its event loop, and a failure for what asyncio only logs or waits for."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests.event_loops import EVERY_LOOP, LOOPS, BlockingCalls, SlowCallbacks

# Without byte code on disk, every server that a test starts compiles its three hundred modules
# again, which doubles its start, and every worker of a run compiles all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An example that takes long says something about the machine, which may stand still for half a second.
settings.register_profile("zraft", deadline=None, derandomize=True)
settings.load_profile("zraft")

_PLAIN = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=None, help="seed of the tests that draw one; printed, drawn if not given"
    )
    parser.addoption(
        "--every-loop", action="store_true", help="run coroutine tests with real processes on uvloop, too"
    )


def pytest_configure(config: pytest.Config) -> None:
    # An xdist worker must draw what its controller printed.
    inherited = getattr(config, "workerinput", {}).get("zraft_seed")
    chosen = config.getoption("--seed")
    if chosen is None:
        chosen = inherited if inherited is not None else random.SystemRandom().getrandbits(32)
    config.stash[_SEED] = chosen
    # What structlog does by itself shows all local variables with every traceback: pages, in which nobody finds the error.
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _PLAIN])
    # A logger that was used once under one test's settings would keep them for all others.
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(structlog, "configure", partial(_configure_uncached, structlog.configure))
    config.add_cleanup(monkeypatch.undo)


def _configure_uncached(configure: Callable[..., None], **settings: Any) -> None:
    configure(**settings | {"cache_logger_on_first_use": False})


@pytest.hookimpl(trylast=True)  # of what is left to be run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take longest, and then with those that have most: workers end together."""
    weights: dict[Path, tuple[float, int]] = {}
    for item in items:
        timeout = item.get_closest_marker("timeout")
        longest, count = weights.get(item.path, (0.0, 0))
        weights[item.path] = max(longest, timeout.args[0] if timeout is not None else 0.0), count + 1
    items.sort(key=lambda item: weights[item.path], reverse=True)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A test that runs a program's `main`, which sets up its logs, leaves those of the other tests as they were."""
    root = logging.getLogger()
    before, level, configured = list(root.handlers), root.level, structlog.get_config()
    yield
    if structlog.get_config() != configured:
        structlog.configure(**configured)
        root.handlers[:] = before
        root.setLevel(level)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    node.workerinput["zraft_seed"] = node.config.stash[_SEED]  # type: ignore[attr-defined]


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[_SEED]} (repeat with --seed {config.stash[_SEED]})"


_SEED = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed, for a test that wants another draw in every run. Shown in the header and on failure."""
    value = request.config.stash[_SEED]
    print(f"seed: {value}")
    return value


@pytest.fixture(autouse=True, scope="session")
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands of tests, and processes that tests start, keep no notes among the developer's own, and find none there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("ZRAFT_KEY", raising=False)
        yield


class _Complaints(logging.Handler):
    """Collects asyncio's errors: tasks destroyed while pending, exceptions nobody retrieved."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def no_asyncio_complaints() -> Iterator[None]:
    """Fail the test during which asyncio logged an error; unraisable exceptions are pytest's own to fail."""
    complaints = _Complaints()
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    try:
        yield
    finally:
        logger.removeHandler(complaints)
    if complaints.messages:
        pytest.fail("asyncio logged: " + "; ".join(complaints.messages))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run a coroutine test on asyncio's loop and on uvloop, or on the loops that its marker `loops` names.

    A test with real processes takes seconds for what is not in its loop, so it has asyncio's alone; `.ci/long` runs it on
    uvloop.
    """
    marker = item.get_closest_marker("loops")
    if marker is not None:
        names = marker.args
    elif item.get_closest_marker("processes") is not None and not config.getoption("--every-loop"):
        names = ("asyncio",)
    else:
        names = EVERY_LOOP
    return {name: LOOPS[name] for name in names}


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    """Fail the test during which the product blocked a running loop."""
    with BlockingCalls().watched() as calls:
        yield
    if calls.found:
        pytest.fail("blocked the event loop: " + "; ".join(dict.fromkeys(calls.found)))


_SLOW = "slow callback"


@pytest.fixture(autouse=True)
def slow_callbacks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remember callbacks that took long, for the summary; how long something takes decides nothing."""
    with SlowCallbacks().watched() as callbacks:
        yield
    request.node.user_properties += [(_SLOW, list(one)) for one in callbacks.found]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    slow = sorted(
        (
            (*value, report.nodeid)
            for report in terminalreporter.getreports("")
            if report.when == "teardown"
            for name, value in report.user_properties
            if name == _SLOW
        ),
        reverse=True,
    )
    if slow:
        terminalreporter.section(f"slowest of {len(slow)} callbacks that held up a loop")
        for took, callback, test in slow[:10]:
            terminalreporter.line(f"{took:.2f}s {callback}  {test}")
