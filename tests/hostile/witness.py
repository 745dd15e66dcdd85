"""A well-behaved client in a process of its own: it measures how long answers take while somebody else attacks its server.

`python -m tests.hostile.witness HOST:PORT PATH` writes to PATH and reads it again, a hundred times a second, over one
ordinary ZooKeeper connection, and reconnects if it must. For each line on its standard input it prints what it has felt
since the last one: an `Observed` as JSON.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from attrs import asdict, define, frozen

from tests.processes.quiet import QuietClient
from zraft_core.address import Address, parse_address
from zraft_core.wire.client import Reply
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CREATE, SET_DATA

PAUSE_S: Final = 0.01
ANSWER_S_MAX: Final = 60.0
"""An answer that does not come within this time counts as this long, and ends the connection."""

DATA: Final = b"a hundred bytes, as most znodes have: " + b"." * 62


@frozen
class Observed:
    """What a well-behaved client felt for a while.

    Attributes:
        answers: how many it got.
        stall_s: the longest time that one request took, lost connections and repetitions included.
        lost: how often it had to connect again.
    """

    answers: int
    stall_s: float
    lost: int


@define
class _Client:
    address: Address
    path: str
    lost: int = 0
    connection: QuietClient | None = None

    def operate(self, number: int) -> float:
        """One write, or one read, until it is answered; how long that took."""
        began = time.monotonic()
        while True:
            try:
                connection = self.connection or self._connect()
                reply = (
                    connection.write((SET_DATA, self.path, DATA, -1))
                    if number % 2
                    else connection.read(Opcode.GET_DATA, self.path)
                )
            except (OSError, AssertionError):
                # An assertion of the client is an answer that never came: the server closed the connection.
                self.lost += 1
                if self.connection is not None:
                    self.connection.socket.close()
                self.connection = None
                if time.monotonic() - began > ANSWER_S_MAX:
                    return time.monotonic() - began
                time.sleep(PAUSE_S)
            else:
                assert isinstance(reply, Reply), f"found {reply}"
                return time.monotonic() - began

    def _connect(self) -> QuietClient:
        connection = QuietClient(self.address, timeout_ms=40_000)
        connection.socket.settimeout(ANSWER_S_MAX)
        with suppress(AssertionError):  # it is there already
            connection.write((CREATE, self.path, DATA, None, 0, -1))
        self.connection = connection
        return connection


def main() -> None:
    """Work until standard input ends."""
    client = _Client(parse_address(sys.argv[1], "address"), sys.argv[2])
    client.operate(0)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def take_orders() -> None:
        for line in sys.stdin:
            orders.put(line.strip())

    reader = threading.Thread(target=take_orders, daemon=True)
    reader.start()
    print("ready", flush=True)
    answers = 0
    stall_s = 0.0
    while reader.is_alive() or not orders.empty():
        while not orders.empty():
            orders.get()
            print(json.dumps(asdict(Observed(answers, stall_s, client.lost))), flush=True)
            answers = client.lost = 0
            stall_s = 0.0
        stall_s = max(stall_s, client.operate(answers))
        answers += 1
        time.sleep(PAUSE_S)


class Witness:
    """The process, from outside. Use as a context manager."""

    def __init__(self, address: Address, path: str) -> None:
        self.address = address
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.witness", str(address), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready", "the witness did not get its first answer"

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def observed(self) -> Observed:
        """What was observed since the last call, the request that is under way included."""
        assert self._process.stdin is not None
        self._process.stdin.write("report\n")
        self._process.stdin.flush()
        return Observed(**json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the witness has ended, see above"
        return line.strip()


if __name__ == "__main__":
    main()
