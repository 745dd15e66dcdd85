"""Groups that are given up: what the others do with messages that these took part in (docs/decisions/0012)."""

from __future__ import annotations

from attrs import evolve

from tests.unit.topics.groups import VIEW, A, B, C, apply, delivered, message, partition, remote, start
from tests.unit.topics.test_registry import Log
from zraft.topics.image import partition_image, read_image, state_digest
from zraft.topics.leader import PartitionLeader
from zraft.topics.partition import Partition
from zraft.topics.registry_image import read_registry, registry_image
from zraft.topics.registry_leader import RegistryLeader
from zraft_core.ids import GroupId
from zraft_core.topics.codec import decode_batch, decode_registry, encode_batch, encode_registry
from zraft_core.topics.commands import Attest, Batch, ViewChanged
from zraft_core.topics.message import Condition
from zraft_core.topics.messages import Attestation, Query, Report
from zraft_core.topics.registry_commands import Cleared, CloseProducer, DeleteTopic, GiveUp, RegisterProducer
from zraft_core.topics.registry_values import Refusal
from zraft_core.topics.view import LoggedView, View

LOST = evolve(VIEW, position=21, epoch=1, deleting=frozenset((C,)), given_up=frozenset((C,)))
"""C is given up."""
ALSO = evolve(LOST, position=22, epoch=2, deleting=frozenset((B, C)), given_up=frozenset((B, C)))
"""And B."""
M = message(1, A, B, C)


def waiting(*known: tuple[GroupId, int]) -> Partition:
    """A has begun a message to A, B and C, knows what B proposes, and of C what is given; then C is given up."""
    state = partition()
    apply(state, start(M), remote(M, B, 5, whole=False))
    for group, time in known:
        apply(state, remote(M, group, time, whole=False))
    apply(state, ViewChanged(LOST))
    return state


def attest(sender: GroupId, *known: tuple[GroupId, int], epoch: int = 1, void: bool | None = None) -> Attest:
    return Attest(M.mid, sender, epoch, known, void)


def test_a_message_goes_on_without_a_group_when_all_who_are_left_know_nothing_of_its_proposal() -> None:
    state = waiting()
    assert M.mid in state.pending
    assert delivered(apply(state, attest(B))) == [1]
    assert state.floor == (5, B)
    assert dict(state.pending.awaited) == {}


def test_what_one_of_them_knows_counts_for_all() -> None:
    state = waiting()
    assert delivered(apply(state, attest(B, (C, 9)))) == [1]
    assert state.floor == (9, C)


def test_a_late_proposal_of_a_group_that_is_given_up_or_removed_counts_for_nothing() -> None:
    state = waiting()
    apply(state, remote(M, C, 9, whole=False))
    assert delivered(apply(state, attest(B))) == [1]
    assert state.floor == (5, B)
    gone = evolve(LOST, position=30, groups=frozenset((A, B)), deleting=frozenset(), given_up=frozenset())
    apply(state, ViewChanged(gone))
    other = message(2, A, C)
    assert apply(state, remote(other, C, 3)).begun == ()


def test_a_testimony_from_before_another_group_was_given_up_is_asked_for_again() -> None:
    four = GroupId(8)
    view = evolve(VIEW, groups=frozenset((A, B, C, four)))
    state = partition(view=view)
    m = message(1, A, B, C, four)
    apply(state, start(m), remote(m, B, 5, whole=False), remote(m, four, 2, whole=False))
    apply(state, ViewChanged(evolve(LOST, groups=view.groups)))
    apply(state, Attest(m.mid, four, 1, ()))
    apply(state, ViewChanged(evolve(ALSO, groups=view.groups)))
    assert m.mid in state.pending
    assert state.lacks_testimony(state.pending.entries[m.mid]) == [four]
    assert delivered(apply(state, Attest(m.mid, four, 2, ((C, 7),)))) == [1]
    assert state.floor == (7, C)


def test_nobody_is_believed_who_is_given_up() -> None:
    state = waiting()
    assert delivered(apply(state, ViewChanged(ALSO))) == [1], "A alone is left, and what it knows counts"
    other = waiting()
    apply(other, attest(C, (C, 9)))
    assert M.mid in other.pending


def test_a_condition_whose_home_is_given_up_fails_unless_somebody_knows_its_verdict() -> None:
    m = message(1, A, B, C, condition=Condition(C, b"c", 0, 1))
    for void, expected in ((None, []), (True, []), (False, [1])):
        state = partition()
        apply(state, start(m), remote(m, B, 5, whole=False), ViewChanged(LOST))
        assert (
            delivered(apply(state, Attest(m.mid, B, 1, ((C, 2),) if void is not None else (), void)))
            == expected
        )


def test_a_group_that_is_given_up_is_waited_for_no_more() -> None:
    state = partition()
    m = message(1, A, C)
    apply(state, start(m), remote(m, C, 1, whole=False))
    assert m.mid in state.settled
    applied = apply(state, ViewChanged(LOST))
    assert applied.everywhere == (m.mid,)
    assert state.clear_deleting() == [C]


def test_a_snapshot_and_the_codec_keep_testimonies_and_views() -> None:
    state = waiting()
    apply(state, Attest(M.mid, GroupId(99), 1, ()))
    four = evolve(VIEW, groups=frozenset((A, B, C, GroupId(8))))
    wide = partition(view=four)
    m = message(1, A, B, C, GroupId(8))
    apply(wide, start(m), ViewChanged(evolve(LOST, groups=four.groups)), Attest(m.mid, B, 1, ((C, 4),)))
    for one in (state, wide):
        again = read_image(list(partition_image(one)))
        assert state_digest(again) == state_digest(one)
        assert again.view.given_up == {C}
    assert read_image(list(partition_image(wide))).pending.entries[m.mid].testified == {B: 1}
    batch = Batch(3, (ViewChanged(LOST), attest(B, (C, 9), void=True)))
    assert decode_batch(encode_batch(batch)) == batch


def test_a_leader_testifies_and_asks_when_the_view_is_logged() -> None:
    state = partition()
    leader = PartitionLeader(state)
    for command in (start(M), remote(M, C, 4, whole=False), ViewChanged(LOST)):
        leader.on_applied(apply(state, command))
    leader.take()
    leader.tick()
    output = leader.take()
    assert C not in output.messages, "nobody speaks to a group that is given up"
    assert Attestation(M.mid, A, 1, ((C, 4),)) in output.messages[B]
    assert Query(M.mid, A) in output.messages[B]
    leader.on_message(Query(M.mid, B))
    assert Attestation(M.mid, A, 1, ((C, 4),)) in leader.take().messages[B]


def test_group_0_asks_a_group_that_is_given_up_for_nothing() -> None:
    log = Log()
    one, two = log.topic("t", 1), log.topic("u", 1)
    producer = log(RegisterProducer(7)).created
    assert producer is not None
    log(CloseProducer(producer))  # type: ignore[arg-type]
    assert log(GiveUp(GroupId(99))).refusal is Refusal.NO_GROUP
    log(DeleteTopic("u"))
    assert log(GiveUp(two[0])).refusal is None
    assert log(GiveUp(two[0])).refusal is Refusal.NO_GROUP
    registry = log.registry
    assert set(registry.living) == {one[0]}
    leader = RegistryLeader(registry)
    assert [group for group, _ in leader.views()] == one
    assert leader.on_report(Report(two[0], log.zxid, (), (two[0],))) is None
    again = read_registry(list(registry_image(registry)))
    assert again.given_up == {two[0]}
    assert again.digest.value() == registry.digest.value()
    result = log(Cleared(one[0], (producer,), (two[0],), registry.position))  # type: ignore[arg-type]
    assert result.removed == (two[0],)
    assert not registry.given_up
    assert not registry.closed, "a producer retires without it"
    assert decode_registry(encode_registry(GiveUp(two[0]))) == GiveUp(two[0])


def test_differences_of_views_name_what_is_given_up() -> None:
    log = Log()
    log.topic("t", 1)
    (lost,) = log.topic("u", 1)
    before = log.registry.view()
    log(DeleteTopic("u"))
    log(GiveUp(lost))
    logged = LoggedView(before)
    difference = log.registry.view_since(before.position)
    assert difference is not None
    assert not isinstance(difference, View)
    gone = logged.adopt(difference)
    assert gone is not None
    assert gone.given_up == (lost,)
    assert logged.whole() == log.registry.view()


def test_reports_from_before_a_group_was_given_up_say_nothing_any_more() -> None:
    """A message to a deleted group may have begun at the given-up one alone, and the others may begin it until they know."""
    log = Log()
    (one,), (two,), (three,) = log.topic("t", 1), log.topic("u", 1), log.topic("v", 1)
    producer = log(RegisterProducer(7)).created
    assert producer is not None
    log(CloseProducer(producer))  # type: ignore[arg-type]
    log(DeleteTopic("v"))
    registry = log.registry
    before = registry.position
    for group in (one, three):
        log(Cleared(group, (producer,), (three,)))  # type: ignore[arg-type]
    assert log(GiveUp(two)).removed == ()
    assert three in registry.groups
    assert producer in registry.closed
    leader = RegistryLeader(registry)
    assert leader.on_report(Report(one, before, (producer,), (two, three))) is None  # type: ignore[arg-type]
    log(Cleared(one, (producer,), (two, three), before))  # type: ignore[arg-type]
    assert registry.deleting[three] == set()
    removed: tuple[GroupId, ...] = ()
    for group in (one, three):
        command = leader.on_report(Report(group, registry.position, (producer,), (three,)))  # type: ignore[arg-type]
        assert command == Cleared(group, (producer,), (three,), registry.position)  # type: ignore[arg-type]
        assert decode_registry(encode_registry(command)) == command
        removed += log(command).removed
    assert removed == (three,)
    assert not registry.closed
