"""The core of a group, without a loop: what it appends and asks for, entry by entry."""

from __future__ import annotations

import pytest

from onyxlog.errors import OnyxlogError
from onyxlog.peer.core import UNSEEN_MAX, GroupCore
from onyxlog.peer.log.port import Origin, first_origin
from onyxlog.peer.turns import Append, Truncate, Turn
from onyxlog.replica.commands import (
    AbortJoin,
    AcceptJoin,
    AddVirtualPeer,
    Command,
    Entry,
    Gc,
    GroupLeave,
    JoinDirect,
    KillJob,
    Leave,
    NotifyJoin,
    PrepareJoin,
    Record,
    SubmitJob,
)
from onyxlog.replica.effects import (
    JoinLater,
    RestartGroup,
    RestartPeer,
    StartTask,
    StopTask,
    WatchJoiner,
    WatchPulse,
)
from onyxlog.replica.playing import play
from onyxlog.replica.replica import JoinMode, Parameters, Replica
from onyxlog.scheduling.requirements import JobRequirements, TaskRequirements


class Log:
    """Entries in order; what cores append is appended by `pump`, and all cores play everything."""

    def __init__(self, join: JoinMode) -> None:
        self.origin = first_origin(Parameters(join=join))
        self.replica, self.chain = self.origin.replica, self.origin.chain
        self.entries: list[Entry] = []

    def append(self, record: Record) -> Entry:
        entry = Entry(len(self.entries), record)
        self.entries.append(entry)
        step = play(self.replica, entry, self.chain)
        self.replica, self.chain = step.replica, step.chain
        return entry

    def say(self, command: Command, author: str = "somebody") -> Entry:
        return self.append(Record(command, author))

    def as_origin(self) -> Origin:
        return Origin(self.replica.version, self.replica, self.chain)


def alone(job: str) -> JobRequirements:
    """A job of one task."""
    return JobRequirements(job, job.encode(), (TaskRequirements("task-0"),))


def commands(turn: Turn) -> list[Command]:
    return [append.record.command for append in turn.appends]


def effects(turn: Turn) -> list[object]:
    return [act.what for act in turn.acts]


def a_member(log: Log, name: str = "a", peers: int = 1) -> GroupCore:
    """A core that has joined and read everything."""
    core = GroupCore(name, log.as_origin(), offers=((),) * peers)
    pump(log, core, core.begin("here:1", 0))
    assert core.joined
    return core


def pump(log: Log, core: GroupCore, turn: Turn) -> list[object]:
    """Until nothing is appended any more; the effects on the way."""
    found = effects(turn)
    waiting = list(turn.appends)
    while waiting:
        one: Append = waiting.pop(0)
        entry = log.append(one.record)
        core.accepted(one.number, entry.position, 0)
        while core.version < log.replica.version:
            turn = core.take(log.entries[core.version + 1], 0)
            found += effects(turn)
            waiting += turn.appends
    return found


def test_a_group_asks_to_join_as_the_log_s_parameters_say_and_then_offers_its_peers() -> None:
    for join, command in ((JoinMode.RING, PrepareJoin("a")), (JoinMode.DIRECT, JoinDirect("a"))):
        core = GroupCore("a", first_origin(Parameters(join=join)), offers=((), ("gpu",)))
        turn = core.begin("here:1", 5)
        assert commands(turn) == [
            command,
            AddVirtualPeer("a.0", "a", "here:1"),
            AddVirtualPeer("a.1", "a", "here:1", ("gpu",)),
        ]
        assert [append.number for append in turn.appends] == [0, 1, 2]
        assert all(append.record.author == "a" and append.record.at_ms == 5 for append in turn.appends)


def test_the_watcher_watches_a_joiner_before_it_tells_the_log() -> None:
    log = Log(JoinMode.RING)
    core = a_member(log)
    turn = core.take(log.say(PrepareJoin("b"), "b"), 0)
    assert WatchJoiner("b") in effects(turn)
    assert commands(turn) == [NotifyJoin("b", "a")]
    assert turn.appends[0].record.cause == log.replica.version


def test_what_was_appended_is_unseen_until_it_is_read_in_the_log() -> None:
    log = Log(JoinMode.DIRECT)
    core = GroupCore("a", log.origin, offers=((),))
    turn = core.begin("", 0)
    assert [sent.record.command for sent in core.unseen] == commands(turn)
    entry = log.append(turn.appends[0].record)
    core.accepted(0, entry.position, 0)
    assert core.unseen[0].position == 0
    core.take(entry, 0)
    assert [sent.record.command for sent in core.unseen] == commands(turn)[1:]


def test_an_entry_that_was_played_already_does_nothing() -> None:
    log = Log(JoinMode.RING)
    core = a_member(log)
    prepared = log.say(PrepareJoin("b"), "b")
    assert core.take(prepared, 0) != Turn()
    chain = core.chain
    assert core.take(prepared, 0) == Turn()
    assert core.take(log.entries[0], 0) == Turn()
    assert core.chain == chain


def test_one_death_that_is_noticed_three_ways_is_one_entry() -> None:
    log = Log(JoinMode.RING)
    core = a_member(log)
    pump(log, core, core.take(log.say(PrepareJoin("b"), "b"), 0))
    turns = [core.pulse_gone("b", 0) for _ in range(3)]
    assert [commands(turn) for turn in turns] == [[GroupLeave("b")], [], []]
    pump(log, core, turns[0])
    assert core.pulse_gone("b", 0) == Turn(), "it has left by now"


def test_a_group_that_the_log_declares_gone_is_over_and_plays_nothing_more() -> None:
    log = Log(JoinMode.RING)
    core = a_member(log)
    turn = core.take(log.say(GroupLeave("a")), 0)
    assert RestartGroup() in effects(turn)
    assert core.over
    assert core.take(log.say(GroupLeave("b")), 0) == Turn()
    assert core.version < log.replica.version
    assert core.say(KillJob("job", 0), 0) == Turn()


def test_a_group_that_goes_on_purpose_is_not_told_to_begin_again() -> None:
    log = Log(JoinMode.RING)
    core = a_member(log)
    assert RestartGroup() not in pump(log, core, core.leave(0))
    assert core.over
    assert "a" in log.replica.left


def test_a_virtual_peer_that_is_out_gets_another_id_and_keeps_its_tags() -> None:
    log = Log(JoinMode.DIRECT)
    core = GroupCore("a", log.origin, offers=(("gpu",), ()))
    pump(log, core, core.begin("here:1", 0))
    assert RestartPeer("a.0") in pump(log, core, core.peer_failed("a.0", 0))
    assert core.viewer.peers == {"a.1"}
    assert core.peer_failed("a.0", 0) == Turn(), "it is out already"
    assert commands(core.peer_again("a.0", 0)) == [AddVirtualPeer("a.2", "a", "here:1", ("gpu",))]
    assert core.peer_again("a.0", 0) == Turn()
    assert core.viewer.peers == {"a.1", "a.2"}


def test_the_one_who_asked_for_gc_stores_the_replica_as_of_that_entry() -> None:
    log = Log(JoinMode.DIRECT)
    core = a_member(log)
    log.say(GroupLeave("long gone"))
    for _ in range(2):
        log.say(Gc("somebody"))
    while core.version < log.replica.version:
        assert not any(
            isinstance(what, Truncate) for what in effects(core.take(log.entries[core.version + 1], 0))
        )
    stored = [what for what in pump(log, core, core.say(Gc("a"), 0)) if isinstance(what, Truncate)]
    assert [what.origin for what in stored] == [log.as_origin()]


def test_a_group_whose_records_the_log_does_not_take_is_cut_off_instead_of_growing() -> None:
    core = GroupCore("a", first_origin(Parameters()))
    for _ in range(UNSEEN_MAX):
        core.say(KillJob("job", 0), 0)
    with pytest.raises(OnyxlogError, match="wait for the log, expected at most"):
        core.say(KillJob("job", 0), 0)


# -- after a jump


def test_a_jump_backwards_does_nothing() -> None:
    log = Log(JoinMode.DIRECT)
    core = a_member(log)
    before = core.replica
    assert core.jump(log.as_origin(), 0) == Turn()
    assert core.jump(log.origin, 0) == Turn()
    assert core.replica is before


def test_a_jump_gives_the_tasks_that_the_missed_entries_gave() -> None:
    log = Log(JoinMode.DIRECT)
    core = a_member(log, peers=1)
    log.say(SubmitJob(alone("one")))
    turn = core.take(log.entries[-1], 0)
    assert effects(turn) == [StartTask("a.0", "one", "task-0", 0, log.replica.version)]
    log.say(KillJob("one", log.replica.jobs["one"].submitted))
    log.say(SubmitJob(alone("two")))
    given = log.replica.version
    log.say(Gc("client"))
    turn = core.jump(log.as_origin(), 0)
    assert effects(turn) == [StartTask("a.0", "two", "task-0", 0, given)]
    log.say(KillJob("two", log.replica.jobs["two"].submitted))
    log.say(Gc("client"))
    (stopped,) = effects(core.jump(log.as_origin(), 0))
    assert isinstance(stopped, StopTask)
    assert core.chain == log.chain


def test_a_watcher_that_missed_the_request_to_help_does_it_after_the_jump() -> None:
    log = Log(JoinMode.RING)
    core = a_member(log)
    log.say(PrepareJoin("b"), "b")
    turn = core.jump(log.as_origin(), 0)
    assert WatchJoiner("b") in effects(turn)
    assert commands(turn) == [NotifyJoin("b", "a")]


def test_a_joiner_that_missed_the_answer_accepts_it_after_the_jump() -> None:
    log = Log(JoinMode.RING)
    a_member(log)
    core = GroupCore("b", log.as_origin())
    (asked,) = core.begin("", 0).appends
    core.accepted(0, log.append(asked.record).position, 0)
    log.say(NotifyJoin("b", "a"), "a")
    turn = core.jump(log.as_origin(), 0)
    assert commands(turn) == [AcceptJoin("b", "a", "a")]
    assert WatchPulse("a") in effects(turn)
    assert not [sent for sent in core.unseen if sent.record.command == PrepareJoin("b")]


def test_a_joiner_whose_request_is_still_to_come_does_not_ask_twice() -> None:
    log = Log(JoinMode.RING)
    a_member(log)
    core = GroupCore("b", log.as_origin())
    core.begin("", 0)
    log.say(Gc("client"))
    turn = core.jump(log.as_origin(), 0)
    assert turn == Turn()
    assert len(core.unseen) == 1


def test_a_group_that_came_and_went_in_what_it_missed_begins_again() -> None:
    log = Log(JoinMode.DIRECT)
    core = GroupCore("a", log.origin)
    (asked,) = core.begin("", 0).appends
    core.accepted(0, log.append(asked.record).position, 0)
    log.say(GroupLeave("a"))
    for _ in range(3):
        log.say(Gc("client"))
    assert "a" not in log.replica.left
    assert effects(core.jump(log.as_origin(), 0)) == [RestartGroup()]


def test_a_virtual_peer_that_came_and_went_in_what_was_missed_begins_again() -> None:
    log = Log(JoinMode.DIRECT)
    core = GroupCore("a", log.origin, offers=((),))
    for append in core.begin("", 0).appends:
        core.accepted(append.number, log.append(append.record).position, 0)
    log.say(Leave("a.0", "a"))
    log.say(Gc("client"))
    assert RestartPeer("a.0") in effects(core.jump(log.as_origin(), 0))


def test_what_the_log_took_is_looked_at_also_when_its_answer_comes_after_the_jump() -> None:
    """As when a connection is made again: such a record was waited for without end, and its virtual peer never worked."""
    log = Log(JoinMode.DIRECT)
    core = GroupCore("a", log.origin, offers=((),))
    appends = core.begin("", 0).appends
    taken = [(append.number, log.append(append.record).position) for append in appends]
    log.say(Leave("a.0", "a"))
    log.say(Gc("client"))
    assert effects(core.jump(log.as_origin(), 0)) == []
    (join, offer) = taken
    assert effects(core.accepted(*join, 0)) == []
    assert effects(core.accepted(*offer, 0)) == [RestartPeer("a.0")]
    assert core.unseen == ()


def test_a_group_whose_join_came_and_went_begins_again_also_when_the_answer_comes_after_the_jump() -> None:
    log = Log(JoinMode.DIRECT)
    core = GroupCore("a", log.origin)
    (asked,) = core.begin("", 0).appends
    taken = log.append(asked.record).position
    log.say(GroupLeave("a"))
    for _ in range(3):
        log.say(Gc("client"))
    assert core.jump(log.as_origin(), 0) == Turn()
    assert effects(core.accepted(0, taken, 0)) == [RestartGroup()]
    assert core.over


def test_a_refused_joiner_tries_again_later_unless_it_was_to_try_once() -> None:
    for once in (False, True):
        log = Log(JoinMode.RING)
        a_member(log)
        log.say(PrepareJoin("c"), "c")  # keeps the only member busy
        core = GroupCore("b", log.as_origin(), join_once=once)
        found = pump(log, core, core.begin("", 0))
        assert AbortJoin("b") in [entry.command for entry in log.entries]
        assert (JoinLater(0) in found) is not once


def read_on(log: Log, core: GroupCore) -> list[Command]:
    """Let the core read to the end of the log; what it appends then."""
    found: list[Command] = []
    while core.version < log.replica.version:
        found += commands(core.take(log.entries[core.version + 1], 0))
    return found


def helped_in(log: Log, joiner: str, watcher: str) -> None:
    log.say(NotifyJoin(joiner, watcher), watcher)
    log.say(AcceptJoin(joiner, watcher, watcher), joiner)


def test_a_refused_joiner_asks_again_when_a_member_is_free_and_then_no_more() -> None:
    log = Log(JoinMode.RING)
    a_member(log)
    log.say(PrepareJoin("c"), "c")
    core = GroupCore("b", log.as_origin())
    pump(log, core, core.begin("", 0))
    assert not read_on(log, core)
    helped_in(log, "c", "a")
    assert read_on(log, core) == [PrepareJoin("b")]
    assert core.join_again(0) == Turn()  # it has asked
    log.say(PrepareJoin("b"), "b")
    assert not read_on(log, core)
    assert core.join_again(0) == Turn()  # it is being helped


def test_a_refused_joiner_asks_again_after_a_while_though_others_have_their_turn_first() -> None:
    log = Log(JoinMode.RING)
    a_member(log)
    log.say(AbortJoin("dead"), "dead")
    log.say(PrepareJoin("c"), "c")
    core = GroupCore("b", log.as_origin())
    assert JoinLater(1) in pump(log, core, core.begin("", 0))
    helped_in(log, "c", "a")
    assert not read_on(log, core)
    assert commands(core.join_again(0)) == [PrepareJoin("b")]


def test_cores_that_begin_at_different_origins_have_the_same_chain() -> None:
    log = Log(JoinMode.RING)
    first = a_member(log)
    second = GroupCore("b", log.origin)
    for entry in log.entries:
        second.take(entry, 0)
    third = GroupCore("c", log.as_origin())
    for core in (first, second, third):
        core.take(log.entries[-1], 0)
    extra = log.say(KillJob("nothing", 0))
    for core in (first, second, third):
        core.take(extra, 0)
    assert first.chain == second.chain == third.chain == log.chain
    assert isinstance(first.replica, Replica)
