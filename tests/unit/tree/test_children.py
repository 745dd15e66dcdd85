"""Large directories: the names of many children behave as a set does, and grow without a stall."""

from __future__ import annotations

import random

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.tree.children import SPLIT_AT, ManyNames
from zraft.tree.reads import get_children
from zraft_core.errors import Code


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.events()
    return scenario


def test_many_names_behave_like_a_set(seed: int) -> None:
    rng = random.Random(seed)
    plain = {f"é{n}" for n in range(1000)}
    many = ManyNames(plain)
    for _ in range(5000):
        name = f"é{rng.randrange(2000)}"
        assert (name in many) == (name in plain)
        if name in plain:
            plain.remove(name)
            many.remove(name)
        else:
            plain.add(name)
            many.add(name)
        assert len(many) == len(plain)
    assert set(many) == plain
    assert many.name_bytes == sum(len(name.encode()) for name in plain)


def test_a_numbered_name_is_added_unless_it_is_there_or_below_the_first(seed: int) -> None:
    rng = random.Random(seed)
    one, other = ManyNames(), ManyNames()
    for _ in range(3000):
        number = rng.choice((rng.randrange(2000), rng.randrange(10**9)))
        name = f"{rng.choice(('', 'q-'))}{number:010d}"
        if rng.random() < 0.01:
            first = max(one.first, rng.randrange(1500))
            assert one.truncate(first) == other.truncate(first)
        is_new = name not in other
        if is_new:
            other.add(name)
        assert one.add_numbered(number, name) is is_new
        assert (len(one), one.name_bytes) == (len(other), other.name_bytes)
    assert set(one) == set(other)


def test_large_directory_is_created_listed_and_deleted_again(scenario: Scenario) -> None:
    scenario.create("/d")
    total = SPLIT_AT + 50
    for n in range(total):
        scenario.create(f"/d/{n}")
        scenario.machine.events.clear()
    node = scenario.node("/d")
    assert isinstance(node.children, ManyNames)
    assert (node.num_children, node.cversion) == (total, total)
    found = get_children(scenario.machine, "/d", ())
    assert not isinstance(found, Code)
    assert set(found.children or ()) == {str(n) for n in range(total)}
    assert scenario.create("/d/7") is Code.NODE_EXISTS
    for n in range(total):
        assert scenario.delete(f"/d/{n}") is Code.OK
        scenario.machine.events.clear()
    assert scenario.node("/d").children is None
    assert scenario.delete("/d") is Code.OK


def test_failed_multi_across_the_split_leaves_the_names_as_they_were(scenario: Scenario) -> None:
    scenario.create("/d")
    for n in range(SPLIT_AT - 1):
        scenario.create(f"/d/{n}")
        scenario.machine.events.clear()
    before = scenario.names("/d")
    scenario.multi((1, "/d/new", b"", None, 0, 0), (1, "/d/newer", b"", None, 0, 0), (2, "/none", -1))
    assert scenario.names("/d") == before
    assert scenario.create("/d/new") == "/d/new"
    assert len(scenario.names("/d")) == SPLIT_AT
