"""Assembly of the shell: for one command, for commands from a pipe, or for a person at a terminal."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from attrs import frozen

from zraft.shell.commands import Context
from zraft.shell.display import Display
from zraft.shell.errors import EXIT_OK, EXIT_USAGE, UsageError
from zraft.shell.session import WITHOUT_SESSION, ShellSession, ShellSettings
from zraft.shell.words import split

LINE_MAX: Final = 4_194_304
"""The most characters of one line from a pipe, above what a server accepts in one request."""

EXIT_INTERRUPTED: Final = 130


@frozen(kw_only=True)
class Manner:
    """Choices of how the shell behaves, apart from where it connects to."""

    json: bool = False
    ends_at_error: bool = False


def run_shell(settings: ShellSettings, words: Sequence[str], manner: Manner) -> int:
    """Run one command if there are `words`, otherwise lines of standard input; return the exit code.

    0: all commands succeeded; 1: a server refused or none was reached; 2: a line is no command. Of several
    failures the first decides. 130: interrupted.
    """
    interactive = not words and sys.stdin.isatty() and sys.stdout.isatty()
    try:
        if interactive:
            return asyncio.run(_interactive(settings, manner))
        for stream in (sys.stdout, sys.stderr):
            # A pipe gets exactly the bytes that a znode holds, text or not, whatever the locale.
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        display = Display(
            sys.stdout,
            sys.stderr,
            json=manner.json,
            colours=_colours(sys.stdout, os.environ),
            terminal=sys.stdout.isatty(),
        )
        session = ShellSession(settings, display, _context())
        return asyncio.run(_once(session, words) if words else _script(session, display, manner))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _context() -> Context:
    return Context(zone=None, read_file=_read_file)


def _read_file(path: str) -> str:
    """Read a file; raise UsageError if that fails."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as text: {error}") from error


def _colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to use colours; see https://no-color.org for NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


async def _once(session: ShellSession, words: Sequence[str]) -> int:
    if len(words) == 1 and " " in words[0].strip():
        words = split(words[0])  # the whole command as one argument
    if words and words[0] not in WITHOUT_SESSION:
        session.open()
    try:
        return await session.run_words(words)
    finally:
        await session.close()


async def _script(session: ShellSession, display: Display, manner: Manner) -> int:
    first_failure = EXIT_OK
    session.open()
    try:
        async for line in _lines(sys.stdin):
            if len(line) > LINE_MAX:
                display.error(f"a line of more than {LINE_MAX} characters, expected one command per line")
                return first_failure or EXIT_USAGE
            code = await session.run_line(line)
            first_failure = first_failure or code
            if session.over or (code and manner.ends_at_error):
                break
    finally:
        await session.close()
    return first_failure


async def _lines(stream: TextIO) -> AsyncIterator[str]:
    """Yield lines as they come, one at a time, while the event loop runs: pings are sent, watch events printed."""
    loop = asyncio.get_running_loop()
    wanted: queue.SimpleQueue[asyncio.Future[str]] = queue.SimpleQueue()

    def read() -> None:
        while True:
            future = wanted.get()
            line = stream.readline(LINE_MAX + 1)
            try:
                loop.call_soon_threadsafe(_deliver, future, line)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    # It is a daemon, because nothing can end a read from a pipe that stays open.
    threading.Thread(target=read, daemon=True, name="stdin").start()
    while True:
        future: asyncio.Future[str] = loop.create_future()
        wanted.put(future)
        line = await future
        if not line:
            return
        yield line


def _deliver(future: asyncio.Future[str], line: str) -> None:
    if not future.done():
        future.set_result(line)


async def _interactive(settings: ShellSettings, manner: Manner) -> int:
    from zraft.shell.history import history_file
    from zraft.shell.interactive import interact

    await interact(
        sys.stdout,
        history_file(os.environ),
        colours=_colours(sys.stdout, os.environ),
        json=manner.json,
        make_session=lambda display: ShellSession(settings, display, _context()),
    )
    return EXIT_OK
