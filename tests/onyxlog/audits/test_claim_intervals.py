"""S21: claims as a log has them are disjoint; bugs in what decides about them are seen by the fold that judges it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.claim_intervals import DISJOINT, FENCED, KEPT, ONWARD, SILENT, intervals
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.tables.claims import ClaimRow
from tests.onyxlog.audits.sound import LEFT, claims, sound
from zraft_core.claims import commands as c
from zraft_core.claims.answers import Accepted, ClaimAnswer, Granted
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Claim, Mode, Owner


def judged(decide: Callable[..., ClaimAnswer], rows: list[ClaimRow] | None = None) -> list[Violation]:
    return list(intervals(iter(claims(1) if rows is None else rows), decide))


def test_what_the_state_machine_answers_breaks_no_promise() -> None:
    assert judged(Claims().apply) == []


def test_copies_of_several_servers_count_once() -> None:
    rows = sorted(claims(1) + claims(2), key=lambda row: row.position)
    assert judged(Claims().apply, rows) == []


def test_a_log_whose_beginning_is_gone_is_not_judged() -> None:
    tables = sound()
    tables["entries"] = [row for row in tables["entries"] if row.group != LEFT]
    tables["claims"] = [row for row in tables["claims"] if row.position > 5]
    assert RULES["S21"].judged(tables) == []


class Broken:
    """The shipped state machine, but for one kind of command."""

    def __init__(self, kind: type[Any], answer: Callable[[Any, int, int], ClaimAnswer]) -> None:
        self._claims, self._kind, self._answer = Claims(), kind, answer

    def apply(self, command: c.ClaimCommand, position: int, log_time_ms: int, end: int) -> ClaimAnswer:
        answer = self._claims.apply(command, position, log_time_ms, end)
        return self._answer(command, position, log_time_ms) if isinstance(command, self._kind) else answer


def grant(command: c.ClaimPartition, position: int, log_time_ms: int) -> ClaimAnswer:
    claim = Claim(
        epoch=position, owner=Owner(command.client, command.instance), attempt=command.attempt,
        mode=Mode.AT_LEAST_ONCE, first=0, upto=None, entire_topic=False, heartbeat_ms=1000, claimed_ms=log_time_ms,
        heard_ms=log_time_ms, beat=0, committed=0, claimed=0,
    )  # fmt: skip
    return Granted(claim, (), log_time_ms)


def accept(committed: int, ended: bool) -> Callable[[Any, int, int], ClaimAnswer]:
    return lambda command, position, log_time_ms: Accepted(
        command.epoch, committed, 0, ended, paused=False, log_time_ms=log_time_ms
    )


@pytest.mark.parametrize(
    ("promise", "kind", "answer", "position"),
    [
        pytest.param(DISJOINT, c.ClaimPartition, grant, 4, id="a claim that is held is granted to another"),
        pytest.param(
            FENCED, c.Heartbeat, accept(1, False), 7, id="a heartbeat of a claim that has ended is accepted"
        ),
        pytest.param(ONWARD, c.Commit, accept(0, False), 8, id="an offset goes back"),
        pytest.param(SILENT, c.Expire, accept(1, True), 5, id="a claim expires early"),
    ],
)
def test_a_wrong_answer_is_seen_where_it_was_given(
    promise: str, kind: type[Any], answer: Callable[[Any, int, int], ClaimAnswer], position: int
) -> None:
    rows = claims(1)
    if kind is c.Expire:
        rows[4] = evolve(rows[4], log_time_ms=3500)
    found = judged(Broken(kind, answer).apply, rows)
    assert (found[0].promise, found[0].index) == (promise, position), [one.line() for one in found]
    assert found[0].file == "server-1/wal/0000000001.seg"
    assert found[0].offset == 9000 + position


def test_a_successor_that_is_given_what_was_committed_out_of_order_is_seen() -> None:
    claims = Claims()

    def apply(command: c.ClaimCommand, position: int, log_time_ms: int, end: int) -> ClaimAnswer:
        if isinstance(command, c.CommitRanges):
            command = evolve(command, ranges=())
        return claims.apply(command, position, log_time_ms, end)

    found = judged(apply)
    assert [(one.promise, one.index) for one in found] == [(KEPT, 13)] * 2
    assert "5 to 6" in found[0].expected


def test_a_successor_that_begins_below_what_was_committed_is_seen() -> None:
    found = judged(Broken(c.ClaimPartition, grant).apply)
    assert ONWARD in {one.promise for one in found}
