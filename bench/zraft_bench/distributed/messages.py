"""What head, servers and clients of a distributed benchmark write for each other in the replicated dictionary. Pure.

Every message is a frozen value under a key of its own; only its writer writes it. `docs/BENCHMARKING.md` has
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
    """Under `run`, by the head: machines that join learn what they joined."""

    run: str
    protocol: int = PROTOCOL
    servers: int
    clients: int


@frozen(kw_only=True)
class ServerClaim:
    """Under `server/N`, by the server's agent, if no other one has the number."""

    address: str
    machine: Machine


@frozen(kw_only=True)
class Membership:
    """Under `member/N`, by the head, once the cluster knows server N: how to start it.

    `key` is the text of the key file, empty if the operator has it.
    """

    cluster: str
    key: str
    settings: tuple[str, ...] = ()


@frozen(kw_only=True)
class ClientClaim:
    """Under `client/N`, by the client machine's agent."""

    machine: Machine


@frozen(kw_only=True)
class Job:
    """Under `job`, by the head: the test to prepare."""

    name: str
    hosts: str
    place: str
    workload: Workload
    clients: tuple[int, ...]
    processes: int | None = None
    connections: int | None = None


@frozen(kw_only=True)
class Ready:
    """Under `ready/JOB/N`, by client N: connected and warmed up, or why not."""

    error: str = ""


@frozen(kw_only=True)
class Start:
    """Under `start/JOB`, by the head, after every client was ready: begin so long after you saw this."""

    offset_s: float


@frozen(kw_only=True)
class Began:
    """Under `began/JOB/N`, by client N: when it began, on the head's clock, within the uncertainty."""

    head_s: float
    uncertainty_s: float


@frozen(kw_only=True)
class Ping:
    """Under `ping/N`, by client N."""

    number: int


@frozen(kw_only=True)
class Pong:
    """Under `pong/N`, by the head: its clock when it saw ping `number`."""

    number: int
    head_s: float


@frozen(kw_only=True)
class Outcome:
    """Under `outcome/JOB/N`, by client N, after its parts (`part/JOB/N/I`): how many parts there are, or what failed."""

    parts: int = 0
    error: str = ""


@frozen(kw_only=True)
class Restart:
    """Under `restart/N` by the head, and under `restarted/N` by server N when it serves again."""

    generation: int
    error: str = ""


@frozen(kw_only=True)
class End:
    """Under `end`, by the head; each agent answers with `bye/…` and leaves."""

    reason: str = field(default="finished")
