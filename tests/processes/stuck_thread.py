"""`zraft` with a thread that never ends, the one that loads the admin server: `python stuck_thread.py serve …`."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

from zraft.cli.main import main
from zraft.server.process import admin_listener

STUCK = "the thread is stuck"


def _wait_for_ever(name: str) -> ModuleType:
    print(STUCK, file=sys.stderr, flush=True)
    threading.Event().wait()
    raise AssertionError(name)


if __name__ == "__main__":
    admin_listener.load_module = _wait_for_ever
    main()
