"""Every checker catches what it is for, and accepts the correct history next to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from tests.unit.testing.checkers.histories import (
    connected,
    disconnected,
    event,
    expired,
    op,
    read,
    wrote,
)
from zraft.checkers.final import Found, check_final
from zraft.checkers.history import Kind, Record, Violation
from zraft.checkers.locks import check_locks
from zraft.checkers.order import check_reads, check_zxids
from zraft.checkers.sequences import check_lists, check_sequences
from zraft.checkers.sessions import check_ephemerals, check_sessions
from zraft.checkers.watches import check_watches
from zraft_core.errors import Code

Checker = Callable[[Sequence[Sequence[Record]]], list[Violation]]


def verdict(checker: Checker, *histories: Sequence[Record]) -> str:
    """What was found, on one line; empty if nothing."""
    return " | ".join(f"{one.checker}: {one.found}" for one in checker(histories))


# -- zxids


def test_zxids_along_real_time_and_within_sessions_are_fine() -> None:
    a = [wrote("/a", (0, 1), "a", zxid=10), read("/a", (2, 3), "a", 1, zxid=11, mzxid=10)]
    b = [wrote("/b", (0, 9), "b", zxid=9, client=2), wrote("/b", (10, 11), "c", zxid=12, client=2)]
    assert not verdict(check_zxids, a, b)


def test_a_zxid_that_goes_back_is_caught() -> None:
    back = [wrote("/a", (0, 1), "a", zxid=10), read("/a", (2, 3), "a", 1, zxid=9, kind=Kind.GET)]
    assert "went back" in verdict(check_zxids, back)


def test_a_zxid_that_goes_back_over_a_reconnect_is_caught() -> None:
    moved: list[Record] = [
        read("/a", (0, 1), "a", 1, zxid=10, kind=Kind.GET),
        disconnected(),
        connected(resumed=True),
        read("/a", (4, 5), "a", 1, zxid=9, kind=Kind.GET),
    ]
    assert "went back" in verdict(check_zxids, moved)


def test_a_zxid_that_two_writes_share_is_caught() -> None:
    assert "twice" in verdict(
        check_zxids, [wrote("/a", (0, 5), "a", zxid=10)], [wrote("/b", (0, 5), "b", zxid=10, client=2)]
    )


def test_a_write_ordered_before_one_that_was_answered_earlier_is_caught() -> None:
    late = [wrote("/b", (5, 6), "b", zxid=9, client=2)]
    assert "real time" in verdict(check_zxids, [wrote("/a", (0, 1), "a", zxid=10)], late)


def test_a_synced_read_that_lacks_an_earlier_answered_write_is_caught_by_its_zxid() -> None:
    stale = [read("/b", (5, 6), "x", 1, zxid=9, client=2)]
    assert "real time" in verdict(check_zxids, [wrote("/a", (0, 1), "a", zxid=10)], stale)
    plain = [evolve(stale[0], kind=Kind.GET)]
    assert not verdict(check_zxids, [wrote("/a", (0, 1), "a", zxid=10)], plain)


# -- plain reads


def plain(at: tuple[int, int], value: str, version: int, mzxid: int, zxid: int, client: int = 2) -> Record:
    return read("/a", at, value, version, kind=Kind.GET, mzxid=mzxid, zxid=zxid, client=client)


WRITES = (
    wrote("/a", (0, 1), "a", version=1, zxid=10, mzxid=10),
    wrote("/a", (2, 3), "b", version=2, zxid=12, mzxid=12),
)


def test_reads_of_the_past_are_fine_if_their_zxid_says_so() -> None:
    assert not verdict(check_reads, WRITES, [plain((9, 10), "a", 1, 10, 11), plain((11, 12), "b", 2, 12, 12)])


def test_a_read_that_lacks_a_write_its_zxid_covers_is_caught() -> None:
    assert "stale" in verdict(check_reads, WRITES, [plain((9, 10), "a", 1, 10, 12)])


def test_a_client_that_does_not_read_its_own_write_is_caught() -> None:
    own = [*WRITES, plain((4, 5), "a", 1, 10, 12, client=1)]
    assert "stale" in verdict(check_reads, own)


def test_a_read_of_another_value_than_was_written_is_caught() -> None:
    assert verdict(check_reads, WRITES, [plain((9, 10), "b", 1, 10, 11)])


def test_a_read_of_what_nobody_wrote_is_caught() -> None:
    assert "nobody wrote" in verdict(check_reads, WRITES, [plain((9, 10), "ghost", 3, 13, 14)])


def test_a_read_of_a_value_from_the_future_is_caught() -> None:
    late = [*WRITES, wrote("/a", (50, 60), "c", version=3, zxid=14)]
    assert "before it was written" in verdict(check_reads, late, [plain((9, 10), "c", 3, 14, 14)])


def test_a_znode_that_is_gone_without_a_delete_is_caught() -> None:
    gone = op(Kind.GET, "/a", (9, 10), client=2, zxid=13, code=Code.NO_NODE)
    assert "lost" in verdict(check_reads, WRITES, [gone])
    deleted = op(Kind.DELETE, "/a", (4, 5), zxid=13)
    assert not verdict(check_reads, [*WRITES, deleted], [gone])


def test_a_multi_of_which_a_reader_sees_one_half_is_caught() -> None:
    both = op(Kind.MULTI_SET, "/a", (0, 1), value="m", version=1, zxid=10, further=("/b",))
    half = read("/b", (2, 3), "first", 0, kind=Kind.GET, mzxid=1, zxid=10, client=2)
    assert "stale" in verdict(check_reads, [both], [half])
    assert not verdict(check_reads, [both], [evolve(half, zxid=9)])


# -- sessions


def test_a_session_that_expires_after_its_timeout_of_silence_is_fine() -> None:
    assert not verdict(check_sessions, [connected(), expired(at=2_100_000, heard=50_000)])


def test_a_session_that_expires_too_early_is_caught() -> None:
    assert "expiry" in verdict(check_sessions, [connected(), expired(at=1_900_000, heard=50_000)])


def test_time_in_which_no_server_ran_is_no_silence() -> None:
    history: list[Record] = [connected(), expired(at=9_000_000, heard=0)]
    assert not check_sessions([history], [(1_000_000, 8_000_000)])
    assert check_sessions([history], [(1_000_000, 8_000_001)])


def test_a_session_that_works_after_its_end_is_caught() -> None:
    closed = op(Kind.CLOSE, "/", (0, 1), zxid=5)
    assert "ended" in verdict(check_sessions, [closed, connected(at=3, resumed=True)])
    assert "ended" in verdict(check_sessions, [expired(at=3_000_000), wrote("/a", (4, 5), "a", zxid=9)])


def born(**more: Any) -> Record:
    return op(Kind.CREATE, "/e", (0, 1), value="e", ephemeral=True, created="/e", version=0, zxid=10, **more)


def test_an_ephemeral_that_a_closed_session_left_behind_is_caught() -> None:
    closed = op(Kind.CLOSE, "/", (2, 3), zxid=12)
    seen = read("/e", (4, 5), "e", 0, client=2, zxid=13, mzxid=10, owner=1)
    assert "closed" in verdict(check_ephemerals, [born(), closed], [seen])
    assert not verdict(check_ephemerals, [born(), closed], [evolve(seen, zxid=11)])


def test_an_ephemeral_that_comes_back_after_expiry_is_caught() -> None:
    seen = read("/e", (4, 5), "e", 0, client=2, zxid=13, mzxid=10, owner=1)
    assert "expired" in verdict(check_ephemerals, [born(), expired(at=3)], [seen])
    assert not verdict(check_ephemerals, [born(), expired(at=5)], [seen])


def test_an_ephemeral_that_vanishes_from_a_living_session_is_caught() -> None:
    gone = op(Kind.GET, "/e", (2, 3), client=2, zxid=12, code=Code.NO_NODE)
    alive = wrote("/a", (4, 5), "a", zxid=14)
    assert "lost" in verdict(check_ephemerals, [born(), alive], [gone])
    released = op(Kind.DELETE, "/e", (2, 3), zxid=11)
    assert not verdict(check_ephemerals, [born(), released, alive], [gone])


# -- locks


def lock(client: int, at: tuple[int, int | None], zxid: int) -> Record:
    return op(
        Kind.CREATE,
        "/x/lock",
        at,
        client=client,
        value=f"{client}",
        ephemeral=True,
        created="/x/lock",
        zxid=zxid,
    )


def release(client: int, at: tuple[int, int | None], zxid: int) -> Record:
    return op(Kind.DELETE, "/x/lock", at, client=client, zxid=zxid)


def test_holders_one_after_the_other_are_fine() -> None:
    assert not verdict(check_locks, [lock(1, (0, 1), 10), release(1, (2, 3), 11)], [lock(2, (0, 5), 12)])
    assert not verdict(check_locks, [lock(1, (0, 1), 10), expired(1)], [lock(2, (4, 5), 12)])
    assert not verdict(check_locks, [lock(1, (0, 1), 10), release(1, (2, None), 0)], [lock(2, (4, 5), 12)])


def test_two_holders_are_caught() -> None:
    assert "two holders" in verdict(check_locks, [lock(1, (0, 1), 10)], [lock(2, (4, 5), 12)])


def test_a_holder_whose_session_writes_on_after_another_took_its_lock_is_caught() -> None:
    alive = wrote("/a", (9, 10), "a", zxid=15)
    assert "two holders" in verdict(
        check_locks, [lock(1, (0, 1), 10), alive, expired(1)], [lock(2, (4, 5), 12)]
    )


def test_a_holder_whose_session_is_closed_after_another_took_its_lock_is_caught() -> None:
    """Closed at last, it counted as one that had ended."""
    closed = op(Kind.CLOSE, "/", (9, 10), client=1, zxid=15)
    assert "two holders" in verdict(check_locks, [lock(1, (0, 1), 10), closed], [lock(2, (4, 5), 12)])
    earlier = op(Kind.CLOSE, "/", (2, 3), client=1, zxid=11)
    assert not verdict(check_locks, [lock(1, (0, 1), 10), earlier], [lock(2, (4, 5), 12)])


def test_a_holder_that_was_cut_off_may_have_lost_its_lock_after_its_timeout_and_not_before() -> None:
    """Its history ends with the connection: nobody is there to learn of the expiry."""
    cut_off = [connected(1, 0), lock(1, (0, 1), 10), disconnected(1, 1_000)]
    assert not verdict(check_locks, cut_off, [lock(2, (2_000_900, 2_001_000), 12)])
    assert "two holders" in verdict(check_locks, cut_off, [lock(2, (2_000_900, 2_000_999), 12)])
    back = connected(1, 1_500, resumed=True)
    assert "two holders" in verdict(check_locks, [*cut_off, back], [lock(2, (2_000_900, 2_001_000), 12)])


def fence(client: int, holding: str, zxid: int) -> Record:
    return wrote("/f/fence", (zxid, zxid + 1), holding, client=client, zxid=zxid)


def test_fenced_holdings_that_follow_each_other_are_fine() -> None:
    assert not verdict(
        check_locks,
        [fence(1, "1.1 0", 10), fence(1, "1.1 1", 11)],
        [fence(2, "2.1 0", 12), fence(2, "2.1 1", 13)],
    )


def test_a_holder_that_writes_after_the_next_one_began_is_caught() -> None:
    assert "held again" in verdict(
        check_locks, [fence(1, "1.1 0", 10), fence(1, "1.1 1", 12)], [fence(2, "2.1 0", 11)]
    )


# -- sequences


def item(client: int, zxid: int, number: int, payload: str) -> Record:
    return op(
        Kind.CREATE,
        "/q/item-",
        (zxid, zxid + 1),
        client=client,
        value=payload,
        created=f"/q/item-{number:010}",
        zxid=zxid,
    )


def test_items_numbered_in_order_and_taken_once_are_fine() -> None:
    taken = op(Kind.DELETE, "/q/item-0000000000", (30, 31), client=2, zxid=30)
    assert not verdict(
        check_sequences, [item(1, 10, 0, "a"), item(1, 12, 2, "b")], [item(2, 11, 1, "c"), taken]
    )


def test_a_create_that_happened_twice_is_caught() -> None:
    again = read("/q/item-0000000001", (20, 21), "a", 0, client=2, zxid=20)
    assert "created twice" in verdict(check_sequences, [item(1, 10, 0, "a")], [again])


def test_a_path_given_to_two_creates_is_caught() -> None:
    assert "one path twice" in verdict(check_sequences, [item(1, 10, 0, "a")], [item(2, 11, 0, "b")])


def test_numbers_against_the_order_of_zxids_are_caught() -> None:
    assert "against zxids" in verdict(check_sequences, [item(1, 10, 5, "a"), item(1, 12, 4, "b")])


def test_an_item_taken_twice_is_caught() -> None:
    path = "/q/item-0000000000"
    one = op(Kind.DELETE, path, (20, 21), zxid=20)
    other = op(Kind.DELETE, path, (22, 23), client=2, zxid=22)
    assert "taken twice" in verdict(check_sequences, [item(1, 10, 0, "a"), one], [other])


def listed(zxid: int, *numbers: int) -> Record:
    names = tuple(f"item-{number:010}" for number in numbers)
    return op(Kind.CHILDREN, "/q", (zxid, zxid + 1), client=3, names=names, zxid=zxid)


ITEMS = (item(1, 10, 0, "a"), item(1, 12, 1, "b"), op(Kind.DELETE, "/q/item-0000000000", (14, 15), zxid=14))


def test_lists_that_are_true_to_their_zxid_are_fine() -> None:
    assert not verdict(check_lists, ITEMS, [listed(9), listed(11, 0), listed(13, 0, 1), listed(14, 1)])


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("missing", listed(10)),
        ("missing", listed(13, 0)),
        ("missing", listed(20)),
        ("deleted", listed(14, 0, 1)),
    ],
)
def test_a_list_that_is_not_true_to_its_zxid_is_caught(name: str, row: Record) -> None:
    assert name in verdict(check_lists, ITEMS, [row])


# -- watches

WRITER = (
    wrote("/w/1", (10, 11), "a", client=2, zxid=10),
    wrote("/w/2", (12, 13), "b", client=2, zxid=12),
    wrote("/w/1", (14, 15), "c", client=2, zxid=14),
)


def watching(*more: Record) -> list[Record]:
    return [connected(), op(Kind.ADD_WATCH, "/w", (0, 1), zxid=9), *more]


def seen(zxid: int, path: str = "/other") -> Record:
    return read(path, (20, 21), "x", 1, kind=Kind.GET, zxid=zxid, mzxid=1)


def test_every_event_in_order_before_what_shows_it_is_fine() -> None:
    told = watching(event("/w/1", 10), event("/w/2", 12), seen(13), event("/w/1", 14), seen(14))
    assert not verdict(check_watches, told, WRITER)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lost", watching(event("/w/1", 10), event("/w/1", 14), seen(14))),
        ("lost", watching(event("/w/1", 10), event("/w/2", 12), seen(14))),
        ("lost", watching(seen(10), event("/w/1", 10))),
        ("out of order", watching(event("/w/2", 12), event("/w/1", 10), seen(12))),
        ("nobody changed", watching(event("/w/9", 10))),
        ("another type", watching(event("/w/1", 10, 2))),
    ],
)
def test_a_recursive_watch_that_breaks_a_promise_is_caught(name: str, told: list[Record]) -> None:
    assert name in verdict(check_watches, told, WRITER)


def once(zxid: int = 9) -> Record:
    return read("/w/1", (0, 1), "x", 1, kind=Kind.GET, zxid=zxid, mzxid=5, watch=True)


def test_a_one_shot_watch_that_fires_once_is_fine() -> None:
    assert not verdict(check_watches, [connected(), once(), event("/w/1", 10), seen(14)], WRITER)


def test_a_one_shot_watch_that_is_restored_tells_what_was_missed() -> None:
    restored = op(Kind.RESTORE_WATCHES, "/", (16, 17), zxid=14)
    away = [connected(), once(), disconnected(), connected(resumed=True)]
    assert not verdict(check_watches, [*away, event("/w/1", -1), restored, seen(14)], WRITER)
    assert "no event" in verdict(check_watches, [*away, restored, seen(14)], WRITER)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no event", [connected(), once(), seen(10)]),
        ("no event", [connected(), once(), read("/w/1", (20, 21), "?", 2, kind=Kind.GET, zxid=9, mzxid=10)]),
        ("told already", [connected(), once(), event("/w/1", 10), event("/w/1", 14)]),
        ("before the watch was set", [connected(), once(12), event("/w/1", 10)]),
    ],
)
def test_a_one_shot_watch_that_breaks_a_promise_is_caught(name: str, told: list[Record]) -> None:
    assert name in verdict(check_watches, told, WRITER)


# -- the end


def test_an_end_with_everything_acknowledged_is_fine() -> None:
    tree = {"/a": Found("b", 2, 12)}
    assert not check_final([WRITES], {1: tree, 2: tree}, {1: "9 x", 2: "9 x"})


@pytest.mark.parametrize(
    ("name", "trees", "digests"),
    [
        ("shows", {1: {"/a": Found("b", 2, 12)}, 2: {"/a": Found("a", 1, 10)}}, {}),
        ("lost", {1: {"/a": Found("a", 1, 10)}}, {}),
        ("lacks", {1: {}}, {}),
        ("nobody wrote after", {1: {"/a": Found("ghost", 3, 14)}}, {}),
        ("digests differ", {1: {"/a": Found("b", 2, 12)}}, {1: "9 x", 2: "9 y"}),
        ("no server", {}, {}),
    ],
)
def test_an_end_that_breaks_a_promise_is_caught(
    name: str, trees: dict[int, dict[str, Found]], digests: dict[int, str]
) -> None:
    assert name in " ".join(one.found for one in check_final([WRITES], trees, digests))


def test_a_deleted_znode_that_is_there_at_the_end_is_caught() -> None:
    deleted = op(Kind.DELETE, "/a", (4, 5), zxid=14)
    assert check_final([[*WRITES, deleted]], {1: {"/a": Found("b", 2, 12)}}, {})
    assert not check_final([[*WRITES, deleted]], {1: {}}, {})
