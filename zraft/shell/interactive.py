"""The shell before a person: prompt, completion with Tab, history, Ctrl-C for a command, Ctrl-D for the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.patch_stdout import StdoutProxy

from zraft.shell.completion import Children, complete
from zraft.shell.display import GREEN, RESET, Display
from zraft.shell.errors import NotConnectedError, UsageError
from zraft.shell.history import LineHistory
from zraft.shell.session import Session
from zraft.wire.client_requests import GetChildren

COMPLETION_TIMEOUT_S: Final = 2.0
"""A server that takes longer to list children leaves the line as it is."""


class LineCompleter(Completer):
    """Asks the session's server for children when a path is to be completed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        raise AssertionError("completion runs in the event loop")

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
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
        except (TimeoutError, NotConnectedError):
            return ()
        names: tuple[str, ...] = reply.value if not reply.code else ()
        return names


async def interact(
    session: Session, out: StdoutProxy, display: Display, file: Path, *, colours: bool
) -> None:
    """Until quit or Ctrl-D. `out` prints above the prompt while one is shown; `display` writes to it."""
    history = LineHistory(file)
    prompt: PromptSession[str] = PromptSession(
        history=history, completer=LineCompleter(session), complete_while_typing=False
    )
    session.on_state_change = prompt.app.invalidate

    def message() -> ANSI:
        text = session.prompt
        return ANSI(f"{GREEN}{text}{RESET}" if colours else text)

    warned = False
    while not session.over:
        try:
            line = await prompt.prompt_async(message)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if history.failure is not None and not warned:
            display.error(f"{file}: no history is kept: {history.failure}")
            warned = True
        await _run(session, line, display)


async def _run(session: Session, line: str, display: Display) -> None:
    """One line; Ctrl-C ends it and not the shell."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(session.run_line(line))
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        display.error("interrupted (what was sent already may be done or not)")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
