"""Refresh policies decide from the calls they see and a clock that is handed in; Zatt's four and Watch (Z-23)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from zraft_client import (
    RefreshPolicyAlways,
    RefreshPolicyCount,
    RefreshPolicyLock,
    RefreshPolicyTime,
    RefreshPolicyWatch,
)
from zraft_core.errors import ConfigError


def test_always_updates_at_every_read() -> None:
    policy = RefreshPolicyAlways()
    assert [policy.can_update() for _ in range(3)] == [True] * 3


def test_lock_updates_while_it_is_switched_on() -> None:
    policy = RefreshPolicyLock(False)
    assert not policy.can_update()
    policy.status = True
    assert policy.can_update()
    assert RefreshPolicyLock().can_update()


def test_count_updates_at_every_nth_read_and_after_a_fetch_counts_anew() -> None:
    policy = RefreshPolicyCount(maximum=3)
    seen = []
    for _ in range(7):
        seen.append(policy.can_update())
        if seen[-1]:
            policy.refreshed()
    assert seen == [False, False, True, False, False, True, False]
    policy.refreshed()
    policy.maximum = 1
    assert policy.can_update()
    assert RefreshPolicyCount().maximum == 10


def test_time_updates_when_the_last_fetch_is_long_enough_ago() -> None:
    now = 50.0
    policy = RefreshPolicyTime(timedelta(seconds=2), clock=lambda: now)
    assert policy.can_update()
    policy.refreshed()
    now = 51.9
    assert not policy.can_update()
    now = 52.0
    assert policy.can_update()
    policy.delta = timedelta(seconds=3)
    assert not policy.can_update()


def test_watch_never_asks() -> None:
    assert not RefreshPolicyWatch().can_update()


@pytest.mark.parametrize(
    "make",
    [
        lambda: RefreshPolicyCount(0),
        lambda: RefreshPolicyTime(timedelta(seconds=-1)),
        lambda: RefreshPolicyTime(5),  # type: ignore[arg-type]
        lambda: RefreshPolicyWatch(timedelta(seconds=-1)),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        make()
