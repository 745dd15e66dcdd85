"""HyParView and Plumtree, by what their papers claim (O-16)."""

from __future__ import annotations

from random import Random

import pytest

from onyxlog.gossip.hyparview import HyParView
from onyxlog.gossip.messages import (
    Alive,
    Disconnect,
    ForwardJoin,
    Graft,
    IHave,
    Join,
    Neighbour,
    NeighbourReply,
    Prune,
    Send,
    Shuffle,
    ShuffleReply,
    TreeEvent,
)
from onyxlog.gossip.plumtree import ANNOUNCE_MS, Plumtree
from onyxlog.gossip.settings import settings_for
from onyxlog.gossip.simulation import NOTE, Conditions, Simulation
from onyxlog.gossip.spreading import Mode, SpreadingSettings
from onyxlog.ids import GroupId
from tests.onyxlog.gossip.harness import event

SETTINGS = SpreadingSettings(active=3, passive=6)
NAMES = tuple(f"g{n:03d}" for n in range(20))


def overlay(me: str = "g000", neighbours: tuple[str, ...] = ()) -> HyParView:
    view = HyParView(me, SETTINGS, Random(1), 0)
    list(view.membership(NAMES, 0))
    for group in neighbours:
        list(view.receive(group, Neighbour(urgent=True), 0))
    return view


def simulated(groups: int, seed: int = 1) -> tuple[Simulation, dict[GroupId, Plumtree]]:
    world = Simulation(groups, settings_for(Mode.PLUMTREE), Conditions(), seed)
    world.run(15_000)
    trees = {}
    for name, node in world.nodes.items():
        spreading = node.messenger._spreading
        assert isinstance(spreading, Plumtree)
        trees[name] = spreading
    return world, trees


def test_a_join_is_taken_in_at_once_and_walks_to_the_others() -> None:
    view = overlay(neighbours=("g001", "g002"))
    sent = list(view.receive("g009", Join(), 0))
    assert "g009" in view.active
    assert Send(("g001", "g002"), ForwardJoin("g009", SETTINGS.active_walk)) in sent


def test_a_full_active_view_gives_one_neighbour_up_and_tells_it() -> None:
    view = overlay(neighbours=("g001", "g002", "g003"))
    sent = list(view.receive("g009", Join(), 0))
    dropped = [send.to[0] for send in sent if isinstance(send.message, Disconnect)]
    assert len(dropped) == 1
    assert set(view.active) == ({"g001", "g002", "g003"} - set(dropped)) | {"g009"}
    assert dropped[0] in view.passive


def test_a_walk_ends_with_a_link_and_leaves_the_joiner_in_the_reserve_on_its_way() -> None:
    view = overlay(neighbours=("g001", "g002"))
    assert list(view.receive("g001", ForwardJoin("g009", 0), 0)) == [Send(("g009",), Neighbour(urgent=True))]
    full = overlay(neighbours=("g001", "g002"))
    sent = list(full.receive("g001", ForwardJoin("g019", SETTINGS.passive_walk), 0))
    assert sent == [Send(("g002",), ForwardJoin("g019", SETTINGS.passive_walk - 1))]


def test_only_who_has_nobody_cannot_be_refused() -> None:
    view = overlay(neighbours=("g001", "g002", "g003"))
    assert list(view.receive("g009", Neighbour(urgent=False), 0)) == [Send(("g009",), NeighbourReply(False))]
    assert "g009" not in view.active
    assert Send(("g009",), NeighbourReply(True)) in list(view.receive("g009", Neighbour(urgent=True), 0))
    assert "g009" in view.active


def test_a_neighbour_without_signs_of_life_is_replaced_from_the_reserve() -> None:
    view = overlay(neighbours=("g001", "g002", "g003"))
    asked: list[Send] = []
    for now in range(0, 10 * SETTINGS.alive_ms, 100):
        for alive in ("g001", "g002"):
            list(view.receive(alive, Alive(), now))
        asked += [send for send in view.tick(now) if isinstance(send.message, Neighbour)]
    assert "g003" not in view.active
    assert asked
    assert all(not send.message.urgent for send in asked if isinstance(send.message, Neighbour))


def test_a_link_that_only_one_end_knows_is_given_up() -> None:
    assert list(overlay().receive("g005", Alive(), 0)) == [Send(("g005",), Disconnect())]


def test_who_left_the_log_is_no_neighbour_and_no_reserve_any_more() -> None:
    view = overlay(neighbours=("g001", "g002", "g003"))
    known = set(view.passive)
    list(view.membership([name for name in NAMES if name not in {"g001", *known}], 0))
    assert "g001" not in view.active
    assert not known & set(view.passive)


def test_shuffles_walk_and_are_answered_with_as_many() -> None:
    view = overlay(neighbours=("g001", "g002"))
    onward = list(view.receive("g001", Shuffle("g009", ("g009", "g010"), 5), 0))
    assert onward == [Send(("g002",), Shuffle("g009", ("g009", "g010"), 4))]
    answered = list(view.receive("g001", Shuffle("g009", ("g009", "g010"), 1), 0))
    assert [send.to for send in answered] == [("g009",)]
    assert isinstance(answered[0].message, ShuffleReply)
    assert len(answered[0].message.groups) == 2


@pytest.mark.parametrize("groups", [2, 8, 55])
def test_links_are_known_at_both_ends_bounded_and_connect_everybody(groups: int) -> None:
    _, trees = simulated(groups)
    settings = settings_for(Mode.PLUMTREE).spreading
    links = {(a, b) for a, tree in trees.items() for b in tree.overlay.active}
    one_sided = {(a, b) for a, b in links if (b, a) not in links}
    assert not one_sided
    assert all(len(tree.overlay.active) <= settings.active for tree in trees.values())
    assert all(len(tree.overlay.passive) <= settings.passive for tree in trees.values())
    reached, front = set[str](), [min(trees)]
    while front:
        group = front.pop()
        if group not in reached:
            reached.add(group)
            front += trees[group].overlay.active
    assert reached == set(trees)


def test_a_tree_forms_in_which_an_event_is_received_once() -> None:
    world, trees = simulated(55)
    for _ in range(20):
        world.append(NOTE, "x", "group-00007")
        world.run(world.now + 300)
    position = world.append(NOTE, "x", "group-00007")
    world.run(world.now + 1000)
    track = world.tracks[position]
    assert set(track.spread) | track.publishers == set(world.nodes)
    assert sum(track.receptions.values()) == 54
    eager = {(a, b) for a, tree in trees.items() for b in tree.eager}
    assert len(eager) == 2 * 54, "a tree: one link less than groups, both ways"


def tree_with(*neighbours: str) -> Plumtree:
    tree = Plumtree("g000", SETTINGS, Random(1), 0)
    list(tree.overlay.membership(NAMES, 0))
    for group in neighbours:
        list(tree.receive(group, Neighbour(urgent=True), False, 0))
    return tree


def test_a_link_that_brought_what_was_known_becomes_lazy_and_is_told_so() -> None:
    tree = tree_with("g001", "g002")
    pushed = list(tree.receive("g001", TreeEvent(event(0, "g009")), True, 0))
    assert pushed == [Send(("g002",), TreeEvent(event(0, "g009"), 1))]
    assert list(tree.receive("g002", TreeEvent(event(0, "g009"), 4), False, 0)) == [Send(("g002",), Prune())]
    assert (tree.eager, tree.lazy) == (("g001",), ("g002",))


def test_lazy_links_are_told_of_events_in_batches() -> None:
    tree = tree_with("g001", "g002")
    list(tree.receive("g002", Prune(), False, 0))
    for position in range(3):
        list(tree.receive("g001", TreeEvent(event(position, "g009")), True, 0))
    told = [send for send in tree.tick(ANNOUNCE_MS) if isinstance(send.message, IHave)]
    assert told == [Send(("g002",), IHave(((0, 1), (1, 1), (2, 1))))]


def test_what_was_announced_and_does_not_come_is_grafted_from_one_after_the_other() -> None:
    tree = tree_with("g001", "g002")
    list(tree.receive("g001", Prune(), False, 0))
    list(tree.receive("g001", IHave(((0, 2),)), False, 0))
    list(tree.receive("g002", IHave(((0, 3),)), False, 0))
    grafts = [
        (now, send.to[0])
        for now in range(0, 900, 10)
        for send in tree.tick(now)
        if isinstance(send.message, Graft)
    ]
    first = SETTINGS.graft_ms
    assert grafts == [(first, "g001"), (first + SETTINGS.graft_again_ms, "g002")]
    assert "g001" in tree.eager


def test_who_grafts_gets_the_event_and_all_that_follow() -> None:
    tree = tree_with("g001", "g002")
    list(tree.receive("g002", Prune(), False, 0))
    list(tree.receive("g001", TreeEvent(event(0, "g009")), True, 0))
    assert list(tree.receive("g002", Graft(0, 1), False, 0)) == [
        Send(("g002",), TreeEvent(event(0, "g009"), 1))
    ]
    assert "g002" in tree.eager


def test_what_came_otherwise_is_not_grafted() -> None:
    tree = tree_with("g001")
    list(tree.receive("g001", IHave(((0, 2),)), False, 0))
    list(tree.learn(event(0, "g009"), 10))
    assert not [send for send in tree.tick(500) if isinstance(send.message, Graft)]


def test_who_is_given_up_asks_another_and_not_the_same_one_again_at_once() -> None:
    view = overlay(neighbours=("g001",))
    asked = [
        send.to[0] for send in view.receive("g001", Disconnect(), 0) if isinstance(send.message, Neighbour)
    ]
    assert len(asked) <= 1
    assert "g001" not in asked
    assert "g001" in view.passive or len(view.passive) == SETTINGS.passive


def test_groups_that_join_one_by_one_do_not_push_each_other_out_for_ever() -> None:
    world = Simulation(1, settings_for(Mode.PLUMTREE), Conditions(), 2)
    for _ in range(8):
        world.join()
        world.run(world.now + 100)
    world.run(world.now + 10_000)
    before = dict(world.datagrams)
    world.run(world.now + 10_000)
    assert world.datagrams.get("Disconnect", 0) - before.get("Disconnect", 0) <= 5
    assert not world.behind()
