"""Quotas: the text they are written in, what is counted, and when they refuse."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.tree.scenario import Scenario, create
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.quota import Quota, Quotas
from zraft_core.errors import Code
from zraft_core.znodes.txn import DELETE, SET_DATA, SETTINGS

LIMITS, STATS = "zookeeper_limits", "zookeeper_stats"


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.events()
    return scenario


def set_quota(scenario: Scenario, path: str, limits: bytes) -> None:
    """As ZooKeeper's shell does it."""
    quota_path = "/zookeeper/quota"
    for part in path[1:].split("/"):
        quota_path += "/" + part
        scenario.create(quota_path)
    assert scenario.create(f"{quota_path}/{LIMITS}", limits) == f"{quota_path}/{LIMITS}"
    assert scenario.create(f"{quota_path}/{STATS}", b"count=0,bytes=0") == f"{quota_path}/{STATS}"


def usage(scenario: Scenario, path: str) -> bytes | None:
    return scenario.node(f"/zookeeper/quota{path}/{STATS}").data


@pytest.fixture
def enforced(scenario: Scenario) -> Scenario:
    assert scenario.by_leader((SETTINGS, {"quota_enforced": 1})) is Code.OK
    return scenario


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"count=3,bytes=-1", Quota(3, -1)),
        (b"count=-1,bytes=5=;byteHardLimit=7;countHardLimit=9", Quota(-1, 5, 9, 7)),
        (b"", Quota()),
        (None, Quota()),
        (b"count=x,bytes=\xff,=,;;", Quota()),
        (b"count=99999999999999999999", Quota()),
    ],
)
def test_text_of_a_quota_is_read_as_clients_write_it(text: bytes | None, expected: Quota) -> None:
    assert Quota.parse(text) == expected


def test_deepest_quota_above_a_path_counts() -> None:
    quotas = Quotas()
    quotas.limited |= {"/a", "/a/b"}
    assert [quotas.above(path) for path in ("/a/b/c", "/a/b", "/a/bc", "/ab", "/", "")] == [
        "/a/b", "/a/b", "/a", None, None, None,
    ]  # fmt: skip


def test_usage_begins_with_what_is_there_and_follows_every_change(scenario: Scenario) -> None:
    scenario.create("/a", b"12")
    scenario.create("/a/b", b"345")
    scenario.create("/ab", b"not below /a")
    set_quota(scenario, "/a", b"count=1,bytes=1")
    assert usage(scenario, "/a") == b"count=2,bytes=5"
    scenario.create("/a/e", b"6789", flags=1)
    scenario.set_data("/a/b", None)
    assert usage(scenario, "/a") == b"count=3,bytes=6"
    scenario.close()
    assert usage(scenario, "/a") == b"count=2,bytes=2", "ephemerals of an ended session are given back"


def test_usage_moves_neither_version_nor_zxid_and_tells_no_watcher(scenario: Scenario) -> None:
    scenario.create("/a")
    set_quota(scenario, "/a", b"count=9,bytes=9")
    before = scenario.stat(f"/zookeeper/quota/a/{STATS}")
    scenario.events()
    scenario.create("/a/b", b"x")
    assert scenario.events() == [(1, "/a/b"), (4, "/a")]
    assert scenario.stat(f"/zookeeper/quota/a/{STATS}") == before._replace(
        data_length=len(b"count=2,bytes=1")
    )


def test_hard_limits_refuse_only_if_quotas_are_enforced(scenario: Scenario) -> None:
    scenario.create("/a", b"")
    set_quota(scenario, "/a", b"count=-1,bytes=-1=;countHardLimit=2;byteHardLimit=3")
    assert scenario.create("/a/1", b"1234") == "/a/1"
    assert scenario.create("/a/2") == "/a/2"
    scenario.by_leader((SETTINGS, {"quota_enforced": 1}))
    assert scenario.create("/a/3") is Code.QUOTA_EXCEEDED
    assert scenario.delete("/a/2") is Code.OK
    assert scenario.set_data("/a", b"x") is Code.QUOTA_EXCEEDED
    assert not isinstance(scenario.set_data("/a/1", b""), Code), "less is always welcome"
    assert not isinstance(scenario.set_data("/a", b"123"), Code)


def test_quota_is_checked_after_existence_and_before_the_version(enforced: Scenario) -> None:
    enforced.create("/a", b"")
    set_quota(enforced, "/a", b"count=1,bytes=1=;countHardLimit=1;byteHardLimit=1")
    assert enforced.create("/a/b/c") is Code.NO_NODE
    assert enforced.set_data("/a", b"12", version=77) is Code.QUOTA_EXCEEDED
    assert enforced.set_data("/a", b"1", version=77) is Code.BAD_VERSION


def test_soft_limit_is_reported_and_not_refused(enforced: Scenario) -> None:
    enforced.create("/a", b"")
    set_quota(enforced, "/a", b"count=1,bytes=-1")
    assert enforced.create("/a/b") == "/a/b"
    assert enforced.machine.quotas.exceeded == {"/a"}


@pytest.mark.parametrize("limits", [b"count=1,bytes=-1", b"count=-1,bytes=-1=;countHardLimit=1"])
def test_any_limit_is_reported_where_quotas_are_not_enforced(scenario: Scenario, limits: bytes) -> None:
    """The log is all that an operator has then."""
    scenario.create("/a", b"")
    set_quota(scenario, "/a", limits)
    assert scenario.create("/a/b") == "/a/b"
    assert scenario.machine.quotas.exceeded == {"/a"}


def test_quota_ends_with_its_limits(enforced: Scenario) -> None:
    enforced.create("/a", b"")
    set_quota(enforced, "/a", b"count=1,bytes=-1=;countHardLimit=1")
    assert enforced.create("/a/b") is Code.QUOTA_EXCEEDED
    assert enforced.delete(f"/zookeeper/quota/a/{LIMITS}") is Code.OK
    assert enforced.create("/a/b") == "/a/b"
    assert usage(enforced, "/a") == b"count=1,bytes=0", "nobody counts any more"


def test_failed_multi_leaves_usage_and_quotas_as_they_were(enforced: Scenario) -> None:
    enforced.create("/a", b"")
    enforced.create("/b", b"")
    set_quota(enforced, "/a", b"count=-1,bytes=-1=;countHardLimit=3")
    for path in ("/zookeeper/quota/b",):
        enforced.create(path)
    before, quotas = enforced.machine.image()[:1], set(enforced.machine.quotas.limited)
    failed = enforced.multi(
        create(f"/zookeeper/quota/b/{LIMITS}", b"count=1,bytes=1"),
        create(f"/zookeeper/quota/b/{STATS}", b""),
        (SET_DATA, "/b", b"xyz", -1),
        create("/a/1"),
        (DELETE, f"/zookeeper/quota/a/{LIMITS}", -1),
        create("/a/2"),
        create("/a/2"),
    )
    assert isinstance(failed, MultiFailed)
    assert failed.code is Code.NODE_EXISTS
    assert enforced.machine.image()[:1] == before
    assert enforced.machine.quotas.limited == quotas
    assert enforced.machine.digest() == enforced.machine.full_digest()


def test_multi_counts_its_own_parts(enforced: Scenario) -> None:
    enforced.create("/a", b"")
    set_quota(enforced, "/a", b"count=-1,bytes=-1=;countHardLimit=2")
    failed = enforced.multi(create("/a/1"), create("/a/2"))
    assert isinstance(failed, MultiFailed)
    assert failed.results == (Code.OK, Code.QUOTA_EXCEEDED)


@pytest.mark.parametrize("case", range(10))
def test_usage_is_always_what_a_recount_finds(scenario: Scenario, case: int) -> None:
    rng = random.Random(case)
    for top in ("/a", "/a/b", "/c"):
        scenario.create(top, b"x")
        set_quota(scenario, top, b"count=1,bytes=1")
    below: dict[str, Any] = {"/a": 0, "/a/b": 0, "/c": 0}
    for step in range(120):
        parent = rng.choice(["/a", "/a/b", "/c", "/"])
        path = f"{'' if parent == '/' else parent}/n{rng.randrange(6)}"
        match rng.randrange(4):
            case 0 | 1:
                scenario.create(path, bytes(rng.randrange(9)))
            case 2:
                scenario.set_data(path, bytes(rng.randrange(9)))
            case 3:
                scenario.multi(
                    (DELETE, path, -1), create(path, b"abc"), create("/a" if step % 2 else f"{path}/x")
                )
    for top in below:
        nested = "/a/b"
        members = [
            (path, node)
            for path, node in scenario.machine.nodes.items()
            if (path == top or path.startswith(top + "/"))
            and (top == nested or not (path == nested or path.startswith(nested + "/")))
        ]
        # /a/b was counted for /a before it had a quota of its own
        extra = (1, 1) if top == "/a" else (0, 0)
        count, size = len(members) + extra[0], sum(node.data_length for _, node in members) + extra[1]
        assert usage(scenario, top) == b"count=%d,bytes=%d" % (count, size)
