"""A kazoo client for one event loop and one session: its answers as awaitables, its errors as `zraft_client`'s.

kazoo works in threads of its own, and begins a new session when one has expired; here the first one's end is
the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState

from zraft_client import errors
from zraft_core.errors import Code

RETRY_MAX_DELAY_S: Final = 2.0
_KNOWN: Final = frozenset(map(int, Code))
_LOST: Final = (kazoo_errors.ConnectionLoss, kazoo_errors.OperationTimeoutError)


class KazooSession:
    """Session of kazoo's `client`.

    All methods are for the loop that `connect` was called in, unless kazoo's threads call them.

    Args:
        client: a client of kazoo's that is not started.
        timeout_s: how long a call may take, reconnects included.
    """

    def __init__(self, client: KazooClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when nothing can be waited for any more."""
        self._ended: errors.ClientError | None = None
        self._id = 0

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._client

    @property
    def id(self) -> int:
        """The session's id, known once connected."""
        return self._id

    def check(self) -> None:
        """Check that the session goes on. What it ended with is raised.

        Raises:
            ClientError: what the session ended with.
        """
        if self._ended is not None:
            raise self._ended

    async def connect(self) -> None:
        """Connect, and begin the session.

        Raises:
            NotSentError: no server took this client in time.
        """
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._listen)
        self._client.start_async()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise errors.NotSentError(
                f"no server of {self._client.hosts} took this client within {self._timeout_s:g} s"
            ) from None

    def _listen(self, state: str) -> None:
        """Note a state. kazoo's threads call this."""
        if state == KazooState.LOST and self._ended is None:
            # At once, not in the loop: kazoo begins its next session meanwhile, which nobody uses.
            self._ended = errors.SessionExpiredError(
                "the session expired: open another port", Code.SESSION_EXPIRED
            )
        elif state == KazooState.CONNECTED and self._ended is None:
            self._id = self._client.client_id[0]
        self.soon(self._entered, state)

    def _entered(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        if self._ended is not None:
            self._changed.set()
            self._connected.set()

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop; for kazoo's threads."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    async def read(self, begin: Callable[[], Any]) -> Any:
        """Return the answer to a read, which is sent again on every new connection.

        Raises:
            DeadlineError: no answer came in time.
        """
        try:
            return await self._repeat(begin)
        except TimeoutError:
            raise errors.DeadlineError(f"a read was not answered within {self._timeout_s:g} s") from None

    async def write(self, begin: Callable[[], Any]) -> Any:
        """Return the answer to a write that may happen twice: it is sent again when a connection is lost.

        Raises:
            UnknownOutcomeError: no answer came in time.
        """
        try:
            return await self._repeat(begin)
        except TimeoutError:
            raise errors.UnknownOutcomeError(
                f"a write was not answered within {self._timeout_s:g} s"
            ) from None

    async def once(self, begin: Callable[[], Any]) -> Any:
        """Return the answer to a write that is not sent again.

        Raises:
            UnknownOutcomeError: the connection was lost.
            ClientError: the server refused the write.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._ready()
                return await self._result(begin())
        except (TimeoutError, *_LOST) as error:
            raise errors.UnknownOutcomeError(f"a write was not answered: {type(error).__name__}") from error
        except kazoo_errors.KazooException as error:
            raise self._translated(error) from error

    async def _repeat(self, begin: Callable[[], Any]) -> Any:
        async with asyncio.timeout(self._timeout_s):
            while True:
                await self._ready()
                try:
                    return await self._result(begin())
                except _LOST:
                    # Another thread than the error's tells the state, maybe later: this is no busy loop.
                    await asyncio.sleep(0.01)
                except kazoo_errors.KazooException as error:
                    raise self._translated(error) from error

    async def _ready(self) -> None:
        self.check()
        await self._connected.wait()
        self.check()

    async def _result(self, pending: Any) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle() -> None:
            if future.done():
                return
            if pending.exception is None:
                future.set_result(pending.value)
            else:
                future.set_exception(pending.exception)

        pending.rawlink(lambda _: self.soon(settle))
        return await future

    def _translated(self, error: Exception) -> errors.ClientError:
        # kazoo raises SessionExpiredError for a closed connection; `_ended` knows what it was.
        if isinstance(error, kazoo_errors.SessionExpiredError) and self._ended is not None:
            return self._ended
        return translated(error)

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait until the event is set, or for so long. What the session ended with is raised as soon as it did."""
        waiting = [
            asyncio.ensure_future(event.wait()),
            asyncio.ensure_future(self._changed.wait()),
        ]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        self.check()

    async def close(self) -> None:
        """End the session. This blocks a thread of the loop's executor while kazoo ends its own."""
        if self._ended is None:
            self._ended = errors.ClosedError("the port was closed")
        self._changed.set()
        self._connected.set()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.remove_listener(self._listen)
        try:
            self._client.stop()
            self._client.close()
        except kazoo_errors.WriterNotClosedException:
            pass  # no server was left to answer; the session expires by itself


def translated(error: Exception) -> errors.ClientError:
    """Return the error of `zraft_client` for a server's refusal."""
    code = getattr(error, "code", None)
    if code not in _KNOWN:
        return errors.FailedError(f"{type(error).__name__}: {error}", Code.SYSTEM_ERROR)
    return errors.error_of(Code(code).name, str(error) or type(error).__name__)
