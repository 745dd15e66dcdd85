"""One server inside a test: a thread with an event loop, and the `Node` of `zraft serve` in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

import uvloop

from zraft.config.server import ServerConfig
from zraft.server.process.listening_sockets import ListeningSockets
from zraft.server.process.node import Node
from zraft.server.process.surroundings import Surroundings
from zraft.testing.errors import ZraftTestError

T = TypeVar("T")

CALL_S = 30.0
"""The time that something may take in the server's loop before the test is told that the server hangs."""


class ServerThread:
    """A server that runs, or has ended. Its methods may be called in any thread but its own.

    Attributes:
        node: the server; only to be read outside of its thread.
        failure: what ended it, if it was not `kill`.
    """

    def __init__(
        self, config: ServerConfig, sockets: ListeningSockets, opened: ExitStack, surroundings: Surroundings
    ) -> None:
        """Start the server; it closes what was `opened` for it when it ends.

        Raises:
            Exception: what `Node` raises, such as `StorageError` for a damaged directory.
        """
        self.failure: BaseException | None = None
        self._config = config
        self._sockets = sockets
        self._opened = opened
        self._surroundings = surroundings
        self._made = threading.Event()
        self._go_on: threading.Event | None = None
        self._killed = False
        self.node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"zraft-server-{config.id}", daemon=True)
        self._thread.start()

    def wait_made(self) -> None:
        """Wait until the server has read its directory and begun to serve.

        Raises:
            Exception: what ended it instead.
        """
        self._made.wait()
        if self.node is None and self.failure is not None:
            raise self.failure

    @property
    def running(self) -> bool:
        """True if the server has not ended; it may be paused."""
        return self._thread.is_alive() and not self._killed

    @property
    def paused(self) -> bool:
        """True if the server stands still."""
        return self._go_on is not None

    def _run(self) -> None:
        try:
            with self._opened, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self.failure = error
        finally:
            self._made.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        node = Node(self._config, self._sockets, self._surroundings)
        self.node = node
        self._made.set()
        code = await node.run()
        if code and not self._killed:
            self.failure = ZraftTestError(f"server {self._config.id} failed: the log says why")

    def call(self, function: Callable[[Node], T]) -> T:
        """Return what `function` returns in the server's thread, between two turns.

        Raises:
            ZraftTestError: the server has ended, is paused, or its loop hangs.
        """
        node, loop = self.node, self._loop
        if not self.running or self.paused or node is None or loop is None:
            raise ZraftTestError(f"server {self._config.id} {'is paused' if self.paused else 'does not run'}")

        async def called() -> T:
            return function(node)

        try:
            return asyncio.run_coroutine_threadsafe(called(), loop).result(CALL_S)
        except TimeoutError as error:
            raise ZraftTestError(f"server {self._config.id} hangs") from error

    def pause(self) -> None:
        """Stop the server as SIGSTOP stops a process: it neither hears nor says anything, and its clock stands still.

        The kernel goes on accepting connections for it, and keeps what arrives.
        """
        if self.paused:
            return
        loop = self._loop
        if not self.running or loop is None:
            raise ZraftTestError(f"server {self._config.id} does not run")
        self._go_on = go_on = threading.Event()
        stands = threading.Event()

        def stand_still() -> None:
            stands.set()
            go_on.wait()
            if self._killed and self.node is not None:
                self.node.end()

        loop.call_soon_threadsafe(stand_still)
        if not stands.wait(CALL_S):
            raise ZraftTestError(f"server {self._config.id} hangs")

    def resume(self) -> None:
        """Let a paused server go on, as SIGCONT does."""
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on.set()

    def begin_kill(self) -> None:
        """Have the server end as SIGKILL ends a process; `join` waits until it has."""
        self._made.wait()
        self._killed = True
        loop, node = self._loop, self.node
        if self.paused:
            self.resume()
        elif loop is not None and node is not None:
            try:
                loop.call_soon_threadsafe(node.end)
            except RuntimeError:
                pass  # it has ended meanwhile

    def join(self) -> None:
        """Wait until the server has ended and closed its files.

        Raises:
            ZraftTestError: it hangs.
        """
        self._thread.join(CALL_S)
        if self._thread.is_alive():
            raise ZraftTestError(f"server {self._config.id} hangs")
