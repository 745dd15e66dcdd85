"""The cluster that is attacked: three servers with TLS and admin HTTP, and znodes that are large enough to ask for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.certificates import Authority
from tests.processes.cluster import DEADLINE_S, HOST, Cluster, free_ports
from tests.processes.quiet import QuietClient
from zraft_client import Client
from zraft_client.topics import Topics
from zraft_core.address import Address
from zraft_core.znodes.txn import CREATE, MULTI

LARGE: Final = "/hostile/large"
LARGE_BYTES: Final = 900_000
DIRECTORY: Final = "/hostile/directory"
CHILDREN: Final = 40_000
"""With names of twenty bytes their list is just below client.reply_bytes_max."""
WATCHED: Final = "/hostile/watched"
LOG: Final = "/hostile/log"
WITNESSED: Final = "/hostile/witnessed"

CREATES_AT_ONCE: Final = 2_000

TOPIC: Final = "hostile"
MESSAGES: Final = 16
MESSAGE_BYTES: Final = 500_000


class Besieged(Cluster):
    """Servers with TLS on the port of clients, and an admin HTTP server each."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        certificate, key = authority.issue().write(directory, "server")
        self.ca = authority.write(directory)
        self.admin: dict[int, Address] = {}
        self.partition = 0
        """The group of a partition with some large messages."""
        super().__init__(
            directory,
            env={
                "ZRAFT_TLS__CERTIFICATE": str(certificate),
                "ZRAFT_TLS__KEY": str(key),
                "ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*",
            },
        )

    def _place(self, count: int) -> None:
        super()._place(count)
        self.admin = {n: Address(HOST, port) for n, port in zip(self.servers, free_ports(count), strict=True)}

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        return [*super().command(number, data=data), "--admin", str(self.admin[number])]

    def term(self, number: int) -> int:
        """The term that server `number` is in."""
        shown = self.mntr(number)
        assert shown is not None, f"server {number} does not answer"
        return int(shown["raft_term"])

    def furnish(self) -> None:
        """Create what the attacks ask for."""
        leader = self.wait_ready()
        with QuietClient(self.servers[leader].address, timeout_ms=40_000) as client:
            for path, data in (
                ("/hostile", b""),
                (LARGE, bytes(LARGE_BYTES)),
                (DIRECTORY, b""),
                (WATCHED, b""),
                (LOG, b""),
            ):
                client.write((CREATE, path, data, None, 0, -1))
            for first in range(0, CHILDREN, CREATES_AT_ONCE):
                creates = [
                    (CREATE, f"{DIRECTORY}/{n:020}", b"", None, 0, -1)
                    for n in range(first, first + CREATES_AT_ONCE)
                ]
                client.write((MULTI, creates))
        asyncio.run(self._produce())
        self.wait_equal_digests()

    async def _produce(self) -> None:
        """More than is kept in memory of a partition."""
        async with Client(self.hosts(), timeout_s=DEADLINE_S) as client, Topics(client) as topics:
            topic = await topics.create(TOPIC, 1)
            self.partition = topic.partitions[0]
            async with topics.producer() as producer:
                for _ in range(MESSAGES):
                    await producer.send((TOPIC, 0), bytes(MESSAGE_BYTES))
