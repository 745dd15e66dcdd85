"""Appends of a port: in order, together, bounded, each told what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onyxlog.peer.log import appender
from onyxlog.peer.log.appender import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, Appender
from zraft_client import ClosedError, NotSentError, UnknownOutcomeError


class Log:
    """Takes batches one by one, when `allow` was called."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.errors: list[Exception | None] = []
        self._allowed = asyncio.Semaphore(0)
        self._end = 0

    def allow(self, count: int = 1, error: Exception | None = None) -> None:
        for _ in range(count):
            self.errors.append(error)
            self._allowed.release()

    async def send(self, records: Sequence[bytes]) -> list[int]:
        await self._allowed.acquire()
        error = self.errors.pop(0)
        if error is not None:
            raise error
        self.batches.append(list(records))
        self._end += len(records)
        return list(range(self._end - len(records), self._end))


def asked(appends: Appender, *records: bytes) -> list[asyncio.Task[int]]:
    return [asyncio.ensure_future(appends.append(data)) for data in records]


async def test_what_is_asked_meanwhile_goes_together_and_in_order() -> None:
    log = Log()
    appends = Appender(log.send)
    first = asked(appends, b"0")
    await asyncio.sleep(0.001)
    rest = asked(appends, b"1", b"2", b"3")
    await asyncio.sleep(0.001)
    log.allow(2)
    assert await asyncio.gather(*first, *rest) == [0, 1, 2, 3]
    assert log.batches == [[b"0"], [b"1", b"2", b"3"]]


async def test_a_batch_is_bounded_in_entries_and_bytes() -> None:
    log = Log()
    appends = Appender(log.send)
    log.allow(10)
    half = b"x" * (BATCH_BYTES_MAX // 2)
    await asyncio.gather(*asked(appends, half, half, b"y", half * 3, b"z"))
    assert [len(batch) for batch in log.batches] == [2, 1, 1, 1]
    log.batches.clear()
    await asyncio.gather(*asked(appends, *[b"w"] * (BATCH_ENTRIES_MAX + 1)))
    assert [len(batch) for batch in log.batches] == [BATCH_ENTRIES_MAX, 1]


async def test_an_error_is_told_to_those_of_its_batch_only() -> None:
    log = Log()
    appends = Appender(log.send)
    first = asked(appends, b"0", b"1")
    await asyncio.sleep(0.001)
    rest = asked(appends, b"2")
    log.allow(error=UnknownOutcomeError("lost"))
    log.allow()
    for one in first:
        with pytest.raises(UnknownOutcomeError):
            await one
    assert await rest[0] == 0


async def test_who_gives_up_waiting_does_not_disturb_the_others() -> None:
    log = Log()
    appends = Appender(log.send)
    tasks = asked(appends, b"0", b"1", b"2")
    await asyncio.sleep(0.001)
    tasks[1].cancel()
    log.allow()
    assert [await tasks[0], await tasks[2]] == [0, 2]


async def test_too_many_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "WAITING_BYTES_MAX", 10)

    log = Log()
    appends = Appender(log.send)
    under_way = asked(appends, b"0")
    await asyncio.sleep(0.001)
    waiting = asked(appends, b"1" * 11)
    await asyncio.sleep(0.001)
    with pytest.raises(NotSentError, match="1 appends of 11 bytes wait"):
        await appends.append(b"2")
    log.allow(2)
    assert await asyncio.gather(*under_way, *waiting) == [0, 1]
    log.allow()
    assert await appends.append(b"3") == 2


async def test_when_it_is_closed_all_are_told() -> None:
    log = Log()
    appends = Appender(log.send)
    first = asked(appends, b"0")
    await asyncio.sleep(0.001)
    rest = asked(appends, b"1")
    await asyncio.sleep(0.001)
    await appends.close()
    with pytest.raises(ClosedError, match="under way"):
        await first[0]
    with pytest.raises(ClosedError):
        await rest[0]
    assert log.batches == []
