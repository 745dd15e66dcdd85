"""Partitions of topics that exist and are given up: others take their places (docs/decisions/0012)."""

from __future__ import annotations

from tests.unit.topics.test_registry import Log
from zraft.topics.registry import TIMES_SKIPPED_IN_PLACE, Registry
from zraft.topics.registry_image import read_registry, registry_image
from zraft.topics.registry_items import full_digest
from zraft.topics.registry_leader import RegistryLeader
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.codec import decode_message, encode_message
from zraft_core.topics.messages import Report
from zraft_core.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CreateGroup,
    DeleteTopic,
    GiveUp,
    TopicChanged,
)
from zraft_core.topics.registry_values import OFFSETS_SKIPPED, Refusal, numbered

DISKS = ((ServerId(1), Instance(b"i" * 16)),)


def topic(log: Log, name: str = "t") -> int:
    return log.registry.names[name]


def replace(log: Log, name: str = "t") -> GroupId:
    created = log(CreateGroup(topic(log, name), DISKS)).created
    assert created is not None
    return GroupId(created)


def lacking(registry: Registry, name: str = "t") -> int:
    return registry.lacking(registry.topics[registry.names[name]])


def clear(log: Log, lost: GroupId) -> tuple[GroupId, ...]:
    """All groups that are left report that nothing of `lost` is left there."""
    removed: tuple[GroupId, ...] = ()
    for group in list(log.registry.living):
        removed += log(Cleared(group, (), (lost,), log.registry.position)).removed
    return removed


def test_another_group_takes_the_place_of_one_that_is_given_up_by_a_change_of_the_topic() -> None:
    log = Log()
    first, lost, last = log.topic("t", 3)
    registry = log.registry
    assert lacking(registry) == 0
    assert log(GiveUp(lost)).refusal is None
    assert lacking(registry) == 1
    fresh = replace(log)
    assert lacking(registry) == 0
    (change,) = registry.changes.values()
    assert change.partitions == (first, fresh, last)
    message = change.message()
    assert (message.partitions, message.destinations) == ((first, fresh, last), (first, last, fresh))
    assert decode_message(encode_message(message)) == message
    assert registry.current_epoch(change) == registry.epoch
    record = registry.groups[fresh]
    assert not record.born, "it takes nothing before the change"
    assert (record.first_offset, record.first_time) == (OFFSETS_SKIPPED, TIMES_SKIPPED_IN_PLACE)
    one = registry.topics[topic(log)]
    assert list(numbered(one.partitions, one.adding, one.wanted, registry.given_up)) == [
        *((0, first), (1, lost), (2, last)),
        (1, fresh),
    ]
    assert {group for group, _ in RegistryLeader(registry).changes()} == {first, fresh, last}
    log(TopicChanged(change.seq))
    assert registry.topics[topic(log)].partitions == (first, fresh, last)
    assert lacking(registry) == 0


def test_a_group_that_is_given_up_stays_until_it_is_replaced() -> None:
    log = Log()
    first, lost = log.topic("t", 2)
    registry = log.registry
    log(GiveUp(lost))
    assert clear(log, lost) == ()
    leader = RegistryLeader(registry)
    assert leader.on_report(Report(first, registry.position, (), ())) is None, (
        "nothing is logged again and again"
    )
    replace(log)
    assert clear(log, lost) == ()
    (seq,) = registry.changes
    assert log(TopicChanged(seq)).removed == (lost,), "then it goes at once"
    assert lost not in registry.groups
    assert not registry.given_up


def test_what_is_given_up_while_a_change_is_under_way_is_replaced_by_the_next_one() -> None:
    log = Log()
    first, lost, last = log.topic("t", 3)
    registry = log.registry
    log(GiveUp(lost))
    fresh = replace(log)
    log(GiveUp(last))
    assert lacking(registry) == 0, "one change at a time"
    (change,) = registry.changes.values()
    assert registry.current_epoch(change) == registry.epoch, "those that are left begin it still"
    log(GiveUp(fresh))
    log(TopicChanged(change.seq))
    assert registry.topics[topic(log)].partitions == (first, fresh, last)
    assert lacking(registry) == 2
    again, other = replace(log), replace(log)
    (change,) = registry.changes.values()
    assert change.partitions == (first, again, other)
    offsets = [registry.groups[group].first_offset for group in (fresh, again, other)]
    assert offsets == [OFFSETS_SKIPPED, 2 * OFFSETS_SKIPPED, 2 * OFFSETS_SKIPPED]
    times = [registry.groups[group].first_time for group in (fresh, again, other)]
    assert times == [TIMES_SKIPPED_IN_PLACE, 2 * TIMES_SKIPPED_IN_PLACE, 3 * TIMES_SKIPPED_IN_PLACE]


def test_a_topic_that_grows_gets_its_partitions_first() -> None:
    log = Log()
    first, lost = log.topic("t", 2)
    registry = log.registry
    log(AlterTopic("t", 3))
    log(GiveUp(lost))
    third = replace(log)
    (change,) = registry.changes.values()
    assert change.partitions == (first, lost, third)
    assert registry.groups[third].first_offset == 0
    log(TopicChanged(change.seq))
    assert log(AlterTopic("t", 4)).refusal is Refusal.CHANGING, "one is still to be replaced"
    fresh = replace(log)
    assert log(AlterTopic("t", 4)).refusal is Refusal.CHANGING
    (change,) = registry.changes.values()
    assert change.partitions == (first, fresh, third)
    log(TopicChanged(change.seq))
    assert log(AlterTopic("t", 4)).refusal is None


def test_groups_that_were_to_be_added_go_with_the_last_partition_of_their_topic() -> None:
    """They are empty, and nobody is left whose times would tell them where to begin."""
    log = Log()
    first, second = log.topic("t", 2)
    registry = log.registry
    log(AlterTopic("t", 4))
    third = replace(log)
    log(GiveUp(first))
    assert third not in registry.given_up
    log(GiveUp(second))
    assert registry.given_up == {first, second, third}
    fourth = replace(log)
    assert registry.groups[fourth].first_time == TIMES_SKIPPED_IN_PLACE
    (change,) = registry.changes.values()
    log(TopicChanged(change.seq))
    assert lacking(registry) == 3


def test_a_topic_without_any_partition_left_is_replaced_whole_and_may_be_deleted() -> None:
    log = Log()
    (lost,) = log.topic("t", 1)
    registry = log.registry
    log(GiveUp(lost))
    fresh = replace(log)
    (change,) = registry.changes.values()
    assert change.partitions == (fresh,)
    assert change.message().number == 1
    log(DeleteTopic("t"))
    assert set(clear(log, lost)) == {lost}
    assert set(clear(log, fresh)) == {fresh}
    assert not registry.groups
    assert not registry.changes


def test_a_change_that_nobody_is_left_to_deliver_is_over() -> None:
    log = Log()
    (lost,) = log.topic("t", 1)
    registry = log.registry
    log(GiveUp(lost))
    fresh = replace(log)
    assert log(GiveUp(fresh)).refusal is None
    assert not registry.changes
    assert lacking(registry) == 1
    again = replace(log)
    assert next(iter(registry.changes.values())).partitions == (again,)
    assert registry.groups[again].first_offset == 2 * OFFSETS_SKIPPED


def test_snapshots_and_digests_have_the_beginnings_of_groups_and_are_as_before_without_any() -> None:
    log = Log()
    _, lost = log.topic("t", 2)
    registry = log.registry
    plain = b"".join(registry_image(registry))
    assert read_registry(list(registry_image(registry))).times == 0
    log(GiveUp(lost))
    fresh = replace(log)
    again = read_registry(list(registry_image(registry)))
    assert again.groups[fresh] == registry.groups[fresh]
    assert again.times == registry.times == TIMES_SKIPPED_IN_PLACE
    assert again.last_loss == registry.last_loss > 0
    assert again.digest.value() == registry.digest.value() == full_digest(registry)
    assert len(b"".join(registry_image(again.frozen()))) > len(plain)
