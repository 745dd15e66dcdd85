"""Measures one attack: what another client felt, what memory the attacked server took and gave back, and who leads."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import Final

from attrs import frozen

from tests.hostile.besieged import WITNESSED, Besieged
from tests.hostile.horde import Horde
from tests.hostile.witness import Witness
from zraft_core.address import Address

SAMPLE_S: Final = 0.02
BACK_S_MAX: Final = 30.0
BACK_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may be left of an attack's memory half a minute after its end."""

HEALTH_S_MAX: Final = 5.0


@frozen
class Report:
    """What one attack did.

    Attributes:
        name: of the attack.
        answers: how many answers the well-behaved client got meanwhile.
        stall_s: the longest that one of its requests took.
        lost: how often it lost its connection.
        growth: bytes that the attacked server grew by at most, over what it had before.
        stored: bytes of paths and data that the attack added to the tree, which stay as anybody's do.
        left: bytes that it had more than before `back_s` after the attack, without what was stored.
        back_s: when its memory was within `BACK_BYTES_MAX` again, at most `BACK_S_MAX`.
        kept: whether the attacked leader still leads, in the same term.
    """

    name: str
    answers: int
    stall_s: float
    lost: int
    growth: int
    stored: int
    left: int
    back_s: float
    kept: bool

    def __str__(self) -> str:
        return (
            f"{self.name:<40} stall {self.stall_s:6.2f} s  growth {self.growth / 2**20:7.1f} MiB  "
            f"stored {self.stored / 2**20:5.1f} MiB  left {self.left / 2**20:6.1f} MiB after {self.back_s:4.1f} s  "
            f"leadership {'kept' if self.kept else 'LOST'}  answers {self.answers}, connections lost {self.lost}"
        )


class _Sampler:
    """The largest resident memory of one server while the context is open."""

    def __init__(self, resident_bytes: Callable[[], int]) -> None:
        self._resident_bytes = resident_bytes
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.peak = 0

    def _run(self) -> None:
        while not self._ends.wait(SAMPLE_S):
            self.peak = max(self.peak, self._resident_bytes())

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self.peak = max(self.peak, self._resident_bytes())


@frozen
class Target:
    """Where an attack goes: the leader's ports.

    Attributes:
        cluster: of the attacked server.
        number: its number.
        seconds: how long the attack shall last.
    """

    cluster: Besieged
    number: int
    seconds: float

    @property
    def address(self) -> Address:
        return self.cluster.servers[self.number].address

    @property
    def admin(self) -> Address:
        return self.cluster.admin[self.number]

    def horde(self, count: int) -> Horde:
        """So many connections to the port of clients."""
        return Horde(self.address, count)

    def health(self, path: str = "/livez") -> tuple[int, float]:
        """Ask the admin server, as a health check does: (HTTP status, 0 if there is no answer; seconds that it took)."""
        began = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=HEALTH_S_MAX) as answer:
                return answer.status, time.monotonic() - began
        except urllib.error.HTTPError as error:
            with error:
                return error.code, time.monotonic() - began
        except OSError:
            return 0, time.monotonic() - began


class Siege:
    """One cluster and its witness, for attacks one after the other. Use as a context manager."""

    def __init__(self, cluster: Besieged) -> None:
        self.cluster = cluster
        self.reports: list[Report] = []
        self._witness: Witness | None = None

    def __enter__(self) -> Siege:
        return self

    def __exit__(self, *_: object) -> None:
        if self._witness is not None:
            self._witness.__exit__()

    def measure(self, name: str, attack: Callable[[Target], None], seconds: float) -> Report:
        """Run the attack on the leader, and wait until the server's memory is back, for half a minute at most."""
        cluster = self.cluster
        leader = cluster.wait_ready()
        witness = self._witness_of(leader)
        term = cluster.term(leader)
        idle = cluster.resident_bytes(leader)
        data_bytes = self._data_bytes(leader)
        witness.observed()
        with _Sampler(lambda: cluster.resident_bytes(leader)) as sampler:
            attack(Target(cluster, leader, seconds))
        observed = witness.observed()
        ended = time.monotonic()
        stored = max(0, self._data_bytes(leader) - data_bytes)
        idle += stored
        while (left := cluster.resident_bytes(leader) - idle) > BACK_BYTES_MAX and (
            time.monotonic() - ended < BACK_S_MAX
        ):
            time.sleep(SAMPLE_S)
        back_s = time.monotonic() - ended
        kept = cluster.wait_ready() == leader and cluster.term(leader) == term
        report = Report(
            name,
            observed.answers,
            observed.stall_s,
            observed.lost,
            sampler.peak - idle + stored,
            stored,
            left,
            back_s,
            kept,
        )
        self.reports.append(report)
        print(f"\n{report}", flush=True)
        return report

    def _data_bytes(self, leader: int) -> int:
        """What the tree of znodes holds, once the server has time to say so."""
        while (found := self.cluster.mntr(leader)) is None:
            time.sleep(SAMPLE_S)
        return int(found["approximate_data_size"])

    def _witness_of(self, leader: int) -> Witness:
        """A client of the server that leads now."""
        address = self.cluster.servers[leader].address
        if self._witness is None or self._witness.address != address:
            if self._witness is not None:
                self._witness.__exit__()
            self._witness = Witness(address, WITNESSED)
        return self._witness
