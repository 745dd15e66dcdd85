"""Barriers cut what flows through a job at one point, and a job that begins again there counts every segment once."""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.jobs.barriers import Alignment, Barrier, BarrierError, WorkerKey
from onyxlog.jobs.checkpoints import (
    Checkpoint,
    CheckpointCoordinator,
    CompletedCheckpoint,
    part_path,
    version_path,
)
from tests.so_far import so_far


def b(number: int, version: int = 7) -> Barrier:
    return Barrier(version, number)


def test_a_barrier_is_complete_when_all_channels_have_brought_it() -> None:
    of = Alignment(7, "xyz")
    assert of.on_barrier("x", b(1)) is None
    assert so_far(of.aligning) == 1
    assert [of.is_blocked(channel) for channel in "xyz"] == [True, False, False]
    assert of.on_barrier("z", b(1)) is None
    assert of.on_barrier("y", b(1)) == b(1)
    assert of.aligning is None
    assert not any(of.is_blocked(channel) for channel in "xyz")
    assert of.on_barrier("y", b(2)) is None


def test_with_one_channel_every_barrier_is_complete_at_once() -> None:
    of = Alignment(7, ["coordinator"])
    assert [of.on_barrier("coordinator", b(number)) for number in (1, 2, 5)] == [b(1), b(2), b(5)]


def test_no_barrier_waits_for_a_channel_that_has_ended() -> None:
    of = Alignment(7, "xyz")
    assert of.on_end("x") is None
    assert of.on_barrier("y", b(1)) is None
    assert of.on_end("z") == b(1)
    assert not of.is_blocked("y")
    assert of.on_barrier("y", b(2)) == b(2)
    assert not of.ended
    assert of.on_end("y") is None
    assert of.ended


def test_barriers_of_older_allocations_do_nothing() -> None:
    of = Alignment(7, "xy")
    assert of.on_barrier("x", b(9, version=6)) is None
    assert not of.is_blocked("x")
    assert of.aligning is None


@pytest.mark.parametrize(
    ("story", "message"),
    [
        ([("x", b(1)), ("x", b(2))], "channel 'x' brought barrier 2 while it was blocked by barrier 1"),
        ([("x", b(1)), ("y", b(2))], "channel 'y' brought barrier 2, others have brought 1"),
        ([("x", b(1)), ("y", b(1)), ("x", b(1))], "channel 'x' brought barrier 1 after 1 was complete"),
        ([("x", b(1, version=8))], "brought a barrier of allocation version 8, this worker is of 7"),
        ([("q", b(1))], "barrier 1 came from 'q', which is no channel into this worker"),
        ([("q", None)], "its end came from 'q', which is no channel into this worker"),
        ([("x", None), ("x", b(1))], "channel 'x' brought barrier 1 after its end"),
        ([("x", None), ("x", None)], "channel 'x' brought its end after its end"),
        ([("x", b(1)), ("x", None)], "channel 'x' brought its end while it was blocked by barrier 1"),
    ],
)
def test_what_the_protocol_rules_out_is_an_error(
    story: list[tuple[str, Barrier | None]], message: str
) -> None:
    of = Alignment(7, "xy")

    def tell() -> None:
        for channel, barrier in story:
            of.on_end(channel) if barrier is None else of.on_barrier(channel, barrier)

    with pytest.raises(BarrierError) as caught:
        tell()
    assert message in str(caught.value)


def test_a_worker_that_began_from_a_checkpoint_takes_no_barrier_up_to_it() -> None:
    of = Alignment(7, "x", after=3)
    with pytest.raises(BarrierError, match="brought barrier 3 after 3 was complete"):
        of.on_barrier("x", b(3))
    assert of.on_barrier("x", b(4)) == b(4)


Item = int | Barrier | None
"""A segment, a barrier, or the end."""
INPUTS = (WorkerKey("in", 0), WorkerKey("in", 1))
MIDDLES = (WorkerKey("middle", 0), WorkerKey("middle", 1))
SINK = WorkerKey("sink", 0)
NEXT = {**dict.fromkeys(INPUTS, MIDDLES), **dict.fromkeys(MIDDLES, (SINK,)), SINK: ()}
LENGTH = 30


class Pipeline:
    """Two inputs, two workers between, and one that counts, with a channel for each edge; any of them may go next.

    The second input repeats every number, so that what was counted twice is not mistaken for what was there twice.
    """

    def __init__(self, version: int, random: Random, parts: dict[str, Any], last: Checkpoint | None) -> None:
        self.version, self.random, self.parts, self.last = version, random, parts, last
        workers = (*INPUTS, *MIDDLES, SINK)
        self.coordinator = CheckpointCoordinator(
            "job", version, workers, interval_ticks=20, timeout_ticks=60, last=last
        )
        after = last.barrier.number if last else 0
        self.channels: dict[tuple[WorkerKey, WorkerKey], deque[Item]] = {
            (source, to): deque() for source, nexts in NEXT.items() for to in nexts
        }
        self.alignments = {
            to: Alignment(version, [source for source, nexts in NEXT.items() if to in nexts], after)
            for to in (*MIDDLES, SINK)
        }
        self.read = {key: self.begin(key, 0) for key in INPUTS}
        self.seen = {key: Counter(self.begin(key, {})) for key in (*MIDDLES, SINK)}
        self.ended: set[WorkerKey] = set()
        self.to_inject: dict[WorkerKey, deque[Barrier]] = {key: deque() for key in INPUTS}
        self.sent = dict.fromkeys(INPUTS, after)
        self.completed: Checkpoint | None = last
        self.now = 0

    def begin(self, key: WorkerKey, empty: Any) -> Any:
        return self.parts[self.last.path_of(key)] if self.last else empty

    def store(self, key: WorkerKey, barrier: Barrier, state: object) -> None:
        self.parts[part_path("job", barrier, key)] = state
        self.heard(self.coordinator.on_stored(key, barrier))

    def heard(self, completed: CompletedCheckpoint | None) -> None:
        if completed is None:
            return
        self.completed = completed.checkpoint
        for path in completed.over:
            for each in [each for each in self.parts if each.startswith(f"{path}/")]:
                del self.parts[each]
        if self.last is not None:
            over = version_path("job", self.last.barrier.version)
            assert not any(each.startswith(f"{over}/") for each in self.parts)

    def step(self, drop_barriers: bool) -> bool:
        """One thing happens; False once all has ended."""
        self.now += 1
        if (barrier := self.coordinator.tick(self.now)) is not None and not drop_barriers:
            for key in INPUTS:
                self.to_inject[key].append(barrier)
        ready: list[tuple[WorkerKey | None, WorkerKey]] = [
            (None, key) for key in INPUTS if key not in self.ended
        ]
        ready += [
            (source, to)
            for (source, to), channel in self.channels.items()
            if channel and not self.alignments[to].is_blocked(source)
        ]
        if not ready:
            return False
        source, to = self.random.choice(ready)
        if source is None:
            self.on_input(to)
        else:
            self.on_item(source, to, self.channels[source, to].popleft())
        return True

    def send(self, key: WorkerKey, item: Item) -> None:
        nexts = NEXT[key]
        for to in nexts:
            if not isinstance(item, int) or nexts[item % len(nexts)] == to:
                self.channels[key, to].append(item)

    def on_input(self, key: WorkerKey) -> None:
        if self.to_inject[key]:
            barrier = self.to_inject[key].popleft()
            self.sent[key] = barrier.number
            self.store(key, barrier, self.read[key])
            self.send(key, barrier)
        elif self.read[key] < LENGTH:
            self.send(key, self.read[key] // (1 + key.slot))
            self.read[key] += 1
        else:
            self.finish(key, self.read[key], Barrier(self.version, self.sent[key] + 1))

    def finish(self, key: WorkerKey, state: object, barrier: Barrier) -> None:
        self.ended.add(key)
        self.parts[part_path("job", barrier, key)] = state
        self.heard(self.coordinator.on_finished(key, barrier))
        self.send(key, None)

    def on_item(self, source: WorkerKey, to: WorkerKey, item: Item) -> None:
        aligned = None
        if item is None:
            aligned = self.alignments[to].on_end(source)
        elif isinstance(item, Barrier):
            aligned = self.alignments[to].on_barrier(source, item)
        else:
            self.seen[to][item] += 1
            self.send(to, item)
        if aligned is not None:
            self.store(to, aligned, dict(self.seen[to]))
            self.send(to, aligned)
        if self.alignments[to].ended:
            self.finish(to, dict(self.seen[to]), self.alignments[to].final)


EXPECTED = Counter(range(LENGTH)) + Counter(number // 2 for number in range(LENGTH))


def cut(parts: dict[str, Any], checkpoint: Checkpoint) -> Counter[int]:
    """All that inputs had read at a checkpoint."""
    read = [parts[checkpoint.path_of(key)] for key in INPUTS]
    return Counter(number // (1 + slot) for slot, count in enumerate(read) for number in range(count))


@settings(max_examples=80)
@given(st.integers(0, 2**32))
def test_a_job_that_begins_again_from_its_last_checkpoint_counts_every_segment_once(seed: int) -> None:
    """Workers go in any order; all fail at any moment, several times; barriers get lost with their checkpoint."""
    random = Random(seed)
    parts: dict[str, Any] = {}
    last: Checkpoint | None = None
    checkpoints = 0
    for version in range(1, 100):
        pipeline = Pipeline(version, random, parts, last)
        life = random.randrange(400) if version < 8 else None
        while (life is None or pipeline.now < life) and pipeline.step(drop_barriers=random.random() < 0.3):
            if pipeline.completed is not last:
                last = pipeline.completed
                assert last is not None
                checkpoints += 1
                everything = cut(parts, last)
                assert Counter(parts[last.path_of(SINK)]) == everything
                middles = Counter[int]()
                for key in MIDDLES:
                    middles.update(parts[last.path_of(key)])
                assert middles == everything
        if SINK in pipeline.ended:
            break
    assert Counter(pipeline.seen[SINK]) == EXPECTED
    assert checkpoints > 0


def test_an_aligned_worker_does_not_read_on_from_a_channel_that_is_ahead() -> None:
    """The simulation above would pass by luck if channels never ran apart: here one is far ahead."""
    pipeline = Pipeline(1, Random(1), {}, None)
    fast, slow = INPUTS
    for key in INPUTS:
        pipeline.to_inject[key].append(Barrier(1, 1))
    pipeline.coordinator.begin(0)
    for _ in range(1 + LENGTH):
        pipeline.on_input(fast)
    blocked = pipeline.channels[fast, MIDDLES[0]]
    pipeline.on_item(fast, MIDDLES[0], blocked.popleft())
    assert pipeline.alignments[MIDDLES[0]].is_blocked(fast)
    assert len(blocked) == LENGTH / 2
    pipeline.on_input(slow)
    pipeline.on_item(slow, MIDDLES[0], pipeline.channels[slow, MIDDLES[0]].popleft())
    assert not pipeline.alignments[MIDDLES[0]].is_blocked(fast)
    assert pipeline.parts[part_path("job", Barrier(1, 1), MIDDLES[0])] == {}
