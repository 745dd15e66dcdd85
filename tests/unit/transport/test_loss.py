"""How many datagrams a peer loses, told by the peer; and which way messages then go (D-22)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from tests.unit.transport.network import A, B, Network, append, joined, note
from zraft.transport import codec, packing, routing
from zraft.transport.loss import (
    ENOUGH,
    REPORT_EVERY,
    REPORT_INTERVAL_MS,
    REPORT_LEAST,
    WINDOW,
    Loss,
    Reporter,
)
from zraft.transport.packing import LossReport
from zraft_core.errors import ProtocolError


def told(loss: Loss, rng: random.Random, share: float, datagrams: int) -> None:
    """Reports of a peer that loses `share`, one in 100 datagrams."""
    before = loss._before or LossReport(0, 0)
    sent, opened = before.next_counter, before.opened
    if loss._before is None:
        loss.on_report(before)
    for _ in range(datagrams // 100):
        sent += 100
        opened += sum(rng.random() >= share for _ in range(100))
        loss.on_report(LossReport(sent, opened))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("share", "lossy"), [(0.0, False), (0.003, False), (0.05, True), (0.3, True)])
def test_a_path_that_loses_too_many_is_told_from_one_that_does_not(
    share: float, lossy: bool, seed: int
) -> None:
    loss = Loss()
    told(loss, random.Random(seed), share, 5_000)
    assert loss.lossy is lossy
    assert abs(loss.share - share) < 0.03 + share / 5


def test_few_datagrams_say_nothing() -> None:
    loss = Loss()
    loss.on_report(LossReport(0, 0))
    loss.on_report(LossReport(ENOUGH - 1, 0))
    assert not loss.lossy
    assert loss.share == 0.0
    loss.on_report(LossReport(ENOUGH + 1, 0))
    assert loss.lossy


def test_a_path_at_the_border_does_not_change_its_mind_all_the_time() -> None:
    loss = Loss()
    rng = random.Random(1)
    told(loss, rng, 0.03, 3_000)
    changes, before = 0, loss.lossy
    assert before
    for _ in range(100):
        told(loss, rng, 0.019, 200)
        changes += loss.lossy is not before
        before = loss.lossy
    assert changes <= 2


def test_a_path_that_recovers_is_trusted_again_after_a_window() -> None:
    loss = Loss()
    told(loss, random.Random(1), 0.1, 3_000)
    assert loss.lossy
    told(loss, random.Random(2), 0.0, 3 * WINDOW)
    assert not loss.lossy


def test_reports_that_are_late_doubled_or_begin_again_do_no_harm() -> None:
    loss = Loss()
    for report in (
        LossReport(100, 100),
        LossReport(1_100, 1_100),
        LossReport(600, 600),
        LossReport(1_100, 1_100),
    ):
        loss.on_report(report)
    assert loss.share == 0.0
    loss.restart()
    loss.on_report(LossReport(2_000, 5))  # another run of the peer, which has opened little of ours so far
    loss.on_report(LossReport(2_300, 305))
    assert loss.share == 0.0


def test_datagrams_that_were_late_are_not_lost() -> None:
    loss = Loss()
    loss.on_report(LossReport(0, 0))
    loss.on_report(LossReport(1_000, 900))
    loss.on_report(LossReport(1_200, 1_200))
    assert loss.share == 0.0


def reports(times_ms: Iterable[int]) -> int:
    """How many reports there are of datagrams that are opened at these times."""
    reporter, count = Reporter(), 0
    for now_ms in times_ms:
        reporter.opened += 1
        if reporter.opened >= REPORT_EVERY or (reporter.opened >= REPORT_LEAST and now_ms >= reporter.due_ms):
            count += reporter.is_due(now_ms)
    return count


def test_reports_are_few() -> None:
    assert reports([0] * 10_000) == 10_000 // REPORT_EVERY
    assert reports(range(0, 60_000, 10)) == 60_000 // REPORT_INTERVAL_MS - 1


def test_heartbeats_alone_are_reported_seldom() -> None:
    """Each report wakes a server, and ten datagrams a second tell of a path's loss after twenty seconds at the earliest."""
    assert reports(range(0, 60_000, 100)) <= 600 // REPORT_LEAST
    network = joined()
    tape = len(network.tape)
    for number in range(REPORT_LEAST - 2):
        network.now_ms += REPORT_INTERVAL_MS
        network.send(A, B, note(number))
        network.run()
    assert len(network.tape) == tape + REPORT_LEAST - 2


@pytest.mark.parametrize("body", [b"\x03", bytes([3]) + bytes(17), packing.pack_report(LossReport(1, 2))])
def test_a_report_that_cannot_be_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        packing.unpack_report(body)


def lossy_run(share: float, datagrams: int = 4_000) -> Network:
    """A sends to B over a wire that loses `share` one way."""
    rng = random.Random(7)
    network = joined()
    for number in range(datagrams):
        network.now_ms += 1
        network.send(A, B, note(number))
        while network.wire:
            to, datagram = network.wire.popleft()
            if to == A or rng.random() >= share:
                network.deliver(to, datagram)
    return network


def test_the_sender_learns_what_the_receiver_misses() -> None:
    network = lossy_run(0.05)
    assert network.runs[A].is_lossy(B)
    assert not network.runs[B].is_lossy(A)
    assert network.runs[A].statistics().loss[B] == pytest.approx(0.05, abs=0.025)
    assert network.errors == []


def test_reports_do_not_keep_each_other_awake() -> None:
    network = lossy_run(0.0)
    tape = len(network.tape)
    network.now_ms += 10 * REPORT_INTERVAL_MS
    network.run()
    assert len(network.tape) == tape
    extra = [datagram for to, datagram in network.tape if to == A]
    assert len(extra) <= 4_000 / REPORT_EVERY + 4 + 5


# -- routing


def sizes(parts: tuple[list[bytes], list[bytes]]) -> tuple[list[int], list[int]]:
    return [len(part) for part in parts[0]], [len(part) for part in parts[1]]


def test_what_takes_more_than_eight_datagrams_goes_by_the_stream() -> None:
    run = joined().runs[A]
    limit = run.capacity(B, routing.datagrams_max(lossy=False))
    encoded = [bytes(10), bytes(limit), bytes(limit + 1), bytes(20), bytes(2**20)]
    parts = routing.divide(encoded, bytes_max=limit, stream=lambda: True)
    assert sizes(parts) == ([10, limit, 20], [limit + 1, 2**20])


def test_on_a_lossy_path_only_what_fits_one_datagram_goes_by_datagrams() -> None:
    run = joined().runs[A]
    limit = run.capacity(B, routing.datagrams_max(lossy=True))
    parts = routing.divide([bytes(limit), bytes(limit + 1)], bytes_max=limit, stream=lambda: True)
    assert sizes(parts) == ([limit], [limit + 1])


@pytest.mark.parametrize("datagrams", [1, 2, 8])
def test_a_capacity_is_what_so_many_datagrams_hold_exactly(datagrams: int) -> None:
    run = joined().runs[A]
    room = run.capacity(B, datagrams)
    empty = len(codec.encode(append(b"")))
    for extra, expected in ((0, datagrams), (1, datagrams + 1)):
        message = append(bytes(room + extra - empty - (2 if room > 300 else 0)))
        while len(codec.encode(message)) < room + extra:
            message = append(message.entries[0].payload + b"x")
        assert len(codec.encode(message)) == room + extra
        assert len(run.send(B, [message])) == expected


def test_without_a_stream_all_goes_by_datagrams() -> None:
    encoded = [bytes(10), bytes(2**20)]
    assert routing.divide(encoded, bytes_max=1_000, stream=lambda: False) == (encoded, [])


def test_the_stream_is_not_asked_for_when_nothing_needs_it() -> None:
    def never() -> bool:
        raise AssertionError("asked")

    assert routing.divide([bytes(10)], bytes_max=1_000, stream=never) == ([bytes(10)], [])
