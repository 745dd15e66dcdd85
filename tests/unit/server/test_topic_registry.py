"""What group 0's leader does for topics: partitions are placed, groups are told, what they report is logged (D-8, D-18)."""

from __future__ import annotations

import pytest

from tests.unit.server.test_driver import INSTANCES, Place
from zraft.server.coordination.topic_registry import RESEND_MS, RegistryKeeper
from zraft.server.engine.settings import DriverSettings
from zraft.topics.registry import Registry
from zraft.tree.settings import Settings
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.messages import Answer, Reply, Report, StartRequest, ViewUpdate
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Placed,
    RegistryCommand,
)
from zraft_core.topics.registry_values import Refusal, Result
from zraft_core.topics.stamps import MessageId
from zraft_core.znodes.txn import TOPICS

ONE = ServerId(1)
DISK = ((ONE, INSTANCES[ONE]),)


class Alone(Place):
    """Server 1 leads alone, at the level of topics."""

    def __init__(self, settings: DriverSettings | None = None) -> None:
        super().__init__(1, settings=settings)
        self.turns(2_500)
        assert self.driver.machine.feature_level >= 4

    @property
    def registry(self) -> Registry:
        return self.driver.machine.registry

    @property
    def keeper(self) -> RegistryKeeper:
        assert self.driver.leadership is not None
        return self.driver.leadership.topics

    def log(self, command: RegistryCommand) -> Result:
        results: list[object] = []
        self.driver.submit((TOPICS, encode_registry(command)), results.append)
        self.turns(100)
        (result,) = results
        assert isinstance(result, Result)
        return result

    def topic(self, name: str, partitions: int) -> list[GroupId]:
        before = set(self.registry.groups)
        assert self.log(CreateTopic(name, partitions)).refusal is None
        self.turns(200)
        return [group for group in self.registry.groups if group not in before]

    def said(self) -> list[tuple[GroupId, ViewUpdate | StartRequest]]:
        self.keeper.take_outgoing()
        self.turns(2 * RESEND_MS)
        return self.keeper.take_outgoing()


@pytest.fixture
def alone() -> Alone:
    return Alone()


def test_d18_the_leader_creates_the_groups_that_a_topic_lacks(alone: Alone) -> None:
    groups = alone.topic("t", 3)
    assert len(groups) == 3
    for group in groups:
        record = alone.registry.groups[group]
        assert (record.founders, record.wanted, record.preferred) == (DISK, DISK, ONE)
    (topic,) = alone.registry.topics.values()
    assert topic.partitions == tuple(groups)


def test_nothing_is_created_again_while_the_first_command_is_on_its_way(alone: Alone) -> None:
    alone.topic("t", 2)
    written = len(alone.written)
    alone.turns(2_000)
    assert len(alone.written) == written


def test_d8d_a_group_is_told_of_producers_until_it_has_reported(alone: Alone) -> None:
    (group,) = alone.topic("t", 1)
    alone.keeper.hear(Report(group, alone.registry.position))
    assert alone.said() == []
    alone.topic("u", 1)
    told = [update for to, update in alone.said() if to == group]
    assert len(told) >= 2, "it is repeated"
    for update in told:
        assert isinstance(update, ViewUpdate)
        assert update.view.position == alone.registry.position
    alone.keeper.hear(Report(group, alone.registry.position))
    assert [to for to, _ in alone.said() if to == group] == []


def test_d8e_what_groups_report_is_logged_once_and_ends_what_is_deleted(alone: Alone) -> None:
    a, b = alone.topic("t", 2)
    assert alone.log(DeleteTopic("t")).refusal is None
    for _ in range(5):
        alone.keeper.hear(Report(a, alone.registry.position, (), (a, b)))
    before = alone.registry.deleting[b].copy()
    alone.turns(50)
    assert alone.registry.deleting[b] == before | {a}
    alone.keeper.hear(Report(b, alone.registry.position, (), (a, b)))
    alone.turns(50)
    assert alone.registry.groups == {}
    written = len(alone.written)
    alone.keeper.hear(Report(b, alone.registry.position, (), (a, b)))
    alone.turns(50)
    assert len(alone.written) == written, "a late report says nothing new"


def test_d17d_a_change_of_partitions_is_multicast_until_all_have_delivered_it(alone: Alone) -> None:
    (old,) = alone.topic("t", 1)
    alone.log(AlterTopic("t", 2))
    alone.turns(200)
    (change,) = alone.registry.changes.values()
    starts = [(to, request) for to, request in alone.said() if isinstance(request, StartRequest)]
    assert {to for to, _ in starts} == set(change.partitions)
    assert len(change.partitions) == 2
    assert len(starts) > 2, "it is repeated"
    assert {request.message for _, request in starts} == {change.message()}
    alone.keeper.hear(Reply(MessageId(COORDINATOR, 1), old, Answer.DELIVERED, everywhere=True))
    alone.turns(50)
    assert alone.registry.changes == {}
    assert alone.registry.topics[alone.registry.names["t"]].partitions == change.partitions


def test_d5_the_first_values_of_the_settings_are_those_of_who_raises_the_level() -> None:
    place = Place(
        1,
        settings=DriverSettings(
            tree=Settings(topics_replication=5), configured=frozenset({"topics_replication"}), features=3
        ),
    )
    place.turns(2_500)
    driver = place.driver
    assert driver.machine.feature_level == 3
    assert driver.coordination.settings_differ == {}, "what is not in force differs from nothing"
    assert driver.leadership is not None
    driver.leadership.raise_features(4)
    place.turns(100)
    assert driver.machine.feature_level == 4
    assert driver.machine.settings.topics_replication == 5
    assert driver.coordination.settings_differ == {}


def test_a_report_that_a_move_is_over_comes_by_an_ordinary_command(alone: Alone) -> None:
    (group,) = alone.topic("t", 1)
    assert alone.log(Placed(group, DISK)) == Result(created=group)
    other = ((ServerId(2), INSTANCES[ServerId(2)]),)
    assert alone.log(Placed(group, other)).refusal is Refusal.NOT_WANTED
    assert alone.log(Placed(GroupId(5), DISK)).refusal is Refusal.NO_GROUP


def test_what_is_said_of_groups_that_are_gone_changes_nothing(alone: Alone) -> None:
    alone.topic("t", 1)
    written = len(alone.written)
    alone.keeper.hear(Report(GroupId(7), 1, (ProducerId(3),), (GroupId(7),)))
    alone.keeper.hear(Reply(MessageId(COORDINATOR, 99), GroupId(7), Answer.DELIVERED, everywhere=True))
    alone.turns(100)
    assert len(alone.written) == written
