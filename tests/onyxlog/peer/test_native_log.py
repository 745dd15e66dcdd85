"""The port over zraft's own protocol, on a cluster that fails exactly where it hurts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onyxlog.peer.log.native import native_ports
from onyxlog.peer.log.port import LogBounds
from onyxlog.replica.commands import Entry, GroupLeave, Record
from tests.client.fake import Fault
from tests.onyxlog.peer.places import Fake
from tests.onyxlog.peer.test_log_contract import PARAMETERS, begun, origin_at, record, take
from zraft_client import DeadlineError, NotSentError, UnknownOutcomeError
from zraft_core.errors import ConfigError

LOST = (Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.REFUSE, Fault.UNKNOWN, Fault.UNKNOWN_UNDONE)


@pytest.fixture
async def place() -> AsyncIterator[Fake]:
    async with Fake() as opened:
        yield opened


@pytest.mark.parametrize("fault", LOST)
async def test_appends_happen_once_and_in_order_whatever_becomes_of_requests(
    fault: Fault, place: Fake
) -> None:
    port, other = await begun(place), await place.open()
    for kind in ("create", "multi"):
        place.cluster.fault(kind, fault, fault)
    asked = []
    for number in range(12):
        asked.append(asyncio.ensure_future(port.append(record(number))))
        if number in (0, 1, 6):
            await asyncio.sleep(0.003)
    assert await asyncio.gather(*asked) == list(range(12))
    assert [entry.record for entry in await other.read(0, 99)] == [record(n) for n in range(12)]


@pytest.mark.parametrize("fault", LOST)
async def test_an_origin_is_stored_once_whatever_becomes_of_the_request(fault: Fault, place: Fake) -> None:
    port, other = await begun(place), await place.open()
    for number in range(5):
        await port.append(record(number))
    for kind in ("truncate", "create", "read"):
        place.cluster.fault(kind, fault)
    assert await port.store_origin(origin_at(3, peers=100))
    assert await other.origin() == origin_at(3, peers=100)
    assert await other.bounds() == LogBounds(4, 5)


@pytest.mark.parametrize("fault", LOST)
async def test_a_will_stands_whatever_becomes_of_the_request(fault: Fault, place: Fake) -> None:
    port, other = await begun(place), await place.open()
    place.cluster.fault("will", fault)
    will = Record(GroupLeave("a"), "a")
    await port.set_will(will)
    await port.close()
    assert await take(other, 0, 1) == [Entry(0, will)]


async def test_an_append_that_nobody_answers_is_unknown_and_the_next_goes_on(place: Fake) -> None:
    opened = native_ports(place.hosts, place.tenancy, timeout_s=0.3)
    port = await opened()
    try:
        await port.begin(PARAMETERS)
        place.cluster.fault("create", Fault.SILENCE)
        with pytest.raises(UnknownOutcomeError):
            await port.append(record(0))
        assert await port.append(record(1)) == 0
    finally:
        await port.close()


async def test_a_watch_that_no_server_takes_is_told_in_time(place: Fake) -> None:
    port = await native_ports(place.hosts, place.tenancy, timeout_s=0.2)()
    try:
        await port.begin(PARAMETERS)
        place.cluster.fault("subscribe", Fault.SILENCE)
        with pytest.raises(DeadlineError):
            await port.watch_pulse("a", lambda: None)
    finally:
        await port.close()


async def test_ports_are_opened_connected_or_not_at_all() -> None:
    with pytest.raises(NotSentError, match=r"no server of 127\.0\.0\.1:1"):
        await native_ports("127.0.0.1:1", "t", timeout_s=0.2)()
    with pytest.raises(ConfigError, match="tenancy"):
        native_ports("127.0.0.1:1", "a/b")
