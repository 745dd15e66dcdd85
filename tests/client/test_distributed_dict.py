"""`DistributedDict` is a Python dictionary with Zatt's calls (Z-21, Z-22, Z-23), under every policy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from tests.client.conftest import ClusterThread
from tests.client.fake import Fault
from zraft_client import (
    AbstractClient,
    BadVersionError,
    BlockingClient,
    ClosedError,
    ConnectionState,
    DeadlineError,
    DistributedDict,
    ForkedError,
    NodeExistsError,
    NoNodeError,
    RefreshPolicy,
    RefreshPolicyAlways,
    RefreshPolicyCount,
    RefreshPolicyLock,
    RefreshPolicyTime,
    RefreshPolicyWatch,
    SessionExpiredError,
    StaleError,
)
from zraft_core.errors import Code, ConfigError

POLICIES: dict[str, Callable[[], RefreshPolicy]] = {
    "always": RefreshPolicyAlways,
    "lock": lambda: RefreshPolicyLock(True),
    "locked": lambda: RefreshPolicyLock(False),
    "count": lambda: RefreshPolicyCount(3),
    "time": lambda: RefreshPolicyTime(timedelta(hours=1)),
    "watch": RefreshPolicyWatch,
}


@pytest.fixture
def client(fake: ClusterThread) -> Iterator[BlockingClient]:
    with BlockingClient(fake.hosts) as opened:
        yield opened


@pytest.fixture(params=POLICIES)
def mine(request: pytest.FixtureRequest, client: BlockingClient) -> Iterator[DistributedDict]:
    """An empty dictionary, once under each policy."""
    with DistributedDict.over(client, "mine", refresh_policy=POLICIES[request.param]()) as opened:
        yield opened


def test_zatts_constructor_is_enough(fake: ClusterThread) -> None:
    host, port = fake.cluster.addresses[0]
    with DistributedDict(host, port, append_retry_attempts=3, refresh_policy=RefreshPolicyAlways()) as mine:
        assert isinstance(mine, AbstractClient)
        assert isinstance(mine, MutableMapping)
        mine["key"] = "value"
        assert mine["key"] == "value"
        mine.refresh(force=True)
        assert mine.data == {"key": "value"}
        assert mine.diagnostic()["status"] == "Leader"
        assert mine.config_cluster("add", "127.0.0.1", 5255)["success"]
        with pytest.raises(ConfigError, match="expected 'add' or 'delete'"):
            mine.config_cluster("grow", "127.0.0.1", 5255)
        del mine["key"]
    assert fake.do(lambda cluster: (cluster.dictionaries, cluster.sessions)) == ({"default": {}}, {})


def test_several_hosts_and_a_name(fake: ClusterThread) -> None:
    with DistributedDict.connect(fake.hosts, name="other", timeout_s=5) as mine:
        mine["k"] = 1
    assert fake.do(lambda cluster: list(cluster.dictionaries)) == ["other"]


def test_it_behaves_as_a_dictionary_under_every_policy(mine: DistributedDict) -> None:
    model: dict[object, object] = {}
    for target in (mine, model):
        target["a"] = 1
        target[2] = [1, {"x": None}]
        target[(1, ("y",))] = b"bytes"
        target["a"] = "again"
        target.update({"u": 1, "v": 2}, w=3)
        del target["v"]
        assert target.setdefault("a", "no") == "again"
        assert target.setdefault("s", "yes") == "yes"
        assert target.pop("s") == "yes"
        assert target.pop("s", "gone") == "gone"
        for wrong in (target.__getitem__, target.__delitem__, target.pop):
            with pytest.raises(KeyError, match="none"):
                wrong("none")
    assert mine == model
    assert len(mine) == len(model)
    assert set(mine) == set(model)
    assert "a" in mine
    assert "none" not in mine
    assert mine.get("none", 5) == 5
    assert dict(mine.items()) == model
    assert eval(repr(mine)) == model
    assert sorted(map(str, mine.values())) == sorted(map(str, model.values()))
    assert mine | {"more": 1} == {**model, "more": 1}
    key, value = mine.popitem()
    assert model.pop(key) == value
    mine.clear()
    assert not mine
    with pytest.raises(KeyError):
        mine.popitem()


def test_entries_have_no_order_and_nothing_depends_on_one(fake: ClusterThread, mine: DistributedDict) -> None:
    """Servers keep entries in sets, so each of them has an order of its own, which ends with its process."""
    model = {"b": 1, "a": 2, "c": 3}
    mine.update(model)
    orders = []
    for _ in range(2):
        mine.refresh(force=True)
        orders.append(list(mine))
        assert sorted(mine) == sorted(model)
        assert sorted(mine.items()) == sorted(model.items())
        assert mine == model
        assert mine.copy() == model
        fake.do(lambda cluster: _turn_round(cluster.dictionaries["mine"]))
    # A copy that is pushed is not sent again. The others show whatever order a server's answer has.
    pushed = isinstance(mine.refresh_policy, RefreshPolicyWatch)
    assert orders[1] == (orders[0] if pushed else orders[0][::-1])
    key, value = mine.popitem()
    assert model.pop(key) == value
    assert mine == model


def _turn_round(entries: dict[Any, Any]) -> None:
    """Let the next answers have the entries in the opposite order."""
    found = list(entries.items())[::-1]
    entries.clear()
    entries.update(found)


def test_keys_that_are_equal_in_python_are_one(mine: DistributedDict) -> None:
    mine[1] = "integer"
    assert mine[1.0] == "integer"
    assert mine[True] == "integer"
    with pytest.raises(TypeError, match="unhashable"):
        mine[[1]]
    with pytest.raises(TypeError, match="unhashable"):
        mine[{}] = 1


def test_versions_and_compare_and_set_under_every_policy(mine: DistributedDict) -> None:
    assert mine.get_versioned("k") is None
    first = mine.put_if_absent("k", 1)
    with pytest.raises(NodeExistsError):
        mine.put_if_absent("k", 2)
    assert mine.replace("k", 3, 0).version == 1
    with pytest.raises(BadVersionError):
        mine.replace("k", 4, 0)
    with pytest.raises(NoNodeError):
        mine.replace("none", 4, 0)
    with pytest.raises(BadVersionError):
        mine.delete("k", version=0)
    found = mine.get_versioned("k")
    assert found is not None
    assert (found.value, found.version) == (3, 1)
    assert mine["k"] == 3
    assert mine.increment("n", 2).value == 2
    assert mine["n"] == 2
    assert mine.delete("k", version=1).position > first.position
    assert "k" not in mine


def reads_that_ask(fake: ClusterThread, mine: DistributedDict, count: int) -> list[bool]:
    """For each of some reads, whether a server was asked."""
    asked = []
    for _ in range(count):
        before = len(fake.requests())
        assert mine["k"] == 1
        asked.append(len(fake.requests()) > before)
    return asked


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RefreshPolicyAlways, [True, True, True, True]),
        (lambda: RefreshPolicyLock(True), [True, True, True, True]),
        (lambda: RefreshPolicyLock(False), [False, False, False, False]),
        (lambda: RefreshPolicyCount(2), [False, True, False, True]),
        (lambda: RefreshPolicyTime(timedelta(hours=1)), [False, False, False, False]),
        (lambda: RefreshPolicyTime(timedelta(0)), [True, True, True, True]),
        (RefreshPolicyWatch, [False, False, False, False]),
    ],
    ids=["always", "lock on", "lock off", "count", "time", "time zero", "watch"],
)
def test_a_policy_decides_which_reads_ask(
    fake: ClusterThread, client: BlockingClient, policy: object, expected: list[bool]
) -> None:
    client.put("k", 1, dictionary="mine")
    with DistributedDict.over(client, "mine", refresh_policy=policy()) as mine:  # type: ignore[operator]
        assert reads_that_ask(fake, mine, 4) == expected


def test_a_policy_of_ones_own_decides_too(fake: ClusterThread, client: BlockingClient) -> None:
    class OnDemand(RefreshPolicy):
        wanted = False

        def can_update(self) -> bool:
            return self.wanted

    policy = OnDemand()
    client.put("k", 1, dictionary="mine")
    with DistributedDict.over(client, "mine", refresh_policy=policy) as mine:
        client.put("k", 2, dictionary="mine")
        assert mine["k"] == 1
        policy.wanted = True
        assert mine["k"] == 2


def test_a_cached_copy_stays_behind_others_until_it_is_refreshed(client: BlockingClient) -> None:
    with DistributedDict.over(client, "mine", refresh_policy=RefreshPolicyLock(False)) as mine:
        client.put("k", 1, dictionary="mine")
        assert "k" not in mine
        mine.refresh()
        assert "k" not in mine
        mine.refresh(force=True)
        assert mine["k"] == 1


def test_a_watching_reader_sees_others_changes_without_a_request(
    fake: ClusterThread, client: BlockingClient
) -> None:
    with DistributedDict.over(client, "mine", refresh_policy=RefreshPolicyWatch()) as mine:
        before = fake.requests()
        arrived = threading.Event()
        copy = mine._copy
        assert copy is not None
        take = copy.take
        copy.take = lambda *push: (take(*push), arrived.set())[0]  # type: ignore[func-returns-value, method-assign]
        fake.do(lambda c: c.command({"type": "put", "dictionary": "mine", "key": "k", "value": "theirs"}, 0))
        assert arrived.wait(20)
        assert mine["k"] == "theirs"
        for _ in range(100):
            assert len(mine) == 1
        assert fake.requests() == before


def test_a_watching_reader_is_told_the_whole_state_again_after_a_reconnect(
    fake: ClusterThread, client: BlockingClient
) -> None:
    with DistributedDict.over(client, "mine", refresh_policy=RefreshPolicyWatch()) as mine:
        mine.update({n: n for n in range(10)})

        def change_while_nobody_is_connected() -> None:
            fake.cluster.cut()
            for key in range(5):
                fake.cluster.command({"type": "delete", "dictionary": "mine", "key": key}, 0)

        fake.do(lambda _: change_while_nobody_is_connected())
        client.put("marker", 1, dictionary="mine")
        while "marker" not in mine:
            pass
        expected: dict[int | str, int] = {n: n for n in range(5, 10)}
        assert mine == {**expected, "marker": 1}


def test_a_watching_reader_may_say_how_stale_is_too_stale(fake: ClusterThread) -> None:
    policy = RefreshPolicyWatch(max_stale=timedelta(0))
    with DistributedDict.connect(fake.hosts, refresh_policy=policy) as mine:
        mine["k"] = 1
        assert mine["k"] == 1
        fake.do(lambda cluster: cluster.fault("hello", *[Fault.REFUSE] * 1000))
        fake.do(lambda cluster: cluster.cut())
        mine.client.wait_state(ConnectionState.SUSPENDED, timeout_s=20)
        with pytest.raises(StaleError, match="max_stale of 0 s"):
            mine["k"]
        policy.max_stale = None
        assert mine["k"] == 1
        fake.do(lambda cluster: cluster.faults.clear())


def test_a_dictionary_too_large_for_one_answer_is_fetched_in_pages(
    fake: ClusterThread, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zraft_client.distributed_dict.ITEMS_PER_PAGE", 3)
    mine = DistributedDict.over(client, "mine")
    mine.update({n: n for n in range(10)})

    def refuse(cluster: object) -> None:
        read = fake.cluster.read

        def too_large(message: dict[str, object]) -> dict[str, object]:
            if message["type"] == "get" and "key" not in message:
                return fake.cluster.refusal(Code.MARSHALLING_ERROR, "client.reply_bytes_max")
            return read(message)

        fake.cluster.read = too_large  # type: ignore[method-assign, assignment]

    fake.do(refuse)
    assert mine.copy() == {n: n for n in range(10)}
    assert fake.requests().count("items") == 4


def test_a_write_that_certainly_failed_is_tried_so_often_and_no_more(
    fake: ClusterThread, client: BlockingClient
) -> None:
    mine = DistributedDict.over(client, append_retry_attempts=2)

    def expire(cluster: object) -> None:
        fake.cluster.fault("put", Fault.REFUSE)
        [session] = fake.cluster.sessions
        fake.cluster.sessions.pop(session)

    fake.do(expire)  # the write is refused, then asked again in a session that is no more
    mine["k"] = 1
    assert mine["k"] == 1
    once = DistributedDict.over(client, append_retry_attempts=1)
    fake.do(lambda cluster: cluster.sessions.clear())
    with pytest.raises(SessionExpiredError):
        once["k"] = 2
    with pytest.raises(ConfigError, match="append_retry_attempts"):
        DistributedDict.over(client, append_retry_attempts=0)


def test_a_write_that_no_server_takes_ends_at_one_deadline_however_many_attempts_there_are(
    fake: ClusterThread,
) -> None:
    # Pauses between attempts grow, so that the deadline falls into one of them and not into an attempt.
    with DistributedDict.connect(fake.hosts, timeout_s=1.0, append_retry_attempts=1_000_000) as mine:
        fake.do(lambda cluster: cluster.fault("put", *[Fault.REFUSE] * 10_000))
        with pytest.raises(DeadlineError):
            mine["k"] = 1


def test_more_entries_than_may_wait_are_updated_all_the_same(fake: ClusterThread) -> None:
    with DistributedDict.connect(fake.hosts, pending_max=5_000) as mine:
        mine.update({n: n for n in range(12_000)})
        assert len(mine) == 12_000


def test_steps_that_others_always_overtake_end_at_a_deadline(fake: ClusterThread) -> None:
    with DistributedDict.connect(fake.hosts, timeout_s=0.3) as mine:
        mine["k"] = 0
        fake.do(lambda _: setattr(fake.cluster, "delete", _always_changed))
        with pytest.raises(DeadlineError, match="pop of 'k'"):
            mine.pop("k")


def _always_changed(name: str, key: object, version: int | None) -> dict[str, object]:
    from tests.client.fake import Refused

    raise Refused(Code.BAD_VERSION)


def test_zatts_primitives_answer_in_zatts_form(client: BlockingClient) -> None:
    base = AbstractClient(client)
    assert base._append_log({"action": "change", "key": "k", "value": 1})["success"]
    assert base._get_state() == {"k": 1}
    assert base._append_log({"action": "delete", "key": "k"})["success"]
    refused = base._append_log({"action": "delete", "key": "k"})
    assert (refused["success"], refused["code"]) == (False, "NO_NODE")
    assert "commitIndex" in base._diagnostic()["log"]


@pytest.mark.parametrize("policy", POLICIES)
def test_after_its_end_reads_are_refused_under_every_policy(fake: ClusterThread, policy: str) -> None:
    """Not answered from a copy that nobody keeps up to date any more."""
    mine = DistributedDict.connect(fake.hosts, refresh_policy=POLICIES[policy]())
    mine["k"] = 1
    mine.close()
    mine.close()
    with pytest.raises(ClosedError):
        mine["k"]
    with pytest.raises(ClosedError):
        len(mine)


def test_one_of_several_over_a_client_ends_alone(fake: ClusterThread, client: BlockingClient) -> None:
    first, second = (DistributedDict.over(client, refresh_policy=RefreshPolicyWatch()) for _ in range(2))
    first.close()
    with pytest.raises(ClosedError):
        first["k"]
    second["k"] = 1
    assert second["k"] == 1
    assert fake.do(lambda cluster: len(cluster.subscribed)) == 1


def test_a_forked_child_is_told_also_by_a_copy_that_needs_no_server(fake: ClusterThread) -> None:
    from tests.client.test_blocking import in_child

    with DistributedDict.connect(fake.hosts, refresh_policy=RefreshPolicyWatch()) as mine:
        mine["k"] = 1

        def use() -> bool:
            try:
                mine["k"]
            except ForkedError:
                return True
            return False

        assert in_child(use)
        assert mine["k"] == 1
