"""D-20: the beginning of a log directory goes at once, and out of memory bit by bit, the same everywhere."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.tree.histories import run_on
from tests.unit.tree.level3 import Level3, again
from tests.unit.tree.scenario import EPHEMERAL, EPHEMERAL_SEQUENTIAL, ONE, SEQUENTIAL, TWO, Scenario, create
from zraft.tree import children, reads
from zraft.tree.children import SPLIT_AT, ManyChildren
from zraft.tree.commands import truncation
from zraft.tree.log_reads import HOLES_MAX, LogPage, read_log
from zraft.tree.machine import Machine
from zraft.tree.watches import WatchTable, reregister
from zraft_core.errors import Code
from zraft_core.znodes.acl import CREATE as CREATE_RIGHT
from zraft_core.znodes.acl import DELETE as DELETE_RIGHT
from zraft_core.znodes.acl import READ
from zraft_core.znodes.txn import (
    ADD,
    CHECK,
    CREATE,
    DELETE,
    MULTI,
    PUT,
    SET_ACL,
    SET_DATA,
    SETTINGS,
    TRUNCATE,
    Command,
)

EVERYBODY = (("world", "anyone"),)


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Level3:
    """A log with entries 0 to 9, of which an entry of the real log removes one hidden znode at most."""
    monkeypatch.setattr(truncation, "REMOVED_PER_ENTRY_MAX", 1)
    scenario = Level3()
    scenario.create("/log")
    scenario.multi(*(create("/log/e-", b"%d" % number, SEQUENTIAL) for number in range(10)))
    scenario.events()
    return scenario


def entry(number: int) -> str:
    return f"/log/e-{number:010d}"


def truncated(
    scenario: Level3, first: int, origin: str | None = None, data: bytes | None = None, **how: Any
) -> Any:
    return scenario.run((TRUNCATE, "/log", first, origin, data), **how)


def drained(scenario: Level3) -> list[tuple[int, str]]:
    """Entries pass until nothing is hidden; the events of it."""
    scenario.events()
    while scenario.machine.hidden:
        scenario.entry()
    return scenario.events()


def test_truncated_entries_are_gone_at_once_and_the_origin_is_there(scenario: Level3) -> None:
    before = scenario.stat("/log")
    assert truncated(scenario, 7, "/origins/log", b"sum of seven") is Code.OK
    assert scenario.events() == [(1, "/origins"), (4, "/"), (1, "/origins/log"), (4, "/origins"), (4, "/log")]
    assert scenario.names("/log") == [f"e-{number:010d}" for number in (7, 8, 9)]
    assert scenario.node("/origins/log").data == b"sum of seven"
    after = scenario.stat("/log")
    assert (after.num_children, after.cversion) == (3, before.cversion + 7)
    assert after.pzxid == scenario.machine.last_zxid
    assert entry(0) in scenario.machine.nodes, "it is still in memory, or this test shows nothing"
    again(scenario.machine)


def test_hidden_entries_leave_memory_a_bounded_number_per_entry_lowest_first(scenario: Level3) -> None:
    truncated(scenario, 3)
    scenario.events()
    stat = scenario.stat("/log")
    for number in range(3):
        scenario.entry()
        assert scenario.events() == [(2, entry(number))]
        assert entry(number) not in scenario.machine.nodes
        again(scenario.machine)
    assert not scenario.machine.hidden
    scenario.entry()
    assert scenario.events() == []
    assert scenario.stat("/log") == stat, "of the directory all was told before"


def test_nothing_finds_a_hidden_znode(scenario: Level3) -> None:
    scenario.run((PUT, f"{entry(2)}/below", b"", None))
    truncated(scenario, 5)
    machine = scenario.machine
    for path in (entry(2), f"{entry(2)}/below"):
        assert path in machine.nodes
        assert machine.find(path) is None
        for read in (reads.exists, reads.get_data, reads.get_children, reads.get_acl):
            assert read(machine, path, EVERYBODY) is Code.NO_NODE
        assert reads.countable(machine, path, EVERYBODY) is Code.NO_NODE
        for command in (
            (SET_DATA, path, b"", -1),
            (DELETE, path, -1),
            (20, path),
            (SET_ACL, path, None, -1),
            create(f"{path}/child"),
            (PUT, path, b"", 0),
        ):
            assert scenario.run(command) is Code.NO_NODE, command
            # Each of these is an entry, and would remove the one that is looked at.
            scenario.machine = machine = again(machine)
            machine.set_members([ONE, TWO])
            if path not in machine.nodes:
                return
    raise AssertionError("the test ended before anything was drained")


def test_part_of_a_multi_finds_no_hidden_znode(scenario: Level3) -> None:
    truncated(scenario, 9)
    for part in (
        (CHECK, entry(8), -1),
        (SET_DATA, entry(8), b"", -1),
        (DELETE, entry(8), -1),
        create(f"{entry(8)}/x"),
    ):
        assert scenario.multi(create("/a"), part).results == (Code.OK, Code.NO_NODE)
    for part in (
        create(entry(8)),
        (PUT, entry(8), b"", None),
        (ADD, entry(8), b"", 1),
        (PUT, f"{entry(8)}/x", b"", -1),
    ):
        assert scenario.multi(create("/a"), part).code is Code.BAD_ARGUMENTS
    assert entry(8) in scenario.machine.nodes
    assert "/a" not in scenario.machine.nodes


def test_number_that_was_truncated_cannot_be_created_ever_again(scenario: Level3) -> None:
    """Also when it is out of memory: what a client may do depends on no progress of ours."""
    truncated(scenario, 4)
    for _ in range(2):
        assert scenario.create(entry(3)) is Code.BAD_ARGUMENTS
        assert scenario.create("/log/other-0000000002") is Code.BAD_ARGUMENTS
        assert scenario.run((PUT, f"{entry(1)}/below", b"", None)) is Code.BAD_ARGUMENTS
        drained(scenario)
    assert scenario.create(entry(4)) is Code.NODE_EXISTS
    assert scenario.create("/log/other-0000000004") == "/log/other-0000000004"
    assert scenario.create("/log/e-", flags=SEQUENTIAL) == entry(11)


def test_children_without_a_number_stay(scenario: Level3) -> None:
    for name in ("lock", "0000000001x", "e-00000001", "e-٠٠٠٠٠٠٠٠٠١"):
        assert scenario.create(f"/log/{name}") == f"/log/{name}"
    truncated(scenario, 10)
    drained(scenario)
    assert scenario.names("/log") == sorted(["lock", "0000000001x", "e-00000001", "e-٠٠٠٠٠٠٠٠٠١"])


def test_first_never_sinks_and_is_no_number_of_the_future(scenario: Level3) -> None:
    assert truncated(scenario, 11) is Code.BAD_ARGUMENTS
    assert truncated(scenario, -1) is Code.BAD_ARGUMENTS
    assert truncated(scenario, 0, "/o", b"0") is Code.OK
    assert truncated(scenario, 5) is Code.OK
    assert truncated(scenario, 4, "/o", b"4") is Code.BAD_ARGUMENTS
    assert truncated(scenario, 5, "/o", b"5") is Code.OK
    assert scenario.node("/o").data == b"5"
    assert truncated(scenario, 10) is Code.OK
    drained(scenario)
    assert scenario.names("/log") == []
    assert truncated(scenario, 4) is Code.BAD_ARGUMENTS, "an empty log knows where it ended"
    assert scenario.create("/log/e-", flags=SEQUENTIAL) == entry(10)
    again(scenario.machine)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ((TRUNCATE,), Code.MARSHALLING_ERROR),
        ((TRUNCATE, "/log", 1, None), Code.MARSHALLING_ERROR),
        ((TRUNCATE, 5, 1, None, None), Code.MARSHALLING_ERROR),
        ((TRUNCATE, "/log", "1", None, None), Code.MARSHALLING_ERROR),
        ((TRUNCATE, "/log", 1, 5, None), Code.MARSHALLING_ERROR),
        ((TRUNCATE, "/log", 1, "/o", "text"), Code.MARSHALLING_ERROR),
        ((TRUNCATE, "/none", 0, None, None), Code.NO_NODE),
        ((TRUNCATE, "none", 0, None, None), Code.BAD_ARGUMENTS),
        ((TRUNCATE, "/zookeeper", 0, None, None), Code.BAD_ARGUMENTS),
        ((TRUNCATE, "/zookeeper/quota", 0, None, None), Code.BAD_ARGUMENTS),
        ((TRUNCATE, "/log", 3, entry(2), b""), Code.BAD_ARGUMENTS),
        ((TRUNCATE, "/log", 3, f"{entry(2)}/o", b""), Code.BAD_ARGUMENTS),
        ((TRUNCATE, "/log", 3, "/zookeeper/config", b""), Code.NO_AUTH),
        ((TRUNCATE, "/log", 3, "/o/", b""), Code.BAD_ARGUMENTS),
    ],
)
def test_truncation_that_is_refused_changes_nothing(scenario: Level3, command: Command, code: Code) -> None:
    before = scenario.machine.image()[0]
    assert scenario.run(command) is code
    assert scenario.machine.image()[0] == before
    assert scenario.events() == []


def test_truncation_needs_the_right_to_delete(scenario: Level3) -> None:
    scenario.run(
        (SET_ACL, "/log", ((READ | CREATE_RIGHT, "world", "anyone"), (DELETE_RIGHT, "ip", "10.9.8.7")), -1)
    )
    assert truncated(scenario, 1, ids=(("ip", "10.0.0.1"),)) is Code.NO_AUTH
    assert truncated(scenario, 1) is Code.OK


def test_truncation_is_of_level_3_and_of_clients_without_a_session_too(scenario: Level3) -> None:
    assert Scenario().run((TRUNCATE, "/", 0, None, None)) is Code.UNIMPLEMENTED
    assert scenario.without_session((TRUNCATE, "/log", 2, None, None)) is Code.OK
    assert scenario.multi((TRUNCATE, "/log", 2, None, None)) is Code.MARSHALLING_ERROR


def test_what_is_below_a_hidden_entry_leaves_memory_before_it(scenario: Level3) -> None:
    for path in ("b", "a/x", "a/y", "s-0000000001", "s-0000000000/deep"):
        scenario.run((PUT, f"{entry(0)}/{path}", b"", None))
    truncated(scenario, 2)
    below = ["s-0000000000/deep", "s-0000000000", "s-0000000001", "a/x", "a/y", "a", "b"]
    deleted = [path for kind, path in drained(scenario) if kind == 2]
    assert sorted(deleted) == sorted([*(f"{entry(0)}/{path}" for path in below), entry(0), entry(1)])
    assert deleted.index(entry(0)) == len(below)
    assert all(
        deleted.index(path) > deleted.index(one)
        for one in deleted
        for path in deleted
        if one.startswith(path + "/")
    )
    again(scenario.machine)


def test_truncated_directory_below_a_hidden_entry(scenario: Level3) -> None:
    inner = f"{entry(0)}/log"
    scenario.run((PUT, inner, b"", None))
    scenario.multi(*(create(f"{inner}/f-", flags=SEQUENTIAL) for _ in range(4)))
    scenario.run((TRUNCATE, inner, 3, None, None))
    truncated(scenario, 1)
    again(scenario.machine)
    drained(scenario)
    assert [path for path, _ in scenario.machine.nodes.items() if path.startswith(entry(0))] == []
    again(scenario.machine)


def test_directory_is_deleted_while_hidden_entries_are_in_memory(scenario: Level3) -> None:
    """ZooKeeper's client lists no children, so it must not be told of any."""
    truncated(scenario, 10)
    assert scenario.delete("/log") is Code.OK
    assert scenario.machine.ghosts == {"/log": 10}
    assert entry(9) in scenario.machine.nodes
    assert scenario.run((SET_DATA, entry(9), b"", -1)) is Code.NO_NODE
    scenario.machine = again(scenario.machine)
    scenario.machine.set_members([ONE, TWO])
    drained(scenario)
    assert scenario.machine.ghosts == {}
    assert [path for path, _ in scenario.machine.nodes.items() if "log" in path] == []
    assert scenario.create("/log") == "/log"
    assert scenario.create("/log/e-", flags=SEQUENTIAL) == entry(0), "nothing is left of the one before"


def test_directory_created_anew_meanwhile_goes_on_where_the_one_before_ended(scenario: Level3) -> None:
    truncated(scenario, 10)
    scenario.delete("/log")
    assert scenario.create("/log", b"new") == "/log"
    assert scenario.machine.ghosts == {}
    assert scenario.names("/log") == []
    assert entry(9) in scenario.machine.nodes
    again(scenario.machine)
    assert scenario.create(entry(9)) is Code.BAD_ARGUMENTS
    assert scenario.create("/log/e-", flags=SEQUENTIAL) == entry(10)
    again(scenario.machine)
    drained(scenario)
    assert scenario.names("/log") == ["e-0000000010"]
    again(scenario.machine)


def test_failed_multi_that_deletes_and_creates_a_truncated_directory_leaves_no_trace(
    scenario: Level3,
) -> None:
    truncated(scenario, 10)
    scenario.entry()
    before = scenario.machine.image()[0]
    scenario.machine.begin_batch(*ONE, *scenario.next[ONE])
    scenario.next[ONE] = (1, scenario.next[ONE][1] + 1)
    scenario.machine.begin_run(scenario.session.id, ())
    parts = ((DELETE, "/log", -1), create("/log"), create("/log/e-", flags=SEQUENTIAL), (DELETE, "/none", -1))
    assert scenario.machine.execute((MULTI, parts)).code is Code.NO_NODE  # type: ignore[attr-defined]
    assert scenario.machine.image()[0] == before
    again(scenario.machine)


@pytest.mark.parametrize("gone", [False, True])
def test_hidden_ephemerals_count_for_nothing_and_go_with_their_session(scenario: Level3, gone: bool) -> None:
    scenario.by_leader((SETTINGS, {"session_ephemerals_max": 3}))
    session = scenario.new_session()
    for _ in range(3):
        scenario.create("/log/e-", flags=EPHEMERAL_SEQUENTIAL, session=session)
    assert scenario.create("/log/e-", flags=EPHEMERAL_SEQUENTIAL, session=session) is Code.QUOTA_EXCEEDED
    truncated(scenario, 12)
    assert reads.get_ephemerals(scenario.machine, session.id, "/log") == [entry(12)]
    assert scenario.create("/log/x", flags=EPHEMERAL, session=session) == "/log/x"
    assert entry(11) in scenario.machine.nodes
    if gone:
        scenario.delete("/log/x")
        scenario.delete(entry(12))
        truncated(scenario, 13)
        assert scenario.delete("/log") is Code.OK
    scenario.events()
    assert scenario.close(session) is Code.OK
    told = scenario.events()
    assert {(2, entry(10)), (2, entry(11))} <= set(told)
    assert entry(11) not in scenario.machine.nodes
    again(scenario.machine)
    drained(scenario)
    again(scenario.machine)


def test_ephemeral_created_where_a_ghost_is_has_no_children(scenario: Level3) -> None:
    truncated(scenario, 10)
    scenario.delete("/log")
    assert scenario.create("/log", flags=EPHEMERAL) == "/log"
    assert scenario.create("/log/e-", flags=SEQUENTIAL) is Code.NO_CHILDREN_FOR_EPHEMERALS
    again(scenario.machine)
    assert scenario.close() is Code.OK
    assert scenario.machine.ghosts == {"/log": 10}
    again(scenario.machine)


def test_quota_counts_hidden_entries_until_they_are_out_of_memory(scenario: Level3) -> None:
    scenario.multi(
        create("/zookeeper/quota/log"),
        create("/zookeeper/quota/log/zookeeper_limits", b"count=100,bytes=-1"),
        create("/zookeeper/quota/log/zookeeper_stats"),
    )
    assert scenario.node("/zookeeper/quota/log/zookeeper_stats").data == b"count=11,bytes=10"
    truncated(scenario, 8)
    assert scenario.node("/zookeeper/quota/log/zookeeper_stats").data == b"count=11,bytes=10"
    scenario.entry()
    assert scenario.node("/zookeeper/quota/log/zookeeper_stats").data == b"count=10,bytes=9"
    drained(scenario)
    assert scenario.node("/zookeeper/quota/log/zookeeper_stats").data == b"count=3,bytes=2"
    again(scenario.machine)


def test_hidden_znodes_are_not_counted(scenario: Level3) -> None:
    machine = scenario.machine

    def count(path: str) -> int:
        counting = reads.DescendantCount(machine, path)
        while not counting.step(16):
            pass
        return counting.number

    visible = count("/")
    assert count("/log") == 10
    truncated(scenario, 6)
    assert (count("/log"), count("/"), count("")) == (4, visible - 6, visible - 6 + 1)


def test_client_that_reconnects_is_told_that_its_znode_went(scenario: Level3) -> None:
    truncated(scenario, 6)
    table: WatchTable[str] = WatchTable()
    machine = scenario.machine
    missed = reregister(
        machine, table, "me", EVERYBODY, machine.last_zxid, [entry(5)], [entry(4)], [entry(3), "/log"]
    )
    assert missed == [(2, entry(5)), (2, entry(3))]


def test_hidden_znode_with_a_time_to_live_is_not_reaped(scenario: Level3) -> None:
    scenario.run((21, "/log/e-", b"", None, 6, 1))
    node = scenario.node(entry(10))
    truncated(scenario, 11)
    assert scenario.by_leader((204, entry(10), node.czxid)) is Code.NO_NODE
    drained(scenario)
    assert scenario.machine.mortal == set()


def test_large_log_is_truncated_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a step per child: the names move by ranges of a thousand."""
    scenario = Level3()
    scenario.create("/log")
    count = SPLIT_AT + 3_000
    for _ in range(count // 100):
        scenario.multi(*(create("/log/e-", flags=SEQUENTIAL) for _ in range(100)))
        scenario.machine.events.clear()
    log = scenario.node("/log")
    assert isinstance(log.children, ManyChildren)
    looked: list[str] = []
    number_of = children.number_of

    def counted(name: str) -> int:
        looked.append(name)
        return number_of(name)

    monkeypatch.setattr(children, "number_of", counted)
    left = count // 100 * 100 - 700
    assert truncated(scenario, left) is Code.OK
    assert len(looked) < 2_500
    assert log.num_children == 700
    assert log.children.path_bytes == 700 * len("/log/e-0000000000")
    for _ in range(left // 1_000 + 1):
        assert scenario.machine.hidden
        scenario.entry()
        assert len(scenario.events()) <= 1_001
    assert not scenario.machine.hidden
    again(scenario.machine)


@pytest.mark.parametrize("seed", range(8))
def test_no_client_can_tell_how_much_is_out_of_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines play one history, and one of them removes hidden znodes at once: same results, same sights."""
    rng = random.Random(seed)
    slow, fast = Level3(), Level3()
    for scenario in (slow, fast):
        scenario.multi(create("/log"), create("/log/s-", flags=SEQUENTIAL))
    log, parted = 1, 0
    for step in range(150):
        path = f"/log/s-{rng.randrange(max(1, log)):010d}"
        below = f"{path}/{rng.choice('ab')}"
        kind = rng.random()
        if kind < 0.4:
            command: Command = (CREATE, "/log/s-", b"x", None, rng.choice((2, 2, 3)), None)
        elif kind < 0.5:
            command = (TRUNCATE, "/log", rng.randint(max(0, log - 6), log), rng.choice((None, "/o")), b"o")
        elif kind < 0.9:
            target = rng.choice((path, below))
            command = rng.choice(
                ((PUT, target, b"y", rng.choice((None, -1, 0))), (DELETE, target, -1), create(target),
                 (SET_DATA, target, b"z", -1), (ADD, target, b"y", 1),
                 (MULTI, (create(f"{below}s", flags=2), (CHECK, path, -1))))
            )  # fmt: skip
        else:
            command = (PUT, "/log", b"", None)
        told = []
        for scenario, limit in ((slow, step % 3 == 0), (fast, 10**6)):
            monkeypatch.setattr(truncation, "REMOVED_PER_ENTRY_MAX", int(limit))
            scenario.index += 1
            scenario.wall_time += 1000
            head = (*ONE, *scenario.next[ONE])
            scenario.next[ONE] = (1, scenario.next[ONE][1] + 1)
            frame = (
                scenario.index,
                1,
                scenario.machine.position + 1,
                scenario.machine.log_time + 1,
                scenario.wall_time,
            )
            told.append(run_on(scenario.machine, frame, head, scenario.session.id, command))
        assert told[0][:2] == told[1][:2], command
        node = slow.machine.find("/log")
        log = node.creates if node is not None else 0
        assert sights(slow.machine) == sights(fast.machine)
        parted += bool(slow.machine.hidden and not fast.machine.hidden)
        if rng.random() < 0.1:
            again(slow.machine)
    assert parted > 10, "both did the same"
    drained(slow)
    drained(fast)
    assert slow.machine.image()[:2] == fast.machine.image()[:2]


def sights(machine: Machine) -> dict[str, Any]:
    return {
        path: (node.data, node.stat(), sorted(node.children or ()))
        for path, node in machine.nodes.items()
        if machine.find(path) is not None
    }


# -- reading a log


def read(scenario: Level3, first: int = 0, limit: int = 100, bytes_max: int = 10**6, **how: Any) -> Any:
    directory, prefix, ids = how.get("directory", "/log"), how.get("prefix", "e-"), how.get("ids", EVERYBODY)
    return read_log(scenario.machine, directory, prefix, first, limit, bytes_max, ids)


def positions(page: Any) -> list[int]:
    assert isinstance(page, LogPage)
    return [position for position, _, _ in page.entries]


def test_log_is_read_in_pages(scenario: Level3) -> None:
    first = scenario.stat(entry(0)).czxid
    page = read(scenario, limit=4)
    assert page == LogPage(tuple((number, b"%d" % number, first) for number in range(4)), 4, 0, 10)
    page = read(scenario, page.next, limit=100)
    assert (positions(page), page.next, page.end) == ([4, 5, 6, 7, 8, 9], 10, 10)
    assert read(scenario, 10) == LogPage((), 10, 0, 10)
    assert read(scenario, 12) == LogPage((), 12, 0, 10)
    assert positions(read(scenario, -5, limit=1)) == [0]


def test_reader_of_a_truncated_log_begins_where_it_does(scenario: Level3) -> None:
    truncated(scenario, 8)
    page = read(scenario, 2)
    assert (positions(page), page.first_visible, page.next, page.end) == ([8, 9], 8, 10, 10)
    truncated(scenario, 10)
    assert read(scenario, 0) == LogPage((), 10, 10, 10)
    drained(scenario)
    assert read(scenario, 0) == LogPage((), 10, 10, 10)


def test_page_is_bounded_by_bytes_and_holds_one_entry_at_least(scenario: Level3) -> None:
    assert positions(read(scenario, bytes_max=3)) == [0, 1, 2]
    scenario.set_data(entry(0), b"x" * 100)
    assert positions(read(scenario, bytes_max=3)) == [0]
    assert positions(read(scenario, 1, bytes_max=1)) == [1]


def test_holes_are_passed_and_bounded(scenario: Level3) -> None:
    scenario.delete(entry(3))
    scenario.create("/log/other-", flags=SEQUENTIAL)
    scenario.create("/log/e-", b"", flags=SEQUENTIAL)
    assert positions(read(scenario, 2)) == [2, 4, 5, 6, 7, 8, 9, 11]
    scenario.node("/log").creates = HOLES_MAX + 100
    page = read(scenario, 12)
    assert (page.entries, page.next) == ((), 12 + HOLES_MAX)
    assert read(scenario, page.next).next == HOLES_MAX + 100


def test_reading_a_log_needs_rights(scenario: Level3) -> None:
    nobody = ((31, "ip", "10.9.8.7"),)
    assert read(scenario, directory="/none") is Code.NO_NODE
    assert read(scenario, prefix="e-0000000001/x") is Code.BAD_ARGUMENTS
    scenario.run((SET_ACL, entry(4), nobody, -1))
    page = read(scenario)
    assert (positions(page), page.next) == ([0, 1, 2, 3], 4)
    assert read(scenario, 4) is Code.NO_AUTH
    assert positions(read(scenario, 4, ids=(("ip", "10.9.8.7"),))) == [4, 5, 6, 7, 8, 9]
    scenario.run((SET_ACL, "/log", nobody, -1))
    assert read(scenario) is Code.NO_AUTH


def test_log_at_the_root(scenario: Level3) -> None:
    scenario.create("/r-", b"one", flags=SEQUENTIAL)
    assert [data for _, data, _ in read(scenario, directory="/", prefix="r-").entries] == [b"one"]
