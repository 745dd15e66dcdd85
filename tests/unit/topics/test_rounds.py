"""Ordered messages (D-17e): staged at their destinations, put in order by rounds, and never seen before."""

from __future__ import annotations

import pytest

from tests.unit.topics.groups import A, B, C, P, apply, delivered, message, partition, remote, start
from zraft.topics.image import partition_image, read_image, state_digest
from zraft.topics.leader import PartitionLeader
from zraft.topics.leader_settings import LeaderSettings
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.layout import from_bytes
from zraft_core.topics.codec import decode_batch, encode_batch, encode_message
from zraft_core.topics.commands import Batch, Stage
from zraft_core.topics.message import After, Message, Round
from zraft_core.topics.messages import Answer, Reply, StartRequest
from zraft_core.topics.producer import Ending, ProducerCore
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId, Stamp

TABLE = Table(20, 0, frozenset((A, B, C)))


def stage(m: Message, floor: int = 0) -> Stage:
    return Stage(m, floor, 0)


def round_of(seq: int, first: int, upto: int, *groups: GroupId) -> Message:
    return Message(MessageId(P, seq), groups, round=Round(first, upto))


def ordered(window: int = 8) -> ProducerCore:
    producer = ProducerCore(P, TABLE, window=window)
    producer.rounds = True
    return producer


def answer(m: Message, sender: GroupId, said: Answer, offset: int | None = None, time: int = 0) -> Reply:
    return Reply(m.mid, sender, said, False, offset, 0, 0, time)


# -- partitions


def test_what_is_staged_is_delivered_by_its_round_in_the_order_of_numbers() -> None:
    state = partition()
    second, first = message(2, A, B), message(1, A)
    assert apply(state, stage(second)).staged == (second.mid,)
    assert delivered(apply(state, stage(first))) == []
    round_ = round_of(3, 1, 2, A, B)
    apply(state, start(round_))
    applied = apply(state, remote(round_, B, 5))
    assert delivered(applied) == [1, 2]
    assert [one.stamp for one in applied.delivered] == [
        Stamp(5, B, 1, GroupId(0)),
        Stamp(5, B, 2, GroupId(0)),
    ]
    assert applied.released == ((round_.mid, 0),)
    assert (state.staged_bytes, state.rows[P].staged) == (0, {})


def test_the_bypass_goes_on_above_all_stamps_of_a_round_also_those_at_other_partitions() -> None:
    state = partition()
    apply(state, stage(message(1, A)))
    round_ = round_of(4, 1, 3, A, B)
    apply(state, start(round_))
    apply(state, remote(round_, B, 5))
    (single,) = apply(state, start(message(5, A, number=2))).delivered
    assert single.stamp > Stamp(5, B, 3, GroupId(0))


def test_a_message_is_staged_once_however_often_it_comes() -> None:
    state = partition()
    apply(state, stage(message(1, A)))
    assert apply(state, stage(message(1, A))).staged == ()
    assert state.staged_bytes == len(message(1, A).payload)


def test_a_floor_forgets_what_was_staged_up_to_it() -> None:
    state = partition()
    apply(state, stage(message(1, A)), stage(message(2, A, number=2)))
    apply(state, stage(message(3, A, number=3), floor=2))
    assert list(state.rows[P].staged) == [3]
    assert state.staged_bytes == len(message(3, A).payload)


def test_a_snapshot_has_what_is_staged_and_goes_on_alike() -> None:
    state = partition()
    apply(state, stage(message(1, A)), stage(message(2, A, B)))
    again = read_image(list(partition_image(state)))
    assert again.staged_bytes == state.staged_bytes
    round_ = round_of(3, 1, 2, A, B)
    for each in (state, again):
        apply(each, start(round_), remote(round_, B, 9))
    assert state_digest(again) == state_digest(state)
    assert (again.chain, again.next_offset) == (state.chain, 2)


def test_what_else_has_a_say_in_order_cannot_be_staged() -> None:
    state = partition()
    apply(state, stage(message(2, A, B, after=After(MessageId(P, 1), (A,)))))
    assert P not in state.rows or not state.rows[P].staged


# -- bytes


def test_staged_messages_and_rounds_come_out_of_the_log_as_they_went_in() -> None:
    batch = Batch(3, (stage(message(1, A)), stage(message(2, A, B), floor=1), start(round_of(3, 1, 2, A, B))))
    assert decode_batch(encode_batch(batch)) == batch


def test_messages_without_a_round_have_the_bytes_that_older_releases_read() -> None:
    assert len(from_bytes(encode_message(message(1, A)))) == 8
    assert len(from_bytes(encode_message(round_of(3, 1, 2, A)))) == 9


@pytest.mark.parametrize(
    "wrong",
    [
        Message(MessageId(P, 3), (A,), b"payload", round=Round(1, 2)),
        Message(MessageId(P, 3), (A,), round=Round(2, 1)),
        Message(MessageId(P, 3), (A,), round=Round(1, 1 << 21)),
    ],
    ids=["with a payload", "backwards", "too long"],
)
def test_a_round_that_breaks_a_rule_is_refused(wrong: Message) -> None:
    with pytest.raises(ProtocolError, match="round"):
        decode_batch(encode_batch(Batch(0, (start(wrong),))))


# -- leaders


def test_staged_is_told_when_it_is_committed_and_again_when_it_is_asked_for() -> None:
    state = partition()
    leader = PartitionLeader(state, LeaderSettings())
    request = StartRequest(message(1, A), 0, 0, staged=True)
    leader.on_start(request)
    output = leader.take()
    assert (output.commands, output.replies) == ((stage(request.message),), ())
    leader.on_applied(state.apply(Batch(0, output.commands), 1))
    assert [reply.answer for reply in leader.take().replies] == [Answer.STAGED]
    leader.on_start(request)
    assert [reply.answer for reply in leader.take().replies] == [Answer.STAGED]


def test_without_room_only_the_oldest_undecided_message_is_staged() -> None:
    state = partition()
    leader = PartitionLeader(state, LeaderSettings(staged_bytes_max=0))
    for seq in (2, 1):
        leader.on_start(StartRequest(message(seq, A, number=seq), 0, 0, staged=True))
    output = leader.take()
    assert [(reply.mid.seq, reply.answer) for reply in output.replies] == [(2, Answer.BUSY)]
    assert [command.message.mid.seq for command in output.commands if isinstance(command, Stage)] == [1]


# -- producers


def test_what_follows_in_one_partition_alone_needs_no_round() -> None:
    producer = ordered()
    sent = [producer.multicast([A], ordered=True) for _ in range(3)]
    assert [producer.requests(one.mid.seq)[0][1].staged for one in sent] == [False] * 3
    assert producer.take_round(8) is None


def test_a_round_has_what_is_staged_everywhere_without_a_gap_and_behind_nothing_undecided() -> None:
    producer = ordered()
    first = producer.multicast([A], ordered=True)
    staged = [producer.multicast(to, ordered=True) for to in ([B], [A, B], [C])]
    for m, sender in ((staged[0], B), (staged[1], A), (staged[2], C)):
        producer.on_reply(answer(m, sender, Answer.STAGED))
    assert producer.take_round(8) is None, "the first one is undecided"
    producer.on_reply(answer(first, A, Answer.DELIVERED, 0, time=7))
    round_ = producer.take_round(8)
    assert round_ is not None
    assert (round_.round, round_.destinations, round_.depends) == (Round(2, 2), (B,), 7)
    producer.on_reply(answer(staged[1], B, Answer.STAGED))
    assert producer.take_round(8) is None, "one round at a time"
    ended = producer.on_reply(answer(round_, B, Answer.DELIVERED, 4))
    assert [(one.mid.seq, one.ending, one.offsets) for one in ended if one.mid != round_.mid] == [
        (2, Ending.DELIVERED, {B: 4})
    ]
    following = producer.take_round(8)
    assert following is not None
    assert following.round == Round(3, 4)


def test_offsets_of_a_round_follow_from_that_of_its_first_message() -> None:
    producer = ordered()
    first = producer.multicast([C], ordered=True)
    staged = [producer.multicast(to, ordered=True) for to in ([A], [A, B], [A])]
    for m in staged:
        for group in m.destinations:
            producer.on_reply(answer(m, group, Answer.STAGED))
    producer.on_reply(answer(first, C, Answer.DELIVERED, 0))
    round_ = producer.take_round(8)
    assert round_ is not None
    producer.on_reply(answer(round_, A, Answer.DELIVERED, 10))
    ended = producer.on_reply(answer(round_, B, Answer.DELIVERED, 3))
    assert [one.offsets for one in ended if one.mid != round_.mid] == [{A: 10}, {A: 11, B: 3}, {A: 12}]


def test_a_round_does_not_answer_for_a_message_whose_only_partition_is_given_up() -> None:
    """A partition that decided the round without the lost one answers "everywhere"."""
    producer = ordered()
    first = producer.multicast([C], ordered=True)
    staged = [producer.multicast([to], ordered=True) for to in (A, B)]
    for m in staged:
        producer.on_reply(answer(m, m.destinations[0], Answer.STAGED))
    producer.on_reply(answer(first, C, Answer.DELIVERED, 0))
    round_ = producer.take_round(8)
    assert round_ is not None
    everywhere = Reply(round_.mid, A, Answer.DELIVERED, True, 10, 0, 1, 3)
    assert producer.on_reply(everywhere) == []
    assert producer.table_wanted, "the partition knows of something that the table does not have yet"
    producer.on_table(Table(21, 1, frozenset((A, C)), frozenset((B,))))
    ended = {one.mid: one.ending for one in producer.on_reply(everywhere)}
    assert ended[staged[0].mid] is Ending.DELIVERED
    assert ended[staged[1].mid] is Ending.UNKNOWN


def test_the_numbers_of_rounds_take_no_room_from_messages() -> None:
    """The window was one message smaller by each round above the floor."""
    producer = ordered(window=4)
    first = producer.multicast([A], ordered=True)
    second = producer.multicast([B], ordered=True)
    producer.on_reply(answer(second, B, Answer.STAGED))
    producer.on_reply(answer(first, A, Answer.DELIVERED, 0))
    before = producer.room
    assert producer.take_round(8) is not None
    assert producer.room == before == 3


def test_a_round_goes_to_no_more_partitions_than_a_message_may() -> None:
    producer = ordered()
    first = producer.multicast([A], ordered=True)
    staged = [producer.multicast([to], ordered=True) for to in (B, A, C)]
    for m in staged:
        producer.on_reply(answer(m, m.destinations[0], Answer.STAGED))
    producer.on_reply(answer(first, A, Answer.DELIVERED, 0))
    round_ = producer.take_round(2)
    assert round_ is not None
    assert round_.destinations == (A, B)
