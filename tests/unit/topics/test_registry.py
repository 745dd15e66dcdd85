"""Group 0's share: producers, topics and groups, and what groups are told (D-8d, D-8e, D-17d, D-18)."""

from __future__ import annotations

import pytest

from zraft.topics import registry_history
from zraft.topics.registry import Registry
from zraft.topics.registry_image import read_registry, registry_image
from zraft.topics.registry_leader import RegistryLeader
from zraft_core.ids import GroupId, Instance, ProducerId, ServerId
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.messages import Answer, Reply, Report
from zraft_core.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    RegisterProducer,
    RegistryCommand,
    TopicChanged,
)
from zraft_core.topics.registry_values import Refusal, RegistrySettings, Result
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import LoggedView, View, ViewDelta

FOUNDERS = ((ServerId(1), Instance(bytes(16))),)


class Log:
    """Commands with ascending zxids."""

    def __init__(self, settings: RegistrySettings | None = None) -> None:
        self.registry = Registry(settings)
        self.zxid = 100

    def __call__(self, command: RegistryCommand) -> Result:
        self.zxid += 1
        return self.registry.apply(command, self.zxid)

    def topic(self, name: str, partitions: int) -> list[GroupId]:
        created = self(CreateTopic(name, partitions)).created
        assert created is not None
        return [self.group(created) for _ in range(partitions)]

    def group(self, topic: int) -> GroupId:
        created = self(CreateGroup(topic, FOUNDERS)).created
        assert created is not None
        return GroupId(created)


def test_ids_are_the_zxids_of_the_commands() -> None:
    log = Log()
    assert log(CreateTopic("a", 1)).created == 101
    assert log(CreateGroup(101, FOUNDERS)).created == 102
    assert log(RegisterProducer(7)).created == 103


def test_a_group_begins_with_the_view_of_its_creation() -> None:
    log = Log()
    log(RegisterProducer(7))
    log(CreateTopic("a", 1))
    log(CreateGroup(102, FOUNDERS))
    birth = log.registry.birth_of(GroupId(103))
    assert birth.record.born
    assert birth.view == View(
        103,
        0,
        frozenset((COORDINATOR, ProducerId(101))),
        frozenset(),
        frozenset((GroupId(103),)),
        frozenset(),
    )


def test_d8e_a_producer_is_retired_when_every_group_has_reported() -> None:
    log = Log()
    a, b = log.topic("t", 2)
    producer = ProducerId(log(RegisterProducer(7)).created or 0)
    log(CloseProducer(producer))
    log(Cleared(a, (producer,), ()))
    assert producer in log.registry.closed
    log(Cleared(a, (producer,), ()))
    assert producer in log.registry.closed
    log(Cleared(b, (producer,), ()))
    assert producer not in log.registry.closed
    assert LoggedView(log.registry.view()).retired(producer)


def test_d8e_a_group_created_since_must_report_too() -> None:
    log = Log()
    (a,) = log.topic("t", 1)
    producer = ProducerId(log(RegisterProducer(7)).created or 0)
    log(CloseProducer(producer))
    (b,) = log.topic("u", 1)
    log(Cleared(a, (producer,), ()))
    assert producer in log.registry.closed
    log(Cleared(b, (producer,), ()))
    assert producer not in log.registry.closed


def test_the_end_of_a_session_closes_its_producers() -> None:
    log = Log()
    log.topic("t", 1)
    mine = [ProducerId(log(RegisterProducer(7)).created or 0) for _ in range(2)]
    other = ProducerId(log(RegisterProducer(8)).created or 0)
    log(EndOwner(7))
    assert set(log.registry.closed) == set(mine)
    assert other in log.registry.producers
    assert log.registry.owned == {8: {other}}


def test_group_0_itself_is_never_closed() -> None:
    assert Log()(CloseProducer(COORDINATOR)).refusal is Refusal.NO_PRODUCER


def test_d18_a_deleted_topic_takes_nothing_at_once_and_goes_when_all_have_reported() -> None:
    log = Log()
    (a,) = log.topic("t", 1)
    (b,) = log.topic("u", 1)
    log(DeleteTopic("t"))
    registry = log.registry
    assert registry.table().groups == {b}
    assert (registry.epoch, set(registry.groups)) == (1, {a, b})
    log(Cleared(b, (), (a,)))
    assert log(Cleared(a, (), (a,))).removed == (a,)
    assert registry.table().removed(a)
    assert log(CreateTopic("t", 1)).refusal is None, "the name is free again"


def test_d17d_an_added_partition_is_announced_by_a_multicast_to_old_and_new_ones() -> None:
    log = Log()
    old = log.topic("t", 2)
    topic = log.registry.names["t"]
    log(AlterTopic("t", 4))
    log.group(topic)
    assert log.registry.changes == {}
    created = log(CreateGroup(topic, FOUNDERS))
    assert not log.registry.groups[GroupId(created.created or 0)].born
    (change,) = log.registry.changes.values()
    assert change.message().partitions == change.partitions
    assert change.partitions[:2] == tuple(old)
    assert log.registry.topics[topic].partitions == tuple(old)
    log(TopicChanged(change.seq))
    assert log.registry.topics[topic].partitions == change.partitions
    assert log.registry.changes_floor == 1


def test_a_topic_changes_once_at_a_time_and_never_shrinks() -> None:
    log = Log()
    log.topic("t", 2)
    assert log(AlterTopic("t", 1)).refusal is Refusal.SHRINKING
    log(AlterTopic("t", 3))
    assert log(AlterTopic("t", 4)).refusal is Refusal.CHANGING
    log.group(log.registry.names["t"])
    assert log(AlterTopic("t", 4)).refusal is Refusal.CHANGING
    log(TopicChanged(1))
    assert log(AlterTopic("t", 4)).refusal is None


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (CreateTopic("t", 1), Refusal.EXISTS),
        (CreateTopic("a/b", 1), Refusal.BAD_NAME),
        (CreateTopic("", 1), Refusal.BAD_NAME),
        (CreateTopic("x" * 250, 1), Refusal.BAD_NAME),
        (CreateTopic("u", 0), Refusal.BAD_COUNT),
        (CreateTopic("u", 9), Refusal.BAD_COUNT),
        (CreateTopic("u", 1), Refusal.TOO_MANY),
        (AlterTopic("nowhere", 3), Refusal.NO_TOPIC),
        (DeleteTopic("nowhere"), Refusal.NO_TOPIC),
        (CreateGroup(5, FOUNDERS), Refusal.NO_TOPIC),
        (CreateGroup(101, FOUNDERS), Refusal.COMPLETE),
        (CloseProducer(ProducerId(5)), Refusal.NO_PRODUCER),
        (RegisterProducer(9), Refusal.TOO_MANY),
    ],
)
def test_what_is_refused_changes_nothing(command: RegistryCommand, refusal: Refusal) -> None:
    log = Log(RegistrySettings(topics_max=1, partitions_max=8, producers_max=1))
    log.topic("t", 1)
    log(RegisterProducer(7))
    before = list(registry_image(log.registry))
    assert log(command).refusal is refusal
    assert list(registry_image(log.registry)) == before


def test_d8d_a_difference_makes_of_every_view_since_its_base_the_current_one() -> None:
    log = Log()
    views = [log.registry.view()]

    def note() -> None:
        views.append(log.registry.view())

    a, b = log.topic("t", 2)
    note()
    producer = ProducerId(log(RegisterProducer(7)).created or 0)
    note()
    log(DeleteTopic("t"))
    note()
    log(CloseProducer(producer))
    note()
    log.topic("u", 1)
    note()
    for group in (a, b, *(g for g in log.registry.groups if g not in (a, b))):
        log(Cleared(group, (producer,), (a, b)))
    note()
    assert not log.registry.closed
    assert set(log.registry.groups) == {log.zxid - 3}
    for at, base in enumerate(views[:-1]):
        delta = log.registry.view_since(base.position)
        assert isinstance(delta, ViewDelta)
        for view in views[at:-1]:
            logged = LoggedView(view)
            assert logged.adopt(delta) is not None
            assert logged.whole() == views[-1]
    assert log.registry.view_since(views[-1].position) is None


def test_a_view_older_than_what_is_remembered_gets_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_history, "CHANGES_KEPT", 4)
    log = Log()
    log.topic("t", 3)
    log(RegisterProducer(7))
    log(RegisterProducer(7))
    assert isinstance(log.registry.view_since(0), View)
    assert isinstance(log.registry.view_since(log.zxid - 1), ViewDelta)


def test_the_registry_comes_out_of_its_snapshot_as_it_was() -> None:
    log = Log()
    a, _ = log.topic("t", 2)
    log(RegisterProducer(7))
    closed = ProducerId(log(RegisterProducer(2**63)).created or 0)
    log(CloseProducer(closed))
    log(AlterTopic("t", 3))
    log.group(log.registry.names["t"])
    log.topic("u", 1)
    log(DeleteTopic("u"))
    log(Cleared(a, (closed,), ()))
    pieces = list(registry_image(log.registry))
    again = read_registry(pieces)
    assert list(registry_image(again)) == pieces
    assert again.view() == log.registry.view()
    assert again.changes == log.registry.changes
    assert isinstance(again.view_since(0), View), "what changed before is not known"
    again.apply(RegisterProducer(9), log.zxid + 1)
    assert isinstance(again.view_since(log.registry.position), ViewDelta)


# -- its leader


def test_the_leader_logs_of_a_report_only_what_is_new() -> None:
    log = Log()
    (a,) = log.topic("t", 1)
    log.topic("u", 1)
    producer = ProducerId(log(RegisterProducer(7)).created or 0)
    log(CloseProducer(producer))
    leader = RegistryLeader(log.registry)
    command = leader.on_report(Report(a, log.zxid, (producer, ProducerId(5)), (GroupId(5),)))
    assert command == Cleared(a, (producer,), ())
    log(command)
    assert leader.on_report(Report(a, log.zxid, (producer,), ())) is None
    assert leader.on_report(Report(GroupId(5), log.zxid, (producer,), ())) is None, "no group"


def test_a_deletion_that_waited_only_for_a_group_that_is_gone_ends_with_the_next_report() -> None:
    """Found by seed 859724394 of the multicast scenario: the last to report belonged to a topic that was deleted, too."""
    log = Log()
    (a,) = log.topic("t", 1)
    (b,) = log.topic("u", 1)
    (c,) = log.topic("v", 1)
    log(DeleteTopic("u"))
    log(DeleteTopic("v"))
    leader = RegistryLeader(log.registry)

    def report(sender: GroupId, *deleting: GroupId) -> None:
        command = leader.on_report(Report(sender, log.zxid, (), deleting))
        if command is not None:
            log(command)

    report(a, b, c)
    report(b, b, c)
    report(c, c)
    assert set(log.registry.groups) == {a, b}, (
        "c has not said that nothing is left of b there, and never will"
    )
    report(a, b)
    assert set(log.registry.groups) == {a}
    assert not log.registry.deleting
    assert leader.on_report(Report(a, log.zxid)) is None


def test_the_leader_sends_views_until_they_are_reported() -> None:
    log = Log()
    (a,) = log.topic("t", 1)
    leader = RegistryLeader(log.registry)
    assert leader.views() == [], "it was created with this one"
    log(RegisterProducer(7))
    ((to, update),) = leader.views()
    assert (to, update.view.position) == (a, log.zxid)
    assert leader.views() != []
    leader.on_report(Report(a, log.zxid))
    assert leader.views() == []


def test_the_leader_multicasts_a_change_until_all_have_delivered_it() -> None:
    log = Log()
    a, b = log.topic("t", 2)
    log(AlterTopic("t", 3))
    c = log.group(log.registry.names["t"])
    leader = RegistryLeader(log.registry)
    assert [to for to, _ in leader.changes()] == [a, b, c]

    def heard(sender: GroupId, answer: Answer, *, everywhere: bool = False) -> RegistryCommand | None:
        return leader.on_reply(Reply(MessageId(COORDINATOR, 1), sender, answer, everywhere))

    assert heard(a, Answer.DELIVERED) is None
    assert heard(b, Answer.ACCEPTED) is None
    assert heard(b, Answer.DELIVERED) is None
    assert heard(c, Answer.DELIVERED) == TopicChanged(1)
    assert RegistryLeader(log.registry).on_reply(
        Reply(MessageId(COORDINATOR, 1), a, Answer.DECIDED, everywhere=True)
    ) == TopicChanged(1)


def test_d18_a_change_of_a_topic_that_is_deleted_keeps_its_epoch_and_goes_with_it() -> None:
    log = Log()
    a, b = log.topic("t", 2)
    log(AlterTopic("t", 3))
    c = log.group(log.registry.names["t"])
    log(DeleteTopic("t"))
    leader = RegistryLeader(log.registry)
    assert {request.epoch for _, request in leader.changes()} == {0}
    for group in (a, b, c):
        log(Cleared(group, (), (a, b, c)))
    assert log.registry.changes == {}
    assert leader.changes() == []
