"""The loop or a thread writes the log, never both at once, and neither loses what the disk refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.nodes import Nodes
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.server.process.node import Node
from zraft.server.process.sync_pace import PROVED_FIRST, STALL_S, SyncPace
from zraft.server.process.wal_writer import SMALL_BYTES, SMALL_RECORDS, WalWriter
from zraft.storage.errors import DiskFullError, FsyncError
from zraft.storage.records import EntryRecord, HardStateRecord, Record
from zraft_client import Client
from zraft_core.ids import COORDINATION_GROUP

WAIT_S = 30


def frame(number: int, size: int = 10) -> list[Record]:
    return [EntryRecord(COORDINATION_GROUP, Entry(number, 1, EntryKind.COMMANDS, number, 1, bytes(size)))]


class Disk:
    """A log that notes who writes what, and finds two inside of it at once."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []
        self.errors: list[BaseException] = []
        self.room = 1 << 30
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self._inside = threading.Lock()

    def append(self, records: list[Record]) -> None:
        self._use(records)

    def compact(self, group: int, index: int) -> int:
        self._use(index)
        return 0

    def _use(self, what: Any) -> None:
        assert self._inside.acquire(blocking=False), "two at once"
        try:
            self.entered.set()
            assert self.gate.wait(WAIT_S)
            if self.errors:
                raise self.errors.pop()
            self.written.append((threading.current_thread().name, what))
        finally:
            self._inside.release()


class Writing:
    """A writer, and what it has told."""

    def __init__(self, pace: SyncPace) -> None:
        self.disk = Disk()
        self.told: list[tuple[str, Any]] = []
        self._telling = threading.Condition()
        self.writer = WalWriter(
            self.disk,  # type: ignore[arg-type]  # as much of it as is used
            pace,
            on_written=self._note("written"),
            on_full=self._note("full"),
            on_failed=self._note("failed"),
        )

    def _note(self, what: str) -> Callable[[Any], None]:
        def note(value: Any) -> None:
            with self._telling:
                self.told.append((what, value))
                self._telling.notify_all()

        return note

    def wait(self, count: int) -> list[str]:
        with self._telling:
            assert self._telling.wait_for(lambda: len(self.told) >= count, WAIT_S), self.told
            return [what for what, _ in self.told]

    @property
    def by(self) -> list[str]:
        return ["thread" if name == "zraft-wal" else "loop" for name, _ in self.disk.written]


@pytest.fixture
def fast() -> Iterator[Writing]:
    pace = SyncPace(1.0)
    for _ in range(PROVED_FIRST):
        pace.thread_took(0.0)
    writing = Writing(pace)
    yield writing
    writing.disk.gate.set()
    writing.writer.stop()


@pytest.fixture
def slow() -> Iterator[Writing]:
    writing = Writing(SyncPace(0))
    yield writing
    writing.writer.stop()


def test_on_a_fast_disk_the_loop_writes_and_nobody_is_called_back(fast: Writing) -> None:
    for number in range(1, 4):
        assert fast.writer.submit(frame(number)) is not None
    assert (fast.by, fast.told, fast.writer.by_loop_total) == (["loop"] * 3, [], 3)


def test_on_a_slow_disk_the_thread_does(slow: Writing) -> None:
    assert slow.writer.submit(frame(1)) is None
    assert slow.wait(1) == ["written"]
    assert (slow.by, slow.writer.by_loop_total) == (["thread"], 0)


@pytest.mark.parametrize(
    "records",
    [
        frame(1, SMALL_BYTES),
        [HardStateRecord(COORDINATION_GROUP, HardState(1))] * (SMALL_RECORDS + 1),
    ],
    ids=["many bytes", "many records"],
)
def test_large_frames_are_the_threads(fast: Writing, records: list[Record]) -> None:
    assert fast.writer.submit(records) is None
    assert fast.wait(1) == ["written"]
    assert fast.by == ["thread"]
    assert fast.writer.submit(frame(1, SMALL_BYTES - 200)) is not None


def test_how_long_a_large_frame_takes_says_nothing_of_small_ones() -> None:
    pace = SyncPace(1.0)
    writing = Writing(pace)
    given: list[int] = []
    for number, size in enumerate((10, SMALL_BYTES) * PROVED_FIRST, 1):
        if pace.is_fast:
            break
        given.append(size)
        assert writing.writer.submit(frame(number, size)) is None
        writing.wait(number)
        writing.writer.took(0.0 if size < SMALL_BYTES else STALL_S)
    writing.writer.stop()
    assert given == [10, SMALL_BYTES] * (PROVED_FIRST - 1) + [10]


def test_where_room_has_to_be_made_first_the_thread_does_it(fast: Writing) -> None:
    """It takes several syncs."""
    fast.disk.room = 150
    assert fast.writer.submit(frame(1, 10)) is not None
    assert fast.writer.submit(frame(2, 150)) is None
    assert fast.wait(1) == ["written"]
    assert fast.by == ["loop", "thread"]


def test_while_the_thread_is_at_work_the_loop_gives_it_everything_in_order(fast: Writing) -> None:
    fast.disk.gate.clear()
    fast.writer.compact(COORDINATION_GROUP, 7)
    assert fast.disk.entered.wait(WAIT_S)
    assert fast.writer.submit(frame(1)) is None
    fast.disk.gate.set()
    assert fast.wait(1) == ["written"]
    assert (fast.by, fast.disk.written[0][1]) == (["thread"] * 2, 7)
    assert fast.writer.submit(frame(2)) is not None, "it was told, so the thread is finished"


def test_a_frame_that_a_full_disk_refused_the_loop_is_written_by_the_thread(fast: Writing) -> None:
    fast.disk.errors += [DiskFullError("full"), DiskFullError("full")]
    assert fast.writer.submit(frame(1)) is None
    assert fast.wait(3) == ["full", "full", "written"]
    assert isinstance(fast.told[0][1], DiskFullError)
    assert fast.told[1][1] is None, "it is well again"
    assert fast.by == ["thread"]


@pytest.mark.parametrize("writing", ["fast", "slow"])
def test_d10_an_error_of_fsync_is_told_and_nothing_is_tried_again(
    writing: str, request: pytest.FixtureRequest
) -> None:
    one: Writing = request.getfixturevalue(writing)
    one.disk.errors.append(FsyncError("/wal", OSError(5, "Input/output error")))
    assert one.writer.submit(frame(1)) is None
    assert one.wait(1) == ["failed"]
    assert one.by == []


@pytest.mark.parametrize("is_fast", [True, False])
async def test_what_the_loop_wrote_is_answered_without_being_woken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    monkeypatch.setattr(SyncPace, "is_fast", is_fast)
    woken = 0
    on_written = Node._on_written

    def counted(node: Node, seconds: float) -> None:
        nonlocal woken
        woken += 1
        on_written(node, seconds)

    monkeypatch.setattr(Node, "_on_written", counted)
    async with Nodes(tmp_path) as nodes:
        address = nodes.addresses[nodes.leader.config.id]
        async with Client(str(address)) as client:
            await client.create("/n")
            writers = [node._wal_writer for node in nodes.nodes.values()]
            woken_before, by_loop_before = woken, [writer.by_loop_total for writer in writers]
            for number in range(20):
                await client.set("/n", bytes([number]))
        by_loop = [
            writer.by_loop_total - before for writer, before in zip(writers, by_loop_before, strict=True)
        ]
    if is_fast:
        assert woken == woken_before
        assert sorted(by_loop)[1] >= 20, "a majority had written each before it was answered"
    else:
        assert woken - woken_before >= 40
        assert by_loop == [0, 0, 0]
