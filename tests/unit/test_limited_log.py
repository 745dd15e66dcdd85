"""However often strangers cause something, the log tells of it now and then, with how often it came."""

from __future__ import annotations

import pytest
import structlog

from zraft.program.limited_log import INTERVAL_S, KINDS_MAX, LimitedLog, kind_of


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_kind_is_told_of_once_in_an_interval_with_its_count() -> None:
    clock = Clock()
    limited = LimitedLog(clock)
    with structlog.testing.capture_logs() as told:
        for n in range(1_000):
            limited.warn("connection closed", kind="a", address=str(n))
        limited.warn("connection closed", kind="b", address="other")
        clock.now += INTERVAL_S
        limited.warn("connection closed", kind="a", address="late")
    assert [(line["address"], line["count"]) for line in told] == [("0", 1), ("other", 1), ("late", 1_000)]
    assert {(line["event"], line["log_level"]) for line in told} == {("connection closed", "warning")}


def test_any_number_of_kinds_is_told_of_in_a_bounded_number_of_lines() -> None:
    clock = Clock()
    limited = LimitedLog(clock)
    with structlog.testing.capture_logs() as told:
        for n in range(10_000):
            limited.warn("connection closed", kind=str(n))
    assert len(told) == KINDS_MAX + 1
    clock.now += INTERVAL_S
    with structlog.testing.capture_logs() as told:
        assert limited.warn("connection closed", kind="new")
        assert limited.warn("connection closed", kind="newer"), "old kinds made room"
    assert len(told) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("frame of 12 bytes, expected 0 to 100", "frame of -7 bytes, expected 0 to 100"),
        ("scheme 'a' failed", "scheme 'b c' failed"),
        ("zxid 0xff", "zxid 0x1"),
    ],
)
def test_texts_that_differ_in_particulars_are_of_one_kind(one: str, other: str) -> None:
    assert kind_of(one).replace("-", "") == kind_of(other).replace("-", "")
    assert kind_of(one) != kind_of("not a connect request: 1")
