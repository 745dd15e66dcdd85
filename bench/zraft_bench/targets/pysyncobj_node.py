"""One node of PySyncObj with a replicated dictionary, and a socket through which load reaches it.

PySyncObj has no protocol for clients: a program that uses it is a node itself. This one takes requests from a socket
(MessagePack arrays [number, key, value] to write, [number, key] to read; [number, error or nil] come back), so that the same
load generator can be used. Run as `python -m zraft_bench.targets.pysyncobj_node OWN,OTHER,… CLIENT_PORT JOURNAL`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgpack


class Node:
    """A node. Requests come on the loop's thread; PySyncObj has a thread of its own and calls back on that one."""

    def __init__(self, addresses: list[str], journal: str) -> None:
        # It is imported here, so that the module can be imported where PySyncObj is not installed.
        from pysyncobj import SyncObj, SyncObjConf
        from pysyncobj.batteries import ReplDict

        self._dict: Any = ReplDict()
        own, *others = addresses
        # Two settings are not PySyncObj's defaults: the time per round of its thread, without which a write
        # takes 0.2 s, and a journal.
        conf = SyncObjConf(
            appendEntriesUseBatch=True,
            autoTickPeriod=0.001,
            journalFile=journal,
            commandsQueueSize=1_000_000,
            fullDumpFile=journal + ".dump",
        )
        self._obj: Any = SyncObj(own, others, conf=conf, consumers=[self._dict])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends."""
        loop = asyncio.get_running_loop()
        unpacker = msgpack.Unpacker()

        def answer(number: int, error: str | None) -> None:
            if not writer.is_closing():
                writer.write(msgpack.packb([number, error]))

        while data := await reader.read(65_536):
            unpacker.feed(data)
            for number, key, *value in unpacker:
                if not value:
                    # A read is of this node's map, which may be old.
                    answer(number, None if key in self._dict.rawData() else "no such key")
                    continue

                def done(_: Any, error: int, number: int = number) -> None:
                    text = None if not error else f"PySyncObj's error {error}"
                    loop.call_soon_threadsafe(answer, number, text)

                self._dict.set(key, value[0], callback=done)
        writer.close()


async def main(addresses: list[str], port: int, journal: str) -> None:
    """Run a node until the process is ended."""
    node = Node(addresses, journal)
    server = await asyncio.start_server(node.serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3]))
