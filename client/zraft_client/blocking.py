"""The blocking client: the asyncio one in a thread of its own. For threads, scripts, and notebooks that run a loop.

Any number of threads may call it; their calls travel together over one connection. After a fork, the child's copy of it
raises ForkedError: it has no thread, and the connection is the parent's.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from zraft_client.blocking_api import BlockingCalls
from zraft_client.calls import Call, Request
from zraft_client.client import TIMEOUT_S, Client, ClientStatistics, Hosts, Listener, Session
from zraft_client.errors import ClientError, ClosedError, ForkedError
from zraft_client.values import ConnectionState
from zraft_client.waiters import converted

T = TypeVar("T")

JOIN_TIMEOUT_S: Final = 10.0
AT_ONCE_MAX: Final = 4_000
"""Calls that one `ask_all` has under way."""


class _Waiter:
    """A caller's thread that waits for an answer."""

    __slots__ = ("_arrived", "answer", "call", "error")

    def __init__(self) -> None:
        # the cheapest thing that a thread can wait for
        self._arrived = threading.Lock()
        self._arrived.acquire()
        self.answer: Any = None
        self.error: BaseException | None = None
        self.call: Call | None = None

    def done(self) -> bool:
        return not self._arrived.locked()

    def set_result(self, answer: Any) -> None:
        self.answer = answer
        self._arrived.release()

    def set_exception(self, error: BaseException) -> None:
        self.error = error
        self._arrived.release()

    def wait(self) -> Any:
        self._arrived.acquire()
        self._arrived.release()
        if self.error is not None:
            raise self.error
        return self.answer


class _Worker:
    """The thread, its loop, and the calls on their way into it. Knows nothing of who uses it, so that it outlives nobody."""

    def __init__(self, make: Callable[[], Client]) -> None:
        # The selector loop of the standard library: it can be left behind by a fork, which others do not promise.
        self.loop = asyncio.SelectorEventLoop()
        self.client = make()
        self.forked = False
        self._inbox: deque[tuple[Request[Any], float, _Waiter]] = deque()
        self._signalled = False
        self._stopped = False
        self.thread = threading.Thread(target=self._run, name="zraft client", daemon=True)
        self.thread.start()
        _workers.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self.client.start)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.client.close())
            self.loop.run_until_complete(_cancel_the_rest())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self.loop.close()
            self._refuse_all()

    def check(self) -> None:
        """Raise if nobody can be asked: after a fork, after the end, from the thread itself."""
        if self.forked:
            raise ForkedError(
                "this client was made before the process was forked, and its connection is the parent's: "
                "open a new client in the child"
            )
        if self._stopped:
            raise ClosedError("the client was closed")
        if threading.get_ident() == self.thread.ident:
            raise ClientError(
                "a blocking call in the client's own thread (a listener?) would wait for itself for ever"
            )

    def ask(self, request: Request[T], timeout_s: float) -> T:
        return self.result(request, self.begin(request, timeout_s))

    def begin(self, request: Request[Any], timeout_s: float) -> _Waiter:
        self.check()
        waiter = _Waiter()
        self._inbox.append((request, timeout_s, waiter))
        # Calls of many threads wake the loop once.
        if not self._signalled:
            self._signalled = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                raise ClosedError("the client was closed") from None
        return waiter

    def result(self, request: Request[T], waiter: _Waiter) -> T:
        try:
            answer = waiter.wait()
        except (KeyboardInterrupt, SystemExit):
            self.loop.call_soon_threadsafe(self._abandon, waiter)
            raise
        return converted(request, answer)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine in the thread, to its end."""
        try:
            self.check()
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except (KeyboardInterrupt, SystemExit):
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function in the thread."""

        async def called() -> T:
            return function()

        return self.run(called())

    def _drain(self) -> None:
        self._signalled = False
        inbox, client = self._inbox, self.client
        while inbox:
            request, timeout_s, waiter = inbox.popleft()
            try:
                waiter.call = client.begin(request, timeout_s, waiter)
            except ClientError as error:
                waiter.set_exception(error)

    def _abandon(self, waiter: _Waiter) -> None:
        if waiter.call is not None:
            self.client.abandon(waiter.call)

    def _refuse_all(self) -> None:
        while self._inbox:
            waiter = self._inbox.popleft()[2]
            waiter.set_exception(ClosedError("the client was closed"))

    def stop(self) -> None:
        """End the session and the thread. For any thread but its own, once or more."""
        if self.forked or self._stopped:
            return
        self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.get_ident() != self.thread.ident:
            self.thread.join(JOIN_TIMEOUT_S)

    def left_behind(self) -> None:
        """Drop the share of the connection in the child of a fork: it is the parent's.

        Touch nothing else.
        """
        self.forked = True
        descriptor = self.client.descriptor
        if descriptor >= 0:
            # Over it, not closed: whatever object still holds the number may close it later.
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


async def _cancel_the_rest() -> None:
    """Cancel what was begun in the loop and not closed before the client: it ends with it, as with `asyncio.run`."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()


def _after_fork() -> None:
    for worker in list(_workers):
        worker.left_behind()


os.register_at_fork(after_in_child=_after_fork)


class BlockingClient(BlockingCalls):
    """A client for threads. Use it as a context manager, or `close` it; otherwise it ends with the program.

    Args:
        hosts: as `Client`'s.
        connect: wait until a server took the session; else the first call waits.
        timeout_s: how long a call may take, reconnects and repeats included.
        options: the other arguments of `Client`.
    """

    def __init__(
        self, hosts: Hosts, *, connect: bool = True, timeout_s: float = TIMEOUT_S, **options: Any
    ) -> None:
        self._timeout_s = timeout_s
        self._worker = _Worker(lambda: Client(hosts, timeout_s=timeout_s, **options))
        self._end = weakref.finalize(self, self._worker.stop)
        if connect:
            try:
                self.connect()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, timeout_s: float | None = None) -> None:
        """Connect and wait until a server has accepted the session.

        Raises:
            NotSentError: no server accepted it in time; the message says why.
        """
        self._worker.run(self._worker.client.connect(timeout_s))

    def close(self) -> None:
        """End the session, and with it its ephemeral znodes. Calls under way end with what is known of them."""
        self._end()

    # -- calls

    def ask(self, request: Request[T]) -> T:
        """Return the answer to any request of `zraft_client.requests`."""
        return self._worker.ask(request, self._timeout_s)

    def ask_all(self, wanted: Iterable[Request[T]]) -> list[T]:
        """Send thousands of requests at a time, and return their answers; they are not one step.

        Raises:
            ClientError: the first error, after all were answered.
        """
        first: ClientError | None = None
        found: list[T] = []
        begun: deque[tuple[Request[T], _Waiter]] = deque()
        left = iter(wanted)
        while True:
            for request in islice(left, AT_ONCE_MAX - len(begun)):
                begun.append((request, self._worker.begin(request, self._timeout_s)))
            if not begun:
                break
            request, waiter = begun.popleft()
            try:
                found.append(self._worker.result(request, waiter))
            except ClientError as error:
                first = first or error
        if first is not None:
            raise first
        return found

    def within(self, timeout_s: float) -> BlockingCalls:
        """Return the same client for calls that may take so long: `client.within(2).put("key", 1)`."""
        return _Within(self._worker, timeout_s)

    def run(self, use: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine over the asyncio client, in its thread, and wait for it."""
        self._worker.check()
        return self._worker.run(use(self._worker.client))

    def run_soon(self, function: Callable[[Client], T]) -> T:
        """Run a plain function over the asyncio client, in its thread, and wait for it."""
        return self._worker.call(lambda: function(self._worker.client))

    # -- state

    def check(self) -> None:
        """Check that the client can be used in this process.

        Raises:
            ForkedError: the client belongs to the process that this one was forked from.
            ClosedError: the client was closed.
        """
        self._worker.check()

    @property
    def state(self) -> ConnectionState:
        """The state of the session, as the client knows it now."""
        return self._worker.client.state

    @property
    def session(self) -> Session | None:
        """The session's id and password, or None before the first one."""
        return self._worker.client.session

    @property
    def last_zxid(self) -> int:
        """The newest moment that any answer showed to this client."""
        return self._worker.client.last_zxid

    @property
    def timeout_s(self) -> float:
        """The time that a call may take, in seconds, unless it says otherwise."""
        return self._timeout_s

    def statistics(self) -> ClientStatistics:
        """Return counts of connections, sessions, answers and repeats."""
        return self.run_soon(lambda client: client.statistics())

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every state that is entered, in the client's thread: it may not call this client."""
        remove = self.run_soon(lambda client: client.add_listener(listener))
        return lambda: self.run_soon(lambda _: remove())

    def wait_state(self, *states: ConnectionState, timeout_s: float | None = None) -> ConnectionState:
        """Wait until the client enters one of these states, and return it; at once if it is in one.

        Raises:
            TimeoutError: no such state was entered in time.
        """

        async def wait() -> ConnectionState:
            async with asyncio.timeout(timeout_s):
                return await self._worker.client.wait_state(*states)

        return self._worker.run(wait())

    def renew(self) -> None:
        """Begin a new session after EXPIRED, if the client was made with `renew_session=False`."""
        self._worker.run(self._worker.client.renew())


class _Within(BlockingCalls):
    """A client's calls under another deadline."""

    def __init__(self, worker: _Worker, timeout_s: float) -> None:
        self._worker = worker
        self._timeout_s = timeout_s

    def ask(self, request: Request[T]) -> T:
        return self._worker.ask(request, self._timeout_s)

    @property
    def last_zxid(self) -> int:
        return self._worker.client.last_zxid
