"""The admin HTTP server over made-up reports, asked through real sockets on loopback."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
import uvloop
from aiohttp import web
from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

from tests.ipv6 import has_ipv6
from tests.unit.admin.values import STATUS, FakeAdminReports
from tests.unit.wire.reports import LEADER
from zraft.address import Address
from zraft.admin import http
from zraft.admin.early import EARLY_BYTES_MAX, EARLY_CONNECTIONS_MAX, EarlyConnections
from zraft.admin.http import AdminServer
from zraft.errors import ConfigError
from zraft.http_service import CONNECTIONS_MAX, HttpService
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
            server = AdminServer(reports)
            await server.prepare()
            accepting = await asyncio.get_running_loop().create_server(server.connection, sock=listening)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{place[1]}") as session:

                async def get(path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
                    async with session.request(method, path, headers=headers) as answer:
                        return answer.status, await answer.text(), answer.headers

                await scenario(get, place)
            accepting.close()
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
                await listener.open([two])

    asyncio.run(run())


OUT = FakeAdminReports(
    statistics=None, current=evolve(STATUS, ready=False, reasons=("out",), statistics=None)
)


async def ask(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


class Loading:
    """A listener whose HTTP server is loaded when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reports: FakeAdminReports) -> None:
        self.may_go = threading.Event()

        def load(name: str) -> ModuleType:
            assert self.may_go.wait(20)
            return importlib.import_module(name)

        monkeypatch.setattr("zraft.server.admin_listener.load_module", load)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = Address(*probe.getsockname())
        self.listener = AdminListener(self.address, reports, pytest.fail)

    def run(self, scenario: Callable[[Loading], Awaitable[None]]) -> None:
        async def run() -> None:
            await self.listener.open(bind_tcp("admin", self.address))
            try:
                await scenario(self)
            finally:
                self.may_go.set()
                await self.listener.stop()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as servers do
            runner.run(run())


@pytest.mark.parametrize(
    ("reports", "code", "said"), [(FakeAdminReports(LEADER), 200, b"ok"), (OUT, 503, b"out")]
)
def test_probes_are_answered_before_the_http_server_is_loaded(
    monkeypatch: pytest.MonkeyPatch, reports: FakeAdminReports, code: int, said: bytes
) -> None:
    """A server served for seconds before its readiness probe was answered."""

    async def scenario(place: Loading) -> None:
        ready = await ask(place.address, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert ready.startswith(b"HTTP/1.1 %d " % code)
        assert ready.endswith(b"\r\n\r\n" + said + b"\n")
        alive = await ask(place.address, b"GET /livez HTTP/1.0\r\n\r\n")
        assert alive.startswith(b"HTTP/1.1 200 OK\r\n")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{place.address}/readyz") as answer,
        ):
            assert (answer.status, await answer.read()) == (code, said + b"\n")
            assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"

    Loading(monkeypatch, reports).run(scenario)


def test_who_asks_for_more_waits_until_the_http_server_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(place: Loading) -> None:
        async def get(path: str) -> tuple[int, str]:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{place.address}{path}", headers=JSON) as answer,
            ):
                return answer.status, await answer.text()

        asked = [asyncio.ensure_future(get(path)) for path in ("/status.json", "/readyz", "/nowhere")]
        reader, writer = await asyncio.open_connection(place.address.host, place.address.port)
        writer.write(b"GET /li")  # is told apart when the rest is there
        await ask(place.address, b"GET /livez HTTP/1.1\r\n\r\n")
        assert not any(one.done() for one in asked)
        place.may_go.set()
        found = await asyncio.gather(*asked)
        assert [status for status, _ in found] == [200, 200, 404]
        assert json.loads(found[0][1])["raft"]["term"] == 7
        assert json.loads(found[1][1]) == {"ready": True, "reasons": []}
        writer.write(b"vez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()

    Loading(monkeypatch, FakeAdminReports(LEADER)).run(scenario)


def test_who_is_accepted_while_the_http_server_takes_over_is_not_forgotten() -> None:
    """The loop makes the protocol when it accepts, and tells it of its connection one iteration later."""
    early = EarlyConnections(FakeAdminReports(LEADER))
    accepted = early.connection()
    successor = Mock(spec=asyncio.Protocol)
    early.hand_over(lambda: successor)
    transport = Mock(spec=asyncio.Transport)
    accepted.connection_made(transport)
    transport.set_protocol.assert_called_once_with(successor)
    successor.connection_made.assert_called_once_with(transport)
    assert early.waiting == {}


def test_what_waits_for_the_http_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(place: Loading) -> None:
        host, port = place.address.host, place.address.port
        streams = [await asyncio.open_connection(host, port) for _ in range(EARLY_CONNECTIONS_MAX + 1)]
        assert await streams[-1][0].read() == b"", "one too many"
        reader, writer = streams[0]
        writer.write(b"x" * 2 * EARLY_BYTES_MAX)
        assert await reader.read() == b"", "no probe is so long"
        for _, one in streams:
            one.close()

    Loading(monkeypatch, FakeAdminReports(LEADER)).run(scenario)


def test_a_handler_that_never_ends_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp would wait a minute for it."""
    monkeypatch.setattr("zraft.http_service.SHUTDOWN_S", 0.01)
    begun = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> None:
        service = HttpService({"/": never})
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = Address(*probe.getsockname())
        await service.start(address)
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await begun.wait()
        await service.stop()
        writer.close()

    asyncio.run(run())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
def test_who_listens_everywhere_for_ipv6_is_asked_over_ipv4_too() -> None:
    async def run() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        listener = AdminListener(Address("::", port), FakeAdminReports(LEADER), pytest.fail)
        await listener.open(bind_tcp("admin", listener._address))
        async with aiohttp.ClientSession() as session:
            for host in ("127.0.0.1", "::1"):
                async with session.get(f"http://{Address(host, port)}/readyz") as answer:
                    assert answer.status == 200
        await listener.stop()

    asyncio.run(run())
