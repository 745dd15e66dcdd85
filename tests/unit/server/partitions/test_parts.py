"""Parts of a server's partitions by themselves: memory of deliveries, ways to leaders, rounds of reads, reading threads."""

from __future__ import annotations

import random
import threading
from itertools import count

from attrs import evolve

from tests.simulation.disk import SimulatedDisk
from zraft.server.partitions.delivery_reading import (
    DeliveryReaders,
    FindOffset,
    ReadDeliveries,
    ReadResult,
    ReadTask,
)
from zraft.server.partitions.delivery_tail import OVERHEAD_BYTES, DeliveryTail
from zraft.server.partitions.quorum_reads import ASK_AGAIN_MS, QuorumReads
from zraft.server.partitions.routes import TRUSTED_MS, GroupRoutes
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import DeliveriesGoneError
from zraft_core.ids import GroupId, ServerId

GROUP = GroupId(7)
S1, S2, S3 = (ServerId(number) for number in (1, 2, 3))


def delivery(offset: int, size: int = 10, index: int | None = None) -> StoredDelivery:
    return StoredDelivery(
        offset, (offset + 1, 7, 0, 0), 3, offset + 1, bytes(size), index or offset + 1, offset
    )


def test_the_tail_forgets_the_oldest_that_are_on_the_disk_and_no_other() -> None:
    tail = DeliveryTail()
    for offset in range(10):
        tail.append([delivery(offset)], offset + 1)
    assert tail.size == 10 * (10 + OVERHEAD_BYTES)
    tail.shrink(0)
    assert (tail.first, tail.end) == (0, 10)
    tail.wrote(4)
    tail.shrink(0)
    assert (tail.first, tail.written, tail.end) == (4, 4, 10)
    tail.wrote(10)
    tail.shrink(3 * (10 + OVERHEAD_BYTES))
    assert (tail.first, tail.end) == (7, 10)
    assert [one.offset for one in tail.read(8, 1 << 20)] == [8, 9]
    assert tail.read(10, 1 << 20) == []


def test_a_read_of_the_tail_keeps_to_its_bytes_but_gives_one() -> None:
    tail = DeliveryTail(5)
    tail.append([delivery(offset) for offset in range(5, 9)], 9)
    assert [one.offset for one in tail.read(5, 25)] == [5, 6]
    assert [one.offset for one in tail.read(6, 1)] == [6]


def test_a_read_of_the_tail_in_the_middle_of_a_batch_begins_with_it() -> None:
    tail = DeliveryTail()
    ends = [0]
    for at in range(20):
        tail.append([evolve(delivery(ends[-1]), span=1 + at % 4)], at + 1)
        ends.append(tail.end)
    tail.wrote(12)
    for size_max in (1 << 20, 15 * (10 + OVERHEAD_BYTES), 0):
        tail.shrink(size_max)
        assert tail.first in ends
        for offset in range(tail.first, tail.end):
            begin = max(one for one in ends if one <= offset)
            assert [one.offset for one in tail.read(offset, 1)] == [begin]
            assert [one.offset for one in tail.read(offset, 1 << 20)] == [
                one for one in ends[:-1] if one >= begin
            ]
        assert tail.read(tail.end, 1) == []
    assert tail.first == ends[12]


def test_a_tail_begins_anew_where_a_snapshot_ends() -> None:
    tail = DeliveryTail()
    tail.append([delivery(0)], 1)
    tail.restart(50)
    assert (tail.first, tail.written, tail.end, tail.size) == (50, 50, 50, 0)
    tail.append([delivery(50)], 60)
    assert [one.offset for one in tail.read(50, 1)] == [50]


def test_a_group_is_asked_where_its_leader_was_heard_and_then_where_it_should_be_in_turn() -> None:
    routes = GroupRoutes(lambda group: (S1, S2, S3) if group == GROUP else ())
    assert routes.target(GroupId(9), 0) is None
    assert [routes.target(GROUP, 0) for _ in range(4)] == [S1, S2, S3, S1]
    routes.heard(GROUP, S2, 100)
    assert [routes.target(GROUP, 100 + TRUSTED_MS) for _ in range(3)] == [S2] * 3
    assert routes.target(GROUP, 101 + TRUSTED_MS) == S1, "nothing was heard for too long"
    routes.heard(GROUP, S3, 5_000)
    assert routes.target(GROUP, 5_000) == S3


def test_a_read_waits_for_a_round_that_begins_after_it() -> None:
    reads = QuorumReads[str](count(10))
    assert reads.begin(0) is None, "nobody asks"
    reads.add("a")
    assert reads.begin(0) == 10
    reads.add("b")
    assert reads.begin(1) is None, "one round at a time"
    assert reads.answered(9) == []
    assert reads.answered(10) == ["a"]
    assert reads.confirmed == 10
    assert reads.begin(2) == 11
    assert reads.answered(11) == ["b"]


def test_a_round_that_is_lost_is_asked_for_again_with_all_that_wait() -> None:
    reads = QuorumReads[str](count(1))
    reads.add("a")
    assert reads.begin(0) == 1
    assert reads.due_in(100) == ASK_AGAIN_MS - 100
    reads.add("b")
    assert reads.begin(ASK_AGAIN_MS) == 2
    assert reads.answered(1) == [], "an answer to the lost one says nothing of b"
    assert reads.answered(2) == ["a", "b"]
    assert reads.due_in(ASK_AGAIN_MS) is None


def test_a_round_that_expiry_wants_has_a_number_above_all_earlier_ones() -> None:
    reads = QuorumReads[str](count(5))
    wanted = reads.next_round
    reads.want()
    began = reads.begin(0)
    assert began is not None
    assert began >= wanted
    reads.answered(began)
    assert reads.confirmed >= wanted
    assert reads.next_round > began


def test_reads_are_done_beside_the_loop_and_their_errors_told() -> None:
    fs = SimulatedDisk()
    directory = DataDirectory.open(fs, "/data", server=S1, entropy=random.Random(1).randbytes)
    log, _ = DeliveryDisk(fs, directory).open(GROUP)
    log.append([delivery(offset) for offset in range(5)], 5)
    log.close_segment()
    log.append([delivery(offset) for offset in range(5, 8)], 8)
    log.sync()
    log.cut(5)
    done: dict[int | None, tuple[ReadResult, str]] = {}
    arrived = threading.Semaphore(0)

    def on_read(task: ReadTask, result: ReadResult) -> None:
        offset = task.offset if isinstance(task, ReadDeliveries) else None
        done[offset] = result, threading.current_thread().name
        arrived.release()

    failures: list[BaseException] = []
    readers = DeliveryReaders(on_read, failures.append, threads=2)
    for offset in (5, 6, 0):
        readers.offer(ReadDeliveries(GROUP, log, offset, 1 << 20))
    readers.offer(FindOffset(GROUP, log, delivery(6).time))
    for _ in range(4):
        assert arrived.acquire(timeout=30)
    readers.stop()
    assert not failures
    found, thread = done[6]
    assert isinstance(found, list)
    assert [one.offset for one in found] == [6, 7]
    assert thread.startswith("zraft-reads-")
    assert isinstance(done[0][0], DeliveriesGoneError)
    assert done[None][0] == 6
