"""The console's HTTP side over a server in memory, asked through real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve

from tests.fuzz.one_server import OneServer
from tests.unit.admin.values import STATUS, FakeAdminReports
from tests.unit.wire.reports import LEADER
from zraft.admin.console import console
from zraft.admin.console.assets import ASSETS
from zraft.admin.console.console import (
    CHILDREN_PAGE,
    DATA_SHOWN_MAX,
    NAMES_PER_STEP,
    SIGN_IN_BYTES_MAX,
    ConsoleSettings,
)
from zraft.admin.console.encoding import json_of
from zraft.admin.console.overview import alarms_of, overview_of, pages_of
from zraft.admin.console.sign_ins import FAILURES_MAX, IDLE_S, LIFE_S, SIGNED_IN_MAX, SignIns
from zraft.admin.console.topics import RECORDS_MAX, SHOWN_BYTES_MAX, consumers_of, records_of, topics_of
from zraft.admin.console.values import Alarm
from zraft.admin.http import AdminServer
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.program import http_service
from zraft.program.http_service import BODIES_MAX, STREAMS_MAX
from zraft.server.clients.authentication.proofs import AuthSettings
from zraft.server.operators.inner_clients import InnerClients
from zraft.server.operators.status import MemberStatus
from zraft_core.ids import GroupId, ProducerId
from zraft_core.records.batch import BatchRecord, encode_batch
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import Message
from zraft_core.topics.stamps import MessageId, Stamp

TOKEN: Final = "the token of these tests"
USERS: Final = {"anna": "tea"}
ANYONE: Final = ((31, "world", "anyone"),)
PORT: Final = 2281


class Server(OneServer):
    """A server of one, whose turns are taken as soon as somebody asks for one."""

    def __init__(self, auth: AuthSettings | None = None) -> None:
        super().__init__(random.Random(1))
        clients = self.driver.clients
        clients.settings = evolve(clients.settings, auth=auth or AuthSettings(users=lambda: USERS))
        self.inner = InnerClients(self.driver, self._schedule)
        while self.driver.machine.feature_level < FEATURE_LEVEL_MAX:
            self.turn()

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_soon(self.settle)

    def settle(self) -> None:
        self.turn()
        while not self.idle:
            self.turn()
        self.turn()

    def turn(self) -> int:
        if self._writing and not self.stalled:
            self._writing = False
            self.driver.persisted()
        self.now_ms += 2
        effects = self.driver.turn(self.now_ms, self.now_ms)
        self._writing = self._writing or effects.write is not None
        for connection, data, close in effects.outputs:
            if connection.handle is not None:
                connection.handle.write(data, close=close)
        return 0

    def make(self, path: str, data: bytes = b"", acl: Any = ANYONE) -> None:
        """Create a znode as the super user."""
        done: list[object] = []
        self.driver.submit_as_super((1, path, data, acl, 0, None), done.append, len(data))
        self.settle()
        assert done, path


class Page:
    """A browser's end: its cookies, and what its page asks."""

    def __init__(self, session: aiohttp.ClientSession, place: tuple[str, int]) -> None:
        self.session = session
        self.place = place
        self.csrf = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.place[1]}"

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(path, headers=headers) as answer:
            return answer.status, json.loads(await answer.text())

    async def post(self, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        given = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin", console.CSRF: self.csrf, **headers}
        kept = {name: value for name, value in given.items() if value}
        async with self.session.post(path, data=body, headers=kept) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def sign_in(self, **offer: str) -> int:
        status, _ = await self.post(
            "/console/sign-in", json.dumps(offer).encode(), **{console.CSRF: console.NOBODY}
        )
        self.csrf = (await self.get("/console/caller"))[1]["csrf"] or ""
        return status


@asynccontextmanager
async def served(
    server: Server | None = None, reach: str = "local", token: str | None = TOKEN
) -> AsyncIterator[Page]:
    inner = None if server is None else server.inner
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        place = listening.getsockname()[:2]
        admin = AdminServer(FakeAdminReports(LEADER), (), ConsoleSettings(reach, token, PORT), inner)
        await admin.prepare()
        accepting = await asyncio.get_running_loop().create_server(admin.connection, sock=listening)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{place[1]}", cookie_jar=jar) as session:
            yield Page(session, place)
        accepting.close()
        await admin.stop()


@pytest.fixture
def from_afar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks is on another machine."""
    monkeypatch.setattr(http_service, "is_this_machine", lambda peer, here: False)


# -- files


async def test_the_page_is_its_files_and_runs_nothing_else() -> None:
    async with served() as page:
        for path, asset in ASSETS.items():
            async with page.session.get(path) as answer:
                assert (answer.status, await answer.read()) == (200, asset.body), path
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_no_file_of_the_page_names_another_host_or_has_script_or_style_inside() -> None:
    for path, asset in ASSETS.items():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path
        assert "innerHTML" not in text, path
    page = ASSETS["/"].body.decode()
    assert "<style" not in page
    assert " style=" not in page
    assert page.count("<script") == page.count('src="/console/main.js"') == 1
    assert " on" not in "".join(tag for tag in page.split("<") if "=" in tag.partition(">")[0]).replace(
        " on this", ""
    )


@pytest.mark.parametrize("path", ["/", "/console/main.js", "/console/overview", "/console/node?path=/"])
async def test_the_console_is_not_answered_under_an_unknown_name(path: str) -> None:
    async with served(Server()) as page, page.session.get(path, headers={"Host": "evil.example"}) as answer:
        assert answer.status == 403
        assert "admin.hosts" in await answer.text()


async def test_switched_off_there_is_no_console_and_all_else_is_answered() -> None:
    async with served(Server(), reach="off") as page:
        async with page.session.get("/") as answer:
            assert (answer.status, "admin.console" in await answer.text()) == (200, True)
        for path in ("/console/main.js", "/console/overview", "/console/node?path=/"):
            async with page.session.get(path) as answer:
                assert answer.status == 404
        assert (await page.get("/status.json"))[0] == 200


# -- overview


async def test_the_overview_and_its_stream_say_the_same() -> None:
    async with served() as page:
        status, overview = await page.get("/console/overview")
        assert (status, overview["server"], overview["mode"]) == (200, 1, "leader")
        async with page.session.get("/console/events") as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"
            assert await stream.content.readline() == b"event: overview\n"
            assert json.loads((await stream.content.readline()).removeprefix(b"data: ")) == overview


async def test_streams_are_bounded_cost_one_status_for_all_and_end_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def counted(reports: FakeAdminReports) -> Any:
        nonlocal asked
        asked += 1
        return STATUS

    monkeypatch.setattr(FakeAdminReports, "status", counted)
    async with served() as page:
        streams = []
        for _ in range(STREAMS_MAX):
            stream = await page.session.get("/console/events")
            assert (stream.status, await stream.content.readline()) == (200, b"event: overview\n")
            streams.append(stream)
        assert asked == 1
        async with page.session.get("/console/events") as refused:
            assert refused.status == 503
        assert (await page.get("/console/overview"))[0] == 200, "streams keep nobody from asking"
        for stream in streams:
            stream.close()


def test_a_members_page_is_as_far_from_its_port_of_clients_as_ours() -> None:
    assert pages_of(STATUS, 2281) == {
        1: "http://127.0.0.1:2281/",
        2: "http://127.0.0.1:2282/",
        3: "http://[::1]:2283/",
    }
    assert set(pages_of(STATUS, 65_535).values()) == {"http://127.0.0.1:65535/", None}
    follower = evolve(
        STATUS,
        members=(
            MemberStatus(1, "127.0.0.1:2181", leads=False, is_me=True),
            MemberStatus(2, "127.0.0.1:2182", leads=True, is_me=False),
        ),
    )
    assert overview_of(follower, 0, 0, 2281).leader_page == "http://127.0.0.1:2282/"


def test_what_is_wrong_is_an_alarm() -> None:
    fine = evolve(STATUS, settings_differ=(), members=STATUS.members[:2], data_free_bytes=900)
    assert list(alarms_of(fine, 0)) == []
    told = {
        alarm.text: alarm.bad for alarm in alarms_of(evolve(STATUS, disk_full=True), 1_800_000_000 - 86_400)
    }
    assert told["server 3 has said nothing for 61 s"] is True
    assert told["the certificate for clients ends in 1 days"] is False
    assert any("disk is full" in text and bad for text, bad in told.items())
    assert any("tick_time_ms" in text and not bad for text, bad in told.items())
    out = evolve(fine, ready=False, reasons=("no leader is known",))
    assert list(alarms_of(out, 0)) == [Alarm("no leader is known", bad=True)]


def test_values_are_json_of_their_fields_and_bytes_are_base64() -> None:
    assert json.loads(json_of({"a": Alarm("x", bad=True), "b": b"\xff"})) == {
        "a": {"text": "x", "bad": True},
        "b": "/w==",
    }


# -- znodes


async def test_a_znode_is_shown_to_whom_its_acl_lets_read_it() -> None:
    server = Server()
    server.make("/open", b"data")
    server.make("/annas", b"secret", acl=((31, "sasl", "anna"),))
    async with served(server) as page:
        status, node = await page.get("/console/node?path=/open")
        assert (status, b64decode(node["data"]), node["stat"]["version"]) == (200, b"data", 0)
        assert node["acl"] == [{"rights": "cdrwa", "scheme": "world", "id": "anyone"}]
        assert (await page.get("/console/node?path=/annas"))[1]["code"] == "NO_AUTH"
        assert (await page.get("/console/children?path=/annas"))[1]["code"] == "NO_AUTH"
        assert (await page.get("/console/node?path=/nowhere"))[1]["code"] == "NO_NODE"
        assert await page.sign_in(user="anna", password="tea") == 200
        assert b64decode((await page.get("/console/node?path=/annas"))[1]["data"]) == b"secret"
        assert (await page.post("/console/sign-out"))[0] == 200
        assert (await page.get("/console/node?path=/annas"))[1]["code"] == "NO_AUTH"


async def test_long_data_and_many_children_come_in_part() -> None:
    server = Server()
    server.make("/many")
    for number in range(CHILDREN_PAGE + 20):
        server.make(f"/many/{number:04}")
    node = server.driver.machine.find("/many/0000")
    assert node is not None
    node.data = bytes(3 * DATA_SHOWN_MAX)
    async with served(server) as page:
        first = (await page.get("/console/children?path=/many"))[1]
        assert (len(first["children"]), first["total"]) == (CHILDREN_PAGE, CHILDREN_PAGE + 20)
        last = (await page.get(f"/console/children?path=/many&after={first['after']}"))[1]
        names = [child["name"] for child in first["children"] + last["children"]]
        assert (names, last["after"]) == ([f"{number:04}" for number in range(CHILDREN_PAGE + 20)], None)
        shown = (await page.get("/console/node?path=/many/0000"))[1]
        assert len(b64decode(shown["data"])) == DATA_SHOWN_MAX
        assert shown["stat"]["dataLength"] == 3 * DATA_SHOWN_MAX


async def test_where_clients_must_authenticate_so_must_who_looks() -> None:
    required = AuthSettings(users=lambda: USERS, required_schemes=frozenset({"sasl"}))
    server = Server(required)
    server.make("/open", b"data")
    async with served(server) as page:
        assert "sign in" in (await page.get("/console/node?path=/open"))[1]["error"]
        assert "sign in" in (await page.get("/console/children?path=/"))[1]["error"]
        assert "error" in (await page.get("/console/topics"))[1]
        await page.sign_in(token=TOKEN)
        assert "sign in" in (await page.get("/console/node?path=/open"))[1]["error"]
        await page.sign_in(user="anna", password="tea")
        assert b64decode((await page.get("/console/node?path=/open"))[1]["data"]) == b"data"


async def test_who_signed_in_creates_sets_and_deletes_as_a_client_may() -> None:
    server = Server()
    server.make("/annas", b"", acl=((31, "sasl", "anna"), (1, "world", "anyone")))
    async with served(server) as page:
        await page.sign_in(token=TOKEN)
        assert (await page.post("/console/create?path=/new", b"one"))[1] == {"path": "/new", "version": 0}
        assert (await page.post("/console/set?path=/new&version=7", b"two"))[1]["code"] == "BAD_VERSION"
        assert (await page.post("/console/set?path=/new&version=0", b"\x00two"))[1]["version"] == 1
        node = server.driver.machine.find("/new")
        assert node is not None
        assert node.data == b"\x00two"
        assert (await page.post("/console/set?path=/annas&version=0", b"x"))[1]["code"] == "NO_AUTH"
        assert (await page.post("/console/set?path=/new", b"x"))[0] == 400, "a version is to be named"
        assert (await page.post("/console/delete?path=/new&version=1"))[1]["version"] is None
        assert server.driver.machine.find("/new") is None
        assert len(server.driver.clients) == 0, "every client that was made is gone"
        await page.sign_in(user="anna", password="tea")
        assert (await page.post("/console/set?path=/annas&version=0", b"x"))[1]["version"] == 1


async def test_a_write_that_is_not_answered_in_time_may_have_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "ANSWER_S", 0.05)
    server = Server()
    async with served(server) as page:
        await page.sign_in(token=TOKEN)
        monkeypatch.setattr(Server, "settle", Server.turn)
        server.stalled = True
        status, refusal = await page.post("/console/create?path=/new")
        assert (status, refusal["code"]) == (504, "unknown")
        assert len(server.driver.clients) == 0


async def test_the_names_of_very_many_children_are_put_in_order_in_steps() -> None:
    names = [f"{number:06}" for number in range(5 * NAMES_PER_STEP)]
    random.Random(1).shuffle(names)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await console._next_names(names, "000999")
    counting.cancel()
    assert found == [f"{number:06}" for number in range(1_000, 1_000 + CHILDREN_PAGE + 1)]
    assert turns >= 5


# -- who may change something


async def test_nothing_is_changed_without_a_sign_in_its_token_and_its_own_page() -> None:
    server = Server()
    async with served(server) as page:
        create = "/console/create?path=/new"
        assert (await page.post(create))[0] == 401
        await page.sign_in(token=TOKEN)
        for headers in (
            {console.CSRF: ""},
            {console.CSRF: console.NOBODY},
            {"Origin": "http://evil.example"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example", "Origin": "http://evil.example"},
        ):
            assert (await page.post(create, b"", **headers))[0] == 403, headers
        async with page.session.get(create) as answer:
            assert answer.status == 405
        assert server.driver.machine.find("/new") is None
        assert (await page.post(create))[0] == 200


async def test_a_page_of_another_site_signs_nobody_in() -> None:
    body = json.dumps({"token": TOKEN}).encode()
    async with served(Server()) as page:
        assert (await page.post("/console/sign-in", body))[0] == 403, "a form of a page could send that"
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            asked = {console.CSRF: console.NOBODY, **headers}
            assert (await page.post("/console/sign-in", body, **asked))[0] == 403


async def test_the_cookie_is_for_this_server_and_not_for_scripts_or_other_sites() -> None:
    async with served(Server()) as page:
        body = json.dumps({"token": TOKEN}).encode()
        async with page.session.post(
            "/console/sign-in", data=body, headers={console.CSRF: console.NOBODY}
        ) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"zraft_console_{PORT}=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie


@pytest.mark.parametrize("offer", [b"{}", b"[", b'{"user": 1, "password": "x"}', b"\xff"])
async def test_what_is_no_sign_in_is_refused(offer: bytes) -> None:
    async with served(Server()) as page:
        asked = {console.CSRF: console.NOBODY}
        assert (await page.post("/console/sign-in", offer, **asked))[0] == 400


async def test_wrong_passwords_are_bounded_and_the_token_still_counts() -> None:
    async with served(Server()) as page:
        assert await page.sign_in(token="another") == 403
        for user in ("anna", "nobody"):
            assert await page.sign_in(user=user, password="coffee") == 403
        for _ in range(FAILURES_MAX - 2):
            assert await page.sign_in(user="anna", password="coffee") == 403
        assert await page.sign_in(user="anna", password="tea") == 429
        assert await page.sign_in(token=TOKEN) == 200


async def test_without_users_and_token_nobody_signs_in() -> None:
    async with served(Server(AuthSettings()), token=None) as page:
        assert await page.sign_in(token="") == 403
        status, refusal = await page.post(
            "/console/sign-in",
            b'{"user": "anna", "password": "tea"}',
            **{console.CSRF: console.NOBODY},
        )
        assert (status, "auth.sasl_users_file" in refusal["error"]) == (403, True)


@pytest.mark.usefixtures("from_afar")
async def test_another_machine_sees_the_overview_alone_unless_the_operator_lets_it() -> None:
    server = Server()
    async with served(server) as page:
        assert (await page.get("/console/overview"))[0] == 200
        assert (await page.get("/console/caller"))[1]["may_look"] is False
        for path in (
            "node?path=/",
            "children?path=/",
            "topics",
            "records?group=1&offset=0",
            "consumers?topic=x",
        ):
            status, refusal = await page.get(f"/console/{path}")
            assert (status, "admin.console" in refusal["error"]) == (403, True)
        assert await page.sign_in(token=TOKEN) == 403
        assert (await page.post("/console/create?path=/new"))[0] == 403
    async with served(server, reach="everywhere") as page:
        assert (await page.get("/console/node?path=/"))[1]["path"] == "/"
        assert await page.sign_in(token=TOKEN) == 200


async def test_with_overview_alone_nothing_can_be_changed_from_anywhere() -> None:
    async with served(Server(), reach="overview") as page:
        assert (await page.get("/console/overview"))[0] == 200
        assert (await page.get("/console/node?path=/"))[0] == 403
        assert (await page.post("/console/sign-in"))[0] in (404, 405)


# -- bounds


async def test_no_body_is_read_of_who_has_not_signed_in_and_only_a_short_one_of_who_does() -> None:
    async with served(Server()) as page:
        for path, expected in (("create?path=/new", b" 401 "), ("sign-in", b" 413 ")):
            reader, writer = await asyncio.open_connection(*page.place)
            head = (
                f"POST /console/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
                f"{console.CSRF}: {console.NOBODY}\r\n\r\n"
            )
            writer.write(head.encode())
            assert expected in await reader.readline()
            writer.close()
        long = b'{"token": "' + b"a" * SIGN_IN_BYTES_MAX + b'"}'
        asked = {console.CSRF: console.NOBODY}
        assert (await page.post("/console/sign-in", long, **asked))[0] == 413


async def test_bodies_that_do_not_end_are_few_hold_up_nobody_and_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_service, "HEAD_S", 0.5)
    async with served(Server()) as page:
        slow = []
        head = (
            f"POST /console/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            f"{console.CSRF}: {console.NOBODY}\r\n\r\nx"
        )
        for _ in range(BODIES_MAX):
            reader, writer = await asyncio.open_connection(*page.place)
            writer.write(head.encode())
            slow.append((reader, writer))
        await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection(*page.place)
        writer.write(head.encode())
        assert b" 503 " in await reader.readline()
        writer.close()
        assert (await page.get("/console/overview"))[0] == 200
        for reader, writer in slow:
            assert b" 408 " in await reader.readline()
            writer.close()


async def test_an_answer_that_somebody_waits_for_keeps_no_metrics_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    async with served(server) as page:
        await page.sign_in(token=TOKEN)
        monkeypatch.setattr(Server, "settle", Server.turn)
        server.stalled = True
        waiting = asyncio.create_task(page.post("/console/create?path=/new"))
        await asyncio.sleep(0.05)
        async with page.session.get("/metrics") as answer:
            assert answer.status == 200
        assert not waiting.done()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting


class Clock:
    """A clock that the test moves, and randomness that repeats nothing."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._rng = random.Random(1)

    def sign_ins(self, token: str | None = TOKEN) -> SignIns:
        return SignIns(token, lambda: self.now, self._rng.randbytes)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_sign_in_ends_when_it_is_not_used_and_in_any_case(clock: Clock) -> None:
    sign_ins = clock.sign_ins()
    secret = sign_ins.begin("anna", (("sasl", "anna"),))
    found = sign_ins.find(secret)
    assert found is not None
    assert found.csrf not in secret
    clock.now += IDLE_S + 1
    assert sign_ins.find(secret) is None
    secret = sign_ins.begin("anna", ())
    for _ in range(int(LIFE_S / IDLE_S) + 1):
        clock.now += IDLE_S - 1
        sign_ins.find(secret)
    clock.now += IDLE_S - 1
    assert sign_ins.find(secret) is None
    assert len(sign_ins) == 0


def test_sign_ins_are_bounded_and_the_one_longest_unused_goes(clock: Clock) -> None:
    sign_ins = clock.sign_ins()
    first, second = sign_ins.begin("a", ()), sign_ins.begin("b", ())
    sign_ins.find(first)
    for _ in range(SIGNED_IN_MAX - 1):
        sign_ins.begin("c", ())
    assert len(sign_ins) == SIGNED_IN_MAX
    assert sign_ins.find(first) is not None
    assert sign_ins.find(second) is None


def test_attempts_come_back_with_time_and_those_from_elsewhere_are_others(clock: Clock) -> None:
    sign_ins = clock.sign_ins()
    for _ in range(FAILURES_MAX):
        assert sign_ins.may_try(local=False)
        sign_ins.failed(local=False)
    assert not sign_ins.may_try(local=False)
    assert sign_ins.may_try(local=True)
    clock.now += 10.5
    assert sign_ins.may_try(local=False)
    sign_ins.failed(local=False)
    assert not sign_ins.may_try(local=False)


# -- topics


def fetched(*deliveries: tuple[int, bytes], first: int = 0, end: int = 100) -> dict[str, Any]:
    rows = [[offset, Stamp(1, GroupId(7), 0, GroupId(0)), packed] for offset, packed in deliveries]
    return {"success": True, "refused": [], "partitions": [[7, first, end, end, None, rows]]}


def message(payload: bytes, records: int = 0) -> bytes:
    return encode_message(
        Message(MessageId(ProducerId(9), 1), (GroupId(7),), payload, number=1, records=records)
    )


def test_records_of_batches_and_without_are_shown_from_the_offset_that_is_asked_for() -> None:
    batch = encode_batch([BatchRecord(b"k%d" % n, b"v%d" % n, (("h", None),), 1_000 + n) for n in range(3)])
    answer = fetched((4, message(b"plain")), (5, message(batch, 3)))
    found = records_of(answer, 7, 6)
    assert not isinstance(found, str)
    assert [(one.offset, one.key, one.value) for one in found.records] == [
        (6, b"k1", b"v1"),
        (7, b"k2", b"v2"),
    ]
    assert found.records[0].headers == (("h", b""),)
    whole = records_of(answer, 7, 0)
    assert not isinstance(whole, str)
    assert [one.offset for one in whole.records] == [4, 5, 6, 7]
    assert (whole.records[0].value, whole.records[0].timestamp) == (b"plain", None)


def test_many_and_long_records_are_shown_in_part() -> None:
    batch = encode_batch(
        [BatchRecord(None, bytes(SHOWN_BYTES_MAX + 5), (), 1) for _ in range(RECORDS_MAX + 10)]
    )
    found = records_of(fetched((0, message(batch, RECORDS_MAX + 10))), 7, 0)
    assert not isinstance(found, str)
    assert (len(found.records), found.next) == (RECORDS_MAX, RECORDS_MAX)
    assert found.records[0].value_length == SHOWN_BYTES_MAX + 5
    assert len(found.records[0].value or b"") == SHOWN_BYTES_MAX


def test_a_batch_that_cannot_be_read_is_told_of_in_its_place() -> None:
    found = records_of(fetched((3, message(b"no batch", 2))), 7, 0)
    assert not isinstance(found, str)
    assert found.records[0].offset == 3
    assert (found.records[0].value or b"").startswith(b"a batch that cannot be read")


def test_records_that_are_gone_or_elsewhere_are_told_of() -> None:
    gone = {"success": True, "partitions": [], "refused": [[7, "gone", None, 40, ""]]}
    found = records_of(gone, 7, 0)
    assert not isinstance(found, str)
    assert (found.first, found.next, found.records) == (40, 40, ())
    other = {"success": True, "partitions": [], "refused": [[7, "no_group", 3, None, ""]]}
    assert records_of(other, 7, 0) == "no group: the replica on this server cannot tell; server 3 leads it"


def test_consumers_have_their_lag_and_other_leaders_are_linked() -> None:
    answers: list[dict[str, Any]] = [
        {"id": 2, "success": True, "refused": [8, "not_leader", 3, None, "it follows"]},
        {"id": 1, "success": True, "end": 50, "consumers": [[b"bill\xff", 20, None], [b"a", 50, ["w1"]]]},
    ]
    found = consumers_of("orders", [7, 8, 9], answers, {3: "http://x/"})
    assert [(one.name, one.lag, one.owners) for one in found.consumers] == [
        ("a", 0, ("w1",)),
        ("bill\\xff", 30, None),
    ]
    assert [(one.partition, one.leader, one.page) for one in found.elsewhere] == [(1, 3, "http://x/")]
    assert found.left_out == 1


def test_topics_show_what_this_server_has_of_their_partitions() -> None:
    answer = {
        "topics": [[1, "orders", 2, [300, 301], [], None, 5]],
        "groups": [[300, 1, 1, [1, 2, 3]], [301, 1, 2, [2, 3]]],
        "deleting": [],
    }
    found = topics_of(answer, FakeAdminReports(LEADER).partitions(), {})
    (orders,) = found.topics
    first, second = orders.partitions
    assert first.here is not None
    assert (first.here.end, first.here.in_sync, first.here.behind) == (50, (2,), (3,))
    assert (second.servers, second.should_lead) == ((2, 3), 2)


def test_every_answer_of_a_page_can_be_read_again(clock: Clock) -> None:
    assert json.loads(json_of(overview_of(STATUS, 1, 2, PORT)))["members"][2]["silent_ms"] == 61_000
