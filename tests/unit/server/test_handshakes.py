"""Handshakes in slices, and deadlines: without sockets, with a clock that the test moves."""

from __future__ import annotations

from zraft.server.process.deadlines import Deadlines
from zraft.server.process.newcomers import PATIENCE_S
from zraft.server.process.security.handshakes import SLICE_S, Handshakes


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class One:
    """A handshake of so many steps."""

    def __init__(self, queue: Handshakes, clock: Clock, cost_s: float = 0.001, steps: int = 1) -> None:
        self._queue, self._clock, self._cost_s = queue, clock, cost_s
        self.left = steps
        self.stepped = 0
        self.displaced = False

    def displace_handshake(self) -> None:
        self.displaced = True

    def step_handshake(self) -> None:
        self._clock.now += self._cost_s
        self.stepped += 1
        self.left -= 1
        if not self.left:
            self._queue.finish(self)


def test_a_storm_is_worked_off_in_slices_first_come_first_served() -> None:
    clock = Clock()
    queue = Handshakes(1_000, clock)
    storm = [One(queue, clock) for _ in range(100)]
    for one in storm:
        assert queue.begin(one, "10.0.0.1")
        queue.feed(one)
    slices = 0
    while queue.ready:
        begin = clock.now
        queue.run()
        slices += 1
        assert clock.now - begin <= SLICE_S + 0.001 + 1e-9
        done = [one.stepped for one in storm]
        assert done == sorted(done, reverse=True)
    assert slices >= 100 * 0.001 / (SLICE_S + 0.001)
    assert len(queue) == 0


def test_a_step_longer_than_a_slice_is_taken_alone() -> None:
    clock = Clock()
    queue = Handshakes(10, clock)
    slow = [One(queue, clock, cost_s=1.0) for _ in range(3)]
    for one in slow:
        queue.begin(one, "10.0.0.1")
        queue.feed(one)
    queue.run()
    assert [one.stepped for one in slow] == [1, 0, 0]


def test_more_than_the_limit_are_not_begun_and_are_counted() -> None:
    clock = Clock()
    queue = Handshakes(2, clock)
    first, second, third = (One(queue, clock) for _ in range(3))
    assert queue.begin(first, "10.0.0.1")
    assert queue.begin(second, "10.0.0.1")
    assert not queue.begin(third, "10.0.0.1")
    assert queue.exceeded_total == 1
    queue.finish(first)
    queue.finish(first)
    assert queue.begin(third, "10.0.0.1")
    assert len(queue) == 2


def test_whoever_lets_others_wait_for_too_long_makes_room_but_not_who_waits_for_this_server() -> None:
    clock = Clock()
    queue = Handshakes(2, clock)
    stepping, silent, late = (One(queue, clock) for _ in range(3))
    for one in (stepping, silent):
        assert queue.begin(one, "10.0.0.1")
    queue.feed(stepping)
    clock.now += PATIENCE_S
    assert queue.begin(late, "10.0.0.1")
    assert [one.displaced for one in (stepping, silent, late)] == [False, True, False]
    assert queue.exceeded_total == 1
    assert len(queue) == 2


def test_what_is_fed_twice_is_stepped_once_and_what_ended_not_at_all() -> None:
    clock = Clock()
    queue = Handshakes(10, clock)
    twice, ended = One(queue, clock, steps=2), One(queue, clock)
    for one in (twice, ended):
        queue.begin(one, "10.0.0.1")
        queue.feed(one)
        queue.feed(one)
    queue.finish(ended)
    queue.run()
    assert (twice.stepped, ended.stepped) == (1, 0)
    assert not queue.ready
    queue.feed(ended)
    queue.feed(twice)
    queue.run()
    assert (twice.stepped, ended.stepped) == (2, 0)
    assert len(queue) == 0


def test_deadlines_are_due_in_the_order_they_were_started_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines(10.0)
    for n, name in enumerate("abcd"):
        deadlines.start(name, float(n))
    deadlines.stop("b")
    deadlines.start("a", 3.5)
    assert deadlines.due(11.9) == []
    assert deadlines.due(12.0) == ["c"]
    assert deadlines.due(13.4) == ["d"]
    assert deadlines.due(100.0) == ["a"]
    assert deadlines.due(100.0) == []
    deadlines.stop("a")
    assert len(deadlines) == 0
