"""The lines of earlier shells, in a file of the user's that nobody else can read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

from zraft.program.state_directory import state_directory

LINES_MAX: Final = 10_000
"""Lines kept in the file; beyond twice as many its older half is removed."""


def history_file(environ: Mapping[str, str]) -> Path:
    """Return `zraft/shell_history` in XDG's directory for state."""
    return state_directory(environ) / "shell_history"


class LineHistory(History):
    """A history with one line per command.

    Lines with a password (addauth) are kept until the shell ends, never written.

    A file that cannot be read or written costs the history and nothing else.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self.failure: OSError | None = None
        """Why there is no history in the file, if so."""

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines, latest first."""
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
            if len(lines) > 2 * LINES_MAX:
                lines = lines[-LINES_MAX:]
                self._replace(lines)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.failure = error
            return []
        return reversed(lines)

    def store_string(self, string: str) -> None:
        """Append a line to the file, unless it holds a secret."""
        line = " ".join(string.splitlines()).strip()
        if not line or line.split(maxsplit=1)[0] == "addauth":
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It appends: two shells at once mix their lines, and neither loses any.
            with open(self._file, "a", encoding="utf-8", errors="replace", opener=_private) as file:
                file.write(line + "\n")
        except OSError as error:
            self.failure = error

    def _replace(self, lines: list[str]) -> None:
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with open(new, "w", encoding="utf-8", opener=_private) as file:
            file.writelines(f"{line}\n" for line in lines)
        new.replace(self._file)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
