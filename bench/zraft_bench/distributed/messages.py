"""Messages between head, servers and clients of a distributed benchmark, in the replicated dictionary.

Pure.

Every message is a frozen value under a key of its own; only its writer writes it. `docs/how-to/benchmarking.md` has
the sequence.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from zraft_bench.load.workload import Workload
from zraft_bench.results import Machine

PROTOCOL: Final = 1
DICTIONARY: Final = "zraft-bench"

RUN: Final = "run"
JOB: Final = "job"
END: Final = "end"


@frozen(kw_only=True)
class RunInfo:
    """Entry `run`, written by the head: the run that machines join."""

    run: str
    protocol: int = PROTOCOL
    servers: int
    clients: int


@frozen(kw_only=True)
class ServerClaim:
    """Entry `server/N`, written by a server's agent if no other agent has the number."""

    address: str
    machine: Machine


@frozen(kw_only=True)
class Membership:
    """Entry `member/N`, written by the head once the cluster knows server N: how to start it.

    `key` is the text of the key file, empty if the operator has it.
    """

    cluster: str
    key: str
    settings: tuple[str, ...] = ()


@frozen(kw_only=True)
class ClientClaim:
    """Entry `client/N`, written by a client machine's agent."""

    machine: Machine


@frozen(kw_only=True)
class Job:
    """Entry `job`, written by the head: the test to prepare."""

    name: str
    hosts: str
    place: str
    workload: Workload
    clients: tuple[int, ...]
    processes: int | None = None
    connections: int | None = None


@frozen(kw_only=True)
class Ready:
    """Entry `ready/JOB/N`, written by client N when it is connected and warmed up, or cannot be."""

    error: str = ""


@frozen(kw_only=True)
class Start:
    """Entry `start/JOB`, written by the head when every client is ready.

    A client begins `offset_s` after it saw the entry.
    """

    offset_s: float


@frozen(kw_only=True)
class Began:
    """Entry `began/JOB/N`, written by client N: its beginning on the head's clock."""

    head_s: float
    uncertainty_s: float


@frozen(kw_only=True)
class Ping:
    """Entry `ping/N`, written by client N to ask for the head's clock."""

    number: int


@frozen(kw_only=True)
class Pong:
    """Entry `pong/N`, written by the head: its clock when it saw ping `number`."""

    number: int
    head_s: float


@frozen(kw_only=True)
class Outcome:
    """Entry `outcome/JOB/N`, written by client N after its parts (`part/JOB/N/I`)."""

    parts: int = 0
    error: str = ""


@frozen(kw_only=True)
class Restart:
    """Entry `restart/N`, written by the head, and `restarted/N`, written by server N when it serves again."""

    generation: int
    error: str = ""


@frozen(kw_only=True)
class End:
    """Entry `end`, written by the head; each agent answers with `bye/…` and ends."""

    reason: str = field(default="finished")
