"""Surroundings of a server: its files, its ways to the other servers, the process that it runs in.

`zraft serve` runs a server in a process of its own, on real files. A server inside a test (`zraft.testing`) shares a
process, needs no durable files, and may be cut off from others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import field, frozen

from zraft.server.process.service_manager import ServiceManager
from zraft.storage.filesystem import FileSystem, RealFileSystem
from zraft.transport.udp import OnDatagrams, UdpEndpoint

OpenEndpoint = Callable[[socket.socket, asyncio.AbstractEventLoop, OnDatagrams], UdpEndpoint]
"""Takes over a bound socket, and reads datagrams from it."""

Dial = Callable[[Callable[[], asyncio.BaseProtocol], str, int], Awaitable[Any]]
"""Makes a TCP connection to a numeric address and a port for a protocol. Raises OSError: it cannot be made."""


async def dial(protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
    """Make a TCP connection.

    Raises:
        OSError: it cannot be made.
    """
    await asyncio.get_running_loop().create_connection(protocol, host, port)


@frozen(kw_only=True)
class Surroundings:
    """Surroundings of one server.

    Attributes:
        fs: the files of its data directory.
        endpoint: sends and receives datagrams between servers.
        dial: connects streams to other servers.
        manager: is told when the server is ready and when it stops; None if nobody asked for that.
        owns_process: the server is alone in its process, which is Python's main thread. So signals are its own, and so
            are Python's garbage collector and the memory that is given back.
    """

    fs: FileSystem = field(factory=RealFileSystem)
    endpoint: OpenEndpoint = UdpEndpoint
    dial: Dial = dial
    manager: ServiceManager | None = None
    owns_process: bool = True
