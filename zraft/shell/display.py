"""Output of the shell: plain text for pipes, colours for terminals, JSON for programs."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

from zraft.shell.client import ClientNotice, StateNotice
from zraft.shell.conversation import Output, TextKind
from zraft.shell.render import visible
from zraft.shell.watches import WatchNotice

RESET: Final = "\x1b[0m"
RED: Final = "\x1b[31m"
GREEN: Final = "\x1b[32m"
YELLOW: Final = "\x1b[33m"
CYAN: Final = "\x1b[36m"
DIM: Final = "\x1b[2m"


class Stream(Protocol):
    """The part of a text stream that is needed."""

    def write(self, text: str, /) -> object:
        """Write a text."""

    def flush(self) -> object:
        """Write what is buffered."""


class Display:
    """Display on two streams that somebody else opened. Nothing is kept."""

    def __init__(
        self, out: Stream, err: Stream, *, json: bool = False, colours: bool = False, terminal: bool = False
    ) -> None:
        """Write to these.

        With `terminal`, characters that would steer it are shown as escapes; otherwise data is unchanged.
        """
        self._out = out
        self._err = err
        self._json = json
        self._colours = colours
        self._terminal = terminal
        self.shows_watches = True

    def show(self, output: Output) -> None:
        """Show a result; with `--json` its value, one line. A value of None shows nothing."""
        if self._json:
            if output.value is not None:
                self._write(self._out, json.dumps(output.value))
            return
        for kind, text in output.parts:
            self._write(self._out, self._painted(kind, visible(text) if self._terminal else text))

    def error(self, text: str) -> None:
        """Show an error on the other stream, so that a script's output holds results only."""
        self._write(self._err, self._coloured(RED, visible(text) if self._terminal else text))

    def notice(self, notice: ClientNotice) -> None:
        """Show watch events always, and changes of the connection only at a terminal."""
        match notice:
            case StateNotice():
                if self._terminal:
                    self._write(self._err, self._coloured(DIM, notice.text))
            case WatchNotice() if self.shows_watches:
                self._watch(notice)

    def _watch(self, notice: WatchNotice) -> None:
        if self._json:
            value: dict[str, Any] = {"type": notice.notice.name, "path": notice.path, "zxid": notice.zxid}
            self._write(self._out, json.dumps({"watch": value}))
            return
        path = visible(notice.path) if self._terminal else notice.path
        text = f"WatchedEvent state:SyncConnected type:{notice.notice.name} path:{path}"
        self._write(self._out, self._coloured(YELLOW, f"\nWATCHER::\n\n{text}"))

    def _painted(self, kind: TextKind, text: str) -> str:
        if not self._colours:
            return text
        match kind:
            case TextKind.STAT:
                lines = (line.partition(" = ") for line in text.split("\n"))
                return "\n".join(f"{CYAN}{name}{RESET}{equals}{value}" for name, equals, value in lines)
            case TextKind.NAMES:
                return f"{GREEN}{text}{RESET}"
            case TextKind.NOTE:
                return f"{DIM}{text}{RESET}"
            case TextKind.PLAIN:
                return text

    def _coloured(self, colour: str, text: str) -> str:
        return f"{colour}{text}{RESET}" if self._colours else text

    def _write(self, stream: Stream, text: str) -> None:
        stream.write(text + "\n")
        stream.flush()
