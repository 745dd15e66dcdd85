"""Which partition a message goes to."""

from __future__ import annotations

from collections import Counter

import pytest

from zraft_core.ids import GroupId
from zraft_core.topics.partitioner import NoPartitionError, RoundRobin, by_key, layer

ONE = tuple(map(GroupId, (2, 4, 6, 8)))
OTHER = tuple(map(GroupId, (12, 14, 16, 18)))
SMALL = (GroupId(20), GroupId(22))


def test_a_key_has_one_partition_and_keys_spread() -> None:
    keys = [b"key %d" % n for n in range(4000)]
    chosen = [by_key(key, ONE) for key in keys]
    assert chosen == [by_key(key, ONE) for key in keys]
    assert by_key(b"order 66", ONE) == 4, "the same in every process and release"
    assert all(850 < count < 1150 for count in Counter(chosen).values())


def test_a_layer_is_the_same_place_in_every_topic() -> None:
    for n in range(100):
        one, other, small = layer(b"%d" % n, [ONE, OTHER, SMALL])
        assert ONE.index(one) == OTHER.index(other)
        assert SMALL.index(small) == ONE.index(one) % 2


def test_round_robin_takes_turns_per_topic() -> None:
    turns = RoundRobin()
    assert [turns.choose("a", SMALL) for _ in range(3)] == [20, 22, 20]
    assert turns.choose("b", SMALL) == 20
    assert [turns.choose("a", ONE) for _ in range(4)] == [4, 6, 8, 2], "a topic that grew goes on"


def test_a_topic_without_partitions_is_an_error() -> None:
    with pytest.raises(NoPartitionError, match="found none"):
        by_key(b"x", ())
