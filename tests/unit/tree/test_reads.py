"""Reads from the applied state: rights, missing znodes, masking (traps 7, 14, 34, 40)."""

from __future__ import annotations

import pytest

from tests.unit.tree.scenario import EPHEMERAL, Scenario
from zraft.tree.reads import (
    DescendantCount,
    countable,
    exists,
    get_acl,
    get_children,
    get_data,
    get_ephemerals,
)
from zraft_core.errors import Code
from zraft_core.znodes.acl import ADMIN, ALL, CREATE, READ, WRITE


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


@pytest.mark.parametrize("read", [exists, get_data, get_children])
def test_read_needs_read_on_the_znode(scenario: Scenario, read: object) -> None:
    """Trap 14."""
    assert callable(read)
    scenario.create("/open")
    scenario.create("/closed", acl=((ALL & ~READ, "world", "anyone"),))
    assert read(scenario.machine, "/open", ()) is scenario.node("/open")
    assert read(scenario.machine, "/closed", ()) is Code.NO_AUTH
    assert read(scenario.machine, "/no", ()) is Code.NO_NODE
    assert read(scenario.machine, "not/a//path", ()) is Code.NO_NODE
    assert read(scenario.machine, "/\0", ()) is (Code.BAD_ARGUMENTS if read is exists else Code.NO_NODE)
    assert read(scenario.machine, "", ()) is scenario.node("/")


def test_acl_is_shown_to_readers_and_admins(scenario: Scenario) -> None:
    """Trap 14."""
    for name, bits in (("r", READ), ("a", ADMIN), ("w", WRITE | CREATE)):
        scenario.create(f"/{name}", acl=((bits, "world", "anyone"),))
    assert get_acl(scenario.machine, "/r", ()) == (((READ, "world", "anyone"),), scenario.node("/r"))
    assert get_acl(scenario.machine, "/a", ()) == (((ADMIN, "world", "anyone"),), scenario.node("/a"))
    assert get_acl(scenario.machine, "/w", ()) is Code.NO_AUTH
    assert get_acl(scenario.machine, "/no", ()) is Code.NO_NODE
    assert get_acl(scenario.machine, "/\0", ()) is Code.NO_NODE


def test_password_hashes_are_masked_without_admin(scenario: Scenario) -> None:
    """Trap 14."""
    secret = (ALL, "digest", "user:hash=")
    scenario.create("/d", acl=(secret, (READ, "world", "anyone")))
    result = get_acl(scenario.machine, "/d", ())
    assert not isinstance(result, Code)
    assert result[0] == ((ALL, "digest", "user:x"), (READ, "world", "anyone"))
    scenario.node("/d").acl = (secret, (READ | ADMIN, "world", "anyone"))
    result = get_acl(scenario.machine, "/d", ())
    assert not isinstance(result, Code)
    assert result[0][0] == secret


def test_ephemerals_are_found_by_string_prefix(scenario: Scenario) -> None:
    """Trap 34."""
    for path in ("/ab", "/a", "/b"):
        scenario.create(path, flags=EPHEMERAL)
    scenario.create("/a-persistent")
    session = scenario.session.id
    assert get_ephemerals(scenario.machine, session, "/a") == ["/a", "/ab"]
    assert get_ephemerals(scenario.machine, session, "") == get_ephemerals(scenario.machine, session, "/")
    assert get_ephemerals(scenario.machine, session, "/") == ["/a", "/ab", "/b"]
    assert get_ephemerals(scenario.machine, session + 1, "/") == []


def test_descendants_are_counted_below_the_path(scenario: Scenario) -> None:
    """Trap 40: ZooKeeper's "/" is all znodes but its two names of the root; and "/" is below ""."""
    for path in ("/a", "/a/b", "/a/b/c", "/a/d", "/ab"):
        scenario.create(path)
    for path, expected in (("/a", 3), ("/ab", 0), ("/", 3 + 5), ("", 3 + 5 + 1), ("/a/b/c", 0)):
        for shards in (1, 7, 1000):
            count = DescendantCount(scenario.machine, path)
            while not count.step(shards):
                pass
            assert count.number == expected


def test_descendants_are_counted_only_for_readers(scenario: Scenario) -> None:
    scenario.create("/closed", acl=((ALL & ~READ, "world", "anyone"),))
    assert countable(scenario.machine, "/closed", ()) is Code.NO_AUTH
    assert countable(scenario.machine, "/no", ()) is Code.NO_NODE
    assert countable(scenario.machine, "/", ()) is Code.OK
