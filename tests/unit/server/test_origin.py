"""Numbered batches: bytes that never change, order, repetition, bounds (D-2)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.so_far import so_far
from tests.unit.server.one_server import BOOT, INSTANCE, ME
from zraft.server.coordination.origin import (
    SHARE_BYTES_MIN,
    SLOW_START_BYTES,
    TOLD_AT_WORST_MAX,
    OriginSettings,
    OriginStream,
)
from zraft_core.znodes.txn import ATTACH, DELETE, Command, unpack_batch

IDS = (("ip", "127.0.0.1"),)


LONG_AGO = -1_000
"""The time in ms at which tests apply a batch, so that nobody waits for those whom it answers."""


def _stream(**settings: int) -> OriginStream:
    return OriginStream(ME, INSTANCE, BOOT, OriginSettings(**settings))


def _command(n: int) -> Command:
    return (DELETE, f"/{n}", -1)


def _paths(blob: bytes) -> list[str]:
    return [command[1] for run in unpack_batch(blob)[4] for command in run[2]]


def test_what_arrives_in_one_turn_is_one_batch_in_order() -> None:
    stream = _stream()
    first, second = object(), object()
    stream.add(first, 7, IDS, [_command(1), _command(2)], 50)
    stream.add(second, 8, IDS, [_command(3)], 25)
    stream.add(first, 7, IDS, [_command(4)], 25)
    stream.cut(0)
    (message,) = stream.due(0)
    server, instance, boot, seq, runs = unpack_batch(message.blob)
    assert (server, instance, boot, seq) == (ME, INSTANCE, BOOT, 1)
    assert (message.boot, message.seq, message.count) == (BOOT, 1, 4)
    assert [run[0] for run in runs] == [7, 8, 7]
    assert _paths(message.blob) == ["/1", "/2", "/3", "/4"]
    batch = stream.take_applied(1, LONG_AGO)
    assert batch is not None
    assert batch.owners == [first, second, first]


def test_commands_of_one_owner_in_a_row_are_one_run() -> None:
    """The session is looked up once per run."""
    stream = _stream()
    owner = object()
    for n in range(3):
        stream.add(owner, 7, IDS, [_command(n)], 25)
    stream.cut(0)
    (message,) = stream.due(0)
    assert len(unpack_batch(message.blob)[4]) == 1


def test_a_batch_is_repeated_byte_for_byte_until_it_is_applied() -> None:
    """D-2: nothing that came meanwhile may slip into a number already used."""
    stream = _stream(resend_ms=200)
    stream.add(None, 7, IDS, [_command(1)], 25)
    stream.cut(0)
    (sent,) = stream.due(0)
    stream.add(None, 7, IDS, [_command(2)], 25)
    stream.cut(100)
    assert list(stream.due(199)) == []
    (again,) = stream.due(200)
    assert again.blob == sent.blob
    assert stream.take_applied(1, LONG_AGO) is not None
    assert list(stream.due(1_000)) == []


def test_another_leader_is_sent_all_that_is_unapplied_at_once() -> None:
    stream = _stream(batches_in_flight_max=2)
    stream.add(None, 7, IDS, [_command(1)], 25)
    stream.cut(0)
    stream.add(None, 7, IDS, [_command(2)], 25)
    stream.cut(0)
    assert [m.seq for m in stream.due(0)] == [1, 2]
    stream.on_leader_change()
    assert [m.seq for m in stream.due(1)] == [1, 2]


def test_commands_gather_while_the_window_is_full() -> None:
    stream = _stream(batches_in_flight_max=1)
    for n in range(3):
        stream.add(object(), n, IDS, [_command(n)], 25)
        stream.cut(0)
    assert [m.seq for m in stream.due(0)] == [1]
    stream.take_applied(1, LONG_AGO)
    stream.cut(1)
    (message,) = stream.due(1)
    assert (message.seq, _paths(message.blob)) == (2, ["/1", "/2"])


def test_numbers_are_contiguous_whatever_the_cuts() -> None:
    stream = _stream(batches_in_flight_max=1, batch_bytes_max=60)
    for n in range(10):
        stream.add(object(), n, IDS, [_command(n)], 25)
    numbers: list[int] = []
    seen: list[str] = []
    while not stream.idle:
        stream.cut(0)
        for message in list(stream.due(0)):
            numbers.append(message.seq)
            seen += _paths(message.blob)
            assert stream.take_applied(message.seq, LONG_AGO) is not None
    assert seen == [f"/{n}" for n in range(10)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 1


def test_a_run_never_grows_beyond_a_batch() -> None:
    """D-2: runs are not cut; a batch larger than any datagram would stand there for ever."""
    stream = _stream(batch_bytes_max=1_000)
    owner = object()
    for n in range(100):
        stream.add(owner, 7, IDS, [_command(n)], 100)
    largest = 0
    while not stream.idle:
        stream.cut(0)
        for message in list(stream.due(0)):
            largest = max(largest, message.count)
            stream.take_applied(message.seq, LONG_AGO)
    assert largest <= 10


def test_the_bound_counts_what_is_collected_and_what_is_unapplied() -> None:
    stream = _stream(unapplied_bytes_max=300, batches_in_flight_max=1)
    stream.add(object(), 7, IDS, [_command(1)], 60)
    assert not so_far(stream.full)
    stream.cut(0)
    stream.add(object(), 8, IDS, [_command(2)], 60)
    assert so_far(stream.full)
    stream.take_applied(1, LONG_AGO)
    assert not stream.full
    stream.cut(0)
    stream.take_applied(2, LONG_AGO)
    assert stream.outstanding == 0
    assert stream.idle


def test_batches_are_smaller_while_what_is_written_has_to_be_told_to_many() -> None:
    """Else one batch of somebody who writes much holds up everybody for as long as its events take."""
    stream = _stream(batch_bytes_max=256 * 1024)
    owner = object()

    def next_batch(told_each: int) -> int:
        stream.add(owner, 7, IDS, [_command(n) for n in range(4_000)], 240_000)
        stream.cut(0)
        (message,) = stream.due(0)
        batch = stream.take_applied(message.seq, LONG_AGO)
        assert batch is not None
        stream.on_told(batch, told_each * message.count)
        return message.count

    assert next_batch(0) == 4_000
    stream.on_follower()
    first = next_batch(1_000)
    assert first * 60 <= SLOW_START_BYTES
    assert [next_batch(1_000) * 60 <= SHARE_BYTES_MIN for _ in range(3)] == [True] * 3
    assert [next_batch(0) for _ in range(10)][-1] > 4_000, "and grow again"


def test_tiny_commands_count_as_what_their_objects_take() -> None:
    stream = _stream(unapplied_bytes_max=100_000)
    for n in range(1_000):
        if stream.full:
            break
        stream.add(object(), 7, IDS, [_command(n)], 10)
    assert n < 700


def _batches(stream: OriginStream) -> Iterator[list[tuple[int, list[str]]]]:
    """(session, paths) of the runs of each batch, until nothing is left."""
    while not stream.idle:
        stream.cut(0)
        for message in list(stream.due(0)):
            yield [(run[0], [one[1] for one in run[2]]) for run in unpack_batch(message.blob)[4]]
            stream.take_applied(message.seq, LONG_AGO)


def test_who_comes_late_does_not_wait_for_all_that_others_sent() -> None:
    stream = _stream(batch_bytes_max=100_000)
    for n in range(2_000):
        stream.add(n % 16, n % 16, IDS, [_command(k) for k in range(100)], 10_000)
    stream.add(object(), 99, IDS, [_command(0)], 100)
    sessions = [[session for session, _ in runs] for runs in _batches(stream)]
    assert 99 in sessions[0]


def test_a_small_command_waits_for_one_batch_of_large_ones_at_most_and_these_come_through_too() -> None:
    stream = _stream(batch_bytes_max=100_000)
    for owner in range(16):
        for n in range(3):
            stream.add(owner, owner, IDS, [_command(n)], 1_000_000)
    batches: dict[int, list[int]] = defaultdict(list)
    for place, runs in enumerate(_batches(stream)):
        for session, _ in runs:
            batches[session].append(place)
        if place < 20:
            stream.add(object(), 100 + place, IDS, [_command(place)], 100)
    assert all(batches[100 + place][0] <= place + 2 for place in range(20))
    assert [len(batches[owner]) for owner in range(16)] == [3] * 16


def test_what_a_session_sent_over_its_former_connection_stays_in_front_of_the_next_one() -> None:
    """The client was told nothing of it; were it carried out behind what it sends now, it would undo that (D-3)."""
    stream = _stream(batch_bytes_max=10_000)
    former, other, present = object(), object(), object()
    stream.add(former, 7, IDS, [_command(n) for n in range(1_000)], 60_000)
    stream.add(other, 8, IDS, [_command(n) for n in range(1_000)], 60_000)
    stream.add(present, 0, IDS, [(ATTACH, 7, 6_000, b"")], 64)
    stream.add(present, 7, IDS, [_command(1_000)], 60)
    seen: list[Any] = []
    while not stream.idle:
        stream.cut(0)
        for message in list(stream.due(0)):
            for session, _, commands in unpack_batch(message.blob)[4]:
                if session != 8:
                    seen += [one[1] for one in commands]
            stream.take_applied(message.seq, LONG_AGO)
    assert seen == [*(f"/{n}" for n in range(1_000)), 7, "/1000"]


@pytest.mark.parametrize("run", range(5))
def test_what_each_owner_sends_keeps_its_order_and_is_sent_once(seed: int, run: int) -> None:
    rng = random.Random(seed + run)
    stream = _stream(batch_bytes_max=5_000, batches_in_flight_max=rng.choice((1, 3)))
    sent: dict[int, list[str]] = defaultdict(list)
    got: dict[int, list[str]] = defaultdict(list)
    number = 0
    for turn in range(200):
        for _ in range(rng.randrange(8)):
            owner = rng.randrange(6)
            commands = [_command(number := number + 1) for _ in range(rng.choice((1, 1, 3, 40)))]
            sent[owner] += [one[1] for one in commands]
            stream.add(owner, owner, IDS, commands, len(commands) * rng.choice((20, 200, 3_000)))
        if turn % 3 == 0 or turn > 190:
            stream.cut(turn, float(turn))
        for message in list(stream.due(turn)):
            runs = unpack_batch(message.blob)[4]
            batch = stream.take_applied(message.seq, LONG_AGO)
            assert batch is not None
            assert batch.owners == [session for session, _, _ in runs]
            assert sum(count for _, count in batch.arrivals) == message.count
            for session, _, run_commands in runs:
                got[session] += [one[1] for one in run_commands]
    for left in _batches(stream):
        for session, paths in left:
            got[session] += paths
    assert got == sent
    assert stream.outstanding == 0


def test_a_batch_of_an_earlier_process_has_no_owners_here() -> None:
    assert _stream().take_applied(5, LONG_AGO) is None


def test_d4_a_restored_state_covers_batches_and_the_others_go_again() -> None:
    stream = OriginStream(ME, INSTANCE, 3, OriginSettings(batches_in_flight_max=3))
    for owner in ("a", "b", "c"):
        stream.add(owner, 0, (), [(1,)], 10)
        stream.cut(0)
    assert [batch.seq for batch in stream.due(0)] == [1, 2, 3]
    blobs = {batch.seq: batch.blob for batch in stream.due(1_000)}
    assert stream.on_restore(3, 2) == ["a", "b"]
    assert [(batch.seq, batch.blob) for batch in stream.due(1_001)] == [(3, blobs[3])]
    assert stream.owners() == ["c"]
    assert stream.on_restore(2, 9) == [], "an earlier boot's numbers are others"


@pytest.mark.parametrize(("followers", "most"), [(0, 4_000), (3, 4_000), (100, 163), (1_000, 32)])
def test_one_session_alone_fills_no_batch_that_may_have_to_be_told_to_many(followers: int, most: int) -> None:
    """What is written by others and told to nobody does not bring the large batches back."""
    stream = _stream(batch_bytes_max=256 * 1024)
    stream.count_followers = lambda: followers
    stream.add(object(), 8, IDS, [_command(0)], 60)
    for _ in range(10):
        stream.cut(0)
        (message,) = stream.due(0)
        quiet = stream.take_applied(message.seq, LONG_AGO)
        assert quiet is not None
        stream.on_told(quiet, 0)
        stream.add(object(), 8, IDS, [_command(0)], 60)
    stream.add(object(), 7, IDS, [_command(n) for n in range(4_000)], 240_000)
    (batch, *_) = _batches(stream)
    assert [len(paths) for session, paths in batch if session == 7] == [most]
    assert [len(paths) for session, paths in batch if session == 8] == [1], "who writes little is not held up"


def test_a_batch_of_many_sessions_that_may_have_to_be_told_to_many_is_bounded_too() -> None:
    stream = _stream(batch_bytes_max=256 * 1024)
    stream.count_followers = lambda: 1_000
    for session in range(100):
        stream.add(object(), session, IDS, [_command(n) for n in range(20)], 1_200)
    counts = [sum(len(paths) for _, paths in batch) for batch in _batches(stream)]
    assert sum(counts) == 2_000
    assert max(counts) <= TOLD_AT_WORST_MAX // 1_000
    assert counts[0] == 200, "each session has its share"


class _NeverAtOnce(OriginStream):
    """Looks at each run, also if one batch may hold all of them."""

    def _fit_in_a_batch(self) -> bool:
        return False


def test_a_batch_of_all_that_was_collected_is_the_one_that_looking_at_each_run_gives(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        settings = OriginSettings(batch_bytes_max=rng.choice([200, 2_000, 200_000]))
        streams = [kind(ME, INSTANCE, BOOT, settings) for kind in (OriginStream, _NeverAtOnce)]
        followers = rng.choice([0, 1, 1_000])
        for stream in streams:
            stream.count_followers = lambda count=followers: count  # type: ignore[misc]
        for now in range(20):
            for _ in range(rng.choice([0, 1, 1, 5, 50])):
                session, size = rng.randrange(4), rng.choice([20, 150])
                commands = [_command(rng.randrange(100)) for _ in range(rng.choice([1, 3]))]
                for stream in streams:
                    stream.add(session, session, IDS, [*commands], size)
            arrived, applies = now - rng.random(), rng.random() < 0.6
            found = []
            for stream in streams:
                stream.cut(now, arrived)
                found.append(
                    [(b.message, b.owners, b.size, b.cut_at, b.arrivals) for b in stream.unapplied.values()]
                )
                if applies and stream.unapplied:
                    stream.take_applied(min(stream.unapplied), now)
            assert found[0] == found[1]


def test_what_waits_for_the_window_arrived_when_it_was_stamped() -> None:
    stream = OriginStream(ME, INSTANCE, BOOT, OriginSettings())
    stream.add(None, 1, (), [_command(1)], 1)
    stream.cut(10, 9.5)
    stream.add(None, 2, (), [_command(1)] * 2, 1)
    stream.stamp(11, 10.5)
    stream.stamp(12, 11.5)
    stream.add(None, 3, (), [_command(1)], 1)
    stream.take_applied(1, LONG_AGO)
    stream.cut(20, 19.5)
    assert stream.unapplied[2].arrivals == [(10.5, 2), (19.5, 1)]
