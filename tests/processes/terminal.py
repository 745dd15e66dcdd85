"""A program at a terminal: what it shows, without the escape sequences, and the keys it is sent."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Final

from tests.processes.cluster import DEADLINE_S, wait_until

ROWS_AND_COLUMNS: Final = (40, 200)
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_])|\r")


class Terminal:
    """Use as a context manager: leaving it ends the program."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *ROWS_AND_COLUMNS, 0, 0))
        # The first terminal that the leader of a session opens is the one whose Ctrl-C it gets.
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(slave), *command],
            env={**os.environ, **env, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
            start_new_session=True,
        )
        self._slave = slave
        self._raw = b""
        self._seen = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    @property
    def text(self) -> str:
        """All that was shown so far."""
        return _ESCAPE.sub("", self._raw.decode(errors="replace"))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, text: str) -> str:
        """Wait until `text` is shown, behind what was expected before; what came up to its end."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.text.find(text, self._seen)) < 0:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"waited in vain for {text!r}, shown is {self.text[self._seen :]!r}"
            if select.select([self._master], [], [], left_s)[0]:
                self._raw += os.read(self._master, 65_536)
        start, self._seen = self._seen, found + len(text)
        return self.text[start : self._seen]

    def wait_no_prompt(self) -> None:
        """Until the program has left the keys to the terminal, which turns Ctrl-C into a signal."""
        wait_until(lambda: bool(termios.tcgetattr(self._master)[3] & termios.ICANON), "the end of the prompt")
