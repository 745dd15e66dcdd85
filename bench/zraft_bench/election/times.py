"""Times of elections, read from servers' logs, and distributions of these times.

Pure.

Servers log `stands for election` (role pre-candidate or candidate) and `became leader` with `monotonic_ms`, a
clock that all processes of one machine share and that no adjustment of the date moves. The logged moment is
the end of the turn in which it happened: well below a millisecond later on a machine that is not overloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from zraft_bench.results import FAILED, ElectionTrial

STANDS: Final = "stands for election"
LEADS: Final = "became leader"


@frozen
class LogEvent:
    """One line of a server's log that matters here. `role` is "leader", "candidate" or "pre-candidate"."""

    server: int
    role: str
    term: int
    at_ms: float


def log_events(server: int, text: str) -> list[LogEvent]:
    """Return the events of a log in JSON lines; other lines, and an incomplete last one, are ignored."""
    found = []
    for line in text.splitlines():
        if STANDS not in line and LEADS not in line:
            continue
        try:
            said = json.loads(line)
            role = {STANDS: said.get("role"), LEADS: "leader"}.get(said["event"])
            if isinstance(role, str):
                found.append(LogEvent(server, role, int(said["term"]), float(said["monotonic_ms"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def elected(events: Iterable[LogEvent], lost_at_ms: float) -> LogEvent | None:
    """Return the first leader after the loss of the old one."""
    leaders = [one for one in events if one.role == "leader" and one.at_ms >= lost_at_ms]
    return min(leaders, key=lambda one: one.at_ms, default=None)


def trial_of(number: int, killed: int, lost_at_ms: float, events: Sequence[LogEvent]) -> ElectionTrial:
    """Return what the logs of the other servers say about the election after `killed` was lost."""
    trial = ElectionTrial(number=number, killed=killed)
    after = sorted((one for one in events if one.at_ms >= lost_at_ms), key=lambda one: one.at_ms)
    leader = elected(after, lost_at_ms)
    if leader is None:
        return evolve(trial, state=FAILED, reason="no server became leader")
    before = [one for one in after if one.at_ms <= leader.at_ms and one is not leader]
    stood = [one.at_ms for one in before if one.role != "leader"]
    candidate = [
        one.at_ms
        for one in before
        if one.role == "candidate" and one.server == leader.server and one.term == leader.term
    ]
    if not stood:
        return evolve(
            trial, state=FAILED, reason=f"server {leader.server} led without a line about its candidacy"
        )
    return evolve(
        trial,
        winner=leader.server,
        term=leader.term,
        stood_ms=stood[0] - lost_at_ms,
        candidate_ms=candidate[0] - lost_at_ms if candidate else None,
        led_ms=leader.at_ms - lost_at_ms,
        campaigns=len({(one.server, one.term) for one in before if one.role == "candidate"}),
    )


@frozen
class Distribution:
    """A distribution of durations in ms; shares are 0 to 1."""

    count: int
    min_ms: float
    median_ms: float
    mean_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    below_80: float
    below_100: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """Return the distribution; None without a value.

    Percentiles are values that were seen: the smallest that so many do not exceed.
    """
    if not values:
        return None
    ordered = sorted(values)

    def percentile(percent: int) -> float:
        return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

    return Distribution(
        count=len(ordered),
        min_ms=ordered[0],
        median_ms=percentile(50),
        mean_ms=sum(ordered) / len(ordered),
        p90_ms=percentile(90),
        p99_ms=percentile(99),
        max_ms=ordered[-1],
        below_80=sum(one < 80 for one in ordered) / len(ordered),
        below_100=sum(one < 100 for one in ordered) / len(ordered),
    )


DEFINITIONS: Final[Mapping[str, str]] = {
    "first timer to leader": "from the moment the first server's election timer fired (pre-votes included) to a leader",
    "candidacy to leader": "from the winner's candidacy in a new term to its majority of votes",
    "loss to leader": "from the loss of the leader, the time to notice it included",
    "loss to acknowledged write": "from the loss of the leader until a client's write was acknowledged again",
    "longest gap between writes": "the longest time without an acknowledged write of any client",
}


def series(trials: Sequence[ElectionTrial]) -> dict[str, list[float]]:
    """Return milliseconds of the trials that succeeded, by definition; those without any value are left out."""
    found: dict[str, list[float]] = {name: [] for name in DEFINITIONS}
    for trial in trials:
        if trial.state == FAILED:
            continue
        candidacy = None
        if trial.led_ms is not None and trial.candidate_ms is not None:
            candidacy = trial.led_ms - trial.candidate_ms
        values = (trial.from_candidacy_ms, candidacy, trial.led_ms, trial.served_ms, trial.gap_ms)
        for name, value in zip(DEFINITIONS, values, strict=True):
            if value is not None:
                found[name].append(value)
    return {name: values for name, values in found.items() if values}
