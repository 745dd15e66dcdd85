"""Runs the commands of one piece within its time, and ends all that they started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.long.pieces import Piece
from tests.long.record import Outcome, Result

REPOSITORY: Final = Path(__file__).parents[2]
GRACE_S: Final = 30.0
"""For a command to end its servers after SIGINT."""
INTERRUPTIBLE: Final = ("env", "--default-signal=INT")
"""What a shell runs in the background ignores SIGINT, and so would all that it starts."""
NO_TESTS: Final = 5
"""The exit code of pytest if nothing was selected."""
SAID_CHARACTERS_MAX: Final = 100
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def run_piece(piece: Piece, log: Path, bound_s: float, grace_s: float = GRACE_S) -> Outcome:
    """Run all commands of a piece; their output goes to `log`.

    A command that is not through when the piece's time is over is interrupted, and killed with its
    process group if that does not end it. The same happens if this process is interrupted.
    """
    began = time.monotonic()
    result = Result.OK
    with log.open("wb") as file:
        for command in piece.commands:
            file.write(f"$ {' '.join(command)}\n".encode())
            file.flush()
            # A group of its own: what it starts can be ended together.
            process = subprocess.Popen(
                (*INTERRUPTIBLE, *command),
                cwd=REPOSITORY,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(max(0.0, bound_s - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                result = Result.OUT_OF_TIME
                break
            finally:
                _end(process, grace_s)
            if code and not (code == NO_TESTS and piece.may_be_empty):
                result = Result.FAILED
    return Outcome(result, time.monotonic() - began, last_line(log))


def environment() -> dict[str, str]:
    """Ours, but byte code is kept (see tests/conftest.py) and nothing configures the servers."""
    ours = {"ZRAFT_IMAGES", "ZRAFT_COMPAT"}
    dropped = {name for name in os.environ if name.startswith("ZRAFT_")} - ours
    dropped |= {"PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a command, and whatever is left in its process group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # as a rule: nothing is left
        pass
    process.wait()


def last_line(log: Path) -> str:
    """The end of what a piece said: pytest's counts, or a simulator's verdict."""
    lines = _COLOURS.sub("", log.read_text(encoding="utf-8", errors="replace")).split("\n")
    said = [line.strip("= ") for line in lines if line.strip("= ")]
    return said[-1][:SAID_CHARACTERS_MAX].replace("|", "/") if said else ""
