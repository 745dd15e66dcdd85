"""What a running server says about itself, asked from outside by ZooKeeper's four-letter words.

Used by `zraft status` and by `zraft dev` to see when its servers serve. Blocking, one connection per
question, because that is the whole protocol: four letters out, text in until the server closes.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Final

from attrs import frozen

from zraft.address import Address
from zraft.errors import ZraftError

ANSWER_BYTES_MAX: Final = 1_048_576
"""More than any word answers; what listens there may not be a server of ours at all."""

LEADING_MODES: Final = ("leader", "standalone")


class UnreachableError(ZraftError):
    """Nothing answers a four-letter word at that address in time."""

    retriable = True


@frozen
class ServerStatus:
    """What `srvr` said. `mode` is leader, follower or standalone; anything else is not serving."""

    version: str
    mode: str
    zxid: int
    node_count: int
    connections: int


def ask(address: Address, word: str, timeout_s: float) -> str:
    """The answer to one four-letter word. The timeout is for the whole exchange.

    Raises:
        UnreachableError: no connection, no complete answer in time, or an endless one.
    """
    deadline = time.monotonic() + timeout_s
    answer = bytearray()
    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s) as connection:
            connection.sendall(word.encode("ascii"))
            while len(answer) <= ANSWER_BYTES_MAX:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise UnreachableError(f"{address}: no complete answer to {word} within {timeout_s} s")
                connection.settimeout(left_s)
                chunk = connection.recv(65_536)
                if not chunk:
                    return answer.decode("utf-8", errors="replace")
                answer += chunk
    except OSError as error:
        raise UnreachableError(f"{address}: no answer to {word}: {error}") from error
    raise UnreachableError(f"{address}: more than {ANSWER_BYTES_MAX} bytes in answer to {word}")


_SRVR_FIELD: Final = re.compile(
    r"^(Zookeeper version|Connections|Zxid|Mode|Node count): *(\S[^\r\n]*)", re.MULTILINE
)


def parse_srvr(answer: str) -> ServerStatus | None:
    """The fields of a `srvr` answer; None if the server says that it is not serving, or is something else."""
    found = dict(_SRVR_FIELD.findall(answer))
    try:
        return ServerStatus(
            version=found["Zookeeper version"].partition(",")[0],
            mode=found["Mode"].strip(),
            zxid=int(found["Zxid"], 16),
            node_count=int(found["Node count"]),
            connections=int(found["Connections"]),
        )
    except (KeyError, ValueError):
        return None


def parse_mntr(answer: str) -> dict[str, str]:
    """`mntr` as value by name, without `zk_`; empty if the server does not serve, or refuses the word."""
    lines = (line.partition("\t") for line in answer.splitlines())
    return {name.removeprefix("zk_"): value for name, tab, value in lines if tab and name.startswith("zk_")}


def server_status(address: Address, timeout_s: float) -> ServerStatus | None:
    """Ask one server; None if it answers but does not serve.

    Raises:
        UnreachableError: see `ask`.
    """
    return parse_srvr(ask(address, "srvr", timeout_s))
