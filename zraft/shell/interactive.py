"""The shell for a person: prompt, completion with Tab, history, Ctrl-C for a command, Ctrl-D for the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI

from zraft.shell.client import Client
from zraft.shell.completion import Children, complete
from zraft.shell.display import GREEN, RESET, Display
from zraft.shell.errors import ShellError, UsageError
from zraft.shell.history import LineHistory
from zraft.shell.session import ShellSession
from zraft_core.wire.client_requests import GetChildren

COMPLETION_TIMEOUT_S: Final = 2.0
"""Seconds; a server that takes longer to list children leaves the line unchanged."""


class LineCompleter(Completer):
    """Completer that asks the session's server for children when a path is to be completed."""

    def __init__(self, session: ShellSession) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        """Fail, since completion runs in the event loop."""
        raise AssertionError("completion runs in the event loop")

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield what may stand at the cursor; asks the server for children of a znode."""
        try:
            found = complete(document.text_before_cursor)
        except UsageError:  # a quote is open somewhere before
            return
        if isinstance(found, Children):
            candidates = found.candidates(await self._children(found.parent))
        else:
            candidates = found.candidates
        for candidate in candidates:
            yield Completion(candidate, start_position=-found.replaced)

    async def _children(self, path: str) -> tuple[str, ...]:
        client = self._session.client
        if client is None or client.server is None:
            return ()
        try:
            async with asyncio.timeout(COMPLETION_TIMEOUT_S):
                (reply,) = await client.ask([GetChildren(path)])
        except (TimeoutError, ShellError):
            return ()
        names: tuple[str, ...] = reply.value if not reply.code else ()
        return names


class Screen:
    """A stream for `Display` that writes above the prompt while one is shown, and plainly otherwise."""

    def __init__(self, stream: TextIO, prompt: PromptSession[str]) -> None:
        self._stream = stream
        self._prompt = prompt

    def write(self, text: str) -> None:
        """Write a text, above the prompt while one is shown."""
        if self._prompt.app.is_running:
            # It runs in this event loop, later; what is written meanwhile queues behind it.
            run_in_terminal(lambda: self._write(text))
        else:
            self._write(text)

    def flush(self) -> None:
        """Do nothing: everything is written at once."""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


async def interact(
    stream: TextIO,
    file: Path,
    *,
    colours: bool,
    json: bool,
    make_session: Callable[[Display], ShellSession],
) -> None:
    """Run from the first connection to quit or Ctrl-D; lines are kept in `file`."""
    history = LineHistory(file)
    prompt: PromptSession[str] = PromptSession(history=history, complete_while_typing=False)
    screen = Screen(stream, prompt)
    display = Display(screen, screen, json=json, colours=colours, terminal=True)
    session = make_session(display)
    prompt.completer = LineCompleter(session)
    session.on_state_change = prompt.app.invalidate

    def message() -> ANSI:
        text = session.prompt
        return ANSI(f"{GREEN}{text}{RESET}" if colours else text)

    session.open()
    interrupts = _Interrupts(prompt)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupts.interrupt)
    try:
        assert session.client is not None, "opened just now"
        await interrupts.guard(_first_connection(session.client, display), display)
        warned = False
        while not session.over:
            try:
                # Our own handler stays, so that there is no moment at which Ctrl-C ends the shell.
                line = await prompt.prompt_async(message, handle_sigint=False)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if history.failure is not None and not warned:
                display.error(f"{file}: no history is kept: {history.failure}")
                warned = True
            await interrupts.guard(session.run_line(line), display)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await session.close()


async def _first_connection(client: Client, display: Display) -> None:
    try:
        await client.wait_connected()
    except ShellError as error:
        display.error(f"{error}\nStill trying; `connect HOST:PORT` tries elsewhere, Ctrl-D ends.")


class _Interrupts:
    """Ctrl-C, and what it ends: the line being typed, or the command that runs; never the shell."""

    def __init__(self, prompt: PromptSession[str]) -> None:
        self._prompt = prompt
        self._running: asyncio.Task[object] | None = None

    def interrupt(self) -> None:
        if self._running is not None:
            self._running.cancel()
        elif self._prompt.app.is_running:
            self._prompt.app.key_processor.send_sigint()

    async def guard(self, work: Coroutine[Any, Any, object], display: Display) -> None:
        """Run `work` until it is done or interrupted."""
        self._running = asyncio.get_running_loop().create_task(work)
        try:
            await self._running
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            display.error("interrupted (what was sent already may be done or not)")
        finally:
            self._running = None
