"""The console's HTTP side: who may ask what, and the answers. It runs on the server's own loop.

Each answer is bounded, each request of a browser that is not signed in has no body or a short one, and streams cost one
status every two seconds for all who follow them, and nothing while nobody does.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from attrs import frozen

from zraft.admin.console.assets import ASSETS, Asset
from zraft.admin.console.encoding import json_of
from zraft.admin.console.fleets import (
    FLEETS_MAX,
    GROUPS_MAX,
    JOBS_SHOWN_MAX,
    REPORT_BYTES_MAX,
    REPORTS_BYTES_MAX,
    FleetRead,
    Pulse,
    Told,
    audit_of,
    fleet_of,
    owners_requests,
    pulses_of,
    told_of,
)
from zraft.admin.console.holdings import sessions_of, watches_of
from zraft.admin.console.nodes import node_of
from zraft.admin.console.overview import overview_of, pages_of
from zraft.admin.console.sign_ins import SignedIn, SignIns
from zraft.admin.console.topics import (
    ASKED_MAX,
    TOPICS_REQUEST,
    consumers_of,
    consumers_requests,
    fetch_request,
    groups_of,
    records_of,
    topics_of,
)
from zraft.admin.console.values import Caller, Child, Children, Done, Fleets, Refusal
from zraft.program.http_service import HEADERS, HttpService, Post, text
from zraft.program.limited_log import LimitedLog
from zraft.server.clients.authentication.sasl import AuthenticationError
from zraft.server.operators.inner_clients import InnerClients, Message
from zraft.server.operators.status import AdminReports
from zraft_core.errors import Code
from zraft_core.fleets import (
    AUDIT,
    DIGESTS,
    ENTRY_PREFIX,
    JOBS,
    LOG,
    PULSES,
    STATE,
    TOP,
    report_path,
)
from zraft_core.wire.native.failures import text_of
from zraft_core.znodes.acl import Ids

OFF: Final = "off"
OVERVIEW: Final = "overview"
EVERYWHERE: Final = "everywhere"
"""Values of `admin.console` that are told apart here; `local` is the fourth."""

TOKEN_USER: Final = "token"
"""The name of whoever signed in with the token. It gives the rights of a client that has proved nothing."""
COOKIE: Final = "zraft_console_{}"
"""Cookies know no ports: the servers of one machine must not take each other's."""
CSRF: Final = "X-Zraft-Csrf"
NOBODY: Final = "sign-in"
"""What a sign-in carries in the place of the value that only who has signed in knows: pages of other sites cannot."""

PERIOD_S: Final = 2.0
"""Between two events of a stream."""
STREAM_S_MAX: Final = 600.0
"""A stream ends after so long; the browser begins another one, which is counted again."""
TAKEN_S_MAX: Final = 10.0
"""Whoever takes an event no sooner is no longer sent any."""
ANSWER_S: Final = 10.0
"""The longest wait for a write, or for a partition."""
SIGN_IN_BYTES_MAX: Final = 1_024
DATA_SHOWN_MAX: Final = 65_536
"""Bytes of a znode's data in one answer."""
CHILDREN_PAGE: Final = 200
NAMES_PER_STEP: Final = 4_096
"""Names that are looked at before the loop gets its turn: a millisecond or two."""

log = structlog.get_logger()


@frozen
class ConsoleSettings:
    """The operator's settings of the console: `admin.console`, `admin.console_token`, and the port of `admin`."""

    reach: str
    token: str | None
    port: int


class Console:
    """The console of one server. Its routes belong to the admin server's `HttpService`."""

    def __init__(
        self,
        settings: ConsoleSettings,
        reports: AdminReports,
        clients: InnerClients | None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Prepare to answer.

        Args:
            settings: the operator's.
            reports: what operators see of this server.
            clients: the way into the server; None where there is nothing but reports.
            entropy: returns that many random bytes.
        """
        self._settings = settings
        self._reports = reports
        self._clients = clients
        self._sign_ins = SignIns(settings.token, time.monotonic, entropy)
        self._limited = LimitedLog(time.monotonic)
        self._event = b""
        self._event_at = float("-inf")
        self._followers: set[asyncio.Task[object]] = set()
        self._service: HttpService | None = None

    # -- what is asked where

    @property
    def routes(self) -> dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]:
        """The handlers of GET requests, by path; all of them are for browsers."""
        if self._settings.reach == OFF:
            return {"/": _is_off}
        files = {path: _sender(asset) for path, asset in ASSETS.items()}
        return {
            **files,
            "/console/caller": self._caller,
            "/console/overview": self._overview,
            "/console/events": self._events,
            "/console/node": self._node,
            "/console/children": self._children,
            "/console/sessions": self._sessions,
            "/console/watches": self._watches,
            "/console/topics": self._topics,
            "/console/records": self._records,
            "/console/consumers": self._consumers,
            "/console/fleets": self._fleets,
        }

    @property
    def patient(self) -> tuple[str, ...]:
        """The routes that wait for the server's turn, or for partitions."""
        return ("/console/topics", "/console/records", "/console/consumers", "/console/fleets")

    @property
    def streams(self) -> tuple[str, ...]:
        """The routes whose answers go on."""
        return ("/console/events",)

    @property
    def posts(self) -> dict[str, Post]:
        """The handlers of POST requests, by path."""
        if self._settings.reach in (OFF, OVERVIEW) or self._clients is None:
            return {}
        data_max = self._clients.request_bytes_max
        return {
            "/console/sign-in": Post(SIGN_IN_BYTES_MAX, self._no_sign_in, self._sign_in),
            "/console/sign-out": Post(0, self._no_change, self._sign_out),
            "/console/create": Post(data_max, self._no_change, self._create),
            "/console/set": Post(data_max, self._no_change, self._set),
            "/console/delete": Post(0, self._no_change, self._delete),
        }

    def belongs_to(self, service: HttpService) -> None:
        """Take note of the service that asks."""
        self._service = service

    async def stop(self) -> None:
        """End the streams: nobody waits for them when the server stops."""
        for follower in list(self._followers):
            follower.cancel()

    # -- who asks

    def _is_local(self, request: web.Request) -> bool:
        return self._service is not None and self._service.is_local(request)

    def _may_look(self, request: web.Request) -> bool:
        reach = self._settings.reach
        return self._clients is not None and (
            reach == EVERYWHERE or (reach not in (OFF, OVERVIEW) and self._is_local(request))
        )

    @property
    def _cookie(self) -> str:
        return COOKIE.format(self._settings.port)

    def _secret(self, request: web.Request) -> str | None:
        return request.cookies.get(self._cookie)

    def _signed_in(self, request: web.Request) -> SignedIn | None:
        return self._sign_ins.find(self._secret(request)) if self._may_look(request) else None

    def _ids(self, request: web.Request) -> Ids:
        """Return what the caller has proved: as any client, where it comes from."""
        found = self._signed_in(request)
        return (("ip", request.remote or "unknown"),) if found is None else found.ids

    def _no_look(self, request: web.Request) -> web.Response | None:
        """Return the answer to somebody who may not see data here."""
        if self._may_look(request):
            return None
        return _json(
            Refusal(
                "not here",
                f"this server shows data only to browsers on its own machine (admin.console = {self._settings.reach}); "
                "reach it through a tunnel such as ssh -L, or set admin.console = everywhere",
            ),
            403,
        )

    def _foreign(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that a page of another site may have made, or none if it is ours."""
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
            return _json(Refusal("foreign", f"Origin: found {origin!r}, expected this server's own"), 403)
        if site is not None and site.lower() != "same-origin":
            return _json(Refusal("foreign", f"Sec-Fetch-Site: found {site!r}, expected same-origin"), 403)
        return None

    def _no_change(self, request: web.Request) -> web.Response | None:
        """Return the answer to a change that is not taken."""
        refused = self._foreign(request) or self._no_look(request)
        if refused is not None:
            return refused
        found = self._signed_in(request)
        if found is None:
            return _json(Refusal("signed out", "sign in first, or again: this sign-in is over"), 401)
        if request.headers.get(CSRF) != found.csrf:
            return _json(Refusal("foreign", f"{CSRF}: found another value than this sign-in's"), 403)
        return None

    def _no_sign_in(self, request: web.Request) -> web.Response | None:
        refused = self._foreign(request) or self._no_look(request)
        if refused is not None:
            return refused
        if request.headers.get(CSRF) != NOBODY:
            return _json(Refusal("foreign", f"{CSRF}: expected {NOBODY}"), 403)
        return None

    async def _caller(self, request: web.Request) -> web.Response:
        found = self._signed_in(request)
        return _json(
            Caller(
                self._reports.configuration().server,
                self._settings.reach,
                self._may_look(request),
                None if found is None else found.user,
                None if found is None else found.csrf,
                self._clients is not None and self._clients.has_users,
            )
        )

    async def _sign_in(self, request: web.Request, body: bytes) -> web.Response:
        try:
            offered = json.loads(body)
        except ValueError:
            offered = None
        local = self._is_local(request)
        ids: Ids = (("ip", request.remote or "unknown"),)
        match offered:
            case {"token": str(token)}:
                if not self._sign_ins.is_token(token):
                    return self._denied(
                        request, "this token is not the one that this server was started with"
                    )
                user = TOKEN_USER
            case {"user": str(user), "password": str(password)}:
                assert self._clients is not None, "nobody is asked to sign in without a server"
                if not self._sign_ins.may_try(local=local):
                    return _json(Refusal("too many", "too many wrong passwords; wait ten seconds"), 429)
                try:
                    ids = self._clients.sign_in(user, password, ids)
                except AuthenticationError as error:
                    self._sign_ins.failed(local=local)
                    return self._denied(request, str(error) if not self._clients.has_users else "")
            case _:
                return _json(Refusal("bad", "expected JSON with a token, or with user and password"), 400)
        log.info("signed in to the console", user=user, address=request.remote)
        self._sign_ins.end(self._secret(request))
        answer = _json(Done("", None))
        secret = self._sign_ins.begin(user, ids)
        answer.set_cookie(self._cookie, secret, httponly=True, samesite="Strict", path="/")
        return answer

    def _denied(self, request: web.Request, why: str) -> web.Response:
        self._limited.warn("sign-in to the console failed", kind="console sign-in", address=request.remote)
        return _json(Refusal("denied", why or "wrong user or password"), 403)

    async def _sign_out(self, request: web.Request, _: bytes) -> web.Response:
        self._sign_ins.end(self._secret(request))
        answer = _json(Done("", None))
        answer.del_cookie(self._cookie, path="/")
        return answer

    # -- overview

    def _current(self) -> bytes:
        """Return the overview of now, or of a moment ago: all who follow share one."""
        now = time.monotonic()
        if now - self._event_at >= PERIOD_S * 0.75:
            overview = overview_of(
                self._reports.status(), round(now * 1000), time.time(), self._settings.port
            )
            self._event = json_of(overview).encode()
            self._event_at = now
        return self._event

    async def _overview(self, _: web.Request) -> web.Response:
        return web.Response(body=self._current(), content_type="application/json", headers=HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        answer.force_close()
        task = asyncio.current_task()
        assert task is not None, "handlers are tasks"
        self._followers.add(task)
        ends_at = time.monotonic() + STREAM_S_MAX
        try:
            await answer.prepare(request)
            while time.monotonic() < ends_at:
                async with asyncio.timeout(TAKEN_S_MAX):
                    await answer.write(b"event: overview\ndata: " + self._current() + b"\n\n")
                await asyncio.sleep(PERIOD_S)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._followers.discard(task)
        return answer

    # -- znodes

    async def _node(self, request: web.Request) -> web.Response:
        refused = self._no_look(request)
        if refused is not None:
            return refused
        assert self._clients is not None, "who may look has a server"
        path = request.query.get("path", "/")
        found = self._clients.look(path, DATA_SHOWN_MAX, self._ids(request))
        return _no(found, path) if isinstance(found, Code) else _json(node_of(path, found))

    async def _children(self, request: web.Request) -> web.Response:
        refused = self._no_look(request)
        if refused is not None:
            return refused
        assert self._clients is not None, "who may look has a server"
        path, ids = request.query.get("path", "/"), self._ids(request)
        found = self._clients.names(path, ids)
        if isinstance(found, Code):
            return _no(found, path)
        names = await _next_names(found, request.query.get("after", ""))
        children = []
        for name in names[:CHILDREN_PAGE]:
            seen = self._clients.look(f"{path.rstrip('/')}/{name}", 0, ids)
            if isinstance(seen, Code):
                children.append(Child(name, None, None, ephemeral=False))
            else:
                stat = seen.stat
                children.append(
                    Child(name, stat.num_children, stat.data_length, ephemeral=bool(stat.ephemeral_owner))
                )
        after = children[-1].name if len(names) > CHILDREN_PAGE else None
        return _json(Children(path, tuple(children), len(found), after))

    async def _create(self, request: web.Request, body: bytes) -> web.Response:
        path, kind = request.query.get("path", ""), request.query.get("kind", "0")
        if kind not in ("0", "2", "4"):
            return _json(
                Refusal("bad", f"kind: found {kind!r}, expected 0, 2 (sequential) or 4 (container)"), 400
            )
        message = {"id": 1, "type": "create", "path": path, "data": body, "flags": int(kind)}
        return await self._change(request, message, path)

    async def _set(self, request: web.Request, body: bytes) -> web.Response:
        path = request.query.get("path", "")
        version = _number(request, "version")
        if version is None:
            return _no_version()
        return await self._change(
            request, {"id": 1, "type": "set", "path": path, "data": body, "version": version}, path
        )

    async def _delete(self, request: web.Request, _: bytes) -> web.Response:
        path = request.query.get("path", "")
        version = _number(request, "version")
        if version is None:
            return _no_version()
        return await self._change(
            request, {"id": 1, "type": "remove", "path": path, "version": version}, path
        )

    async def _change(self, request: web.Request, message: Message, path: str) -> web.Response:
        answers = await self._ask(request, [message])
        if not answers:
            return _json(Refusal("unknown", "no answer came in time: it may have happened, look again"), 504)
        (answer,) = answers
        if not answer.get("success"):
            return _failed(answer)
        stat = answer.get("stat")
        return _json(Done(answer.get("path", path), None if stat is None else stat["version"]))

    # -- sessions and watches

    async def _sessions(self, _: web.Request) -> web.Response:
        reports = self._reports
        return _json(sessions_of(reports.dump(), reports.connections(), reports.watches_by_session()))

    async def _watches(self, _: web.Request) -> web.Response:
        return _json(watches_of(self._reports.watches_by_path()))

    # -- topics

    def _pages(self) -> Mapping[int, str | None]:
        return pages_of(self._reports.status(), self._settings.port)

    async def _known_topics(self, request: web.Request) -> Message | web.Response:
        refused = self._no_look(request)
        if refused is not None:
            return refused
        answers = await self._ask(request, [TOPICS_REQUEST])
        if not answers:
            return _late()
        return answers[0] if answers[0].get("success") else _failed(answers[0])

    async def _topics(self, request: web.Request) -> web.Response:
        known = await self._known_topics(request)
        if isinstance(known, web.Response):
            return known
        return _json(topics_of(known, self._reports.partitions(), self._pages()))

    async def _records(self, request: web.Request) -> web.Response:
        refused = self._no_look(request)
        if refused is not None:
            return refused
        group, offset = _number(request, "group"), _number(request, "offset")
        if group is None or group < 1 or offset is None or offset < 0:
            return _json(Refusal("bad", "expected the numbers group and offset"), 400)
        answers = await self._ask(request, [fetch_request(group, offset)])
        if not answers:
            return _late()
        if not answers[0].get("success"):
            return _failed(answers[0])
        found = records_of(answers[0], group, offset)
        return _json(Refusal("elsewhere", found) if isinstance(found, str) else found)

    async def _consumers(self, request: web.Request) -> web.Response:
        known = await self._known_topics(request)
        if isinstance(known, web.Response):
            return known
        topic = request.query.get("topic", "")
        groups = groups_of(known, topic)
        if groups is None:
            return _json(Refusal("NO_NODE", f"there is no topic {topic!r}"))
        asked = consumers_requests(groups[:ASKED_MAX])
        answers = await self._ask(request, asked) if asked else []
        return _json(consumers_of(topic, groups, answers, self._pages()))

    # -- fleets of peers

    async def _fleets(self, request: web.Request) -> web.Response:
        refused = self._no_look(request)
        if refused is not None:
            return refused
        assert self._clients is not None, "who may look has a server"
        found = self._clients.names(TOP, self._ids(request))
        if isinstance(found, Code):
            return _json(Fleets((), 0)) if found is Code.NO_NODE else _no(found, TOP)
        names = nsmallest(FLEETS_MAX, found)
        asked = owners_requests([f"{TOP}/{name}/{PULSES}" for name in names])
        owners = {answer.get("id"): answer for answer in (await self._ask(request, asked) if asked else ())}
        shown = [
            fleet_of(
                await self._read_fleet(name, owners.get(number, {}), self._ids(request)),
                round(time.time() * 1000),
            )
            for number, name in enumerate(names, 1)
        ]
        return _json(Fleets(tuple(shown), len(found) - len(names)))

    async def _read_fleet(self, tenancy: str, owners: Message, ids: Ids) -> FleetRead:
        """Read what a fleet publishes. The loop gets its turn after each group."""
        clients = self._clients
        assert clients is not None, "who may look has a server"
        root = f"{TOP}/{tenancy}"
        pulses: Sequence[Pulse]
        if owners.get("success"):
            pulses, total = pulses_of(owners)[:GROUPS_MAX], len(owners["owners"])
        else:  # too many, for example: then without what their sessions are
            names = _listed(clients.names(f"{root}/{PULSES}", ids))
            pulses, total = [Pulse(name) for name in nsmallest(GROUPS_MAX, names)], len(names)
        told: dict[str, Told] = {}
        wrong: list[str] = []

        def data(path: str) -> tuple[bytes | None, int | None]:
            found = clients.look(f"{root}/{STATE}/{path}", REPORT_BYTES_MAX, ids)
            return (None, None) if isinstance(found, Code) else (found.data, found.stat.mtime)

        size = passed_over = 0
        for pulse in pulses:
            digest, _ = data(f"{DIGESTS}/{pulse.group}")
            report, written_ms = data(report_path(pulse.group))
            size += len(report or b"")
            if size > REPORTS_BYTES_MAX:
                report, passed_over = None, passed_over + 1
            told[pulse.group], fault = told_of(report, written_ms, digest, pulse.group)
            wrong += [fault] if fault else []
            await asyncio.sleep(0)
        if passed_over:
            wrong.insert(0, f"reports of {passed_over} groups are not read, as there is too much of them")
        audit, fault = audit_of(data(AUDIT)[0])
        wrong += [fault] if fault else []
        end = clients.log_end(f"{root}/{LOG}", ENTRY_PREFIX, ids)
        log_node = clients.look(f"{root}/{LOG}", 0, ids)
        jobs = _listed(clients.names(f"{root}/{JOBS}", ids))
        return FleetRead(
            tenancy,
            None if isinstance(end, Code) else end,
            None if isinstance(log_node, Code) else log_node.stat.num_children,
            tuple(pulses),
            total,
            told,
            nsmallest(JOBS_SHOWN_MAX, jobs),
            len(jobs),
            audit,
            tuple(wrong),
        )

    async def _ask(self, request: web.Request, messages: Sequence[Message]) -> list[Message]:
        """Return the answers to requests that are made as the caller, as far as they come in time."""
        assert self._clients is not None, "who may look has a server"
        done = asyncio.get_running_loop().create_future()
        answers: list[Message] = []

        def told(answer: Message | None) -> None:
            if answer is not None:
                answers.append(answer)
            if (answer is None or len(answers) == len(messages)) and not done.done():
                done.set_result(None)

        client = self._clients.ask(f"{request.remote or 'unknown'}:0", self._ids(request), messages, told)
        if client is None:
            return []
        try:
            async with asyncio.timeout(ANSWER_S):
                await done
        except TimeoutError:
            pass
        finally:
            client.end()
        return answers


def _listed(found: list[str] | Code) -> list[str]:
    """Return names, or none where the caller sees none."""
    return [] if isinstance(found, Code) else found


async def _next_names(names: Sequence[str], after: str) -> list[str]:
    """Return the first names behind `after`, in order: one more than a page has, if there are.

    A hundred thousand names are not sorted in one go, which would hold the loop for longer than a heartbeat.
    """
    first: list[str] = []
    for start in range(0, len(names), NAMES_PER_STEP):
        part = [name for name in names[start : start + NAMES_PER_STEP] if name > after]
        first = nsmallest(CHILDREN_PAGE + 1, first + part)
        await asyncio.sleep(0)
    return first


async def _is_off(_: web.Request) -> web.Response:
    return text(
        200, "The web console is off (admin.console). /status.json, /metrics and /commands are answered.\n"
    )


def _sender(asset: Asset) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def send(_: web.Request) -> web.Response:
        return web.Response(body=asset.body, headers={**HEADERS, "Content-Type": asset.content_type})

    return send


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=json_of(value).encode(), content_type="application/json", headers=HEADERS
    )


def _no(code: Code, path: str) -> web.Response:
    """Return the answer about a znode that the caller gets nothing of: an answer as a client has it, so it is a 200."""
    if code is Code.SESSION_CLOSED_REQUIRE_SASL_AUTH:
        why = "sign in first: this server serves nobody else (auth.required_schemes)"
    elif code is Code.CONNECTION_LOSS:
        why = "this server does not serve its clients now; ask another one"
    else:
        why = text_of(code, path)
    return _json(Refusal(code.name, why))


def _failed(answer: Mapping[str, Any]) -> web.Response:
    """Return the server's own refusal of a request."""
    return _json(Refusal(str(answer.get("code", "failed")), str(answer.get("error", "it came to nothing"))))


def _late() -> web.Response:
    return _json(Refusal("late", f"no answer came within {ANSWER_S:g} s"), 504)


def _no_version() -> web.Response:
    return _json(Refusal("bad", "version: expected the number of the version that you have seen"), 400)


def _number(request: web.Request, name: str) -> int | None:
    found = request.query.get(name, "")
    digits = found.removeprefix("-")
    return int(found) if digits.isascii() and digits.isdigit() and len(digits) < 18 else None
