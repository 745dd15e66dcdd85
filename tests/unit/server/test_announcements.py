"""What a server's log says to its operator."""

from __future__ import annotations

import pytest

from zraft.server.process.announcements import address_differs
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
