"""The admin HTTP server over made-up reports, asked through real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.admin.values import STATUS, FakeAdminReports
from tests.unit.wire.reports import LEADER
from zraft.address import Address
from zraft.admin import http
from zraft.admin.http import AdminServer
from zraft.errors import ConfigError
from zraft.http_service import CONNECTIONS_MAX
from zraft.listening import bind_tcp
from zraft.server.admin_listener import AdminListener
from zraft.wire.statistics import LISTED_MAX, Listing

Get = Callable[..., Awaitable[tuple[int, str, Any]]]
JSON = {"Accept": "application/json"}


def with_server(
    reports: FakeAdminReports, scenario: Callable[[Get, tuple[str, int]], Awaitable[None]]
) -> None:
    """Run `scenario` with a function that gets a path: (status, text, headers)."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            place = listening.getsockname()[:2]
            server = AdminServer(Address(*place), reports)
            await server.start(listening)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{place[1]}") as session:

                async def get(path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
                    async with session.request(method, path, headers=headers) as answer:
                        return answer.status, await answer.text(), answer.headers

                await scenario(get, place)
            await server.stop()

    asyncio.run(run())


def test_every_path_is_answered() -> None:
    async def scenario(get: Get, _: object) -> None:
        status, text, headers = await get("/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "https://" not in text.replace(
            "http://www.w3.org/2000/svg", ""
        )  # nothing comes from elsewhere
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        status, text, _h = await get("/status.json")
        assert (status, json.loads(text)["raft"]["term"]) == (200, 7)
        status, text, _h = await get("/commands")
        assert '<a href="/commands/server_stats">server_stats</a>' in text
        status, text, _h = await get("/commands", **JSON)
        assert "monitor" in json.loads(text)["commands"]
        status, text, headers = await get("/commands/srvr")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(text)["command"] == "server_stats"
        status, text, _h = await get("/commands/nonesuch")
        assert (status, json.loads(text)["error"]) == (200, "Unknown command: nonesuch")
        status, text, headers = await get("/metrics")
        assert headers["Content-Type"].startswith("text/plain; version=")
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"znode_count", "zraft_raft_term", "process_resident_memory_bytes"} <= names
        assert (await get("/nowhere"))[0] == 404

    with_server(FakeAdminReports(LEADER), scenario)


def test_metrics_are_openmetrics_for_who_asks_for_it() -> None:
    async def scenario(get: Get, _: object) -> None:
        _, text, headers = await get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")

    with_server(FakeAdminReports(LEADER), scenario)


def test_readiness_has_reasons_and_liveness_does_not_depend_on_it() -> None:
    out = FakeAdminReports(
        statistics=None, current=evolve(STATUS, ready=False, reasons=("no leader is known",), statistics=None)
    )

    async def unready(get: Get, _: object) -> None:
        assert (await get("/readyz"))[:2] == (503, "no leader is known\n")
        status, text, _h = await get("/readyz", **JSON)
        assert (status, json.loads(text)) == (503, {"ready": False, "reasons": ["no leader is known"]})
        assert (await get("/livez"))[:2] == (200, "ok\n")
        assert (await get("/metrics"))[0] == 200

    async def ready(get: Get, _: object) -> None:
        assert (await get("/readyz"))[:2] == (200, "ok\n")

    with_server(out, unready)
    with_server(FakeAdminReports(LEADER), ready)


def test_what_changes_something_is_asked_by_get_as_in_adminserver_and_by_nothing_else() -> None:
    reports = FakeAdminReports(LEADER)

    async def scenario(get: Get, _: object) -> None:
        assert (await get("/commands/srst", method="POST"))[0] == 405
        assert reports.changes == []
        assert (await get("/commands/srst"))[0] == 200
        assert reports.changes == ["server"]
        assert json.loads((await get("/commands/stmk?traceMask=7"))[1])["tracemask"] == 7

    with_server(reports, scenario)


def test_a_long_list_is_encoded_whole_while_the_loop_goes_on() -> None:
    reports = FakeAdminReports(LEADER)
    one = reports.listed.items[0]
    reports.listed = Listing((one,) * LISTED_MAX, LISTED_MAX)
    reports.by_path = Listing(tuple((f"/{n}", (n,)) for n in range(LISTED_MAX)), LISTED_MAX)
    turns = 0

    async def scenario(get: Get, _: object) -> None:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.get_running_loop().create_task(count())
        answer = json.loads((await get("/commands/connections"))[1])
        assert len(answer["connections"]) == LISTED_MAX
        assert answer["connections"][0] == answer["connections"][-1]
        paths = json.loads((await get("/commands/wchp"))[1])["path_to_session_ids"]
        assert paths == {f"/{n}": [n] for n in range(LISTED_MAX)}
        counting.cancel()

    with_server(reports, scenario)
    assert turns >= 2 * LISTED_MAX // http.SLICE_ITEMS // 2


def test_a_failing_request_is_a_500_without_its_details_and_the_next_one_works() -> None:
    class Broken(FakeAdminReports):
        def configuration(self) -> Any:
            raise RuntimeError("the secret detail")

    async def scenario(get: Get, _: object) -> None:
        status, text, _h = await get("/commands/conf")
        assert status == 500
        assert "secret" not in text
        assert (await get("/livez"))[0] == 200

    with_server(Broken(LEADER), scenario)


def test_more_connections_than_the_bound_are_closed_at_once() -> None:
    async def scenario(get: Get, place: tuple[str, int]) -> None:
        streams = [await asyncio.open_connection(*place) for _ in range(CONNECTIONS_MAX)]
        await asyncio.sleep(0)
        while len(streams) < CONNECTIONS_MAX + 3:
            streams.append(await asyncio.open_connection(*place))
        assert await streams[-1][0].read() == b""
        for _, writer in streams:
            writer.close()

    with_server(FakeAdminReports(LEADER), scenario)


@pytest.mark.parametrize(
    "junk", [b"\x00\xff" * 40, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"x" * 9_000 + b" HTTP/1.1\r\n"]
)
def test_what_is_no_http_is_refused_and_harms_nobody(junk: bytes) -> None:
    async def scenario(get: Get, place: tuple[str, int]) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        reader, writer = await asyncio.open_connection(*place)
        writer.write(junk)
        writer.write_eof()
        assert b" 200 " not in (await reader.read()).partition(b"\r\n")[0]
        writer.close()
        assert (await get("/livez"))[0] == 200
        assert complaints == []

    with_server(FakeAdminReports(LEADER), scenario)


def test_a_port_at_which_another_was_first_to_listen_is_told_with_the_knob() -> None:
    async def run() -> None:
        (one,) = bind_tcp("admin", Address("127.0.0.1", 0))
        address = Address(*one.getsockname())
        (two,) = bind_tcp("admin", address)
        with one, two:
            one.listen()
            listener = AdminListener(address, FakeAdminReports(), pytest.fail)
            with pytest.raises(
                ConfigError, match=r"^admin: cannot listen at 127\.0\.0\.1:\d+: Address already"
            ):
                listener.open(two)

    asyncio.run(run())


def test_who_asks_before_the_server_serves_is_answered_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zraft.server.admin_listener.WAIT_S", 0.1)
    (bound,) = bind_tcp("admin", Address("127.0.0.1", 0))
    address = Address(*bound.getsockname())

    async def run() -> None:
        out = FakeAdminReports(
            statistics=None, current=evolve(STATUS, ready=False, reasons=("out",), statistics=None)
        )
        listener = AdminListener(address, out, pytest.fail)
        listener.open(bound)
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "out\n")
        await listener.stop()

    asyncio.run(run())
