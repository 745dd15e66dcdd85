"""Three servers with consoles, as `zraft dev` starts them: a port of clients, and one of the admin server 100 above it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from tests.processes.cluster import HOST, Cluster, free_ports
from zraft_core.address import Address

DISTANCE: Final = 100
TOKEN: Final = "a-token-of-tests-0123456789"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class ConsoleCluster(Cluster):
    """Servers to which one signs in with `TOKEN`."""

    def free_addresses(self, count: int) -> list[Address]:
        found: list[Address] = []
        while len(found) < count:
            (port,) = free_ports(1)
            address = Address(HOST, port)
            if _is_free(port + DISTANCE) and all(abs(port - one.port) not in (0, DISTANCE) for one in found):
                found.append(address)
        return found

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        return [*super().command(number, data=data), "--admin", str(self.admin(number))]

    def environment(self, hash_seed: int) -> dict[str, str]:
        return super().environment(hash_seed) | {"ZRAFT_ADMIN__CONSOLE_TOKEN": TOKEN}

    def admin(self, number: int) -> Address:
        address = self.servers[number].address
        return Address(address.host, address.port + DISTANCE)

    def page(self, number: int, after: str = "") -> str:
        return f"http://{self.admin(number)}/{after}"
