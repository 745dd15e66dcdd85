"""Traces for ShiViz: the form that it reads, clocks that are right, and that everything is in them (K-9)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.simulation.shiviz.__main__ import main
from tests.simulation.shiviz.group import Scene
from tests.simulation.shiviz.trace import PARSER, Event, Trace


def knows(event: Event, of: Event) -> bool:
    """Whether `of` happened before `event`, or is it."""
    return event.clock.get(of.host, 0) >= of.clock[of.host]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Scene().play()


def events_with(trace: Trace, text: str) -> list[Event]:
    found = [event for event in trace.events if text in event.text]
    assert found, text
    return found


def test_the_text_is_what_shivizs_expression_reads(trace: Trace) -> None:
    expression = re.compile(PARSER.replace("(?<", "(?P<"))
    text = trace.text()
    found = list(expression.finditer(text))
    assert "".join(match.group() + "\n" for match in found) == text
    assert [(m["host"], json.loads(m["clock"]), m["event"]) for m in found] == [
        (event.host, event.clock, event.text) for event in trace.events
    ]


def test_every_host_counts_its_own_events_and_never_forgets_others(trace: Trace) -> None:
    last: dict[str, dict[str, int]] = {}
    for event in trace.events:
        before = last.get(event.host, {})
        assert event.clock[event.host] == before.get(event.host, 0) + 1
        assert all(event.clock[host] >= count for host, count in before.items())
        assert all(count <= last[host][host] for host, count in event.clock.items() if host != event.host)
        last[event.host] = event.clock


def test_what_is_received_was_sent_before(trace: Trace) -> None:
    received = [event for event in trace.events if event.text.startswith("receives ")]
    assert received
    for event in received:
        what, _, sender = event.text.removeprefix("receives ").rpartition(" from ")
        sent = [e for e in trace.events if e.host == sender and e.text == f"sends {what} to {event.host}"]
        assert any(knows(event, one) and not knows(one, event) for one in sent), event


def test_initialisation_election_and_writes_are_in_it(trace: Trace) -> None:
    assert len({event.host for event in events_with(trace, "initialised with 0 entries")}) == 3
    leaders = [event for event in trace.events if event.text.startswith("leads in term")]
    assert len(leaders) == 2
    assert leaders[0].host != leaders[1].host
    (killed,) = events_with(trace, "killed")
    assert killed.host == leaders[0].host
    # A leader knows of a majority's votes.
    for leader in leaders:
        term = leader.text.removeprefix("leads in term ")
        votes = events_with(trace, f"RequestVoteReply(term {term}, granted) to {leader.host}")
        assert any(knows(leader, vote) for vote in votes)
    assert len(events_with(trace, "is committed")) == 4


def test_a_write_is_acknowledged_by_who_knows_that_a_majority_has_it(trace: Trace) -> None:
    for number in range(1, 5):
        (taken,) = events_with(trace, f"takes message {number}")
        (acknowledged,) = events_with(trace, f"acknowledges message {number}")
        replies = [
            event
            for event in events_with(trace, f"to {acknowledged.host}")
            if "sends AppendEntriesReply" in event.text and knows(event, taken) and knows(acknowledged, event)
        ]
        assert replies, number


def test_the_same_arguments_make_the_same_trace_and_another_seed_another() -> None:
    assert Scene(seed=3).play().text() == Scene(seed=3).play().text()
    assert len({Scene(seed=seed).play().text() for seed in range(4)}) > 1


def test_heartbeats_are_shown_when_they_are_asked_for() -> None:
    assert "Heartbeat" not in Scene(writes=1).play().text()
    assert "Heartbeat" in Scene(writes=1, heartbeats=True).play().text()


def test_an_event_that_shiviz_could_not_read_is_refused() -> None:
    for host, text in (("two words", "x"), ("", "x"), ("a", "two\nlines"), ("a", "")):
        with pytest.raises(ValueError, match="expected"):
            Trace().note(host, text)


def test_the_command_writes_a_file_and_says_how_to_read_it(tmp_path: Path) -> None:
    out = tmp_path / "group.log"
    result = CliRunner().invoke(main, ["--out", str(out), "--servers", "5", "--writes", "1"])
    assert result.exit_code == 0, result.output
    assert PARSER in result.output
    assert out.read_text(encoding="utf-8") == Scene(servers=5, writes=1).play().text()
