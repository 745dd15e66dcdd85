"""Stands in for `zraft serve` in the tests of the supervisor: a process that answers four-letter words.

Arguments: SERVER HOST:PORT BEHAVIOUR. `serve` answers ruok and srvr (server 1 leads) and obeys SIGTERM;
`standalone` the same alone; `die` exits with 3 after a last word; `deaf` ignores
SIGTERM but is as `serve` otherwise.
"""

from __future__ import annotations

import signal
import socket
import sys


def main(server: int, address: str, behaviour: str) -> None:
    if behaviour == "die":
        print(f"server {server}: the disk is on fire", flush=True)
        sys.exit(3)
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mode = "standalone" if behaviour == "standalone" else "leader" if server == 1 else "follower"
    answers = {b"ruok": b"imok", b"srvr": SRVR.replace(b"MODE", mode.encode())}
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listening:
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(answers.get(connection.recv(4), b""))


SRVR = b"""\
Zookeeper version: 3.9.5-zraft-0.1.0, built on 2026-08-01 12:00 UTC
Latency min/avg/max: 0/0.0/0
Received: 1
Sent: 0
Connections: 1
Outstanding: 0
Zxid: 0x100000007
Mode: MODE
Node count: 5
"""

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
