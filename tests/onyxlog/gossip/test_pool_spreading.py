"""One relayer for each event and arc, those who stand by, and the streams of before (2.6, D-21)."""

from __future__ import annotations

from collections import Counter

import pytest

from onyxlog.gossip.messages import Event, Known, PoolEvent, Seen, Send
from onyxlog.gossip.pool_spreading import PoolSpreading
from onyxlog.gossip.spreading import SpreadingSettings
from onyxlog.gossip.streams import Arc, Streams, View, ranked, view_of, weight
from onyxlog.ids import GroupId
from onyxlog.replica.pool import departed, joined
from tests.onyxlog.gossip.harness import event, fresh, pool_of

SETTINGS = SpreadingSettings()


class Fleet:
    """Groups that only spread; everything arrives at once, unless its sender or receiver is `dead`."""

    def __init__(self, groups: int, view: View | None = None) -> None:
        self.view = view or fresh(pool_of(groups))
        self.groups = {g: PoolSpreading(g, SETTINGS, self.view) for g in self.view.current.groups()}
        self.dead: set[GroupId] = set()
        self.received: Counter[GroupId] = Counter()
        self.publications: Counter[int] = Counter()
        self.hops: dict[GroupId, int] = {}
        self.small = 0

    def publish(self, what: Event, now: int = 0) -> None:
        self.deliver(what.publisher, self.groups[what.publisher].publish(what, now), now)

    def deliver(self, sender: GroupId, sends: object, now: int) -> None:
        queue = [(sender, send) for send in sends]  # type: ignore[attr-defined]
        while queue:
            sender, send = queue.pop(0)
            if send.stream is None:
                self.small += len(send.to)
            else:
                self.publications[send.stream] += 1
            for receiver in send.to:
                if receiver in self.dead:
                    continue
                first = False
                if isinstance(send.message, PoolEvent):
                    first = receiver not in self.received
                    self.received[receiver] += 1
                    self.hops.setdefault(receiver, send.message.hops + 1)
                queue += [
                    (receiver, s) for s in self.groups[receiver].receive(sender, send.message, first, now)
                ]

    def wait(self, until: int) -> None:
        for now in range(0, until + 1, 5):
            for group, spreading in self.groups.items():
                if group not in self.dead:
                    self.deliver(group, spreading.tick(now), now)


@pytest.mark.parametrize("size", [2, 3, 7, 8, 21, 55, 149])
def test_without_loss_an_event_is_published_once_on_each_stream_and_received_once_by_each_group(
    size: int,
) -> None:
    for position in range(3):
        fleet = Fleet(size)
        publisher = f"g{(7 * position) % size:03d}"
        fleet.publish(event(position, publisher))
        fleet.wait(1000)
        assert set(fleet.received) == set(fleet.groups) - {publisher}
        assert set(fleet.received.values()) == {1}
        streams = fleet.view.current
        wanted = {s for s in range(streams.count) if set(streams.listeners(s)) - {publisher}}
        assert fleet.publications == dict.fromkeys(wanted, 1)
        assert max(fleet.hops.values()) <= 2


def test_different_events_are_passed_on_by_different_groups() -> None:
    streams = fresh(pool_of(149)).current
    arc = Arc(0, 1)
    first = Counter(ranked(position, streams.on(arc), 1)[0] for position in range(4000))
    assert set(first) == set(streams.on(arc))
    assert max(first.values()) < 1.4 * 4000 / len(first)


def test_the_rank_of_a_group_does_not_depend_on_who_else_there_is() -> None:
    groups = tuple(f"g{n:03d}" for n in range(9))
    order = ranked(5, groups, 9)
    without = tuple(group for group in groups if group != order[0])
    assert ranked(5, without, 8) == order[1:]
    assert weight(5, "g001") != weight(6, "g001")


def test_when_the_first_is_dead_the_second_passes_it_on_after_a_while_and_then_nobody_else() -> None:
    fleet = Fleet(55)
    what = event(0, "g000")
    arc = fleet.view.current.arc("g000")
    assert arc is not None
    root = arc.publishes
    target = next(stream for stream in range(4) if stream not in (root,))
    order = ranked(0, fleet.view.current.on(Arc(root, target)), 3)
    fleet.dead = {order[0]}
    fleet.publish(what)
    listeners = set(fleet.view.current.listeners(target)) - {"g000"}
    assert not listeners & set(fleet.received)
    fleet.wait(SETTINGS.standby_ms - 5)
    assert not listeners & set(fleet.received)
    fleet.wait(1000)
    assert listeners <= set(fleet.received)
    assert fleet.publications[target] == 1
    assert set(fleet.received) == set(fleet.groups) - {"g000"} - fleet.dead


def test_when_all_that_are_asked_are_dead_the_rest_is_left_to_repair() -> None:
    fleet = Fleet(149)
    arc = fleet.view.current.arc("g000")
    assert arc is not None
    target = (arc.publishes + 1) % 5
    fleet.dead = set(ranked(0, fleet.view.current.on(Arc(arc.publishes, target)), 3))
    fleet.publish(event(0, "g000"))
    fleet.wait(2000)
    assert not set(fleet.view.current.listeners(target)) & set(fleet.received)


def standing_by(size: int = 55) -> tuple[PoolSpreading, PoolEvent, Streams, int]:
    """The second on some arc, which has received an event, and the stream it would pass it on to."""
    view = fresh(pool_of(size))
    streams = view.current
    arc = streams.arc("g000")
    assert arc is not None
    target = (arc.publishes + 1) % streams.count
    second = ranked(0, streams.on(Arc(arc.publishes, target)), 2)[1]
    spreading = PoolSpreading(second, SETTINGS, view)
    copy = PoolEvent(event(0, "g000"), streams.count, arc.publishes, arc.publishes)
    assert list(spreading.receive("g000", copy, True, 0)) == []
    assert spreading.deadline() == SETTINGS.standby_ms
    return spreading, copy, streams, target


def test_who_stands_by_is_told_that_it_need_not() -> None:
    spreading, _, _, target = standing_by()
    list(spreading.receive("g009", Seen(target, (0,)), False, 10))
    assert spreading.deadline() is None
    assert list(spreading.tick(10_000)) == []


def test_that_another_stream_has_it_does_not_release_who_stands_by() -> None:
    spreading, _, streams, target = standing_by()
    list(spreading.receive("g009", Seen((target + 1) % streams.count, (0,)), False, 10))
    list(spreading.receive("g009", Seen(target, (1, 2)), False, 10))
    list(spreading.receive("g009", Known(0), False, 10))
    sent = list(spreading.tick(SETTINGS.standby_ms))
    assert [send.stream for send in sent] == [target]


def test_a_listener_that_is_as_far_by_its_heartbeat_releases_who_stands_by() -> None:
    spreading, _, streams, target = standing_by()
    spreading.knows(streams.listeners(target)[0], 0, 10)
    assert spreading.deadline() is None


def test_an_event_of_before_a_change_of_streams_goes_by_the_streams_of_then() -> None:
    before = pool_of(20)
    after = joined(before, "g020")
    view = view_of(after.streams, after.arcs, fresh(before))
    assert view.current.count == 3
    assert view.of_deal(3) is view.current
    assert view.of_deal(9) is view.current, "unknown: the best there is"
    fleet = Fleet(21, view)
    streams = view.of_deal(2)
    arc = streams.arc("g003")
    assert arc is not None
    copy = PoolEvent(event(0, "g003"), 2, arc.publishes, arc.publishes)
    to = tuple(group for group in streams.listeners(arc.publishes) if group != "g003")
    fleet.deliver("g003", [Send(to, copy, arc.publishes)], 0)
    assert set(fleet.received) == set(before.arcs) - {"g003"}
    assert set(fleet.received.values()) == {1}


def test_an_arc_without_groups_is_gone_round() -> None:
    pool = pool_of(21)
    victims = [group for group, arc in pool.arcs.items() if arc.ends == (0, 2)]
    for victim in victims:
        pool = departed(pool, victim)
    view = fresh(pool)
    assert view.current.on(Arc(0, 2)) == ()
    assert view.current.passes_on(0, Arc(0, 1))
    assert view.current.passes_on(0, Arc(1, 2))
    fleet = Fleet(0, view)
    publisher = next(group for group, arc in pool.arcs.items() if arc.publish == 0)
    fleet.publish(event(0, publisher))
    fleet.wait(1000)
    assert set(fleet.received) == set(fleet.groups) - {publisher}
    assert max(fleet.hops.values()) == 3


def test_who_has_not_joined_publishes_nothing() -> None:
    spreading = PoolSpreading("stranger", SETTINGS, fresh(pool_of(8)))
    assert list(spreading.publish(event(0, "stranger"), 0)) == []
