"""`zraft serve` with a state machine that errs once: run by tests, as `python diverging.py FILE serve …`.

While FILE exists, the next set of the znode `/wrong` stores other data than on all other servers, and FILE goes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from zraft.cli.main import main
from zraft.tree.machine import Machine
from zraft_core.znodes.txn import SET_DATA, Command


def err_once(flag: Path) -> None:
    """Let this process's state machine err while `flag` exists."""
    execute = Machine.execute

    def erring(self: Machine, command: Command) -> object:
        if command[0] == SET_DATA and command[1] == "/wrong" and flag.exists():
            flag.unlink()
            command = (*command[:2], b"otherwise", *command[3:])
        return execute(self, command)

    Machine.execute = erring  # type: ignore[method-assign]


if __name__ == "__main__":
    err_once(Path(sys.argv.pop(1)))
    main()
