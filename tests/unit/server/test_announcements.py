"""What a server's log says to its operator."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from zraft.server.process.announcements import CatchingUp, address_differs
from zraft_core.address import parse_address
from zraft_core.ids import ServerId


@pytest.mark.parametrize(
    ("configured", "recorded"),
    [
        ("10.0.0.1:2181", "10.0.0.1:2181"),
        ("10.0.0.1:2181", ""),
        ("0.0.0.0:2181", "10.0.0.1:2181"),
        ("[::]:2181", "[2001:db8::1]:2181"),
        ("0.0.0.0:2181", "0.0.0.0:2181"),
    ],
)
def test_a_server_that_starts_where_it_is_recorded_says_nothing(configured: str, recorded: str) -> None:
    assert address_differs(ServerId(1), parse_address(configured, "cluster"), recorded) is None


@pytest.mark.parametrize(
    ("configured", "recorded"),
    [
        ("10.0.0.9:2181", "10.0.0.1:2181"),
        ("10.0.0.1:2182", "10.0.0.1:2181"),
        ("0.0.0.0:2182", "10.0.0.1:2181"),
        ("10.0.0.1:2181", "0.0.0.0:2181"),
    ],
)
def test_a_server_that_starts_elsewhere_than_it_is_recorded_says_both_and_what_to_do(
    configured: str, recorded: str
) -> None:
    said = address_differs(ServerId(1), parse_address(configured, "cluster"), recorded)
    assert said is not None
    assert f"starts at {configured} and is recorded at {recorded}" in said
    assert f"`zraft member move 1 {configured}`" in said


def test_a_server_with_a_long_log_to_apply_says_how_far_it_is_until_it_is_done() -> None:
    catching_up = CatchingUp()
    with capture_logs() as said:
        for tenth in range(60):
            catching_up.show(100 + tenth / 10, behind=True, applied=tenth, committed=80)
        for _ in range(2):
            catching_up.show(106.0, behind=False, applied=80, committed=80)
    assert said == [
        {"event": "log is being applied", "index": 20, "of": 80, "log_level": "info"},
        {"event": "log is being applied", "index": 40, "of": 80, "log_level": "info"},
        {"event": "log applied", "index": 80, "seconds": 6.0, "log_level": "info"},
    ]


def test_a_server_that_is_behind_for_a_moment_says_nothing() -> None:
    catching_up = CatchingUp()
    with capture_logs() as said:
        for second in range(10):
            catching_up.show(second, behind=second % 2 == 0, applied=second, committed=second + 1)
    assert said == []
