"""Garbage collection: what is forgotten, when, and what a peer does that it overtook."""

from __future__ import annotations

from onyxlog.replica.codec import decode_origin, encode_origin
from onyxlog.replica.collection import unwatched
from onyxlog.replica.commands import (
    AbortJoin,
    Gc,
    GroupLeave,
    JoinDirect,
    KillJob,
    Leave,
    NotifyJoin,
    PrepareJoin,
    SubmitJob,
)
from onyxlog.replica.effects import (
    ForgetJob,
    RestartGroup,
    RestartPeer,
    StartTask,
    StopTask,
    StoreOrigin,
    WatchPulse,
)
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import effects, jump_effects, owed
from onyxlog.replica.replica import Replica
from tests.onyxlog.replica.scripts import DIRECT, Log, job, ring, worker
from tests.onyxlog.replica.test_jobs_in_the_log import fleet


def test_only_the_caller_stores_the_origin_and_forgets_the_jobs_after_it() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    log.write(KillJob("count", log.submitted("count")), "client")
    log.write(Gc("tidy-1"), "tidy-1")
    expected = (StoreOrigin(log.replica.version), ForgetJob("count"))
    assert effects(log.step, Viewer(client="tidy-1")) == expected
    assert effects(log.step, Viewer(client="tidy-2")) == ()
    assert log.effects("a", "a1") == ()
    log.write(Gc("b"), "b")
    assert log.effects("b") == (StoreOrigin(log.replica.version),)


def test_jobs_that_are_over_are_forgotten_and_those_that_run_stay() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job("one")), "client")
    log.write(KillJob("one", log.submitted("one")), "client")
    log.write(SubmitJob(job("two")), "client")
    allocations = log.replica.allocations
    log.write(Gc("tidy"))
    assert (list(log.replica.killed), list(log.replica.jobs)) == ([], ["two"])
    assert log.replica.allocations is allocations
    log.write(SubmitJob(job("one")), "client")
    assert "one" in log.replica.jobs


def test_ids_that_left_are_forgotten_by_the_second_collection() -> None:
    """Onyx never forgot them."""
    log = fleet("ab")
    log.write(GroupLeave("b"), "b")
    log.write(Gc("tidy"))
    assert list(log.replica.left) == ["b"]
    log.write(JoinDirect("b"), "b")
    assert log.step.diff is None
    log.write(Gc("tidy"))
    assert not log.replica.left


def test_what_is_left_of_many_groups_is_bounded_by_collections() -> None:
    log = Log(Replica(parameters=DIRECT))
    for number in range(30):
        group = f"g{number}"
        log.write(JoinDirect(group), group)
        log.write(worker(group, f"p{number}"), group)
        log.write(GroupLeave(group), group)
        if number % 5 == 4:
            log.write(Gc("tidy"))
    assert len(log.replica.left) <= 5
    assert not log.replica.peers
    assert not log.replica.arcs
    assert len(encode_origin(log.replica, log.chain)) < 300


def test_joiners_that_died_between_two_attempts_are_found_by_their_missing_pulse() -> None:
    log = ring("ab")
    log.write(worker("c", "c1"), "c")
    log.write(AbortJoin("c"), "c")
    log.write(worker("d", "d1"), "d")
    assert unwatched(log.replica) == ("c", "d")
    log.write(Gc("tidy", gone=("c", "a")))
    # a is a member: its neighbour looks after it
    assert list(log.replica.groups) == ["a", "b"]
    assert list(log.replica.orphans) == ["d1"]
    assert not log.replica.aborted
    log.write(PrepareJoin("c"), "c")
    assert log.step.diff is None


def test_a_joiner_that_is_being_helped_is_not_unwatched() -> None:
    log = ring("ab")
    log.write(worker("c", "c1"), "c")
    log.write(PrepareJoin("c"), "c")
    assert unwatched(log.replica) == ()


def test_who_joins_directly_is_not_looked_for_by_its_pulse_as_it_has_none() -> None:
    log = Log(Replica(parameters=DIRECT))
    log.write(worker("a", "a1"), "a")
    assert unwatched(log.replica) == ()
    log.write(Gc("tidy", gone=("a",)))
    log.write(JoinDirect("a"), "a")
    assert list(log.replica.peers) == ["a1"]


def test_former_streams_of_the_pool_are_listened_to_until_the_next_collection() -> None:
    log = Log(Replica(parameters=DIRECT))
    for number in range(21):
        log.write(JoinDirect(f"g{number}"), f"g{number}")
    assert log.replica.streams == 3
    assert any(arc.former for arc in log.replica.arcs.values())
    ends = {group: arc.ends for group, arc in log.replica.arcs.items()}
    log.write(Gc("tidy"))
    assert not any(arc.former for arc in log.replica.arcs.values())
    assert {group: arc.ends for group, arc in log.replica.arcs.items()} == ends


def overtaken(log: Log) -> Replica:
    """The replica as a peer gets it that was paused while entries were truncated."""
    replica, chain = decode_origin(encode_origin(log.replica, log.chain), "origin")
    assert (replica, chain) == (log.replica, log.chain)
    return replica


def test_a_peer_that_collection_overtook_goes_on_from_the_origin() -> None:
    """Onyx installed the origin's envelope as the replica, and then failed on allocations that had changed."""
    log = fleet("abcd")
    log.write(SubmitJob(job("one")), "client")
    old = log.replica
    log.write(KillJob("one", log.submitted("one")), "client")
    log.write(SubmitJob(job("two")), "client")
    log.write(Leave("d1", "d"), "d")
    log.write(Gc("tidy"))
    new = overtaken(log)

    (start,) = jump_effects(old, new, Viewer("a", frozenset({"a1"})))
    assert isinstance(start, StartTask)
    assert (start.job, start.version) == ("two", new.allocation_versions["two"])
    stop, restart = jump_effects(old, new, Viewer("d", frozenset({"d1"})))
    assert isinstance(stop, StopTask)
    assert restart == RestartPeer("d1")
    log.write(worker("a", "a2"), "a")
    assert log.replica.version == new.version + 1


def test_a_jump_over_the_leave_of_a_group_restarts_it_even_if_it_is_forgotten() -> None:
    log = fleet("ab")
    old = log.replica
    viewer = Viewer("b", frozenset({"b1"}))
    log.write(GroupLeave("b"), "b")
    log.write(Gc("tidy"))
    assert jump_effects(old, log.replica, viewer)[-1] == RestartGroup()
    assert owed(log.replica, viewer) == ()
    log.write(Gc("tidy"))
    assert "b" not in log.replica.left
    assert jump_effects(old, log.replica, viewer)[-1] == RestartGroup()


def test_a_jump_over_the_whole_life_of_a_worker_restarts_it() -> None:
    log = fleet("a", workers=0)
    old = log.replica
    log.write(worker("a", "a1"), "a")
    log.write(Leave("a1", "a"), "a")
    viewer = Viewer("a", frozenset({"a1"}))
    assert jump_effects(old, log.replica, viewer) == ()  # not offered yet, as far as it knows
    assert jump_effects(old, log.replica, viewer, offered=["a1"]) == (RestartPeer("a1"),)


def test_what_a_group_owes_after_a_jump_is_what_it_would_have_reacted_with() -> None:
    log = ring("ab")
    old = log.replica
    log.write(PrepareJoin("c"), "c")
    watcher, *reaction = next(iter(log.reaction_of_all("abc").items()))
    assert owed(log.replica, Viewer(watcher)) == reaction[0]
    assert owed(log.replica, Viewer("c")) == ()
    log.write(NotifyJoin("c", watcher), watcher)
    assert owed(log.replica, Viewer("c")) == log.reactions("c")
    (watch,) = jump_effects(old, log.replica, Viewer("c"))
    assert isinstance(watch, WatchPulse)
    assert owed(old, Viewer("c")) == (PrepareJoin("c"),)
    assert owed(old, Viewer("a")) == ()
    assert owed(old, Viewer(client="reader")) == ()
    assert owed(Replica(parameters=DIRECT), Viewer("a")) == (JoinDirect("a"),)
