"""Sessions with requests under way, against a server made of bytes: what they ask, what they count, what loses them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.fake_zookeeper import CLOSE, CREATE, GET_DATA, SET_DATA, Server
from zraft_bench.load.sessions import SessionLoad
from zraft_bench.load.workload import Operation, Share, Workload
from zraft_bench.results import Part
from zraft_bench.targets.target import RequestFailedError


def load_of(hosts: str, operation: Operation = Operation.WRITE, **more: Any) -> SessionLoad:
    settings = {
        "workers": 8,
        "under_way": 4,
        "entries": 6,
        "seconds_min": 0.3,
        "warm_up_s": 0.05,
        "deadline_s": 5.0,
    }
    workload = Workload(operation=operation, **(settings | more))
    return SessionLoad(workload, Share(0, workload.workers, workload.workers), hosts, "place")


async def measured(load: SessionLoad) -> Part:
    await load.prepare()
    part = await load.run()
    await load.finish()
    await load.close()
    return part


async def test_each_session_keeps_exactly_its_number_under_way() -> None:
    server = Server()
    server.together = 4
    async with server as hosts:
        part = await measured(load_of(hosts))
    assert (part.workers, part.connections, part.failed, part.unknown) == (8, 2, 0, 0)
    assert server.further == 0
    assert (
        0 < part.acknowledged < server.asked.count(SET_DATA)
    )  # the warm-up, and what came late, is not counted
    assert part.latencies.count == part.acknowledged
    assert part.latencies.summary().min_ms >= 5  # the server waits for 10, and a loop may round that
    assert server.asked[-1] == CLOSE
    assert set(server.values) == {"/place", *(f"/place/{key}" for key in range(6))}


@pytest.mark.parametrize(
    ("operation", "asked"),
    [(Operation.READ, {GET_DATA}), (Operation.WRITE, {SET_DATA}), (Operation.MIXED, {GET_DATA, SET_DATA})],
)
async def test_sessions_ask_for_what_they_are_to(operation: Operation, asked: set[int]) -> None:
    server = Server()
    async with server as hosts:
        await measured(load_of(hosts, operation))
    assert set(server.asked) == asked | {CREATE, CLOSE}


async def test_sequential_znodes_are_gone_after_the_test() -> None:
    server = Server()
    async with server as hosts:
        part = await measured(load_of(hosts, Operation.CREATE_SEQUENTIAL))
    assert 2 + part.acknowledged < server.asked.count(CREATE)
    assert set(server.values) == {"/place", "/place/of-0"}


async def test_a_visit_opens_and_closes_a_session() -> None:
    server = Server()
    async with server as hosts:
        part = await measured(load_of(hosts, Operation.VISIT, workers=3, under_way=1))
    assert 0 < part.acknowledged < server.connections
    assert server.asked == [CLOSE] * server.connections


async def test_what_is_refused_is_counted_by_its_name() -> None:
    server = Server()
    async with server as hosts:
        load = load_of(hosts)
        await load.prepare()
        server.values.clear()
        part = await load.run()
        await load.close()
    assert part.acknowledged == 0
    assert part.failures == {"NO_NODE": part.failed}


@pytest.mark.parametrize(
    ("fault", "told"), [("hangs_up", "the connection was lost"), ("confused", "expected")]
)
async def test_a_session_that_is_lost_fails_what_it_had_under_way(fault: str, told: str) -> None:
    """By its server, or by an answer that is out of turn."""
    server = Server()
    async with server as hosts:
        load = load_of(hosts, seconds_min=10.0)  # it ends with its last session
        await load.prepare()
        setattr(server, fault, True)
        part = await load.run()
        await load.close()
    assert part.unknown == 8
    assert told in next(iter(part.failures))


async def test_a_load_whose_sessions_are_lost_while_it_warms_up_is_none() -> None:
    server = Server()
    async with server as hosts:
        server.hangs_up_at = SET_DATA
        with pytest.raises(RequestFailedError, match="2 of 2 sessions were lost"):
            await load_of(hosts, warm_up_s=10.0).prepare()


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.VISIT])
async def test_a_session_that_is_not_granted_is_told(operation: Operation) -> None:
    server = Server()
    server.refuses = True
    async with server as hosts:
        if operation is Operation.WRITE:
            with pytest.raises(RequestFailedError, match="no session was granted"):
                await load_of(hosts).prepare()
        else:
            part = await measured(load_of(hosts, operation))
            assert "no session was granted" in part.failures


async def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    async with Server() as hosts:
        pass
    with pytest.raises(RequestFailedError, match=hosts):
        await load_of(hosts).prepare()
