"""The leader's side of session liveness: who may be expired, and what protects everybody else (D-11)."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from tests.unit.server.one_server import INSTANCE, ME
from zraft.server.coordination.expiry import SCAN_INTERVAL_MS, SessionExpiry
from zraft.transport.messages import TouchReport
from zraft_core.znodes.txn import EXPIRE

TICK_MS = 2_000
TIMEOUT_MS = 6_000


@define
class Record:
    timeout_ms: int = TIMEOUT_MS
    attach_position: int = 10
    write_position: int = 20


Sessions = Mapping[int, Record]


def _advance(expiry: SessionExpiry, sessions: Sessions, ms: int, *, next_round: int = 1) -> bool:
    """Let time pass in scans; whether a suspect was found in any."""
    found = False
    for _ in range(0, ms, SCAN_INTERVAL_MS):
        expiry.advance(SCAN_INTERVAL_MS)
        found = expiry.wants_round(sessions, next_round) or found
    return found


def _expired(expiry: SessionExpiry, sessions: Sessions, quorum_round: int) -> list[int]:
    return [command[1] for command in expiry.confirmed(sessions, quorum_round)]


def _leadership(sessions: Sessions) -> SessionExpiry:
    expiry = SessionExpiry(TICK_MS)
    expiry.wants_round(sessions, 1)
    return expiry


def test_a_session_is_a_suspect_after_its_timeout_and_one_tick() -> None:
    """A touch may be reported one interval late."""
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    assert not _advance(expiry, sessions, TIMEOUT_MS + TICK_MS - SCAN_INTERVAL_MS)
    assert _advance(expiry, sessions, SCAN_INTERVAL_MS)


def test_a_suspect_ends_only_after_a_round_that_began_later() -> None:
    """A leader that was cut off must not expire those who are served by its successor."""
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    assert _advance(expiry, sessions, TIMEOUT_MS + TICK_MS, next_round=5)
    assert _expired(expiry, sessions, 4) == []
    assert _expired(expiry, sessions, 5) == [7]
    assert _expired(expiry, sessions, 5) == [], "its end is proposed once"


def test_the_table_is_read_again_before_the_end_is_proposed() -> None:
    """D-11; planted bug: a touch that came with the round's answers would be overlooked."""
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    assert _advance(expiry, sessions, TIMEOUT_MS + TICK_MS)
    assert expiry.accept_report(ME, INSTANCE, TouchReport(1, 1, ((7, 100),)), sessions) == ()
    assert _expired(expiry, sessions, 1) == []


def test_what_the_proposal_carries_lets_apply_judge_it() -> None:
    """D-11: attach and last write positions, last touch, timeout."""
    sessions = {7: Record(attach_position=11, write_position=22)}
    expiry = _leadership(sessions)
    _advance(expiry, sessions, TIMEOUT_MS + TICK_MS)
    ((opcode, session, attach, write, touched, timeout, _),) = expiry.confirmed(sessions, 1)
    assert (opcode, session, attach, write, timeout) == (EXPIRE, 7, 11, 22, TIMEOUT_MS)
    assert touched == 0


def test_a_touch_of_a_session_whose_end_is_proposed_is_refused() -> None:
    """D-11a: what is acknowledged, servers build on."""
    sessions = {7: Record(), 8: Record()}
    expiry = _leadership(sessions)
    _advance(expiry, sessions, TIMEOUT_MS)
    expiry.touch(8)
    _advance(expiry, sessions, TICK_MS)
    assert _expired(expiry, sessions, 1) == [7]
    report = TouchReport(1, 1, ((7, 0), (8, 0), (9, 0)))
    assert expiry.accept_report(ME, INSTANCE, report, sessions) == (7, 9)


def test_a_session_whose_end_apply_ignored_begins_anew() -> None:
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    _advance(expiry, sessions, TIMEOUT_MS + TICK_MS)
    assert _expired(expiry, sessions, 1) == [7]
    expiry.ended(7)
    assert expiry.accept_report(ME, INSTANCE, TouchReport(1, 1, ((7, 0),)), sessions) == ()
    assert not _advance(expiry, sessions, TIMEOUT_MS)


def test_late_and_repeated_reports_do_not_count() -> None:
    """D-11d: an old report's ages are counted from its arrival, so it would make the session younger."""
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    first, second = TouchReport(1, 1, ((7, 0),)), TouchReport(1, 2, ((7, 500),))
    assert expiry.accept_report(ME, INSTANCE, second, sessions) == ()
    _advance(expiry, sessions, TIMEOUT_MS + TICK_MS - SCAN_INTERVAL_MS)
    assert expiry.accept_report(ME, INSTANCE, first, sessions) is None
    assert expiry.accept_report(ME, INSTANCE, second, sessions) is None
    assert _advance(expiry, sessions, SCAN_INTERVAL_MS)


def test_reports_of_a_new_boot_begin_with_any_number_and_end_those_of_the_old() -> None:
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    assert expiry.accept_report(ME, INSTANCE, TouchReport(1, 50, ()), sessions) == ()
    assert expiry.accept_report(ME, INSTANCE, TouchReport(2, 1, ()), sessions) == ()
    assert expiry.accept_report(ME, INSTANCE, TouchReport(1, 51, ()), sessions) is None


def test_an_older_touch_takes_nothing_back() -> None:
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    _advance(expiry, sessions, 4_000)
    expiry.touch(7)
    expiry.accept_report(ME, INSTANCE, TouchReport(1, 1, ((7, 3_000),)), sessions)
    assert not _advance(expiry, sessions, TIMEOUT_MS + TICK_MS - SCAN_INTERVAL_MS)


def test_time_in_which_the_leader_did_not_run_ages_nobody() -> None:
    """D-11: its clock is advanced by its turns alone; however long they lie apart."""
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    for _ in range(10):
        assert not expiry.wants_round(sessions, 1)
    assert _expired(expiry, sessions, 99) == []


def test_a_new_leadership_gives_every_session_its_full_timeout() -> None:
    sessions = {7: Record(), 8: Record(timeout_ms=20_000)}
    expiry = _leadership(sessions)
    assert not _advance(expiry, sessions, TIMEOUT_MS)
    assert _advance(expiry, sessions, TICK_MS)
    assert _expired(expiry, sessions, 1) == [7]


def test_a_suspect_that_ended_by_itself_is_not_proposed() -> None:
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    _advance(expiry, sessions, TIMEOUT_MS + TICK_MS)
    assert _expired(expiry, {}, 1) == []


def test_how_long_a_session_is_silent_is_told_from_when_it_was_heard_of() -> None:
    expiry = SessionExpiry(TICK_MS)
    assert expiry.silent_ms(7) is None
    expiry.touch(7)
    expiry.advance(3_000)
    assert expiry.silent_ms(7) == 3_000
    assert expiry.accept_report(ME, INSTANCE, TouchReport(1, 1, ((7, 100),)), {7: Record()}) == ()
    assert expiry.silent_ms(7) == 100


def test_a_session_that_is_given_up_ends_whoever_was_heard_unless_it_attached_or_wrote_since() -> None:
    sessions = {7: Record()}
    expiry = _leadership(sessions)
    expiry.touch(7)
    command = expiry.give_up(7, sessions[7])
    assert command[:4] == (EXPIRE, 7, 10, 20)
    report = TouchReport(boot=1, number=1, ages=((7, 0),))
    assert expiry.accept_report(ME, INSTANCE, report, sessions) == (7,), "its end is in the log"
    expiry.ended(7)
    assert _expired(expiry, sessions, 10) == []
