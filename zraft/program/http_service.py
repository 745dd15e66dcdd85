"""An HTTP server for operators on a process' own loop: what it takes of the loop and of memory is bounded.

There is no authentication: whoever reaches the address may ask. So nobody may keep others from asking:

- A connection has `HEAD_S` for the head of its first request, and `IDLE_S` from the end of one answer to the next, in which
  the answer has to be read as well.
- If all places are taken, whoever waits longest without a request goes. Some places are for this machine only.
- Answers are made one after the other, each followed by as long a pause, so that floods leave the loop half of its time.
  Health checks do not wait for that.

Imported only where an address is configured, and late, because aiohttp takes a third of a second to load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from attrs import frozen
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from zraft import __version__
from zraft.program.http_places import HEAD_S, Places, is_this_machine
from zraft.program.limited_log import LimitedLog
from zraft.program.reading import read_buffer
from zraft_core.address import Address

REQUESTS_MAX: Final = 8
"""The number of strangers that wait for their answer, and of this machine as many; further ones are told to
come back.
"""
STREAMS_MAX: Final = 8
"""The number of streams of events that strangers follow at the same time, and this machine as many."""
BODIES_MAX: Final = 4
"""The number of requests of strangers whose bodies are under way, and of this machine as many."""
IDLE_S: Final = 30.0
READ_BYTES: Final = 4_096
"""At a time, of a connection: no more requests than fit into them are looked at before one is answered."""
SHUTDOWN_S: Final = 1.0
"""The time that what is still being answered at the end may take."""
LINE_BYTES_MAX: Final = 4_096
PAUSE_S_MAX: Final = 0.05
OPENMETRICS_END: Final = b"# EOF\n"

HEADERS: Final = {
    "Server": f"zraft/{__version__}",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
"""The headers of every answer. A page runs and shows only what comes from here in files of its own."""

log = structlog.get_logger()


@frozen
class Post:
    """A handler of POST requests to one path.

    Attributes:
        bytes_max: the length of the longest body that is read.
        refusal: judges a request by its head, before any of its body is read; None: it is taken.
        answer: answers the request with its body.
    """

    bytes_max: int
    refusal: Callable[[web.Request], web.Response | None]
    answer: Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


class HttpService:
    """Service that answers GET requests (`routes`, by path), from `start` or `prepare` to `stop`."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        checks: Iterable[str] = ("/livez",),
        pages: Iterable[str] = (),
        hosts: Iterable[str] = (),
        posts: Mapping[str, Post] | None = None,
        patient: Iterable[str] = (),
        streams: Iterable[str] = (),
    ) -> None:
        """Prepare to answer.

        Args:
            routes: what is asked by GET, by path.
            checks: of these, those that cost nothing: they wait for nobody.
            pages: of these, those that browsers show: asked for under addresses of this machine or `hosts` only.
            hosts: names under which this server may be asked for pages, and for what changes something.
            posts: what is asked by POST, by path. They are pages, and patient.
            patient: of the routes, those whose answers wait for something else than this loop: nobody waits for them.
            streams: of the routes, those whose answers go on until somebody ends them.
        """
        self._routes = routes
        self._posts = {} if posts is None else posts
        self._patient = frozenset(patient)
        self._streams = frozenset(streams)
        self._streaming = {True: 0, False: 0}
        self._reading = {True: 0, False: 0}
        self._checks = frozenset(checks)
        self._pages = frozenset(pages)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._places: Places[_Door] = Places()
        self._doors: dict[object, _Door] = {}
        self._waiting = {True: 0, False: 0}
        self._one_by_one = asyncio.Lock()
        self._limited = LimitedLog(asyncio.get_running_loop().time)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def prepare(self) -> None:
        """Prepare to answer; afterwards `connection` may be called."""
        app = web.Application(middlewares=[self._guard])
        for path, handler in self._routes.items():
            app.router.add_get(path, handler)
        for path in self._posts:
            app.router.add_post(path, _not_found)  # `_guard` answers, once it has the body
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            logger=_Complaints(self._limited),
            keepalive_timeout=IDLE_S,
            lingering_time=0,  # a body that nobody asked for is not read
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()

    async def start(self, address: Address) -> None:
        """Prepare, and listen at an address.

        Raises:
            OSError: the address cannot be listened at.
        """
        await self.prepare()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.connection, address.listening_hosts, address.port)

    async def stop(self) -> None:
        """Stop listening and end what is under way."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return a refusal if a browser may be asking for a change on its own, not its user; otherwise None.

        A page of anybody's can have a browser ask this server: under a name that was made to lead here, or from afar.
        """
        for header, refused in (("Origin", None), ("Sec-Fetch-Site", "cross-site")):
            found = request.headers.get(header)
            if found is not None and refused in (None, found.lower()):
                return text(403, f"{header}: found {found!r}; a page of another site may not ask for this\n")
        return self._wrong_host(request)

    def is_local(self, request: web.Request) -> bool:
        """Return whether a request comes from this machine."""
        door = self._doors.get(request.protocol)
        return door is not None and door.local

    def _wrong_host(self, request: web.Request) -> web.Response | None:
        """Return the answer to somebody who asks under a name that is not known to be this server's."""
        for found in request.headers.getall("Host", ()):
            if not is_known_host(found, self._hosts):
                return text(
                    403,
                    f"Host: found {found!r}, expected an IP address, localhost, or a name listed in admin.hosts\n",
                )
        return None

    def connection(self) -> asyncio.BufferedProtocol:
        """Return a protocol that answers one connection."""
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        return _Door(self, server())

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bound what is answered at a time, and turn what nobody expected into a 500 without its inner details."""
        door = self._doors.get(request.protocol)
        if door is None:
            return text(503, "this connection is over\n")
        self._places.begin(door)
        try:
            if request.path in self._checks:
                door.answers()
                return await self._answer(request, handler)
            post = self._posts.get(request.path) if request.method == "POST" else None
            if request.path in self._pages or post is not None:
                wrong = self._wrong_host(request)
                if wrong is not None:
                    return wrong
            if request.path in self._streams:
                return await self._stream(door, request, handler)
            if post is not None:
                body = await self._body(door, request, post)
                if not isinstance(body, bytes):
                    return body
                handler = _handler_of(post, body)
            door.answers()
            if self._waiting[door.local] >= REQUESTS_MAX:
                return text(503, f"busy: {REQUESTS_MAX} requests wait\n", {"Retry-After": "1"})
            self._waiting[door.local] += 1
            try:
                if post is not None or request.path in self._patient:
                    return await self._answer(request, handler)
                return await self._in_turn(request, handler)
            finally:
                self._waiting[door.local] -= 1
        finally:
            self._places.end(door)
            door.answered()

    async def _stream(self, door: _Door, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let somebody follow a stream, unless too many do."""
        if self._streaming[door.local] >= STREAMS_MAX:
            return text(503, f"busy: {STREAMS_MAX} streams are followed\n", {"Retry-After": "10"})
        door.answers()
        self._streaming[door.local] += 1
        try:
            return await self._answer(request, handler)
        finally:
            self._streaming[door.local] -= 1

    async def _body(self, door: _Door, request: web.Request, post: Post) -> bytes | web.Response:
        """Return the body of a request that is taken, which must come soon, or the answer to the others."""
        refusal = post.refusal(request)
        if refusal is not None:
            return refusal
        too_long = text(413, f"found a longer body, expected at most {post.bytes_max} bytes\n")
        if (request.content_length or 0) > post.bytes_max:
            return too_long
        if self._reading[door.local] >= BODIES_MAX:
            return text(503, f"busy: {BODIES_MAX} bodies are under way\n", {"Retry-After": "1"})
        self._reading[door.local] += 1
        door.reads_on()
        body = bytearray()
        try:
            async with asyncio.timeout(HEAD_S):
                while part := await request.content.readany():
                    body += part
                    if len(body) > post.bytes_max:
                        return too_long
        except TimeoutError:
            return text(408, f"found no end of the body within {HEAD_S:g} s\n")
        finally:
            self._reading[door.local] -= 1
        return bytes(body)

    async def _in_turn(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        async with self._one_by_one:
            began = loop.time()
            try:
                return await self._answer(request, handler)
            finally:
                await asyncio.sleep(min(loop.time() - began, PAUSE_S_MAX))

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:
            told = self._limited.warn("http request failed", kind=f"failed {request.path}", path=request.path)
            if told:
                log.error("http request failed", path=request.path, exc_info=error)
            return text(500, "this request failed; the server's log says why\n")

    # -- what connections report

    def _came(self, door: _Door, handler: object) -> bool:
        """Admit a connection; return False if there is no room for it."""
        goes = self._places.enter(door, local=door.local)
        if goes is door:
            return False
        if goes is not None:
            goes.abort()
        self._doors[handler] = door
        return True

    def _went(self, door: _Door, handler: object) -> None:
        self._places.leave(door)
        self._doors.pop(handler, None)


class _Door(asyncio.BufferedProtocol):
    """Between a connection's transport and aiohttp's handler of it: who is there, since when, and how much is read."""

    def __init__(self, service: HttpService, handler: Any) -> None:
        self._service = service
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._entered = False
        self._buffer = read_buffer("http", READ_BYTES)
        self.local = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.local = bool(peer) and is_this_machine(peer[0], here[0] if here else "")
        self._entered = self._service._came(self, self._handler)
        if not self._entered:
            self.abort()
            return
        self._start_timer(HEAD_S)
        self._handler.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._entered:
            self._handler.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._entered else False

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._transport = None
        if self._entered:
            self._entered = False
            self._service._went(self, self._handler)
            self._handler.connection_lost(exc)

    def answers(self) -> None:
        """Stop the time of a request that has come whole, and read no more before it is answered."""
        self._stop_timer()
        if self._transport is not None:
            self._transport.pause_reading()

    def reads_on(self) -> None:
        """Stop the time of a head that has come: what follows has a time of its own."""
        self._stop_timer()

    def answered(self) -> None:
        """Read again, since the answer is about to be sent; then the next request may come."""
        if self._transport is not None:
            self._transport.resume_reading()
            self._start_timer(IDLE_S)

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _handler_of(post: Post, body: bytes) -> Handler:
    """Return the handler of a request by POST whose body is here."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await post.answer(request, body)

    return answer


async def _not_found(_: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound


class _Complaints:
    """Complaints of aiohttp about requests that are none: any number of them, with a traceback each."""

    def __init__(self, limited: LimitedLog) -> None:
        self._limited = limited

    def exception(self, message: str, *args: object, exc_info: object = None, **_: object) -> None:
        error = exc_info if isinstance(exc_info, BaseException) else None
        kind = type(error).__name__
        self._limited.warn("http request refused", kind=f"http {kind}", error=kind)

    error = warning = exception

    def debug(self, message: str, *args: object, **_: object) -> None:
        """Do nothing: connections that end early are nobody's concern."""


def is_known_host(found: str, names: frozenset[str]) -> bool:
    """Return whether a Host header names an address, localhost, or one of `names` (lower case).

    Its port does not count.
    """
    host = found.strip().lower()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    host = host.removesuffix(".")
    if host == "localhost" or host in names:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def text(status: int, body: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a response of plain text."""
    return web.Response(
        status=status, text=body, content_type="text/plain", headers={**HEADERS, **(headers or {})}
    )


def exposition(
    request: web.Request, registry: CollectorRegistry, more: Callable[[bool], str] | None = None
) -> web.Response:
    """Return the metrics of a registry, in the format that the request prefers.

    Args:
        more: returns the text of further metrics; its argument is whether the format is OpenMetrics.
    """
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    body: bytes = encode(registry)
    if more is not None:
        is_open = content_type.startswith("application/openmetrics-text")
        end = OPENMETRICS_END if is_open else b""
        body = body.removesuffix(end) + more(is_open).encode() + end
    return web.Response(body=body, headers={**HEADERS, "Content-Type": content_type})
