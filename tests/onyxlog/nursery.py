"""Starts `onyxlog peer` processes by forking one that has imported everything: fifty interpreters start in a second.

    python -m tests.onyxlog.nursery

Reads a line of JSON for each process: {"arguments": […], "log": FILE, "directory": DIR}; answers with its id. Each is
a process of its own, with its own sockets, session and event loop, as if started by itself. Ends when its input does.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Final

PRELOADED: Final = (
    "uvloop",
    "zraft.program.logs",
    "onyxlog.main",
    "onyxlog.running",
    "onyxlog.peer.fleet",
    "onyxlog.peer.log.native",
    "onyxlog.peer.idle_runner",
)
"""What the command imports when it runs: it takes each child most of a second to do that by itself."""


def preload() -> None:
    for module in PRELOADED:
        importlib.import_module(module)


def become_peer(arguments: Sequence[str], log: str, directory: str) -> None:
    """In the child: what the command does, and its exit code."""
    from onyxlog.main import main as onyxlog

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(directory)
    onyxlog(["peer", *arguments], prog_name="onyxlog")


def main() -> None:
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                become_peer(wanted["arguments"], wanted["log"], wanted["directory"])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
