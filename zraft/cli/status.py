"""Questions to a running server, by ZooKeeper's four-letter words.

`zraft status` uses it, and `zraft dev` to see when its servers serve. It blocks and makes one connection per
question, because that is the whole protocol: four letters out, text in until the server closes.

TLS is imported where it is used, because `zraft dev` imports this before it starts its servers.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from zraft_core.address import Address
from zraft_core.errors import ConfigError, ZraftError

if TYPE_CHECKING:
    import ssl

ANSWER_BYTES_MAX: Final = 1_048_576
"""More than any word answers; another program than a server of ours may listen there."""

LEADING_MODES: Final = ("leader", "standalone")


class UnreachableError(ZraftError):
    """Error of a server that does not answer a four-letter word in time."""

    retriable = True


class UnansweredError(UnreachableError):
    """Error of a server that closed the connection without an answer.

    It refuses the connection, as it has too many of this address or in total, or it speaks TLS only.
    """


class NeedsTlsError(UnreachableError):
    """The listener speaks TLS, and closes connections that do not."""


@frozen
class ServerStatus:
    """The answer to `srvr`. `mode` is leader, follower or standalone; with anything else it does not serve."""

    version: str
    mode: str
    zxid: int
    node_count: int
    connections: int


def tls_context(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return the context for `ask` with servers that speak TLS.

    It has the authorities to trust, and a client's certificate if the servers want one.

    Raises:
        ConfigError: a file cannot be used.
    """
    import ssl

    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-ca: cannot use {ca}: {error}") from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=b"")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"--tls-certificate: cannot use {certificate} with key {key or certificate}: {error}"
            ) from error
    return context


def ask(address: Address, word: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> str:
    """Return the answer to one four-letter word, over TLS if `tls` is given. The timeout is for the whole exchange.

    An answer is never empty.

    Raises:
        UnansweredError: the server closed the connection without an answer.
        UnreachableError: no connection, no complete answer in time, or an endless one.
    """
    deadline = time.monotonic() + timeout_s
    answer = bytearray()
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(
                socket.create_connection((address.host, address.port), timeout=timeout_s)
            )
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=address.host))
            connection.sendall(word.encode("ascii"))
            while len(answer) <= ANSWER_BYTES_MAX:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise UnreachableError(f"{address}: no complete answer to {word} within {timeout_s} s")
                connection.settimeout(left_s)
                chunk = connection.recv(65_536)
                if not chunk:
                    break
                answer += chunk
            else:
                raise UnreachableError(f"{address}: more than {ANSWER_BYTES_MAX} bytes in answer to {word}")
    except (ConnectionResetError, BrokenPipeError) as error:
        if not answer:
            raise _unanswered(address, word) from error
        raise UnreachableError(f"{address}: no complete answer to {word}: {error}") from error
    except OSError as error:
        raise UnreachableError(f"{address}: no answer to {word}: {error}") from error
    if not answer:
        # Whether the end or a reset is seen depends on what came first, the word or the refusal.
        raise _unanswered(address, word)
    return answer.decode("utf-8", errors="replace")


def _unanswered(address: Address, word: str) -> UnansweredError:
    return UnansweredError(f"{address}: closed the connection without an answer to {word}")


def speaks_tls(address: Address, timeout_s: float) -> bool:
    """Return whether the listener answers the beginning of a TLS handshake, with whatever certificate."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s) as connection:
            connection.sendall(outgoing.read())
            return connection.recv(1) in _TLS_RECORDS
    except OSError:
        return False


_TLS_RECORDS: Final = (b"\x15", b"\x16")
"""The beginnings of a server's first words: an alert, or its part of the handshake."""

_SRVR_FIELD: Final = re.compile(
    r"^(Zookeeper version|Connections|Zxid|Mode|Node count): *(\S[^\r\n]*)", re.MULTILINE
)


def parse_srvr(answer: str) -> ServerStatus | None:
    """Return the fields of a `srvr` answer; None if the server says that it is not serving, or is something else."""
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
    """Return `mntr` as value by name, without `zk_`; empty if the server does not serve, or refuses the word."""
    lines = (line.partition("\t") for line in answer.splitlines())
    return {name.removeprefix("zk_"): value for name, tab, value in lines if tab and name.startswith("zk_")}


@frozen
class Problem:
    """A partition that does not take or does not deliver messages; `for_ms` since when, as far as that is known."""

    topic: str
    partition: int
    kind: str
    reason: str
    for_ms: int | None


def parse_problems(answers: Iterable[Mapping[str, str]]) -> list[Problem]:
    """Return the partitions in trouble that servers name in `mntr`, by topic and number.

    Several servers may tell of one partition: of each kind of trouble, the one that has had it for longest counts.
    """
    found: dict[tuple[str, int], dict[str, Problem]] = {}
    for answer in answers:
        for problem in _problems(answer.get("topic_partition_problems", "")):
            kinds = found.setdefault((problem.topic, problem.partition), {})
            known = kinds.get(problem.kind)
            if known is None or (problem.for_ms or 0) > (known.for_ms or 0):
                kinds[problem.kind] = problem
    rows = []
    for place in sorted(found):
        kinds = found[place]
        if "no_majority" in kinds:
            kinds.pop("no_leader", None)
        rows += [kinds[kind] for kind in sorted(kinds)]
    return rows


def _problems(text: str) -> Iterator[Problem]:
    """Yield what one server names; nothing if that is not understood, because another release may say it otherwise."""
    try:
        rows = json.loads(text) if text else []
    except ValueError:
        return
    for row in rows if isinstance(rows, list) else ():
        match row:
            case {
                "topic": str(topic),
                "partition": int(partition),
                "kind": str(kind),
                "reason": str(reason),
                "for_ms": (int() | None) as for_ms,
            }:
                yield Problem(topic, partition, kind, reason, for_ms)


def problems_left_out(answers: Iterable[Mapping[str, str]]) -> int:
    """Return how many partitions in trouble the servers count that they do not name, at least."""
    left = 0
    for answer in answers:
        total = answer.get("topic_partitions_in_trouble", "")
        if total.isascii() and total.isdigit():
            named = sum(1 for _ in _problems(answer.get("topic_partition_problems", "")))
            left = max(left, int(total) - named)
    return left


def server_status(
    address: Address, timeout_s: float, tls: ssl.SSLContext | None = None
) -> ServerStatus | None:
    """Ask one server; return None if it answers but does not serve.

    Raises:
        NeedsTlsError: it answers over TLS only, and `tls` is None.
        UnreachableError: see `ask`.
    """
    try:
        return parse_srvr(ask(address, "srvr", timeout_s, tls))
    except UnansweredError:
        if tls is not None or not speaks_tls(address, timeout_s):
            raise
        raise NeedsTlsError(
            f"{address}: answers over TLS only; name whom to trust with --tls-ca FILE"
        ) from None


def sole_leader(addresses: Mapping[int, Address], timeout_s: float) -> int | None:
    """Return the leader, if all of these serve and exactly one of them leads; otherwise None.

    It is None, too, if one is out of reach.
    """
    leaders = []
    for number, address in addresses.items():
        try:
            status = server_status(address, timeout_s)
        except UnreachableError:
            return None
        if status is None or status.mode not in (*LEADING_MODES, "follower"):
            return None
        if status.mode in LEADING_MODES:
            leaders.append(number)
    return leaders[0] if len(leaders) == 1 else None
