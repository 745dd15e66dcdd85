"""`zraft serve`, of whose datagrams to other servers a share is lost after a switch is thrown: a path that loses, from its
sending end. What goes by streams is left alone, as TCP would repeat it.

    python -m tests.processes.lossy_server PERCENT SWITCH-FILE serve …
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from zraft.cli.main import main
from zraft.transport.udp import SocketAddress, UdpEndpoint

LOOKED_AT_EVERY = 100
"""Datagrams between two looks at the switch."""


class Loss:
    """Decides the fate of each datagram."""

    def __init__(self, percent: float, switch: Path) -> None:
        self._share = percent / 100
        self._switch = switch
        self._rng = random.Random(1)
        self._count = 0
        self._on = False

    def __call__(self) -> bool:
        self._count += 1
        if not self._on and self._count % LOOKED_AT_EVERY == 1:
            self._on = self._switch.exists()
        return self._on and self._rng.random() < self._share


def run() -> None:
    """Lose, and be a server."""
    loss = Loss(float(sys.argv[1]), Path(sys.argv[2]))
    send = UdpEndpoint.send

    def losing(self: UdpEndpoint, address: SocketAddress, datagram: bytes) -> None:
        if not loss():
            send(self, address, datagram)

    UdpEndpoint.send = losing  # type: ignore[method-assign]
    main(sys.argv[3:], prog_name="zraft")


if __name__ == "__main__":
    run()
