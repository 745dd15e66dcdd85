"""The admin HTTP server over made-up reports, asked through real sockets on loopback."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import ModuleType
from typing import Any, Self
from unittest.mock import Mock

import aiohttp
import pytest
import structlog
from aiohttp import web
from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

from tests.ipv6 import has_ipv6
from tests.unit.admin.values import OF_TOPICS, STATUS, FakeAdminReports
from tests.unit.wire.reports import LEADER
from zraft.admin import http
from zraft.admin.early import EARLY_BYTES_MAX, EarlyConnections
from zraft.admin.http import AdminServer
from zraft.monitoring.statistics import LISTED_MAX, Listing
from zraft.program import http_service
from zraft.program.http_places import CONNECTIONS_MAX, Places, is_this_machine
from zraft.program.http_service import HttpService
from zraft.program.listening import bind_tcp
from zraft.server.operators.status import Status
from zraft.server.process.admin_listener import AdminListener
from zraft_core.address import Address
from zraft_core.errors import ConfigError

Get = Callable[..., Awaitable[tuple[int, str, Any]]]
JSON = {"Accept": "application/json"}


@asynccontextmanager
async def served(
    reports: FakeAdminReports, hosts: Sequence[str] = ()
) -> AsyncIterator[tuple[Get, tuple[str, int]]]:
    """A function that gets a path as (status, text, headers), and where the server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        place = listening.getsockname()[:2]
        server = AdminServer(reports, hosts)
        await server.prepare()
        accepting = await asyncio.get_running_loop().create_server(server.connection, sock=listening)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{place[1]}") as session:

            async def get(path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
                async with session.request(method, path, headers=headers) as answer:
                    return answer.status, await answer.text(), answer.headers

            yield get, place
        accepting.close()
        await server.stop()


async def test_every_path_is_answered() -> None:
    async with served(FakeAdminReports(LEADER)) as (get, _):
        status, text, headers = await get("/")
        assert (status, "/metrics" in text) == (200, True)
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


async def test_metrics_are_openmetrics_for_who_asks_for_it() -> None:
    async with served(FakeAdminReports(LEADER)) as (get, _):
        _, text, headers = await get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_metrics_have_all_partitions_in_both_formats(accept: str) -> None:
    (one, _) = OF_TOPICS.partitions
    many = evolve(OF_TOPICS, partitions=tuple(evolve(one, number=number) for number in range(700)))
    async with served(FakeAdminReports(LEADER, of_topics=many)) as (get, _h):
        _, text, _h = await get("/metrics", Accept=accept)
    assert text.count("\nzraft_partition_end_offset{") == 700
    assert text.count("# EOF\n") == text.endswith("# EOF\n") == ("openmetrics" in accept)
    assert "\nprocess_resident_memory_bytes " in text


async def test_readiness_has_reasons_and_liveness_does_not_depend_on_it() -> None:
    out = FakeAdminReports(
        statistics=None, current=evolve(STATUS, ready=False, reasons=("no leader is known",), statistics=None)
    )

    async with served(out) as (get, _):
        assert (await get("/readyz"))[:2] == (503, "no leader is known\n")
        status, text, _h = await get("/readyz", **JSON)
        assert (status, json.loads(text)) == (503, {"ready": False, "reasons": ["no leader is known"]})
        assert (await get("/livez"))[:2] == (200, "ok\n")
        assert (await get("/metrics"))[0] == 200
    async with served(FakeAdminReports(LEADER)) as (get, _):
        assert (await get("/readyz"))[:2] == (200, "ok\n")


async def test_what_changes_something_is_asked_by_get_as_in_adminserver_and_by_nothing_else() -> None:
    reports = FakeAdminReports(LEADER)

    async with served(reports) as (get, _):
        assert (await get("/commands/srst", method="POST"))[0] == 405
        assert reports.changes == []
        assert (await get("/commands/srst"))[0] == 200
        assert reports.changes == ["server"]
        assert json.loads((await get("/commands/stmk?traceMask=7"))[1])["tracemask"] == 7


async def test_a_long_list_is_encoded_whole_while_the_loop_goes_on() -> None:
    reports = FakeAdminReports(LEADER)
    one = reports.listed.items[0]
    reports.listed = Listing((one,) * LISTED_MAX, LISTED_MAX)
    reports.by_path = Listing(tuple((f"/{n}", (n,)) for n in range(LISTED_MAX)), LISTED_MAX)
    turns = 0

    async with served(reports) as (get, _):

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
    assert turns >= 2 * LISTED_MAX // http.SLICE_ITEMS // 2


async def test_a_failing_request_is_a_500_without_its_details_and_the_next_one_works() -> None:
    class Broken(FakeAdminReports):
        def configuration(self) -> Any:
            raise RuntimeError("the secret detail")

    async with served(Broken(LEADER)) as (get, _):
        status, text, _h = await get("/commands/conf")
        assert status == 500
        assert "secret" not in text
        assert (await get("/livez"))[0] == 200


async def test_idle_connections_beyond_the_bound_give_way_to_who_asks() -> None:
    """However many connections somebody opens, a health check gets through."""
    async with served(FakeAdminReports(LEADER)) as (get, place):
        streams = [await asyncio.open_connection(*place) for _ in range(2 * CONNECTIONS_MAX)]
        assert (await get("/livez"))[:2] == (200, "ok\n")
        assert await streams[0][0].read() == b"", "who has waited longest has gone"
        for _, writer in streams:
            writer.close()


async def test_a_head_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "HEAD_S", 0.1)

    async with served(FakeAdminReports(LEADER)) as (_, place):
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-")
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                while not reader.at_eof():
                    writer.write(b"a")
                    await reader.read(1)
        writer.close()


async def test_an_answer_that_is_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, abort = asyncio.Event(), http_service._Door.abort

    def noted(door: http_service._Door) -> None:
        ended.set()
        abort(door)

    monkeypatch.setattr(http_service, "IDLE_S", 0.2)
    monkeypatch.setattr(http_service._Door, "abort", noted)
    reports = FakeAdminReports(LEADER)
    reports.by_path = Listing(tuple((f"/{n}" * 100, (n,)) for n in range(LISTED_MAX)), LISTED_MAX)

    async with served(reports) as (_, place):
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            silent.connect(place)
            silent.sendall(20 * b"GET /commands/wchp HTTP/1.1\r\nHost: localhost\r\n\r\n")
            silent.settimeout(20)

            def read_late() -> int:
                return sum(len(part) for part in iter(lambda: _received(silent), b""))

            await ended.wait()
            assert await asyncio.to_thread(read_late) < 20 * 1_000_000


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 20)
    except ConnectionError:
        return b""


async def test_a_body_that_nobody_asked_for_is_not_read() -> None:
    async with served(FakeAdminReports(LEADER)) as (_, place):
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        assert b" 200 " in await reader.readline()
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                while True:
                    writer.write(bytes(65_536))
                    await writer.drain()
        writer.close()


async def test_a_health_check_waits_for_no_flood() -> None:
    """Dear answers are made one after the other; who only wants to know whether the server lives does not wait."""
    began = asyncio.Event()

    class Slow(FakeAdminReports):
        def status(self) -> Status:
            began.set()
            time.sleep(0.02)
            return super().status()

    async with served(Slow(LEADER)) as (get, place):
        loop = asyncio.get_running_loop()
        floods = [await asyncio.open_connection(*place) for _ in range(30)]
        for _, writer in floods:
            writer.write(10 * b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await began.wait()
        worst = 0.0
        for _ in range(5):
            asked = loop.time()
            assert (await get("/livez"))[0] == 200
            assert (await get("/readyz"))[0] == 200
            worst = max(worst, loop.time() - asked)
        answered = sum(bool(reader._buffer) for reader, _ in floods)  # type: ignore[attr-defined]
        assert answered < len(floods), f"a flood of {len(floods)} was answered meanwhile, in {worst:g} s"
        for _, writer in floods:
            writer.close()


EVIL = {"Host": "evil.example"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3:8080", "[::1]:8080", "localhost:1", "LOCALHOST.", "zk1.example"]
)
async def test_pages_and_resets_are_served_under_addresses_and_known_names(host: str) -> None:
    reports = FakeAdminReports(LEADER)

    async with served(reports, hosts=["zk1.example"]) as (get, _):
        for path in ("/", "/commands", "/commands/srst", "/commands/stat_reset"):
            assert (await get(path, Host=host))[0] == 200
        assert reports.changes == ["server", "server"]


async def test_pages_and_resets_are_refused_under_unknown_names_with_the_knob() -> None:
    """A name of an attacker's can be made to lead here, and then its page may read what this server answers."""
    reports = FakeAdminReports(LEADER)

    async with served(reports) as (get, _):
        for path in (
            "/",
            "/commands",
            "/commands/srst",
            "/commands/stat_reset",
            "/commands/crst",
            "/commands/stmk?traceMask=1",
        ):
            status, body, _h = await get(path, **EVIL)
            assert (status, "evil.example" in body, "admin.hosts" in body) == (403, True, True)
        assert reports.changes == []


async def test_checks_metrics_and_plain_reads_are_answered_under_any_name() -> None:
    """Prometheus and kubelets ask under names of services."""
    async with served(FakeAdminReports(LEADER)) as (get, _):
        for path in ("/livez", "/readyz", "/metrics", "/status.json", "/commands/monitor", "/commands/stat"):
            assert (await get(path, **EVIL))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:8080"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "Cross-Site"},
    ],
)
async def test_a_page_of_another_site_resets_nothing(headers: dict[str, str]) -> None:
    reports = FakeAdminReports(LEADER)

    async with served(reports) as (get, _):
        assert (await get("/commands/stat_reset", **headers))[0] == 403
        assert reports.changes == []
        assert (await get("/commands/stat", **headers))[0] == 200


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none"])
async def test_who_follows_a_link_or_types_an_address_may_reset(site: str) -> None:
    reports = FakeAdminReports(LEADER)

    async with served(reports) as (get, _):
        assert (await get("/commands/stat_reset", **{"Sec-Fetch-Site": site}))[0] == 200
        assert reports.changes == ["server"]


async def test_requests_that_are_none_and_those_that_fail_do_not_fill_the_log() -> None:
    class Broken(FakeAdminReports):
        def configuration(self) -> Any:
            raise RuntimeError("the secret detail")

    with structlog.testing.capture_logs() as told:
        async with served(Broken(LEADER)) as (get, place):
            for n in range(50):
                reader, writer = await asyncio.open_connection(*place)
                writer.write(b"GET /%d HTTP/9.9\r\n\r\n" % n)
                assert b" 400 " in await reader.readline()
                writer.close()
                assert (await get("/commands/conf"))[0] == 500
    lines = [line for line in told if line["log_level"] != "info"]
    assert len(lines) == 3, lines
    assert sum("exc_info" in line for line in lines) == 1, "a failure of ours is worth its traceback once"


@pytest.mark.parametrize(
    ("peer", "here", "local"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.8.8.8", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.2", "10.0.0.1", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        ("nonsense", "", False),
    ],
)
def test_this_machine_is_known_by_its_addresses(peer: str, here: str, local: bool) -> None:
    assert is_this_machine(peer, here) is local


def test_strangers_never_take_the_places_of_this_machine() -> None:
    places: Places[str] = Places(count=5, local_kept=2)
    assert [places.enter(f"s{n}", local=False) for n in range(3)] == [None, None, None]
    assert places.enter("s3", local=False) == "s0", "the longest idle goes"
    for one in ("s1", "s2", "s3"):
        places.begin(one)
    assert places.enter("s4", local=False) == "s4", "nobody who waits for an answer goes"
    assert places.enter("l0", local=True) is None
    assert places.enter("l1", local=True) is None
    assert places.enter("l2", local=True) == "l0"
    places.end("s2")
    assert places.enter("l3", local=True) == "s2", "strangers first"
    places.leave("s1")
    assert len(places) == 4


@pytest.mark.parametrize(
    "junk", [b"\x00\xff" * 40, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"x" * 9_000 + b" HTTP/1.1\r\n"]
)
async def test_what_is_no_http_is_refused_and_harms_nobody(junk: bytes) -> None:
    async with served(FakeAdminReports(LEADER)) as (get, place):
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        reader, writer = await asyncio.open_connection(*place)
        writer.write(junk)
        writer.write_eof()
        try:
            answer = await reader.read()
        except ConnectionResetError:  # seen under Python 3.13: the end came before all was read
            answer = b""
        assert b" 200 " not in answer.partition(b"\r\n")[0]
        writer.close()
        assert (await get("/livez"))[0] == 200
        assert complaints == []


async def test_a_port_at_which_another_was_first_to_listen_is_told_with_the_knob() -> None:
    (one,) = bind_tcp("admin", Address("127.0.0.1", 0))
    address = Address(*one.getsockname())
    (two,) = bind_tcp("admin", address)
    with one, two:
        one.listen()
        listener = AdminListener(address, FakeAdminReports(), fail)
        with pytest.raises(ConfigError, match=r"^admin: cannot listen at 127\.0\.0\.1:\d+: Address already"):
            await listener.open([two])


OUT = FakeAdminReports(
    statistics=None, current=evolve(STATUS, ready=False, reasons=("out",), statistics=None)
)


async def ask(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def fail(error: Exception) -> None:
    """No listener of these tests may meet an error."""
    pytest.fail(repr(error))


class Loading:
    """A listener whose HTTP server is loaded when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reports: FakeAdminReports) -> None:
        self.may_go = threading.Event()

        def load(name: str) -> ModuleType:
            assert self.may_go.wait(20)
            return importlib.import_module(name)

        monkeypatch.setattr("zraft.server.process.admin_listener.load_module", load)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = Address(*probe.getsockname())
        self.listener = AdminListener(self.address, reports, fail)

    async def __aenter__(self) -> Self:
        await self.listener.open(bind_tcp("admin", self.address))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.may_go.set()
        await self.listener.stop()


@pytest.mark.parametrize(
    ("reports", "code", "said"), [(FakeAdminReports(LEADER), 200, b"ok"), (OUT, 503, b"out")]
)
async def test_probes_are_answered_before_the_http_server_is_loaded(
    monkeypatch: pytest.MonkeyPatch, reports: FakeAdminReports, code: int, said: bytes
) -> None:
    """A server served for seconds before its readiness probe was answered."""
    async with Loading(monkeypatch, reports) as place:
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


async def test_who_asks_for_more_waits_until_the_http_server_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Loading(monkeypatch, FakeAdminReports(LEADER)) as place:

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
        assert not [one for one in asked if one.done()]
        place.may_go.set()
        found = await asyncio.gather(*asked)
        assert [status for status, _ in found] == [200, 200, 404]
        assert json.loads(found[0][1])["raft"]["term"] == 7
        assert json.loads(found[1][1]) == {"ready": True, "reasons": []}
        writer.write(b"vez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


def test_who_is_accepted_while_the_http_server_takes_over_is_not_forgotten() -> None:
    """The loop makes the protocol when it accepts, and tells it of its connection one iteration later."""
    early = EarlyConnections(FakeAdminReports(LEADER))
    accepted = early.connection()
    successor = Mock(spec=asyncio.BufferedProtocol)
    early.hand_over(lambda: successor)
    transport = Mock(spec=asyncio.Transport)
    accepted.connection_made(transport)
    transport.set_protocol.assert_called_once_with(successor)
    successor.connection_made.assert_called_once_with(transport)
    assert early.waiting == {}


async def test_a_request_that_waits_for_the_http_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loading(monkeypatch, FakeAdminReports(LEADER)) as place:
        reader, writer = await asyncio.open_connection(place.address.host, place.address.port)
        writer.write(b"x" * 2 * EARLY_BYTES_MAX)
        assert await reader.read() == b"", "no probe is so long"
        writer.close()


async def test_idle_connections_give_way_to_probes_before_the_http_server_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Loading(monkeypatch, FakeAdminReports(LEADER)) as place:
        host, port = place.address.host, place.address.port
        streams = [await asyncio.open_connection(host, port) for _ in range(2 * CONNECTIONS_MAX)]
        alive = await ask(place.address, b"GET /livez HTTP/1.1\r\nHost: zraft.example\r\n\r\n")
        assert alive.startswith(b"HTTP/1.1 200 OK\r\n")
        assert await streams[0][0].read() == b"", "who has waited longest has gone"
        for _, one in streams:
            one.close()


async def test_a_head_that_does_not_end_is_not_waited_for_before_the_http_server_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zraft.admin.early.HEAD_S", 0.1)

    async with Loading(monkeypatch, FakeAdminReports(LEADER)) as place:
        reader, writer = await asyncio.open_connection(place.address.host, place.address.port)
        writer.write(b"GET /livez HTTP/1.1\r\nX-")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_handler_that_never_ends_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp would wait a minute for it."""
    monkeypatch.setattr("zraft.program.http_service.SHUTDOWN_S", 0.01)
    begun = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

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


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
async def test_who_listens_everywhere_for_ipv6_is_asked_over_ipv4_too() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listener = AdminListener(Address("::", port), FakeAdminReports(LEADER), fail)
    await listener.open(bind_tcp("admin", listener._address))
    async with aiohttp.ClientSession() as session:
        for host in ("127.0.0.1", "::1"):
            async with session.get(f"http://{Address(host, port)}/readyz") as answer:
                assert answer.status == 200
    await listener.stop()
