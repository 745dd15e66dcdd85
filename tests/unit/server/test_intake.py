"""The leader takes exactly the next batch of each origin into the log (D-2, D-3)."""

from __future__ import annotations

import random

import pytest

from tests.unit.server.one_server import INSTANCE, ME, OTHER, OTHER_INSTANCE
from zraft.server.coordination.intake import REORDERED_MAX, BatchIntake, is_next
from zraft.transport.messages import OriginBatch
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId
from zraft_core.znodes.txn import DELETE, pack_batch, unpack_batch


def _batch(
    boot: int, seq: int, *, server: ServerId = ME, instance: Instance = INSTANCE, commands: int = 1
) -> OriginBatch:
    run = (7, (), tuple((DELETE, f"/{n}", -1) for n in range(commands)))
    return OriginBatch(
        COORDINATION_GROUP, boot, seq, commands, pack_batch(server, instance, boot, seq, [run])
    )


def _taken(intake: BatchIntake) -> list[tuple[int, int]]:
    blobs = intake.take(1 << 30)[0]
    return [unpack_batch(blob)[2:4] for blob in blobs]


def _intake(boot: int = 2, seq: int = 5) -> BatchIntake:
    return BatchIntake({(ME, INSTANCE): (boot, seq)})


@pytest.mark.parametrize(
    ("number", "takes"),
    [
        ((2, 6), True),
        ((2, 5), False),
        ((2, 7), False),
        ((3, 1), True),
        ((9, 1), True),
        ((3, 2), False),
        ((1, 6), False),
        ((1, 1), False),
        ((2, 1), False),
    ],
)
def test_only_the_next_number_or_the_first_of_a_later_boot_is_taken(
    number: tuple[int, int], takes: bool
) -> None:
    """D-2 and, for lower boots, D-3."""
    assert is_next(2, 5, *number) is takes
    intake = _intake()
    intake.offer(ME, INSTANCE, _batch(*number))
    assert _taken(intake) == ([number] if takes else [])


def test_a_repeated_batch_is_taken_once() -> None:
    intake = _intake()
    for _ in range(3):
        intake.offer(ME, INSTANCE, _batch(2, 6))
    assert _taken(intake) == [(2, 6)]
    intake.offer(ME, INSTANCE, _batch(2, 6))
    assert _taken(intake) == []


def test_batches_that_overtook_each_other_are_taken_in_order() -> None:
    intake = _intake()
    for seq in (8, 7, 9, 6):
        intake.offer(ME, INSTANCE, _batch(2, seq))
    assert _taken(intake) == [(2, 6), (2, 7), (2, 8), (2, 9)]


def test_early_batches_are_kept_up_to_a_bound_and_repeated_beyond_it() -> None:
    intake = _intake()
    for seq in range(7, 7 + 3 * REORDERED_MAX):
        intake.offer(ME, INSTANCE, _batch(2, seq))
    intake.offer(ME, INSTANCE, _batch(2, 6))
    assert _taken(intake) == [(2, seq) for seq in range(6, 7 + REORDERED_MAX)]


def test_late_batches_of_an_older_boot_are_not_taken_after_a_newer_one() -> None:
    """D-3: server 2 sends (7, 12) and restarts as boot 8; its session resumes there; then (7, 12) comes."""
    intake = _intake(7, 11)
    intake.offer(ME, INSTANCE, _batch(7, 13))
    intake.offer(ME, INSTANCE, _batch(8, 1))
    intake.offer(ME, INSTANCE, _batch(7, 12))
    assert _taken(intake) == [(8, 1)]
    intake.offer(ME, INSTANCE, _batch(8, 2))
    assert _taken(intake) == [(8, 2)]


def test_every_order_of_arrival_gives_the_same_order_in_the_log() -> None:
    rng = random.Random(1)
    for _ in range(50):
        sent = [_batch(2, seq) for seq in range(6, 6 + REORDERED_MAX)] * 2
        rng.shuffle(sent)
        intake = _intake()
        for batch in sent:
            intake.offer(ME, INSTANCE, batch)
        assert _taken(intake) == [(2, seq) for seq in range(6, 6 + REORDERED_MAX)]


def test_a_server_that_is_no_member_batches_for_nobody() -> None:
    """D-1, D-3b: rows name the disk, not only the server."""
    intake = _intake()
    intake.offer(OTHER, OTHER_INSTANCE, _batch(1, 1, server=OTHER, instance=OTHER_INSTANCE))
    intake.offer(ME, OTHER_INSTANCE, _batch(2, 6, instance=OTHER_INSTANCE))
    assert not intake.ready


def test_a_replaced_disk_begins_anew() -> None:
    intake = _intake()
    intake.set_origins({(ME, OTHER_INSTANCE): (0, 0)})
    intake.offer(ME, INSTANCE, _batch(2, 6))
    intake.offer(ME, OTHER_INSTANCE, _batch(1, 1, instance=OTHER_INSTANCE))
    assert _taken(intake) == [(1, 1)]


@pytest.mark.parametrize(
    "spoiled",
    [
        OriginBatch(COORDINATION_GROUP, 2, 6, 1, b"no msgpack at all"),
        OriginBatch(COORDINATION_GROUP, 2, 6, 2, _batch(2, 6).blob),
        OriginBatch(COORDINATION_GROUP, 2, 6, 1, _batch(2, 7).blob),
        OriginBatch(COORDINATION_GROUP, 2, 6, 1, _batch(3, 6).blob),
        OriginBatch(COORDINATION_GROUP, 2, 6, 1, _batch(2, 6, server=OTHER).blob),
        OriginBatch(COORDINATION_GROUP, 2, 6, 1, _batch(2, 6, instance=OTHER_INSTANCE).blob),
    ],
)
def test_a_batch_that_is_not_what_it_says_is_not_appended(spoiled: OriginBatch) -> None:
    """What is in the log must be walkable on every server for ever."""
    intake = _intake()
    intake.offer(ME, INSTANCE, spoiled)
    assert not intake.ready
    intake.offer(ME, INSTANCE, _batch(2, 6))
    assert _taken(intake) == [(2, 6)]


def test_an_entry_takes_one_batch_at_least_and_stops_at_its_size() -> None:
    intake = _intake()
    for seq in range(6, 10):
        intake.offer(ME, INSTANCE, _batch(2, seq, commands=3))
    size = len(_batch(2, 6, commands=3).blob)
    assert len(intake.take(1)[0]) == 1
    blobs, count, _ = intake.take(2 * size)
    assert (len(blobs), count) == (2, 6)
    assert intake.ready
    assert len(intake.take(1 << 20)[0]) == 1
    assert not intake.ready


def test_repetitions_leave_the_reorder_buffer_to_early_batches() -> None:
    """D-2: an origin repeats what is not applied yet; a buffer full of that would have no room for what came early."""
    intake = _intake()
    for seq in range(6 - REORDERED_MAX, 6):
        intake.offer(ME, INSTANCE, _batch(2, max(1, seq)))
        intake.offer(ME, INSTANCE, _batch(1, seq + 100))
    intake.offer(ME, INSTANCE, _batch(2, 7))
    intake.offer(ME, INSTANCE, _batch(2, 6))
    assert _taken(intake) == [(2, 6), (2, 7)]


def test_a_batch_that_is_none_is_dropped_and_counted() -> None:
    """What stands in the log must be walkable on every server for ever."""
    intake = _intake()
    good = _batch(2, 6)
    intake.offer(ME, INSTANCE, OriginBatch(COORDINATION_GROUP, 2, 6, good.count, good.blob[:-1]))
    intake.offer(ME, INSTANCE, OriginBatch(COORDINATION_GROUP, 2, 6, good.count + 1, good.blob))
    assert _taken(intake) == []
    assert intake.malformed == 2
