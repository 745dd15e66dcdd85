"""Unmodified kazoo clients that remember what became of their sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import WriterNotClosedException

from tests.processes.cluster import DEADLINE_S, Cluster

RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}


class Sessions:
    """All clients of one test; `lost` names those whose session ended against their will."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clients: dict[KazooClient, Callable[[str], None]] = {}
        self._mutex = threading.Lock()
        self.lost: list[str] = []

    def open(
        self,
        *,
        first: int | None = None,
        only: int | None = None,
        timeout_s: float = 10.0,
        name: str = "client",
    ) -> KazooClient:
        """A connected client that prefers server `first`, or knows no server but `only`."""
        client = KazooClient(
            hosts=self._cluster.hosts(first) if only is None else str(self._cluster.servers[only].address),
            timeout=timeout_s,
            randomize_hosts=False,
            connection_retry=RETRY,
            command_retry=RETRY,
        )

        def listen(state: str) -> None:
            if state == KazooState.LOST:
                with self._mutex:
                    self.lost.append(f"{name}: session {client.client_id}")

        client.add_listener(listen)
        self._clients[client] = listen
        client.start(timeout=DEADLINE_S)
        return client

    @contextmanager
    def reading(self, server: int) -> Iterator[KazooClient]:
        """A client of this very server that sees all that was committed before."""
        client = self.open(only=server, name=f"reader of server {server}")
        client.retry(client.sync, "/")
        yield client
        self.close_one(client)

    def close_one(self, client: KazooClient) -> None:
        """End this client and its session."""
        client.remove_listener(self._clients.pop(client))
        try:
            client.stop()
        except WriterNotClosedException:
            # No server was left to answer the close; the client's thread ends with the process.
            return
        client.close()

    def close(self) -> None:
        """End all clients, also if no server is left."""
        for client in list(self._clients):
            self.close_one(client)
