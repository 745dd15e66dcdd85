"""What the log in memory has beyond a port's contract: ports that are held, sessions that are ended, the same every time."""

from __future__ import annotations

import asyncio

import pytest

from onyxlog.replica.commands import Entry, GroupLeave, KillJob, Record
from onyxlog.replica.replica import Parameters
from tests.onyxlog.simulation.memory_log import MemoryLog, MemoryPort
from zraft_client import SessionExpiredError


def record(number: int) -> Record:
    return Record(KillJob(f"job-{number}", 0), "a")


async def begun(log: MemoryLog) -> MemoryPort:
    port = log.open()
    await port.begin(Parameters())
    return port


async def test_what_a_held_port_asks_waits_and_keeps_its_order() -> None:
    log = MemoryLog()
    port, other = await begun(log), await begun(log)
    log.hold(port)
    asked = [asyncio.ensure_future(port.append(record(number))) for number in range(3)]
    await other.append(record(9))
    await asyncio.sleep(0)
    assert [entry.record for entry in log.entries] == [record(9)]
    log.release(port)
    asked.append(asyncio.ensure_future(port.append(record(3))))
    assert await asyncio.gather(*asked) == [1, 2, 3, 4]
    assert [entry.record for entry in log.entries[1:]] == [record(number) for number in range(4)]


async def test_a_held_port_learns_of_its_session_s_end_when_it_is_released() -> None:
    log = MemoryLog()
    port, other = await begun(log), await begun(log)
    gone: list[str] = []
    await port.show_pulse("a")
    await port.set_will(Record(GroupLeave("a"), "a"))
    await other.watch_pulse("a", lambda: gone.append("a"))
    tail = port.tail(0)
    reading = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    log.hold(port)
    log.expire(port)
    assert await other.read(0, 9) == (Entry(0, Record(GroupLeave("a"), "a")),)
    for _ in range(5):
        await asyncio.sleep(0)
    assert gone == ["a"]
    assert not reading.done()
    log.release(port)
    with pytest.raises(SessionExpiredError):
        await reading
    with pytest.raises(SessionExpiredError):
        await port.append(record(0))
    assert port not in log.ports
    await other.close()


async def test_a_record_that_cannot_be_copied_is_not_appended() -> None:
    def refuse(found: Record) -> Record:
        raise TypeError("no canonical form")

    log = MemoryLog(copy=refuse)
    port = await begun(log)
    with pytest.raises(TypeError):
        await port.append(record(0))
    assert (log.entries, log.end) == ([], 0)


async def test_what_happens_is_the_same_every_time() -> None:
    async def once() -> list[tuple[str, list[int]]]:
        log = MemoryLog(batch=2)
        seen: list[tuple[str, list[int]]] = []

        async def follow(port: MemoryPort, name: str) -> None:
            count = 0
            async for entries in port.tail(0):
                seen.append((name, [entry.position for entry in entries]))
                count += len(entries)
                if count == 12:
                    return

        ports = [await begun(log) for _ in range(3)]
        tails = [asyncio.ensure_future(follow(port, f"p{n}")) for n, port in enumerate(ports)]
        await asyncio.gather(*(port.append(record(n)) for n in range(4) for port in ports))
        await asyncio.gather(*tails)
        return seen

    first = await once()
    assert len(first) >= 3 * 6
    assert await once() == first
