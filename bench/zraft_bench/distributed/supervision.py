"""Commands of the operator of a supervised benchmark, and how they are read from lines of text.

All of it is pure but for the terminal at the end of the file.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from enum import Enum
from typing import Final, Protocol

from attrs import frozen

HELP: Final = (
    "Enter or c: go on   r: repeat this test   n TEXT: note, kept with the test   s: status   "
    "b: break, keep what there is"
)


class Wish(Enum):
    """Commands that the operator may give."""

    GO_ON = "go on"
    REPEAT = "repeat"
    COMMENT = "comment"
    STATUS = "status"
    BREAK = "break"
    UNKNOWN = "unknown"


@frozen
class Said:
    """One line of the operator's. `text` is the comment, or what was not understood."""

    wish: Wish
    text: str = ""


_WORDS: Final = {
    "": Wish.GO_ON,
    **dict.fromkeys(("c", "continue", "go"), Wish.GO_ON),
    **dict.fromkeys(("r", "repeat"), Wish.REPEAT),
    **dict.fromkeys(("n", "note", "comment"), Wish.COMMENT),
    **dict.fromkeys(("s", "status"), Wish.STATUS),
    **dict.fromkeys(("b", "break", "q", "quit"), Wish.BREAK),
}


def understand(line: str) -> Said:
    """Return what a line says. Anything but the known words is `UNKNOWN`, never a guess."""
    word, _, rest = line.strip().partition(" ")
    wish = _WORDS.get(word.lower(), Wish.UNKNOWN)
    if wish is Wish.COMMENT:
        return Said(wish, rest.strip()) if rest.strip() else Said(Wish.UNKNOWN, line.strip())
    if rest or wish is Wish.UNKNOWN:
        return Said(Wish.UNKNOWN, line.strip())
    return Said(wish)


class Operator(Protocol):
    """The person who supervises."""

    async def says(self) -> Said:
        """Return the next line; `BREAK` at the end of input."""


class Terminal:
    """Lines of standard input. A thread waits for them, because a terminal cannot be asked without waiting."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Said] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="operator", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._tell(understand(line))
        self._tell(Said(Wish.BREAK, "end of input"))

    def _tell(self, said: Said) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lines.put_nowait, said)

    async def says(self) -> Said:
        """Return the next line, once there is one."""
        return await self._lines.get()
