"""The small parts of a host of groups: timers, the common frame, retention, moves, members, descriptions."""

from __future__ import annotations

import random
from functools import partial

import pytest

from zraft.groups.description import GroupDescription
from zraft.groups.frame import Durable, LogFrame
from zraft.groups.leadership import Moves
from zraft.groups.members import AddLearner, Await, RemoveLearner, ReplaceVoters, Step, next_step, target_of
from zraft.groups.retention import LogRetention
from zraft.groups.settings import GroupSettings
from zraft.groups.timers import Timers
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, HardState, Member, MemberRole
from zraft.raft.ready import LogWrite
from zraft.raft.settings import NEVER
from zraft.storage.records import EntryRecord, ForgetRecord, HardStateRecord
from zraft.topics.placement import preferred_leaders
from zraft_core.errors import ConfigError
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId

S1, S2, S3, S4 = (ServerId(number) for number in (1, 2, 3, 4))
DISKS = {server: Instance(bytes([server]) * 16) for server in (S1, S2, S3, S4)}
OTHER = Instance(b"x" * 16)
G1, G2, G3 = GroupId(1), GroupId(2), GroupId(3)


# -- timers


def test_only_groups_whose_time_has_come_are_due() -> None:
    timers = Timers()
    timers.set(G1, 10)
    timers.set(G2, 20.5)
    assert list(timers.take_due(9)) == []
    assert list(timers.take_due(10)) == [G1]
    assert list(timers.take_due(20)) == []
    assert list(timers.take_due(21)) == [G2]
    assert timers.next_at == NEVER


def test_an_alarm_that_is_put_off_or_taken_back_does_not_ring() -> None:
    timers = Timers()
    timers.set(G1, 10)
    timers.set(G2, 10)
    timers.set(G1, 30)
    timers.clear(G2)
    assert list(timers.take_due(29)) == []
    assert timers.next_at == 30
    timers.set(G1, 5)
    assert timers.next_at == 5


def test_alarms_that_are_set_again_and_again_take_no_memory() -> None:
    timers = Timers()
    for tick in range(10_000, 0, -1):
        timers.set(G1, tick)
    assert len(timers._heap) < 100
    assert timers.next_at == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_first_alarm_is_known_after_every_change(seed: int) -> None:
    rng = random.Random(seed)
    timers, expected = Timers(), dict[GroupId, float]()
    for now in range(200):
        group = GroupId(rng.randint(1, 8))
        match rng.randint(0, 3):
            case 0:
                timers.clear(group)
                expected.pop(group, None)
            case 1:
                due = {one for one, tick in expected.items() if tick <= now}
                assert set(timers.take_due(now)) == due
                expected = {one: tick for one, tick in expected.items() if one not in due}
            case _:
                expected[group] = now + rng.randint(1, 30)
                timers.set(group, expected[group])
        assert timers.next_at == min(expected.values(), default=NEVER)
        assert timers.due == expected


# -- the common frame


def entry(index: int, size: int = 3) -> Entry:
    return Entry(index, 1, EntryKind.COMMANDS, index, 1, b"x" * size)


def test_writes_of_all_groups_share_one_frame_and_each_hears_of_its_own_newest() -> None:
    frame = LogFrame()
    frame.add(G1, LogWrite(1, HardState(1, S1), None, (entry(1),)))
    frame.add(G2, LogWrite(4, None, None, (entry(9),)))
    frame.add(G1, LogWrite(2, None, None, (entry(2),)))
    assert frame.take() == [
        HardStateRecord(G1, HardState(1, S1)),
        EntryRecord(G1, entry(1)),
        EntryRecord(G2, entry(9)),
        EntryRecord(G1, entry(2)),
    ]
    assert frame.durable() == Durable({G1: 2, G2: 4}, [])


def test_what_comes_while_a_frame_is_written_waits_for_the_next_and_does_not_count_with_it() -> None:
    frame = LogFrame()
    frame.add(G1, LogWrite(1, None, None, (entry(1),)))
    frame.take()
    frame.add(G1, LogWrite(2, None, None, (entry(2),)))
    assert frame.take() is None
    assert frame.waiting_bytes == {G1: 3}
    assert frame.durable() == Durable({G1: 1}, [])
    assert frame.take() == [EntryRecord(G1, entry(2))]


def test_a_group_that_is_gone_is_written_no_more_and_nobody_hears_of_its_writes() -> None:
    frame = LogFrame()
    frame.add(G1, LogWrite(1, None, None, (entry(1),)))
    frame.take()
    frame.add(G1, LogWrite(2, None, None, (entry(2),)))
    frame.forget(G1)
    assert frame.durable() == Durable({}, [])
    assert frame.take() == [ForgetRecord(G1)]
    assert frame.durable() == Durable({}, [G1])


# -- retention


SMALL = GroupSettings(snapshot_bytes=100, wal_bytes_max=300, snapshots_at_once=2)


def test_a_group_that_wrote_much_is_snapshotted() -> None:
    retention = LogRetention(SMALL)
    retention.wrote(G1, 101)
    retention.wrote(G2, 99)
    assert list(retention.due()) == [G1]
    retention.begun(G1)
    assert list(retention.due()) == []
    retention.ended(G1, durable=True, needs_more=False)
    assert list(retention.due()) == []


def test_the_group_that_keeps_the_oldest_log_is_snapshotted_however_little_it_wrote() -> None:
    retention = LogRetention(SMALL)
    retention.wrote(G1, 1)
    for _ in range(4):
        retention.wrote(G2, 90)
        retention.begun(G2)
        retention.ended(G2, durable=True, needs_more=False)
    assert list(retention.due()) == [G1]
    retention.begun(G1)
    retention.ended(G1, durable=True, needs_more=False)
    assert retention.needed_bytes == 0


def test_a_snapshot_that_failed_is_due_again_and_what_came_meanwhile_stays_needed() -> None:
    retention = LogRetention(SMALL)
    retention.wrote(G1, 150)
    retention.begun(G1)
    retention.wrote(G1, 40)
    retention.ended(G1, durable=False, needs_more=False)
    assert list(retention.due()) == [G1]
    retention.begun(G1)
    retention.wrote(G1, 10)
    retention.ended(G1, durable=True, needs_more=True)
    assert retention.needed_bytes == 10
    assert list(retention.due()) == []


def test_what_the_coordination_group_writes_makes_the_log_long_behind_a_topic_that_is_idle() -> None:
    retention = LogRetention(SMALL)
    retention.wrote(G1, 1)
    retention.written += 300
    assert list(retention.due()) == [G1]


def test_what_is_kept_for_who_is_slow_is_held_back_until_it_is_let_go() -> None:
    retention = LogRetention(SMALL)
    retention.wrote(G1, 50)
    retention.begun(G1)
    retention.wrote(G2, 200)
    retention.ended(G1, durable=True, needs_more=True, let_go=False)
    assert (retention.oldest, retention.needed_bytes) == (G1, 250)
    retention.wrote(G2, 51)
    assert retention.is_long(G1)
    assert G1 in retention.due()
    retention.begun(G1)
    retention.ended(G1, durable=True, needs_more=False)
    assert retention.oldest == G2


def test_a_start_counts_the_log_that_an_earlier_process_wrote() -> None:
    """Else a server that is restarted more often than its log is long would never cut it."""
    retention = LogRetention(SMALL)
    retention.recovered(G1, 10, 250)
    retention.recovered(G2, 10, 100)
    retention.recovered(G3, 0, 0)
    retention.wrote(G3, 40)
    assert list(retention.due()) == []
    retention.wrote(G3, 11)
    assert list(retention.due()) == [G1]
    assert retention.needed_bytes == 301


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_due_before_the_position_that_is_kept_for_it(seed: int) -> None:
    rng = random.Random(seed)
    retention = LogRetention(SMALL)
    retention.holds(COORDINATION_GROUP, 0)
    seen = 0
    for _ in range(300):
        group = GroupId(rng.randint(0, 4))
        match rng.randint(0, 9):
            case 0:
                retention.begun(group)
            case 1:
                retention.ended(group, durable=rng.random() < 0.7, needs_more=rng.random() < 0.5)
            case 2:
                retention.covered(retention.others)
            case 3:
                retention.allow(rng.randint(0, 100))
            case 4 if group != COORDINATION_GROUP:
                rng.choice((retention.removed, retention.put_off))(group)
            case _ if group == COORDINATION_GROUP:
                size = rng.randint(0, 60)
                retention.written += size
                retention.coordination += size
            case _:
                retention.wrote(group, rng.randint(0, 60))
        due = list(retention.due())
        seen += bool(due)
        assert not due or retention.due_at <= retention.written, due
        if not due and retention.due_at <= retention.written:
            retention.reckon()
            assert retention.due_at > retention.written, "else every turn would look in vain"
    assert seen


# -- moves


def test_leaderships_are_moved_one_after_the_other_and_few_at_a_time() -> None:
    moves = Moves(GroupSettings(transfer_pause_ticks=10, transfers_at_once=2))
    for group in (G1, G2, G3):
        moves.add(group, 0)
    begun: list[tuple[int, GroupId]] = []

    def begin(at: int, group: GroupId) -> bool:
        begun.append((at, group))
        return True

    for now in range(40):
        moves.begin(now, partial(begin, now))
    assert begun == [(10, G1), (20, G2)]
    moves.discard(G1)
    moves.begin(40, partial(begin, 40))
    assert begun[2] == (40, G3)


def test_moves_are_looked_at_when_one_may_begin_and_never_while_there_is_none() -> None:
    moves = Moves(GroupSettings(transfer_pause_ticks=10, transfers_at_once=2))
    assert moves.due_at == NEVER
    moves.add(G1, 0)
    moves.add(G2, 3)
    assert moves.due_at == 10
    moves.begin(10, lambda group: True)
    assert moves.due_at == 20, "one after the other"
    moves.discard(G1)
    moves.discard(G2)
    assert moves.due_at == NEVER


def test_a_move_that_cannot_be_begun_is_tried_ever_less_often() -> None:
    moves = Moves(GroupSettings(transfer_pause_ticks=10))
    moves.add(G1, 0)
    tries: list[int] = []

    def fail(at: int, group: GroupId) -> bool:
        tries.append(at)
        return False

    for now in range(200):
        moves.begin(now, partial(fail, now))
    assert tries == [10, 20, 40, 70, 110, 160]


# -- members


def members(*voters: ServerId) -> Membership:
    return Membership({server: Member(DISKS[server]) for server in voters})


def steps_to(present: Membership, wanted: dict[ServerId, Instance], *, caught_up: bool = True) -> list[Step]:
    """All of them, each carried out as the leader does it."""
    steps: list[Step] = []
    while (step := next_step(present, wanted, dict.fromkeys(present.members, 5 * caught_up), 5)) is not None:
        steps.append(step)
        if isinstance(step, Await):
            break
        present = Membership(target_of(step, present))
    else:
        assert {server: member.instance for server, member in present.members.items()} == wanted
    return steps


def test_a_replica_is_moved_by_adding_first_and_exchanging_once_it_has_caught_up() -> None:
    wanted = {server: DISKS[server] for server in (S2, S3, S4)}
    assert steps_to(members(S1, S2, S3), wanted) == [AddLearner(S4, DISKS[S4]), ReplaceVoters((S2, S3, S4))]


def test_nobody_is_taken_out_for_who_has_not_caught_up() -> None:
    wanted = {server: DISKS[server] for server in (S2, S3, S4)}
    assert steps_to(members(S1, S2, S3), wanted, caught_up=False) == [AddLearner(S4, DISKS[S4]), Await((S4,))]


def test_a_new_disk_of_a_voter_comes_when_the_old_one_has_left() -> None:
    wanted = {S1: DISKS[S1], S2: DISKS[S2], S3: OTHER}
    assert steps_to(members(S1, S2, S3), wanted) == [
        ReplaceVoters((S1, S2)),
        AddLearner(S3, OTHER),
        ReplaceVoters((S1, S2, S3)),
    ]


def test_a_learner_that_is_not_wanted_goes() -> None:
    present = Membership({S1: Member(DISKS[S1]), S4: Member(DISKS[S4], MemberRole.LEARNER)})
    assert steps_to(present, {S1: DISKS[S1]}) == [RemoveLearner(S4)]


def test_members_as_wanted_need_no_step() -> None:
    assert steps_to(members(S1, S2, S3), {server: DISKS[server] for server in (S1, S2, S3)}) == []


# -- descriptions


def test_only_the_disk_that_the_creating_entry_names_founds_a_group() -> None:
    description = GroupDescription(G1, {S1: DISKS[S1], S2: DISKS[S2]})
    assert description.membership_for(S1, DISKS[S1]).voters == (S1, S2)
    for server, disk in ((S1, OTHER), (S3, DISKS[S3])):
        started_with = description.membership_for(server, disk)
        assert started_with.voters == ()
        assert started_with.members[server].role is MemberRole.LEARNER


@pytest.mark.parametrize(
    ("group", "founders"),
    [(0, {S1: DISKS[S1]}), (1, {}), (1, {S1: Instance(b"")}), (1, {ServerId(0): DISKS[S1]})],
)
def test_what_cannot_be_a_group_is_refused(group: int, founders: dict[ServerId, Instance]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be|no founders"):
        GroupDescription(GroupId(group), founders)


def test_leaders_are_spread_evenly_and_stay_where_they_may() -> None:
    groups = {GroupId(number): (S1, S2, S3) for number in range(1, 10)}
    spread = preferred_leaders(groups, {})
    assert sorted(spread.values()) == [S1] * 3 + [S2] * 3 + [S3] * 3
    assert preferred_leaders(groups, spread) == spread
    without = preferred_leaders(dict.fromkeys(groups, (S1, S2)), spread)
    assert sorted(without.values()) in ([S1] * 5 + [S2] * 4, [S1] * 4 + [S2] * 5)
    assert all(without[group] == server for group, server in spread.items() if server == S1)


def test_settings_that_contradict_each_other_are_refused_by_the_knobs_name() -> None:
    with pytest.raises(ConfigError, match=r"groups\.wal_bytes_max"):
        GroupSettings(snapshot_bytes=100, wal_bytes_max=150).validate()
    with pytest.raises(ConfigError, match=r"groups\.items_max"):
        GroupSettings(items_max=1000).validate()
    with pytest.raises(ConfigError, match=r"groups\.transfers_at_once"):
        GroupSettings(transfers_at_once=0).validate()
    GroupSettings().validate()
