"""`zraft serve` with state machines that err, or are slow: run by tests, as `python erring_server.py FILE serve …`.

While FILE exists, the next set of the znode `/wrong` stores what FILE holds instead of what all other servers store, or
the next delivery of a partition has it as its payload, and FILE goes; and each set of `/slow` takes `SLOW_S`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from zraft.cli.main import main
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.values import StoredDelivery
from zraft.tree.machine import Machine
from zraft_core.znodes.txn import SET_DATA, Command

SLOW_S: Final = 0.01
SPECIAL: Final = ("/wrong", "/slow")


def err_while(flag: Path) -> None:
    """Let this process's state machines err while `flag` exists."""
    execute, execute_ordinary, append = Machine.execute, Machine.execute_ordinary, DeliveryLog.append

    def erring(self: Machine, command: Command) -> object:
        if command[0] == SET_DATA and command[1] == "/wrong" and flag.exists():
            command = (*command[:2], flag.read_bytes(), *command[3:])
            flag.unlink()
        elif command[0] == SET_DATA and command[1] == "/slow" and flag.exists():
            time.sleep(SLOW_S)
        return execute(self, command)

    def ordinary(self: Machine, commands: Sequence[Command], at: int, results: list[Any] | None) -> int:
        """Leave the special commands to `erring`: a run ends before the first of them."""
        for end in range(at, len(commands)):
            if commands[end][0] == SET_DATA and commands[end][1] in SPECIAL:
                commands = commands[:end]
                break
        return execute_ordinary(self, commands, at, results) if at < len(commands) else 0

    def delivering(self: DeliveryLog, deliveries: Sequence[StoredDelivery], index: int) -> None:
        if deliveries and flag.exists():
            deliveries = [evolve(deliveries[0], payload=flag.read_bytes()), *deliveries[1:]]
            flag.unlink()
        append(self, deliveries, index)

    Machine.execute = erring  # type: ignore[method-assign]
    Machine.execute_ordinary = ordinary  # type: ignore[method-assign]
    DeliveryLog.append = delivering  # type: ignore[method-assign]


if __name__ == "__main__":
    err_while(Path(sys.argv.pop(1)))
    main()
