"""Large directories: many children behave as a set of paths does, and grow without a stall."""

from __future__ import annotations

import random

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.tree.children import SPLIT_AT, ManyChildren, names_of
from zraft.tree.node import Znode
from zraft.tree.reads import get_children, listing_bytes
from zraft_core.errors import Code
from zraft_core.wire.jute import encode_texts
from zraft_core.znodes.acl import OPEN_ACL


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.events()
    return scenario


def test_many_children_behave_like_a_set_of_paths(seed: int) -> None:
    rng = random.Random(seed)
    plain = {f"/ü/é{n}" for n in range(1000)}
    many = ManyChildren(plain)
    for _ in range(5000):
        path = f"/ü/é{rng.randrange(2000)}"
        assert (path in many) == (path in plain)
        if path in plain:
            plain.remove(path)
            many.remove(path)
        else:
            plain.add(path)
            many.add(path)
        assert len(many) == len(plain)
    assert set(many) == plain
    assert many.path_bytes == sum(len(path.encode()) for path in plain)
    assert set(names_of("/ü", many)) == {path[3:] for path in plain}


@pytest.mark.parametrize("above", ["/", "/d", "/ä/b"])
@pytest.mark.parametrize("many", [False, True])
def test_a_listing_is_as_long_as_it_is_said_to_be(above: str, many: bool) -> None:
    prefix = above if above != "/" else ""
    children = dict.fromkeys(f"{prefix}/{'n' * n}" for n in range(1, 20))
    node = Znode(b"", OPEN_ACL, 1, 0, 0)
    node.children = ManyChildren(children) if many else children
    assert listing_bytes(above, node) == len(encode_texts(names_of(above, node.children))) - 4


def test_a_numbered_child_is_added_unless_it_is_there_or_below_the_first(seed: int) -> None:
    rng = random.Random(seed)
    one, other = ManyChildren(), ManyChildren()
    for _ in range(3000):
        number = rng.choice((rng.randrange(2000), rng.randrange(10**9)))
        path = f"/q/{rng.choice(('', 'q-'))}{number:010d}"
        if rng.random() < 0.01:
            first = max(one.first, rng.randrange(1500))
            assert one.truncate(first) == other.truncate(first)
        is_new = path not in other
        if is_new:
            other.add(path)
        assert one.add_numbered(number, path) is is_new
        assert (len(one), one.path_bytes) == (len(other), other.path_bytes)
    assert set(one) == set(other)


def test_large_directory_is_created_listed_and_deleted_again(scenario: Scenario) -> None:
    scenario.create("/d")
    total = SPLIT_AT + 50
    for n in range(total):
        scenario.create(f"/d/{n}")
        scenario.machine.events.clear()
    node = scenario.node("/d")
    assert isinstance(node.children, ManyChildren)
    assert (node.num_children, node.cversion) == (total, total)
    found = get_children(scenario.machine, "/d", ())
    assert not isinstance(found, Code)
    assert set(names_of("/d", found.children)) == {str(n) for n in range(total)}
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
