"""Workers: closed and open loops against a target on a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.onyxlog.simulation.virtual_time import run_virtually
from zraft_bench.load.workers import Load
from zraft_bench.load.workload import Operation, Share, Workload
from zraft_bench.results import Part
from zraft_bench.targets.target import RequestFailedError


class FakeTarget:
    """Answers after `takes(time)` seconds."""

    def __init__(self, takes: Callable[[float], float] = lambda _: 0.01) -> None:
        self._takes = takes
        self.written: list[int] = []
        self.read_keys: list[int] = []
        self.prepared: list[int] = []
        self.under_way = 0
        self.under_way_max = 0
        self.closed = False
        self.fails = False

    async def open(self) -> None:
        pass

    async def prepare(self, keys: Sequence[int], value: bytes) -> None:
        self.prepared += keys

    async def _answer(self) -> None:
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        await asyncio.sleep(self._takes(asyncio.get_running_loop().time()))
        self.under_way -= 1
        if self.fails:
            raise RequestFailedError("CONNECTION_LOSS", unknown=True)

    async def write(self, key: int, value: bytes) -> None:
        self.written.append(key)
        await self._answer()

    async def read(self, key: int) -> None:
        self.read_keys.append(key)
        await self._answer()

    async def close(self) -> None:
        self.closed = True


def measured(workload: Workload, *targets: FakeTarget, workers: int | None = None) -> Part:
    async def main() -> Part:
        loop = asyncio.get_running_loop()
        share = Share(0, workers or workload.workers, workers or workload.workers)
        load = Load(workload, share, targets, clock=loop.time, cpu_clock=lambda: 0.0)
        await load.prepare()
        part = await load.run()
        await load.close()
        return part

    return run_virtually(main())


def test_rounds_are_repeated_until_the_time_is_over_and_the_last_is_finished() -> None:
    """Z-27 with the rule that a cell runs long enough: 5 workers x 2 requests of 10 ms = 20 ms a round."""
    target = FakeTarget()
    part = measured(Workload(entries=10, workers=5, seconds_min=0.05, warm_up_s=0.0), target)
    assert part.rounds_s == pytest.approx([0.02] * 3)
    assert part.acknowledged == 30
    assert part.ended_s - part.began_s == pytest.approx(0.06)
    assert sorted(target.written) == sorted(list(range(10)) * 3)
    assert target.under_way_max == 5
    assert sorted(target.prepared) == list(range(10))
    assert target.closed


def test_without_a_time_there_is_one_round() -> None:
    assert (
        measured(Workload(entries=7, workers=3, seconds_min=0.0, warm_up_s=0.0), FakeTarget()).acknowledged
        == 7
    )


def test_the_warm_up_is_not_measured() -> None:
    target = FakeTarget()
    part = measured(Workload(entries=10, workers=10, seconds_min=0.0, warm_up_s=0.1), target)
    assert part.acknowledged == 10
    assert len(target.written) > 10


def test_latencies_of_a_closed_loop_are_from_sending_to_the_answer() -> None:
    part = measured(Workload(entries=10, workers=1, seconds_min=0.0, warm_up_s=0.0), FakeTarget())
    assert part.latencies.summary().max_ms == pytest.approx(10)
    assert part.service is None


def stall(at: float) -> float:
    """A server that answers after 1 ms, but stands still from second 1 to second 2."""
    return 2.0 - at + 0.001 if 1.0 <= at < 2.0 else 0.001


def test_an_open_loop_counts_what_was_due_while_the_server_stood_still() -> None:
    """No coordinated omission: a second of standstill at 100/s is a hundred slow requests, not one per worker."""
    load = Workload(entries=100, workers=2, seconds_min=3.0, warm_up_s=0.0, rate=100.0)
    part = measured(load, FakeTarget(stall))
    assert part.acknowledged == 300
    assert part.service is not None
    slow = 1 - part.latencies.share_below(50)
    assert 0.28 < slow < 0.34  # the 95 or so that were due more than 50 ms before the server went on
    # From sending to the answer, only those look slow that were under way, one for each worker.
    assert round((1 - part.service.share_below(50)) * 300) == 2
    assert part.late_s_max == pytest.approx(1.0, abs=0.05)


def test_a_closed_loop_hides_the_same_standstill() -> None:
    """Why there is an open loop: here the two workers just wait."""
    load = Workload(entries=2, workers=2, seconds_min=3.0, warm_up_s=0.0)
    assert 1 - measured(load, FakeTarget(stall)).latencies.share_below(50) < 0.01


def test_an_open_loop_sends_at_its_rate_whatever_the_answers() -> None:
    load = Workload(entries=100, workers=50, seconds_min=2.0, warm_up_s=0.0, rate=200.0)
    assert measured(load, FakeTarget(lambda _: 0.2)).acknowledged == 400


def test_failed_requests_are_counted_and_the_load_goes_on() -> None:
    target = FakeTarget()
    target.fails = True
    part = measured(Workload(entries=6, workers=2, seconds_min=0.0, warm_up_s=0.0), target)
    assert (part.acknowledged, part.failed, part.unknown) == (0, 0, 6)
    assert part.failures == {"CONNECTION_LOSS": 6}


def test_a_test_that_would_take_for_ever_is_cut_and_says_so() -> None:
    """A cell with results like Z-32's unstable ones must end, too."""
    load = Workload(entries=1000, workers=1, seconds_min=1.0, warm_up_s=0.0, deadline_s=5.0)
    part = measured(load, FakeTarget(lambda _: 1.0))
    assert part.acknowledged == 7
    assert part.not_asked == 993
    assert part.rounds_s == ()
    slow_open = Workload(entries=9, workers=1, seconds_min=1.0, warm_up_s=0.0, deadline_s=5.0, rate=100.0)
    part = measured(slow_open, FakeTarget(lambda _: 1.0))
    assert (part.acknowledged, part.not_asked) == (7, 93)


def test_workers_share_connections_evenly() -> None:
    targets = [FakeTarget(), FakeTarget(), FakeTarget()]
    measured(Workload(entries=9, workers=9, seconds_min=0.0, warm_up_s=0.0), *targets)
    assert [len(target.written) for target in targets] == [3, 3, 3]


def test_a_mixed_load_reads_its_share() -> None:
    target = FakeTarget()
    load = Workload(
        operation=Operation.MIXED, read_share=0.75, entries=2000, workers=10, seconds_min=0.0, warm_up_s=0.0
    )
    measured(load, target)
    assert len(target.read_keys) + len(target.written) == 2000
    assert abs(len(target.read_keys) - 1500) < 100


def test_a_process_without_an_entry_of_its_own_takes_part_in_an_open_loop() -> None:
    load = Workload(entries=2, workers=4, seconds_min=1.0, warm_up_s=0.0, rate=40.0)
    assert measured(load, FakeTarget()).acknowledged == 40
