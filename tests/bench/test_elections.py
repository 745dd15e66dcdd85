"""Election and failover times: read from logs, both definitions of the beginning (Z-31), and outages of writers."""

from __future__ import annotations

import json

import pytest

from zraft_bench.election.times import (
    Distribution,
    LogEvent,
    distribution,
    elected,
    log_events,
    series,
    trial_of,
)
from zraft_bench.election.trials import Outage, outage
from zraft_bench.results import ElectionTrial


def line(event: str, **fields: object) -> str:
    return json.dumps({"event": event, "level": "info", **fields})


LOG = "\n".join(
    [
        "Traceback of something that stands for election",
        line("stands for election", role="pre-candidate", term=4, monotonic_ms=1300.5),
        line("follows", leader=2, term=4),
        line("stands for election", role="candidate", term=5, monotonic_ms=1310.0),
        line("became leader", term=5, last_index=9, monotonic_ms=1325.25),
        '{"event": "became leader", "term": 5, "monoto',
    ]
)


def test_moments_are_read_from_json_lines_and_all_else_is_passed_over() -> None:
    assert log_events(3, LOG) == [
        LogEvent(3, "pre-candidate", 4, 1300.5),
        LogEvent(3, "candidate", 5, 1310.0),
        LogEvent(3, "leader", 5, 1325.25),
    ]


def test_both_beginnings_are_measured() -> None:
    """Z-31: the thesis does not say from when; so from the loss, from the first timer and from the candidacy."""
    trial = trial_of(1, 2, 1000.0, log_events(3, LOG))
    assert (trial.killed, trial.winner, trial.term, trial.state) == (2, 3, 5, "ok")
    assert (trial.stood_ms, trial.candidate_ms, trial.led_ms) == (300.5, 310.0, 325.25)
    assert trial.from_candidacy_ms == pytest.approx(24.75)
    assert series([trial]) == {
        "first timer to leader": [pytest.approx(24.75)],
        "candidacy to leader": [pytest.approx(15.25)],
        "loss to leader": [325.25],
    }


def test_a_split_vote_counts_from_the_first_candidate_of_all() -> None:
    events = [
        LogEvent(1, "pre-candidate", 4, 1200.0),
        LogEvent(1, "candidate", 5, 1210.0),
        LogEvent(4, "candidate", 5, 1211.0),
        LogEvent(4, "candidate", 6, 1500.0),
        LogEvent(4, "leader", 6, 1515.0),
    ]
    trial = trial_of(1, 2, 1000.0, events)
    assert trial.from_candidacy_ms == 315.0
    assert trial.candidate_ms == 500.0
    assert trial.campaigns == 3


def test_what_happened_before_the_loss_does_not_count() -> None:
    events = [LogEvent(1, "candidate", 4, 900.0), LogEvent(1, "leader", 4, 950.0), *log_events(3, LOG)]
    assert elected(events, 1000.0) == LogEvent(3, "leader", 5, 1325.25)
    assert trial_of(1, 1, 1000.0, events).stood_ms == 300.5
    assert elected(events[:2], 1000.0) is None


def test_an_election_without_an_end_has_failed_and_is_not_in_the_figures() -> None:
    lost = trial_of(7, 2, 1000.0, log_events(3, LOG)[:2])
    assert (lost.state, lost.reason) == ("failed", "no server became leader")
    assert series([lost]) == {}
    odd = trial_of(8, 2, 1000.0, [LogEvent(3, "leader", 5, 1100.0)])
    assert odd.reason == "server 3 led without a line about its candidacy"


def test_the_share_below_the_published_bounds() -> None:
    found = distribution([float(n) for n in range(1, 101)])
    assert found == Distribution(100, 1.0, 50.0, 50.5, 90.0, 99.0, 100.0, 0.79, 0.99)
    assert distribution([]) is None
    single = distribution([5.0])
    assert single is not None
    assert single.p99_ms == 5.0


def test_an_outage_is_the_longest_gap_and_not_what_was_still_under_way() -> None:
    """Acknowledgements that were on their way at the loss come a moment after it."""
    assert outage([990.0, 1001.0, 1002.0, 1402.0, 1403.0], 1000.0) == Outage(gap_ms=400.0, served_ms=402.0)
    assert outage([1403.0, 990.0], 1000.0) == Outage(gap_ms=403.0, served_ms=403.0)
    assert outage([990.0], 1000.0) is None


def test_failovers_have_series_of_their_own() -> None:
    trial = ElectionTrial(number=1, killed=1, stood_ms=1.0, led_ms=2.0, served_ms=410.0, gap_ms=400.0)
    assert series([trial])["loss to acknowledged write"] == [410.0]
    assert series([trial])["longest gap between writes"] == [400.0]
