"""Results of measurements, and how parts of processes and machines become one result.

Pure.

A test that failed is a result, too: it keeps what it measured until then; `state` and `reason` tell the
failure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from attrs import evolve, field, frozen

from zraft_bench.gossip.results import GossipResults
from zraft_bench.load.histogram import Histogram, Summary
from zraft_bench.load.workload import Operation, Workload
from zraft_bench.multicast.results import MulticastResults

FORMAT: Final = 1
OK: Final = "ok"
FAILED: Final = "failed"

_WRITE_SHARES: Final = {
    Operation.WRITE: 1.0,
    Operation.CREATE_SEQUENTIAL: 1.0,
    Operation.READ: 0.0,
    Operation.VISIT: 0.0,
}

GENERATOR_BUSY: Final = 0.85
"""A load process that used more of a core than this measured, in part, itself."""

FAILURES_KEPT: Final = 10


@frozen(kw_only=True)
class Part:
    """Measurements of one process of a load generator.

    Times are seconds on its machine's monotonic clock.

    Attributes:
        acknowledged: requests the cluster answered with success, as the clients saw it.
        failed, unknown: refused or timed out before being taken; without an answer that says whether it happened.
        not_asked: requests that were never sent, because the time was over by more than a deadline.
        failures: how often which error was met, the most frequent ones.
        began_s, ended_s: of the measured time, from the first request that was sent to the last answer.
        rounds_s: durations of the rounds.
        latencies: closed loop: from sending to the answer; open loop: from when the request was due.
        service: open loop only: from sending to the answer.
        late_s_max: open loop only: how much later than due the latest request was sent.
        cpu_s: of this process during the measured time.
    """

    workers: int
    connections: int
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    not_asked: int = 0
    failures: dict[str, int] = field(factory=dict)
    began_s: float = 0.0
    ended_s: float = 0.0
    rounds_s: tuple[float, ...] = ()
    latencies: Histogram = field(factory=Histogram)
    service: Histogram | None = None
    late_s_max: float = 0.0
    cpu_s: float = 0.0


@frozen(kw_only=True)
class Sharing:
    """Use of the load generator's processes and connections by workers, over all client machines."""

    machines: int
    processes: int
    connections: int
    workers: int
    idle_workers: int = 0

    def text(self) -> str:
        """Return this as a sentence's part for people."""
        idle = f", {self.idle_workers} of them without an entry to ask for" if self.idle_workers else ""
        return (
            f"{self.workers} workers{idle} in {self.processes} processes on {self.machines} machines, over "
            f"{self.connections} connections ({self.workers / max(1, self.connections):.1f} workers each)"
        )


@frozen(kw_only=True)
class Skew:
    """Difference of client machines' beginnings: `spread_ms` on the head's clock."""

    spread_ms: float
    uncertainty_ms: float


@frozen(kw_only=True)
class TestResult:
    """One test of one target.

    Attributes:
        number: of the test in its run, from 1; `attempt` from 1.
        superseded: a later attempt counts instead; this one is kept.
        elapsed_s: from the first request of any client to the last acknowledgement.
        generator_share: the largest part of a core that one load process used.
        generator_us, servers_us: CPU per acknowledged request; of the servers None if they run elsewhere.
        write_kb_per_s: payload that was written, acknowledged, in 1,000 bytes per second.
    """

    __test__ = False  # the figures are of no class of tests, whatever its name says

    number: int
    target: str
    servers: int
    workload: Workload
    sharing: Sharing
    attempt: int = 1
    state: str = OK
    reason: str = ""
    comment: str = ""
    superseded: bool = False
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    not_asked: int = 0
    failures: dict[str, int] = field(factory=dict)
    elapsed_s: float = 0.0
    per_second: float = 0.0
    seconds_per_entry: float = 0.0
    write_kb_per_s: float = 0.0
    rounds: int = 0
    round_mean_s: float = 0.0
    round_stdev_s: float = 0.0
    client_mean_s: float = 0.0
    client_stdev_s: float = 0.0
    latency: Summary | None = None
    histogram: Histogram = field(factory=Histogram)
    service: Summary | None = None
    late_ms_max: float = 0.0
    generator_share: float = 0.0
    generator_us: float = 0.0
    servers_us: float | None = None
    skew: Skew | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the test succeeded."""
        return self.state == OK


@frozen(kw_only=True)
class Machine:
    """Description of a machine."""

    name: str
    cores: int
    system: str
    python: str


@frozen(kw_only=True)
class ElectionTrial:
    """One loss of a leader. Milliseconds after the loss, None: not seen. `killed`: the server that led.

    `lost_at_ms` is the loss itself, on the clock of the machine. `stood_ms`: the first server's election
    timer fired (it asked for pre-votes); `candidate_ms`: the winner began its candidacy in a new term;
    `led_ms`: the winner had the votes of a majority; `served_ms`: a client's write was acknowledged again
    (failover only).
    """

    number: int
    killed: int
    lost_at_ms: float = 0.0
    winner: int = 0
    term: int = 0
    stood_ms: float | None = None
    candidate_ms: float | None = None
    led_ms: float | None = None
    campaigns: int = 0
    served_ms: float | None = None
    gap_ms: float | None = None
    state: str = OK
    reason: str = ""

    @property
    def from_candidacy_ms(self) -> float | None:
        """The time from the first server that stood for election to the leader."""
        if self.led_ms is None or self.stood_ms is None:
            return None
        return self.led_ms - self.stood_ms


@frozen(kw_only=True)
class Run:
    """One results file."""

    format: int = FORMAT
    kind: str
    id: str
    started: str
    version: str
    machines: tuple[Machine, ...]
    title: str = ""
    comment: str = ""
    settings: dict[str, str] = field(factory=dict)
    tests: tuple[TestResult, ...] = ()
    trials: tuple[ElectionTrial, ...] = ()
    multicast: MulticastResults | None = None
    gossip: GossipResults | None = None
    ended: str = ""
    notes: tuple[str, ...] = ()


def combine(
    *,
    number: int,
    attempt: int = 1,
    target: str,
    servers: int,
    workload: Workload,
    machines: Sequence[Sequence[Part]],
    servers_cpu_s: float | None = None,
    skew: Skew | None = None,
    notes: Sequence[str] = (),
) -> TestResult:
    """Make the result of a test of the parts of each client machine's processes.

    Clocks of machines are not compared: a machine's time is its own first request to its own last answer, and
    the test's is the longest of those plus the spread of the beginnings.
    """
    parts = [part for machine in machines for part in machine]
    workers = sum(part.workers for part in parts)
    sharing = Sharing(
        machines=len(machines),
        processes=len(parts),
        connections=sum(part.connections for part in parts),
        workers=workers,
        idle_workers=max(0, workers - workload.entries) if workload.rate is None else 0,
    )
    latencies, service = Histogram(), Histogram()
    failures: dict[str, int] = {}
    for part in parts:
        latencies.merge(part.latencies)
        if part.service is not None:
            service.merge(part.service)
        for text, count in part.failures.items():
            failures[text] = failures.get(text, 0) + count
    elapsed = max((_span(machine) for machine in machines if machine), default=0.0)
    elapsed += skew.spread_ms / 1000 if skew is not None else 0.0
    acknowledged = sum(part.acknowledged for part in parts)
    rounds = [one for part in parts for one in part.rounds_s]
    durations = [part.ended_s - part.began_s for part in parts]
    share = max((part.cpu_s / max(1e-9, part.ended_s - part.began_s) for part in parts), default=0.0)
    written = acknowledged * _write_share(workload)
    found = TestResult(
        number=number,
        attempt=attempt,
        target=target,
        servers=servers,
        workload=workload,
        sharing=sharing,
        acknowledged=acknowledged,
        failed=sum(part.failed for part in parts),
        unknown=sum(part.unknown for part in parts),
        not_asked=sum(part.not_asked for part in parts),
        failures=dict(sorted(failures.items(), key=lambda one: -one[1])[:FAILURES_KEPT]),
        elapsed_s=elapsed,
        per_second=acknowledged / elapsed if elapsed else 0.0,
        seconds_per_entry=elapsed / acknowledged if acknowledged else 0.0,
        write_kb_per_s=written * workload.value_bytes / 1000 / elapsed if elapsed else 0.0,
        rounds=len(rounds),
        round_mean_s=_mean(rounds),
        round_stdev_s=_stdev(rounds),
        client_mean_s=_mean(durations),
        client_stdev_s=_stdev(durations),
        latency=latencies.summary(),
        histogram=latencies,
        service=service.summary() if service.counts else None,
        late_ms_max=max((part.late_s_max for part in parts), default=0.0) * 1000,
        generator_share=share,
        generator_us=sum(part.cpu_s for part in parts) * 1e6 / acknowledged if acknowledged else 0.0,
        servers_us=servers_cpu_s * 1e6 / acknowledged if servers_cpu_s is not None and acknowledged else None,
        skew=skew,
        notes=tuple(notes),
    )
    return _judged(found)


def failed(result: TestResult, reason: str) -> TestResult:
    """Return the result marked as failed; an earlier reason is kept."""
    return evolve(result, state=FAILED, reason=f"{result.reason}; {reason}" if result.reason else reason)


def nothing(
    *, number: int, attempt: int = 1, target: str, servers: int, workload: Workload, reason: str
) -> TestResult:
    """Return the result of a test that measured nothing."""
    sharing = Sharing(machines=0, processes=0, connections=0, workers=workload.workers)
    return TestResult(
        number=number,
        attempt=attempt,
        target=target,
        servers=servers,
        workload=workload,
        sharing=sharing,
        state=FAILED,
        reason=reason,
    )


def _judged(found: TestResult) -> TestResult:
    """Add the state, and notes on what a reader should know before believing the result."""
    notes = list(found.notes)
    if found.generator_share > GENERATOR_BUSY:
        notes.append(
            f"a load process used {found.generator_share:.0%} of a core: the load generator limits this figure, "
            "use more processes or machines"
        )
    rate = found.workload.rate
    if rate is not None and found.per_second < 0.95 * rate:
        notes.append(f"asked for {rate:,.0f}/s, {found.per_second:,.0f}/s were reached: beyond saturation")
    result = evolve(found, notes=tuple(notes))
    if found.acknowledged == 0:
        return failed(result, "nothing was acknowledged")
    lost = found.failed + found.unknown
    if lost:
        most = next(iter(found.failures), "no reason given")
        result = failed(
            result, f"{lost:,} of {lost + found.acknowledged:,} requests failed, most often: {most}"
        )
    if found.not_asked:
        result = failed(result, f"{found.not_asked:,} requests were not even sent when the time was over")
    return result


def _span(parts: Sequence[Part]) -> float:
    return max(part.ended_s for part in parts) - min(part.began_s for part in parts)


def _write_share(workload: Workload) -> float:
    return _WRITE_SHARES.get(workload.operation, 1.0 - workload.read_share)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _stdev(values: Sequence[float]) -> float:
    """Return the standard deviation of a population: 0 for one value."""
    mean = _mean(values)
    return math.sqrt(sum((one - mean) ** 2 for one in values) / len(values)) if values else 0.0
