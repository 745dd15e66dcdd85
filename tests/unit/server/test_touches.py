"""The origin's side of session liveness (D-11, D-14)."""

from __future__ import annotations

from tests.unit.server.one_server import BOOT
from zraft.server.coordination.touches import (
    EARLY_SHARE,
    HURRY_GAP_MS,
    NEVER,
    REPORT_SESSIONS_MAX,
    REPORTS_IN_FLIGHT_MAX,
    TouchReporter,
)
from zraft.transport.messages import TouchAck

INTERVAL_MS = 1_000


def _reporter(*sessions: int) -> TouchReporter:
    reporter = TouchReporter(BOOT, INTERVAL_MS)
    for session in sessions:
        reporter.attached(session, 0)
    return reporter


def _ack(number: int, *, boot: int = BOOT, refused: tuple[int, ...] = ()) -> TouchAck:
    return TouchAck(1, boot, number, refused)


def test_reports_give_ages_and_not_times() -> None:
    """D-11: clocks of two servers have nothing in common."""
    reporter = _reporter(5)
    reporter.touch(5, 300)
    (report,) = reporter.make_reports(1_000)
    assert report.ages == ((5, 700),)


def test_a_touch_counts_from_when_the_packet_came_once_it_is_acknowledged() -> None:
    """D-14."""
    reporter = _reporter(5)
    reporter.touch(5, 300)
    (report,) = reporter.make_reports(1_000)
    assert reporter.age(5, 1_100) == 1_100
    reporter.on_ack(_ack(report.number), 1_100)
    assert reporter.age(5, 1_100) == 800


def test_a_touch_is_reported_again_until_acknowledged() -> None:
    """D-11: numbered, repeated."""
    reporter = _reporter(5)
    reporter.touch(5, 300)
    (first,) = reporter.make_reports(1_000)
    (second,) = reporter.make_reports(2_000)
    assert second.number == first.number + 1
    assert second.ages == ((5, 1_700),)
    reporter.on_ack(_ack(second.number), 2_000)
    assert reporter.make_reports(3_000)[0].ages == ()


def test_a_report_without_touches_is_sent_too_because_it_asks_for_contact() -> None:
    """D-14: contact is two-way; hearing a leader is not enough."""
    reporter = _reporter()
    (report,) = reporter.make_reports(1_000)
    assert reporter.contact == NEVER
    reporter.on_ack(_ack(report.number), 1_700)
    assert reporter.contact == 1_000, "contact is when it was sent, not when the answer came"


def test_a_refused_session_is_not_acknowledged() -> None:
    """D-11a: its end is in the log already."""
    reporter = _reporter(5, 6)
    reporter.touch(5, 300)
    reporter.touch(6, 300)
    (report,) = reporter.make_reports(1_000)
    reporter.on_ack(_ack(report.number, refused=(5,)), 1_000)
    assert (reporter.age(5, 1_000), reporter.age(6, 1_000)) == (1_000, 700)


def test_acknowledgements_of_another_boot_or_of_no_report_count_for_nothing() -> None:
    reporter = _reporter(5)
    reporter.touch(5, 300)
    (report,) = reporter.make_reports(1_000)
    reporter.on_ack(_ack(report.number, boot=BOOT - 1), 1_000)
    reporter.on_ack(_ack(report.number + 1), 1_000)
    assert reporter.contact == NEVER
    reporter.on_ack(_ack(report.number), 1_000)
    reporter.on_ack(_ack(report.number), 9_000)
    assert reporter.contact_run == 1_000, "a repeated acknowledgement is no new contact"


def test_acknowledgements_out_of_order_never_take_anything_back() -> None:
    reporter = _reporter(5)
    reporter.touch(5, 300)
    (first,) = reporter.make_reports(1_000)
    reporter.touch(5, 1_500)
    (second,) = reporter.make_reports(2_000)
    reporter.on_ack(_ack(second.number), 2_100)
    reporter.on_ack(_ack(first.number), 2_200)
    assert reporter.age(5, 2_200) == 700
    assert reporter.contact == 2_000


def test_held_output_lets_a_report_leave_early_but_not_in_a_storm() -> None:
    reporter = _reporter()
    reporter.make_reports(1_000)
    assert reporter.due_at == 1_000 + INTERVAL_MS
    reporter.hurry()
    assert reporter.due_at == 1_000 + HURRY_GAP_MS
    reporter.make_reports(1_025)
    assert reporter.due_at == 1_025 + INTERVAL_MS


def test_a_report_leaves_a_little_earlier_with_a_turn_that_comes_anyway() -> None:
    """Held output still waits: reports of the same moment would be a storm."""
    reporter = _reporter()
    reporter.make_reports(1_000)
    assert reporter.due_at - INTERVAL_MS // EARLY_SHARE == reporter.may_leave_at
    reporter.hurry()
    assert reporter.may_leave_at == reporter.due_at == 1_000 + HURRY_GAP_MS


def test_a_new_leader_is_told_at_once() -> None:
    reporter = _reporter()
    reporter.make_reports(1_000)
    reporter.report_now()
    assert reporter.may_leave_at <= reporter.due_at <= 1_000


def test_a_new_leader_is_told_again_soon_until_it_acknowledges() -> None:
    """It takes no report before its first entry is applied; a follower without contact serves nobody (D-14)."""
    reporter = _reporter()
    reporter.report_now()
    now, waits = 1_000, []
    for _ in range(8):
        reporter.make_reports(now)
        waits.append(reporter.due_at - now)
        now = reporter.due_at
    assert waits == [25, 50, 100, 200, 400, 800, INTERVAL_MS, INTERVAL_MS]
    reporter.report_now()
    (report,) = reporter.make_reports(now)
    reporter.on_ack(_ack(report.number), now)
    assert reporter.due_at == now + INTERVAL_MS


def test_many_sessions_are_spread_over_reports_of_bounded_size() -> None:
    count = 2 * REPORT_SESSIONS_MAX + 1
    reporter = _reporter(*range(1, count + 1))
    for session in range(1, count + 1):
        reporter.touch(session, 10)
    reports = reporter.make_reports(1_000)
    assert [len(report.ages) for report in reports] == [REPORT_SESSIONS_MAX, REPORT_SESSIONS_MAX, 1]
    assert len({report.number for report in reports}) == 3


def test_unacknowledged_reports_are_remembered_up_to_a_bound() -> None:
    reporter = _reporter(5)
    reporter.touch(5, 1)
    numbers = [reporter.make_reports(1_000 * n)[0].number for n in range(1, REPORTS_IN_FLIGHT_MAX + 2)]
    reporter.on_ack(_ack(numbers[0]), 1_000)
    assert reporter.contact == NEVER
    reporter.on_ack(_ack(numbers[1]), 1_000)
    assert reporter.contact == 2_000


def test_nothing_is_kept_of_a_session_that_left_while_it_was_reported() -> None:
    """Its report is acknowledged, and its last write applied, after it left; both must not bring it back."""
    reporter = _reporter(5)
    reporter.touch(5, 300)
    (report,) = reporter.make_reports(1_000)
    reporter.forget(5)
    reporter.on_ack(_ack(report.number), 1_100)
    reporter.acknowledged(5, 1_200)
    assert reporter._acked == {}
    assert reporter.make_reports(2_000)[0].ages == ()
