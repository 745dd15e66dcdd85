"""Files that change under a running server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from zraft.server.process.security.reloading import Reloading, keep_fresh
from zraft_core.errors import ConfigError


class Text:
    """Made of a file; one that says `broken` cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loads = 0

    def load(self, before: str | None) -> str:
        self.loads += 1
        text = self.path.read_text()
        if text == "broken":
            raise ConfigError(f"{self.path}: broken")
        return text if before is None else f"{text} after {before}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("one")
    return path


def replace(path: Path, text: str) -> None:
    """As tools do it: a new file takes the name, so the inode differs also within the clock's resolution."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def test_a_change_is_taken_once_it_stood_still_for_one_look(path: Path) -> None:
    text = Text(path)
    reloading = Reloading("text", [path], text.load)
    assert not reloading.poll()
    replace(path, "two")
    assert not reloading.poll(), "it may be half written"
    assert reloading.poll()
    assert reloading.value == "two after one"
    assert not reloading.poll()
    assert text.loads == 2


def test_a_broken_file_changes_nothing_and_is_told_once(path: Path) -> None:
    text = Text(path)
    reloading = Reloading("text", [path], text.load)
    replace(path, "broken")
    with capture_logs() as logs:
        for _ in range(5):
            assert not reloading.poll()
    assert reloading.value == "one"
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("reload failed, the former files stay in force", "error")
    ]
    assert str(path) in logs[0]["error"]
    replace(path, "three")
    reloading.poll()
    assert reloading.poll()
    assert reloading.value == "three after one"


def test_a_file_that_goes_away_and_comes_back_is_noticed(path: Path) -> None:
    reloading = Reloading("text", [path], Text(path).load)
    moved = path.with_suffix(".away")
    os.rename(path, moved)

    def gone(before: str | None) -> str:
        raise ConfigError("gone")

    reloading._load = gone
    reloading.poll()
    assert not reloading.poll()
    assert reloading.failures_total == 1
    reloading._load = Text(path).load
    os.rename(moved, path)
    reloading.poll()
    assert reloading.poll()


def test_nothing_to_begin_with_is_an_error(path: Path) -> None:
    path.write_text("broken")
    with pytest.raises(ConfigError):
        Reloading("text", [path], Text(path).load)


async def test_a_hangup_loads_at_once_also_what_did_not_change(path: Path) -> None:
    text = Text(path)
    reloading = Reloading("text", [path], text.load)

    hangup = asyncio.Event()
    hangup.set()
    loaded = asyncio.Event()
    rounds = 0

    def after_each() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            loaded.set()

    keeper = asyncio.create_task(keep_fresh([reloading], hangup, after_each))
    await loaded.wait()
    assert not hangup.is_set()
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper
    assert text.loads == 2


async def test_a_hangup_that_comes_with_the_end_does_not_keep_the_process_alive() -> None:
    """Python 3.11's `wait_for` swallows such a cancellation, and the server waited for its keepers for ever."""
    hangup = asyncio.Event()
    keeper = asyncio.create_task(keep_fresh([], hangup, lambda: None))
    await asyncio.sleep(0.01)
    hangup.set()
    await asyncio.sleep(0)
    keeper.cancel()
    await asyncio.wait([keeper], timeout=1)
    assert keeper.cancelled()
