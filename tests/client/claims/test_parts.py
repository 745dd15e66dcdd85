"""The parts of a consumer alone: lease, tracking, health, options."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft_client.claims.health import BEATS, CYCLES_BEHIND_MAX, Health
from zraft_client.claims.lease import BEATS_KEPT, Lease
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.tracking import Tracking
from zraft_core.errors import ConfigError

HB = 1_000


def test_a_lease_ends_one_interval_after_what_was_confirmed_was_sent() -> None:
    """Flaws 5 and 6: not two, and not counted from the answer."""
    lease = Lease(HB, claim_sent_ms=0)
    assert lease.holds(HB - 1)
    assert not lease.holds(HB)
    lease.on_sent(1, 500)
    assert not lease.holds(HB)
    lease.on_confirmed(1)
    assert lease.holds(500 + HB - 1)
    assert not lease.holds(500 + HB)


def test_answers_that_overtake_each_other_do_not_shorten_a_lease() -> None:
    lease = Lease(HB, 0)
    lease.on_sent(1, 100)
    lease.on_sent(2, 600)
    lease.on_confirmed(2)
    lease.on_confirmed(1)
    assert lease.lapses_ms == 600 + HB


def test_only_so_many_unanswered_heartbeats_are_remembered() -> None:
    lease = Lease(HB, 0)
    for beat in range(100):
        lease.on_sent(beat, 10 * beat)
    assert len(lease._sent) == BEATS_KEPT
    lease.on_confirmed(3)
    assert lease.lapses_ms == HB


def test_current_is_the_first_message_not_committed() -> None:
    """M-10: committed out of order, as by several threads."""
    tracking = Tracking(10)
    for offset in (10, 11, 14, 15):
        tracking.add(offset)
    assert tracking.commit(11)
    assert tracking.commit(15)
    assert tracking.current == 10
    assert tracking.commit(10)
    assert tracking.current == 14
    assert tracking.commit(14)
    assert tracking.current == 16


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_tracking_is_a_set_of_offsets(gaps: list[int], rng: Any) -> None:
    tracking, offsets, at = Tracking(0), [], 0
    for gap in gaps:
        at += gap
        tracking.add(at)
        offsets.append(at)
    open_offsets = set(offsets)
    for offset in rng.sample(range(at + 3), at + 3):
        assert tracking.commit(offset) == (offset in open_offsets)
        open_offsets.discard(offset)
        assert tracking.current == min(open_offsets, default=at + 1)
        assert not tracking.commit(offset)
    assert tracking.outstanding == 0


def test_who_gains_or_is_there_by_the_next_beat_is_healthy() -> None:
    health = Health(HB)
    for beat in range(20):
        # Ten thousand behind, ten a beat faster.
        assert not health.on_beat(beat * HB, 110 * beat, 10_000 + 100 * beat)
    assert health.cycles_behind == 0
    assert (health.velocity, health.partition_velocity) == (110, 100)


def test_who_falls_behind_for_three_beats_should_release() -> None:
    """M-10."""
    health = Health(HB)
    verdicts = [
        health.on_beat(beat * HB, 50 * beat, 1_000 + 100 * beat) for beat in range(1 + CYCLES_BEHIND_MAX)
    ]
    assert verdicts == [False] * CYCLES_BEHIND_MAX + [True]


def test_a_consumer_that_stands_still_without_messages_is_healthy() -> None:
    health = Health(HB)
    assert not any(health.on_beat(beat * HB, 70, 70) for beat in range(10))


def test_velocity_is_of_the_last_ten_beats() -> None:
    """M-10."""
    health = Health(HB)
    for beat in range(50):
        health.on_beat(beat * HB, 0, 0)
    for beat in range(BEATS + 1):
        health.on_beat((50 + beat) * HB, 5 * beat, 7 * beat)
    assert (health.velocity, health.partition_velocity) == (5, 7)


@pytest.mark.parametrize(
    "options",
    [
        {"maximum_claims": -1},
        {"queue_max": 0},
        {"batch_messages": 0},
        {"poll_ms": 0},
        {"claim_interval_ms": 0},
        {"request_timeout_ms": 0},
        {"request_retry_wait_ms": 0},
        {"message_bytes_max": 0},
        {"ranges_ahead": 17},
        {"range_messages": 1_000_001},
        {"claim_entire_topic": True, "range_messages": 5},
    ],
)
def test_options_are_bounded_and_the_error_names_the_one(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ConsumerOptions(**options)


def test_options_have_marshals_defaults() -> None:
    """M-10."""
    options = ConsumerOptions()
    assert options.fast_reclaim
    assert not options.claim_entire_topic
    assert not options.greedy_claims
    assert options.release_claims_if_behind
    assert options.maximum_claims == 0
    assert (options.queue_max, options.message_bytes_max) == (1_000, 2_000_000)
    assert (options.request_retry_wait_ms, options.claim_interval_ms) == (500, 3_000)
