"""The asyncio client: keeps one connection to some server of a cluster, and every call moving over it.

A shell around `protocol` (what is sent and repeated) and `pacing` (whom to ask, and when): it owns the socket, the clock
and the session. Not for use by several threads; that is `BlockingClient`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from attrs import frozen

from zraft_client import requests
from zraft_client.api import AsyncCalls
from zraft_client.calls import Call, Request, Settled
from zraft_client.connection import Connection
from zraft_client.dictionary import AsyncDictionary
from zraft_client.errors import (
    AuthFailedError,
    ClientError,
    ClosedError,
    FailedError,
    NotSentError,
    SessionExpiredError,
    StreamRefusedError,
    WireError,
)
from zraft_client.pacing import HostRing, parse_hosts
from zraft_client.protocol import PENDING_MAX, REQUEST_BYTES_MAX, Calls
from zraft_client.sasl import DigestLogin
from zraft_client.subscribing import SubscribingCalls
from zraft_client.subscriptions import Subscription
from zraft_client.values import ConnectionState
from zraft_client.waiters import MembersWaiter, Nobody, SubscriptionWaiter, conclude, converted
from zraft_core.address import Address
from zraft_core.errors import Code

T = TypeVar("T")
S = TypeVar("S", bound=Subscription[Any])

SESSION_TIMEOUT_S: Final = 10.0
TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
PROVEN_S: Final = 1.0
"""The duration of a connection after which the next one is made without a pause."""
SUBSCRIBE_AGAIN_S: Final = 0.2
"""Mean pause before a subscription is repeated that a server without a quorum refused."""
DEADLINE_GRAIN_S: Final = 0.01
"""Deadlines may be this much late, so that many calls share one look at the clock."""
_NEVER: Final = float("inf")

Hosts = str | Iterable[str | tuple[str, int] | Address]
Listener = Callable[[ConnectionState], None]


@frozen
class Session:
    """A session as its server described it. `timeout_s` is the negotiated one."""

    id: int
    password: bytes
    timeout_s: float


@frozen
class ClientStatistics:
    """Counts since the client was made."""

    connections: int
    sessions: int
    answers: int
    repeats: int
    """Writes sent again under the number of their first copy."""
    unsettled: int


class Client(SubscribingCalls):
    """A client of a cluster. Use it as an async context manager, or `connect` and `close`.

    Args:
        hosts: `"a:2181,b:2181"`, or a sequence of such, of (host, port) pairs or of `Address`.
        session: whether to have a session. Without one there are no exactly-once writes, no ephemeral
            znodes, no wills.
        session_timeout_s: how long the servers keep the session without hearing of the client; they may
            clamp it.
        timeout_s: how long a call may take, reconnects and repeats included; `within` gives another.
        connect_timeout_s: how long one server may take to accept the connection and answer.
        renew_session: make a new session when one expired; writes that were not sent yet go into it. If
            not, they, reads that wait and all further calls raise SessionExpiredError until `renew`.
        discover: learn the cluster's other servers from the connected one.
        auth: (scheme, credentials) pairs shown on every connection: digest or sasl, and "user:password".
        tls: a client's SSLContext, for servers that listen with TLS.
        server_hostname: the name that the certificate must carry, if it is not the host.
        request_bytes_max: larger requests are refused here; the servers' `client.jute_maxbuffer`.
        pending_max: calls that may wait for a connection or for room on it; further ones raise
            NotSentError.
        rng: the source of jitter.
    """

    def __init__(
        self,
        hosts: Hosts,
        *,
        session: bool = True,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        renew_session: bool = True,
        discover: bool = True,
        auth: Sequence[tuple[str, bytes]] = (),
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        pending_max: int = PENDING_MAX,
        rng: random.Random | None = None,
    ) -> None:
        rng = random.Random() if rng is None else rng
        self._ring = HostRing(parse_hosts(hosts), rng)
        self._calls = Calls(
            rng, exactly_once=session, request_bytes_max=request_bytes_max, pending_max=pending_max
        )
        self._wants_session = session
        self._session_timeout_s = session_timeout_s
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._renew_session = renew_session
        self._discover = discover
        self._auth = list(auth)
        self._tls = tls
        self._server_hostname = server_hostname
        self._session: Session | None = None
        self._state = ConnectionState.SUSPENDED
        self._listeners: list[Listener] = []
        self._siblings: weakref.WeakSet[Client] = weakref.WeakSet()
        self._subscriptions: dict[Subscription[Any], None] = {}
        self._connection: Connection | None = None
        self._server: Address | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._renewal: asyncio.Future[None] | None = None
        self._why = "no server was asked yet"
        self._refusal: AuthFailedError | None = None
        self._flushing = False
        self._heard = 0.0
        self._sent = 0.0
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._deadline_at = _NEVER
        self._retry_at = _NEVER
        self._retry_timer: asyncio.TimerHandle | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._connections = 0
        self._sessions = 0

    # -- life

    async def __aenter__(self) -> Client:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to connect, in the background; calls wait for it.

        Raises:
            ClosedError: the client was closed.
        """
        if self._state is ConnectionState.CLOSED:
            raise ClosedError("the client was closed; make another one")
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._changed = self._loop.create_future()
            self._task = self._loop.create_task(self._stay_connected(), name="zraft client")

    async def connect(self, timeout_s: float | None = None) -> None:
        """Connect, and wait until a server took the session.

        Raises:
            NotSentError: none did in time; the message says why.
            AuthFailedError: what `auth` shows is not believed.
        """
        self.start()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected()
        except TimeoutError:
            hosts = ", ".join(map(str, self._ring.addresses))
            raise NotSentError(
                f"no server of {hosts} took this client within {timeout_s:g} s: {self._why}"
            ) from None

    async def _connected(self) -> None:
        while self._state is not ConnectionState.CONNECTED:
            if self._refusal is not None:
                raise self._refusal
            if self._state is ConnectionState.CLOSED:
                raise ClosedError("the client was closed")
            assert self._changed is not None
            await asyncio.shield(self._changed)

    def _tell_refusal(self, error: AuthFailedError) -> None:
        """Tell those who wait for the first connection that no server will take this client, before the deadline."""
        self._refusal = error
        self._tell()

    async def close(self) -> None:
        """End the session, and with it its ephemeral znodes. Calls under way end with what is known of them."""
        if self._state is ConnectionState.CLOSED:
            return
        if self._state is ConnectionState.CONNECTED and self._session is not None:
            with contextlib.suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._prompt(requests.close())
        self._enter(ConnectionState.CLOSED)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for timer in (self._deadline_timer, self._retry_timer, self._pulse):
            if timer is not None:
                timer.cancel()
        closed = ClosedError("the client was closed")
        for call, _, error in self._calls.close():
            conclude(call, None, closed if call.prompt else error)
        for subscription in list(self._subscriptions):
            subscription.refused(closed)
        self._subscriptions.clear()
        for sibling in list(self._siblings):
            await sibling.close()

    # -- state

    @property
    def state(self) -> ConnectionState:
        """The state of the session, as the client knows it now."""
        return self._state

    @property
    def timeout_s(self) -> float:
        """The time that a call may take, in seconds."""
        return self._timeout_s

    @property
    def rng(self) -> random.Random:
        """The source of jitter."""
        return self._calls.rng

    @property
    def session(self) -> Session | None:
        """The session, None without one."""
        return self._session

    @property
    def server(self) -> Address | None:
        """The connected server, None if there is none."""
        return self._server

    @property
    def descriptor(self) -> int:
        """The file descriptor of the connection, -1 if there is none."""
        return -1 if self._connection is None else self._connection.descriptor

    @property
    def hosts(self) -> tuple[Address, ...]:
        """The servers that are tried: those given, then those that a server named."""
        return self._ring.addresses

    @property
    def last_zxid(self) -> int:
        """The newest moment that any answer showed to this client."""
        return self._calls.last_zxid

    @property
    def silence_s(self) -> float:
        """The time since a server was last heard, in seconds; a connection that was just made counts as heard."""
        return 0.0 if self._loop is None else self._loop.time() - self._heard

    def statistics(self) -> ClientStatistics:
        """Return counts of connections, sessions, answers and repeats."""
        calls = self._calls
        return ClientStatistics(
            self._connections, self._sessions, calls.answers, calls.repeats, calls.unsettled
        )

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every state that is entered, at once, in the loop's thread; return what ends that."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    async def wait_state(self, *states: ConnectionState) -> ConnectionState:
        """Wait until one of these states is entered, or is the present one.

        Raises:
            ClosedError: the client was closed, and that was not waited for.
        """
        while self._state not in states:
            if self._state is ConnectionState.CLOSED:
                raise ClosedError("the client was closed")
            assert self._changed is not None, "connect() or start() the client first"
            await asyncio.shield(self._changed)
        return self._state

    def _enter(self, state: ConnectionState) -> None:
        if state is self._state:
            return
        self._state = state
        self._tell()
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception as error:
                # a listener's error must not cost the connection
                if self._loop is not None:
                    self._loop.call_exception_handler(
                        {"message": f"zraft client: a listener failed at {state}", "exception": error}
                    )

    def _tell(self) -> None:
        """Wake those who wait for a change."""
        if self._changed is not None and self._loop is not None:
            if not self._changed.done():
                self._changed.set_result(None)
            self._changed = self._loop.create_future()

    async def renew(self) -> None:
        """Begin a new session after EXPIRED, with `renew_session=False`, and wait until it exists."""
        if self._renewal is not None and not self._renewal.done():
            self._renewal.set_result(None)
        await self.wait_state(ConnectionState.CONNECTED)

    # -- calls

    async def ask(self, request: Request[T]) -> T:
        """Return the answer to any request of `zraft_client.requests`."""
        return await self.ask_within(request, self._timeout_s)

    async def ask_within(self, request: Request[T], timeout_s: float) -> T:
        """Return the answer to a request, or raise what is known of it after `timeout_s`."""
        call = self.begin(request, timeout_s, asyncio.get_running_loop().create_future())
        try:
            answer = await call.waiter
        except asyncio.CancelledError:
            self.abandon(call)
            raise
        return converted(request, answer)

    def within(self, timeout_s: float) -> AsyncCalls:
        """Return the same client for calls that may take so long: `client.within(2).put("key", 1)`."""
        return _Within(self, timeout_s)

    def begin(self, request: Request[Any], timeout_s: float, waiter: Any) -> Call:
        """Start a call; its answer or error goes to `waiter`. For programs that keep calls in a form of their own.

        Raises:
            ClosedError: the client was closed, or never connected.
            SessionExpiredError: the session expired, and `renew_session` is off.
        """
        loop = self._loop
        if loop is None or self._state is ConnectionState.CLOSED:
            raise ClosedError(
                "the client was closed, or never connected: use `async with Client(…)`, or connect()"
            )
        if self._renewal is not None and not self._renewal.done():
            raise SessionExpiredError(
                "the session expired, and renew_session is off: renew() begins another one",
                Code.SESSION_EXPIRED,
            )
        deadline = loop.time() + timeout_s
        call = self._calls.call(request, deadline, waiter)
        self._calls.submit(call)
        if deadline < self._deadline_at:
            self._arm_deadline(deadline)
        if not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush)
        return call

    def abandon(self, call: Call) -> None:
        """Give up waiting for a call. It may have happened; once later writes did, it will not."""
        if not call.settled:
            self._calls.give_up(call)
            self._calls.pump()
            self._flush_soon()

    async def _prompt(self, request: Request[T]) -> T:
        """Send a request that belongs to this connection: hello, auth, ping, close."""
        loop = asyncio.get_running_loop()
        call = self._calls.call(request, _NEVER, loop.create_future(), prompt=True)
        self._calls.submit_now(call)
        self._flush()
        try:
            return converted(request, await call.waiter)
        except asyncio.CancelledError:
            self.abandon(call)
            raise

    def _flush(self) -> None:
        self._flushing = False
        data = self._calls.take_output()
        if data and self._connection is not None and self._loop is not None:
            self._sent = self._loop.time()
            self._connection.write(data)

    def _conclude(self, settled: Iterable[Settled]) -> None:
        for call, answer, error in settled:
            conclude(call, answer, error)
            if (
                isinstance(error, SessionExpiredError)
                and self._session is not None
                and self._connection is not None
            ):
                self._give_up_connection("a server said that the session expired")
        due = self._calls.next_due
        if due is None or self._loop is None:
            return
        if self._retry_timer is None or self._retry_at > due:
            if self._retry_timer is not None:
                self._retry_timer.cancel()
            # It is kept beside the timer: on uvloop a timer that is due already has no `when`.
            self._retry_at = due
            self._retry_timer = self._loop.call_at(due, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        assert self._loop is not None
        self._calls.due(self._loop.time())
        self._flush()
        self._conclude(())

    def _arm_deadline(self, at: float) -> None:
        assert self._loop is not None
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_at = at
        self._deadline_timer = self._loop.call_at(at + DEADLINE_GRAIN_S, self._expire)

    def _expire(self) -> None:
        assert self._loop is not None
        self._deadline_timer = None
        self._deadline_at = _NEVER
        late, earliest = self._calls.expire(self._loop.time())
        self._conclude(late)
        self._flush()
        if earliest is not None and earliest != _NEVER:
            self._arm_deadline(earliest)

    def dictionary(self, name: str = requests.DEFAULT) -> AsyncDictionary:
        """Return a dictionary by its name; it need not exist."""
        return AsyncDictionary(self, name)

    def sibling(self, address: Address) -> Client:
        """Return a client of one server of the same cluster, with this one's credentials and without a session.

        It ends with this one, if not before.

        Raises:
            ClosedError: this client was closed.
        """
        if self._state is ConnectionState.CLOSED:
            raise ClosedError("the client was closed")
        found = Client(
            [address],
            session=False,
            session_timeout_s=self._session_timeout_s,
            timeout_s=self._timeout_s,
            connect_timeout_s=self._connect_timeout_s,
            discover=False,
            auth=self._auth,
            tls=self._tls,
            server_hostname=self._server_hostname,
            rng=self._calls.rng,
        )
        self._siblings.add(found)
        return found

    # -- subscriptions

    def subscribe(self, subscription: S) -> S:
        """Send a subscription to the servers, now and on each new connection, and return it.

        Raises:
            ClosedError: the client was closed.
        """
        if self._state is ConnectionState.CLOSED:
            raise ClosedError("the client was closed")
        self._subscriptions[subscription] = None
        if self._calls.ready:
            self._send_subscription(subscription)
            self._flush()
        return subscription

    def _send_subscription(self, subscription: Subscription[Any]) -> None:
        subscription.resubscribed()
        waiter = SubscriptionWaiter(self, subscription)
        call = self._calls.call(subscription.request(), _NEVER, waiter, prompt=True)
        subscription.id = self._calls.subscribe(call, subscription)

    def post(self, fields: Mapping[str, Any]) -> None:
        """Send something that has an id of its own and no answer, on this connection or never."""
        self._calls.post(fields)
        self._flush_soon()

    def grant(self, subscription: int, count: int) -> None:
        """Allow a server to push this many more messages of a subscription."""
        self._calls.post(requests.credit(subscription, count))
        self._flush_soon()

    def forget(self, subscription: Subscription[Any]) -> None:
        """End a subscription: nothing of it is delivered any more, and the server is told."""
        self._subscriptions.pop(subscription, None)
        number, subscription.id = subscription.id, 0
        if number and self._calls.unsubscribe(number):
            call = self._calls.call(requests.unsubscribe(number), _NEVER, Nobody(), prompt=True)
            self._calls.submit_now(call)
            self._flush_soon()

    def again(self, subscription: Subscription[Any]) -> None:
        """Repeat a subscription after a pause, unless another connection does so first."""
        assert self._loop is not None
        number, subscription.id = subscription.id, 0
        self._calls.unsubscribe(number)
        pause_s = SUBSCRIBE_AGAIN_S * (0.5 + self._calls.rng.random())
        self._loop.call_later(pause_s, self._subscribe_again, subscription)

    def _subscribe_again(self, subscription: Subscription[Any]) -> None:
        if subscription in self._subscriptions and not subscription.id and self._calls.ready:
            self._send_subscription(subscription)
            self._flush()

    def _flush_soon(self) -> None:
        if not self._flushing and self._loop is not None:
            self._flushing = True
            self._loop.call_soon(self._flush)

    # -- the connection, as its owner

    def received(self, data: memoryview) -> None:
        """Take bytes that arrived; called by the connection."""
        assert self._loop is not None
        now = self._heard = self._loop.time()
        self._conclude(self._calls.receive(data, now))
        failure = self._calls.failure
        if failure is None:
            self._flush_soon()
            return
        if isinstance(failure, StreamRefusedError):
            self._conclude(self._calls.refuse_largest(str(failure)))
        self._give_up_connection(str(failure))

    def pause(self) -> None:
        """Stop writing until `resume`: the socket's buffer is full."""
        self._calls.pause()

    def resume(self) -> None:
        """Write again: the socket's buffer has room."""
        self._calls.resume()
        self._flush_soon()

    def lost(self, connection: Connection, why: Exception | None) -> None:
        """Take note that a connection ended, so that another server is tried."""
        if connection is not self._connection:
            return
        if why is not None:
            self._why = f"{self._server}: {why}"
        self._forget_connection()

    def _give_up_connection(self, why: str) -> None:
        connection = self._connection
        if connection is not None:
            self._why = f"{self._server}: {why}"
        self._forget_connection()
        if connection is not None:
            connection.abort()

    def _forget_connection(self) -> None:
        """Forget the connection: nothing of it is believed from now on."""
        if self._connection is None:
            return
        self._connection = None
        self._server = None
        for subscription in self._subscriptions:
            subscription.id = 0
        self._conclude(self._calls.connection_lost())
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def _stay_connected(self) -> None:
        """Connect, wait for the end, and connect again."""
        while True:
            address, wait_s = self._ring.next()
            if wait_s:
                await asyncio.sleep(wait_s)
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._dial(address)
            except SessionExpiredError:
                await self._expired()
                continue
            except (OSError, FailedError, WireError) as error:
                # TimeoutError is an OSError, and so are TLS's errors
                self._give_up_connection("refused")
                self._why = f"{address}: {error or type(error).__name__}"
                if isinstance(error, AuthFailedError):
                    self._tell_refusal(error)
                continue
            except BaseException:
                self._give_up_connection("the client was closed")
                raise
            await self._until_lost()

    async def _until_lost(self) -> None:
        assert self._gone is not None
        assert self._loop is not None
        began = self._loop.time()
        self._begin()
        try:
            await self._gone
        except asyncio.CancelledError:
            self._give_up_connection("the client was closed")
            raise
        finally:
            if self._pulse is not None:
                self._pulse.cancel()
        if self._loop.time() - began >= PROVEN_S:
            self._ring.succeeded()
        self._enter(ConnectionState.SUSPENDED)

    async def _dial(self, address: Address) -> None:
        """Return a connection on which the session is resumed or begun, and the credentials were shown."""
        loop = asyncio.get_running_loop()
        name = self._server_hostname or address.host if self._tls is not None else None
        self._gone = loop.create_future()
        _, connection = await loop.create_connection(
            lambda: Connection(self), address.host, address.port, ssl=self._tls, server_hostname=name
        )
        self._connection = connection
        self._server = address
        self._heard = self._sent = loop.time()
        self._calls.connection_made()
        if self._wants_session:
            await self._greet()
        for scheme, credentials in self._auth:
            if scheme == "sasl":
                await self._log_in(credentials)
            else:
                await self._prompt(requests.auth(scheme, credentials))
        self._connections += 1

    async def _log_in(self, credentials: bytes) -> None:
        login = DigestLogin(credentials, os.urandom(16).hex().encode())
        challenge = await self._prompt(requests.login(b""))
        login.check(await self._prompt(requests.login(login.response(challenge))))

    async def _greet(self) -> None:
        known = self._session
        greeting = await self._prompt(
            requests.hello(
                round(self._session_timeout_s * 1000),
                None if known is None else known.id,
                None if known is None else known.password,
                self._calls.last_zxid,
            )
        )
        self._session = Session(greeting.session, greeting.password, greeting.timeout_ms / 1000)
        if known is None:
            self._sessions += 1

    def _begin(self) -> None:
        self._calls.begin()
        for subscription in self._subscriptions:
            self._send_subscription(subscription)
        self._flush()
        self._beat()
        self._enter(ConnectionState.CONNECTED)
        if self._discover:
            self._learn_members()

    def _beat(self) -> None:
        """Keep the session alive, and notice a server that answers nothing."""
        assert self._loop is not None
        timeout_s = self._session.timeout_s if self._session is not None else self._session_timeout_s
        now = self._loop.time()
        if now - self._heard > timeout_s * 2 / 3:
            self._give_up_connection(f"nothing was heard for {now - self._heard:.1f} s")
            return
        if now - self._sent >= timeout_s / 3 or now - self._heard >= timeout_s / 3:
            call = self._calls.call(requests.ping(), _NEVER, Nobody(), prompt=True)
            self._calls.submit_now(call)
            self._flush()
        self._pulse = self._loop.call_later(timeout_s / 6, self._beat)

    def _learn_members(self) -> None:
        call = self._calls.call(requests.members(), _NEVER, MembersWaiter(self._ring), prompt=True)
        self._calls.submit_now(call)
        self._flush()

    async def _expired(self) -> None:
        """Note that the server has no such session any more."""
        self._give_up_connection("the session expired")
        self._session = None
        self._conclude(self._calls.session_ended(renewing=self._renew_session))
        self._enter(ConnectionState.EXPIRED)
        if not self._renew_session:
            self._renewal = asyncio.get_running_loop().create_future()
            await self._renewal


class _Within(AsyncCalls):
    """A client's calls under another deadline."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def ask(self, request: Request[T]) -> T:
        return await self._client.ask_within(request, self._timeout_s)

    @property
    def last_zxid(self) -> int:
        return self._client.last_zxid
