"""What operators ask of a server, and what it does for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve

from tests.unit.server.test_driver import Place
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.config.knobs import load_config
from zraft.groups.snapshots.tasks import Begin, Finish, ReadSnapshot, Result, Task, WriteBlock
from zraft.operator.requests import (
    Done,
    FeatureRaise,
    MemberAdd,
    MemberList,
    MemberListing,
    MemberMove,
    MemberPromote,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    Refused,
    ReplicaLine,
    ReplicaListing,
    SettingsListing,
    SettingsSet,
    SettingsShow,
    SnapshotFile,
    SnapshotPart,
    SnapshotRead,
    SnapshotTake,
    TopicAlter,
    TopicCreate,
    TopicDelete,
    TopicDescribe,
    TopicDescription,
    TopicList,
    TopicListing,
    TopicReplicas,
    TopicRetain,
    Transfer,
)
from zraft.raft.messages import UNKNOWN_INSTANCE, EntryKind, MemberRole
from zraft.server.engine.effects import Effects
from zraft.server.engine.settings import DriverSettings
from zraft.server.operators import topics as topic_administration
from zraft.server.operators.administration import Administration
from zraft.server.process.configured import driver_settings
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.tree.machine import LEADER
from zraft.tree.members import WantedMember
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.registry_commands import CreateGroup, CreateTopic, Placed, PlaceGroup
from zraft_core.znodes.txn import FEATURE, SETTINGS, unpack_entry

FILE = b"what a snapshot's file holds"


class Office(Place):
    """A server that leads alone, its operators, and a snapshot disk that is done at once."""

    def __init__(self, settings: DriverSettings | None = None, *, features: int = FEATURE_LEVEL_MAX) -> None:
        super().__init__(1, settings=settings or DriverSettings(features=features))
        self.administration = Administration(
            self.driver, lambda groups: ReplicaListing(ServerId(1), tuple(map(_replica, groups)))
        )
        self._header: SnapshotHeader | None = None
        self.turns(2_000)

    def turn(self, ms: int = 0) -> Effects:
        effects = super().turn(ms)
        self.perform(effects.tasks)
        return effects

    def perform(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            result: Result = None
            match task:
                case Begin(header):
                    self._header = header
                case Finish(_, items, digest, zxid):
                    assert self._header is not None
                    result = SnapshotInfo(self._header, "/snap", len(FILE), items, digest, zxid)
                case ReadSnapshot(_, _, _, offset, length):
                    result = FILE[offset : offset + length]
                case WriteBlock():
                    pass
            self.driver.performed(task, result)

    def ask(self, request: OperatorRequest, ms: int = 1_000) -> OperatorReply:
        replies: list[OperatorReply] = []
        self.administration.handle(request, replies.append)
        for _ in range(0, ms, 10):
            self.turn(10)
            self.administration.turn()
        (reply,) = replies
        return reply


def _replica(group: GroupId) -> ReplicaLine:
    return ReplicaLine(group, 3, ServerId(2), False, 0, 9, 100, None, "", ())


def config_version(office: Office) -> int:
    node = office.driver.machine.nodes.get("/zookeeper/config")
    assert node is not None
    return node.mzxid


def test_members_are_listed_by_the_leader() -> None:
    listing = Office().ask(MemberList())
    assert isinstance(listing, MemberListing)
    (line,) = listing.members
    assert (line.server, line.role, line.leads) == (1, "voter", True)
    assert not listing.changing


def test_a_member_that_was_added_is_a_learner_that_nobody_has_seen() -> None:
    office = Office()
    assert isinstance(office.ask(MemberAdd(ServerId(2), "h:2")), Done)
    raft = office.driver.raft
    assert raft is not None
    member = raft.membership.members[ServerId(2)]
    assert (member.instance, member.role, member.address) == (UNKNOWN_INSTANCE, MemberRole.LEARNER, "h:2")
    assert raft.membership.voters == (1,), "it can still decide alone"
    config = office.driver.machine.nodes.get("/zookeeper/config")
    assert config is not None
    assert config.data == b"", "server 1 has no address here, so nothing is better than half of it"
    assert office.driver.machine.members[ServerId(2)] == WantedMember(True, "h:2")


def test_nobody_is_added_at_an_address_that_nothing_can_be_sent_to() -> None:
    office = Office()
    for nowhere in ("0.0.0.0:2181", "[::]:2181"):
        for request in (MemberAdd(ServerId(2), nowhere), MemberMove(ServerId(1), nowhere)):
            reply = office.ask(request)
            assert isinstance(reply, Refused)
            assert "only says where a server listens" in reply.text
    assert set(office.driver.machine.members) <= {1}


def test_add_of_a_member_at_another_address_is_refused_and_says_where_it_is() -> None:
    """It moved a healthy voter, silently: who mistypes a number must not lose a server."""
    office = Office()
    office.ask(MemberAdd(ServerId(2), "h:2"))
    version = config_version(office)
    reply = office.ask(MemberAdd(ServerId(2), "other:2"))
    assert isinstance(reply, Refused), reply
    assert "server 2 is a member at h:2" in reply.text
    assert "`zraft member move 2 other:2`" in reply.text
    assert not reply.retriable
    assert office.driver.machine.members[ServerId(2)] == WantedMember(True, "h:2")
    assert config_version(office) == version, "clients are told of a change that is none"


def test_add_of_a_member_that_is_there_is_a_success_that_changes_nothing() -> None:
    """Scripts add what they want to be there, again and again."""
    office = Office()
    for observer in (False, True):
        office.ask(MemberAdd(ServerId(2), "h:2", observer))
        version = config_version(office)
        reply = office.ask(MemberAdd(ServerId(2), "h:2", observer))
        assert isinstance(reply, Done)
        assert "server 2 is there already, at h:2" in reply.text
        assert config_version(office) == version


def test_add_of_a_member_in_another_part_says_which_one_it_gets() -> None:
    office = Office()
    office.ask(MemberAdd(ServerId(2), "h:2"))
    assert office.ask(MemberAdd(ServerId(2), "h:2", observer=True)) == Done(
        "server 2 is there already, at h:2; it follows as an observer from now on"
    )
    assert office.driver.machine.members[ServerId(2)] == WantedMember(False, "h:2")
    assert office.ask(MemberAdd(ServerId(2), "h:2")) == Done(
        "server 2 is there already, at h:2; it votes as soon as it has caught up"
    )
    assert office.driver.machine.members[ServerId(2)] == WantedMember(True, "h:2")


@pytest.mark.parametrize("request_", [MemberAdd(ServerId(3), "h:2"), MemberMove(ServerId(1), "h:2")])
def test_the_address_of_another_member_is_refused_with_its_number(request_: OperatorRequest) -> None:
    office = Office()
    office.ask(MemberAdd(ServerId(2), "h:2"))
    reply = office.ask(request_)
    assert isinstance(reply, Refused)
    assert "h:2 is where server 2 is" in reply.text


def test_a_server_that_is_still_leaving_is_not_added_elsewhere_before_it_has_left() -> None:
    """Its disk counts until then, so that this would be a move of a server that is there."""
    office = Office()
    raft = office.driver.raft
    assert raft is not None
    office.ask(MemberAdd(ServerId(2), "h:2", observer=True))
    registry = office.driver.machine.registry
    disks = tuple((server, member.instance) for server, member in raft.membership.members.items())
    registry.apply(CreateTopic("t", 1), 9_001)
    registry.apply(CreateGroup(9_001, disks), 9_002)
    office.ask(MemberRemove(ServerId(2)))
    reply = office.ask(MemberAdd(ServerId(2), "other:2"))
    assert isinstance(reply, Refused), reply
    assert "server 2 is still leaving" in reply.text
    assert reply.retriable, "the command waits for it"
    assert isinstance(office.ask(MemberAdd(ServerId(2), "h:2", observer=True)), Done), "it stays after all"


def test_a_member_is_moved_by_a_verb_of_its_own_and_keeps_its_part() -> None:
    office = Office()
    raft = office.driver.raft
    assert raft is not None
    office.ask(MemberAdd(ServerId(2), "h:2", observer=True))
    reply = office.ask(MemberMove(ServerId(2), "other:2"))
    assert isinstance(reply, Done)
    assert "server 2 is at other:2 from now on, no longer at h:2" in reply.text
    assert office.driver.machine.members[ServerId(2)] == WantedMember(False, "other:2")
    assert raft.membership.members[ServerId(2)].address == "other:2"
    version = config_version(office)
    assert office.ask(MemberMove(ServerId(2), "other:2")) == Done("server 2 is there already, at other:2")
    assert config_version(office) == version


def test_who_is_no_member_cannot_be_moved() -> None:
    reply = Office().ask(MemberMove(ServerId(9), "h:9"))
    assert isinstance(reply, Refused)
    assert "server 9 is no member; the members are 1" in reply.text
    assert "`zraft member add 9 h:9`" in reply.text


def test_a_promotion_of_a_member_that_was_moved_meanwhile_does_not_move_it_back() -> None:
    """The answer to the one was computed from what was before the other."""
    office = Office()
    office.ask(MemberAdd(ServerId(2), "h:2", observer=True))
    replies: list[OperatorReply] = []
    office.administration.handle(MemberMove(ServerId(2), "other:2"), replies.append)
    office.administration.handle(MemberPromote(ServerId(2)), replies.append)
    office.turns(1_000)
    moved, promoted = replies
    assert isinstance(moved, Done)
    assert isinstance(promoted, Refused), promoted
    assert promoted.retriable
    assert office.driver.machine.members[ServerId(2)] == WantedMember(False, "other:2")


def test_an_observer_can_be_promoted_and_a_member_removed() -> None:
    office = Office()
    office.ask(MemberAdd(ServerId(2), "h:2", observer=True))
    raft = office.driver.raft
    assert raft is not None
    assert raft.membership.members[ServerId(2)].role is MemberRole.OBSERVER
    assert isinstance(office.ask(MemberPromote(ServerId(2))), Done)
    assert raft.membership.members[ServerId(2)].role is MemberRole.LEARNER
    assert isinstance(office.ask(MemberRemove(ServerId(2))), Done)
    assert set(raft.membership.members) == {1}


def test_d18_a_removal_says_how_many_partitions_have_to_move_first_and_shows_who_leaves() -> None:
    office = Office()
    raft = office.driver.raft
    assert raft is not None
    office.ask(MemberAdd(ServerId(2), "h:2", observer=True))
    registry = office.driver.machine.registry
    disks = tuple((server, member.instance) for server, member in raft.membership.members.items())
    registry.apply(CreateTopic("t", 2), 9_001)
    registry.apply(CreateGroup(9_001, disks), 9_002)
    registry.apply(CreateGroup(9_001, disks[:1]), 9_003)
    reply = office.ask(MemberRemove(ServerId(2)))
    assert reply == Done(
        "server 2 leaves when the partitions of topics on its disk have moved (1), or now if it does not answer"
    )
    listing = office.ask(MemberList())
    assert isinstance(listing, MemberListing)
    assert {line.server: line.role for line in listing.members} == {1: "voter", 2: "leaving"}
    registry.apply(PlaceGroup(GroupId(9_002), disks[:1]), 9_004)
    registry.apply(Placed(GroupId(9_002), disks[:1]), 9_005)
    office.turns(2_000)
    listing = office.ask(MemberList())
    assert isinstance(listing, MemberListing)
    assert {line.server: line.role for line in listing.members} == {1: "voter"}


def test_the_last_voter_cannot_be_removed() -> None:
    reply = Office().ask(MemberRemove(ServerId(1)))
    assert isinstance(reply, Refused)
    assert "no server that votes" in reply.text


def test_whoever_is_no_member_cannot_be_removed_or_promoted() -> None:
    office = Office()
    for request in (MemberRemove(ServerId(9)), MemberPromote(ServerId(9))):
        reply = office.ask(request)
        assert isinstance(reply, Refused)
        assert "no member; the members are 1" in reply.text


def test_the_leadership_goes_to_voters_only() -> None:
    office = Office()
    office.ask(MemberAdd(ServerId(2), "h:2"))
    for target in (ServerId(2), None):
        reply = office.ask(Transfer(target))
        assert isinstance(reply, Refused)
        assert "can only go to a voter" in reply.text


def test_a_snapshot_is_taken_when_asked_for_and_read_in_pieces() -> None:
    office = Office()
    file = office.ask(SnapshotTake())
    assert isinstance(file, SnapshotFile)
    assert file.size == len(FILE)
    assert file.zxid == office.driver.machine.last_zxid
    part = office.ask(SnapshotRead(file.snapshot, 5, 8))
    assert part == SnapshotPart(5, FILE[5:13])


def test_a_snapshot_of_a_state_that_did_not_change_is_given_again_at_once() -> None:
    office = Office()
    first, second = office.ask(SnapshotTake()), office.ask(SnapshotTake())
    assert isinstance(first, SnapshotFile)
    assert first == second


def test_a_snapshot_holds_what_was_acknowledged_before_it_was_asked_for() -> None:
    """One that began earlier is not enough."""
    office = Office()
    keeper = office.driver.snapshots.keeper
    keeper.request()
    late: list[Task] = []
    for _ in range(20):
        late += Place.turn(office, 10).tasks
    assert keeper.writing
    office.driver.submit((SETTINGS, {"quota_enforced": 1}), lambda result: None)
    for _ in range(20):
        late += Place.turn(office, 10).tasks
    index = office.driver.applied_index
    replies: list[OperatorReply] = []
    office.administration.handle(SnapshotTake(), replies.append)
    office.perform(late)
    for _ in range(200):
        office.turn(10)
        office.administration.turn()
    (file,) = replies
    assert isinstance(file, SnapshotFile)
    assert file.index >= index


def test_d5_the_feature_level_is_raised_by_the_leader_and_by_no_origin() -> None:
    """A level that nobody knows stops every server, so the command is believed in a leader's batch alone."""
    office = Office()
    assert isinstance(office.ask(FeatureRaise(None)), Done)
    office.driver.machine.feature_level = 1
    assert office.ask(FeatureRaise(2)) == Done("the cluster works at feature level 2")
    raised = [
        batch[0]
        for record in office.written
        if record.entry.kind is EntryKind.COMMANDS
        for batch in unpack_entry(record.entry.payload)[2]
        for _, _, commands in batch[4]
        for command in commands
        if command[0] == FEATURE
    ]
    assert raised
    assert set(raised) == {LEADER}


def test_a_change_of_members_before_the_level_rose_is_worth_asking_again() -> None:
    """A cluster's first seconds: found by a test machine that asked 0.9 s after the foundation."""
    office = Office()
    office.driver.machine.feature_level = 1
    reply = office.ask(MemberAdd(ServerId(4), "127.0.0.1:5254", observer=True))
    assert isinstance(reply, Refused)
    assert reply.retriable
    assert "below 2: it rises by itself within seconds" in reply.text


def test_d5_a_level_that_not_all_can_do_is_refused() -> None:
    reply = Office().ask(FeatureRaise(FEATURE_LEVEL_MAX + 1))
    assert isinstance(reply, Refused)
    assert f"the highest that all announced is {FEATURE_LEVEL_MAX}" in reply.text


def test_d5_a_replicated_setting_is_changed_through_the_log() -> None:
    office = Office()
    assert isinstance(office.ask(SettingsSet("quota_enforced", 1)), Done)
    assert office.driver.machine.settings == evolve(office.driver.settings.tree, quota_enforced=1)
    listing = office.ask(SettingsShow())
    assert isinstance(listing, SettingsListing)
    line = next(line for line in listing.settings if line.name == "quota_enforced")
    assert (line.value, line.configured) == (1, None)


def configured_by(*settings: str) -> DriverSettings:
    """What a server decides by that was started with these `--set`."""
    needed = {"id": "1", "data": "data", "address": "10.0.0.1:2181", "cluster": "1=10.0.0.1:2181"}
    named = dict(setting.split("=") for setting in settings)
    return driver_settings(load_config(flags=needed | named, environ={}), None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("session_timeout_ms_max", 60_000), ("session_ephemerals_max", 5), ("topics_replication", 5)],
)
def test_a_setting_that_no_configuration_names_differs_from_nothing_after_it_was_set(
    name: str, value: int
) -> None:
    office = Office(configured_by("tick_time_ms=2000", "client.jute_maxbuffer=4096"))
    assert isinstance(office.ask(SettingsSet(name, value)), Done)
    assert office.driver.coordination.settings_differ == {}
    listing = office.ask(SettingsShow())
    assert isinstance(listing, SettingsListing)
    found = {line.name: (line.value, line.configured) for line in listing.settings}
    assert found[name] == (value, None)
    assert found["tick_time_ms"] == (2_000, 2_000)
    assert found["data_bytes_max"] == (1024 * 1024, None), "requests bounded here ask for no bound of znodes"


def test_a_setting_that_the_configuration_names_differs_until_both_say_the_same() -> None:
    office = Office(configured_by("topics.groups_max=9", "client.jute_maxbuffer=2000000"))
    assert isinstance(office.ask(SettingsSet("topics_groups_max", 10)), Done)
    assert isinstance(office.ask(SettingsSet("data_bytes_max", 1_999_999)), Done)
    assert office.driver.coordination.settings_differ == {
        "data_bytes_max": (2_000_000, 1_999_999),
        "topics_groups_max": (9, 10),
    }
    listing = office.ask(SettingsShow())
    assert isinstance(listing, SettingsListing)
    found = {line.name: (line.value, line.configured) for line in listing.settings}
    assert found["topics_groups_max"] == (10, 9)
    assert isinstance(office.ask(SettingsSet("topics_groups_max", 9)), Done)
    assert isinstance(office.ask(SettingsSet("data_bytes_max", 2_000_000)), Done)
    assert office.driver.coordination.settings_differ == {}


def test_a_setting_that_does_not_exist_or_is_out_of_bounds_is_refused_with_the_choice() -> None:
    office = Office()
    reply = office.ask(SettingsSet("quota", 1))
    assert isinstance(reply, Refused)
    assert "quota_enforced" in reply.text
    reply = office.ask(SettingsSet("quotas_enforced", 1))
    assert isinstance(reply, Refused)
    assert "'quotas_enforced' is no replicated setting; did you mean quota_enforced?" in reply.text
    reply = office.ask(SettingsSet("quota_enforced", 7))
    assert isinstance(reply, Refused)
    assert "out of bounds" in reply.text


def test_a_server_that_is_not_part_of_its_cluster_says_why() -> None:
    office = Office()
    office.driver.coordination.belonging.removed = "it was removed"
    reply = office.ask(MemberList())
    assert isinstance(reply, Refused)
    assert "it was removed" in reply.text


def test_a_topic_is_created_described_and_deleted() -> None:
    office = Office()
    office.turns(1_000)
    assert isinstance(office.ask(TopicCreate("orders", 3, 2**30, None)), Done)
    found = office.ask(TopicDescribe("orders"))
    assert isinstance(found, TopicDescription)
    assert [(row.number, row.servers, row.preferred, row.state) for row in found.partitions] == [
        (n, (1,), ServerId(1), "ready") for n in range(3)
    ]
    assert (found.wanted, found.retention_bytes, found.retention_age_ms) == (3, 2**30, None)
    assert [row.group for row in found.partitions] == sorted(office.driver.machine.registry.groups)
    assert isinstance(office.ask(TopicRetain("orders", None, 5_000)), Done)
    listing = office.ask(TopicList())
    assert isinstance(listing, TopicListing)
    (line,) = listing.topics
    assert (line.partitions, line.wanted, line.retention_age_ms) == (3, 3, 5_000)
    assert isinstance(office.ask(TopicAlter("orders", 4)), Done)
    found = office.ask(TopicDescribe("orders", 3))
    assert isinstance(found, TopicDescription)
    assert [(row.number, row.state) for row in found.partitions] == [(3, "adding")]
    assert isinstance(office.ask(TopicDelete("orders")), Done)
    listing = office.ask(TopicList())
    assert isinstance(listing, TopicListing)
    assert (listing.topics, listing.deleting) == ((), 4)


def test_topics_come_in_pages_in_the_order_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_administration, "PAGE", 2)
    office = Office()
    office.turns(1_000)
    for name in ("c", "a", "d", "b", "e"):
        office.ask(TopicCreate(name, 3))
    seen, after, more = [], "", True
    while more:
        page = office.ask(TopicList(after))
        assert isinstance(page, TopicListing)
        assert len(page.topics) <= 2
        seen += [line.name for line in page.topics]
        after, more = seen[-1], page.more
    assert seen == ["a", "b", "c", "d", "e"]
    first = office.ask(TopicDescribe("a"))
    assert isinstance(first, TopicDescription)
    assert (len(first.partitions), first.more) == (2, True)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (TopicCreate("there", 1), "topic there: a topic of this name exists"),
        (TopicCreate("a/b", 1), "topic a/b: a topic's name has 1 to 249 letters"),
        (TopicCreate("x" * 2_000, 1), "a topic's name has 1 to 249 letters"),
        (TopicCreate("new", 5_000), "at most as many as the setting topics_partitions_max says"),
        (TopicAlter("there", 1), "a topic cannot have fewer partitions"),
        (TopicAlter("nowhere", 3), "topic nowhere: there is no such topic"),
        (TopicRetain("nowhere", None, None), "there is no such topic"),
        (TopicDelete("nowhere"), "there is no such topic"),
        (TopicDescribe("nowhere"), "there is no such topic"),
    ],
)
def test_what_cannot_be_done_with_a_topic_is_told(request_: OperatorRequest, said: str) -> None:
    office = Office()
    office.turns(1_000)
    office.ask(TopicCreate("there", 2))
    reply = office.ask(request_)
    assert isinstance(reply, Refused)
    assert said in reply.text


def test_below_the_level_of_topics_it_is_told_what_to_do() -> None:
    office = Office(features=3)
    office.turns(1_000)
    reply = office.ask(TopicCreate("orders", 1))
    assert isinstance(reply, Refused)
    assert reply.retriable
    assert "topics need feature level 4" in reply.text


def test_a_server_tells_what_it_holds_of_the_partitions_that_are_asked_for() -> None:
    found = Office().ask(TopicReplicas((7, 8)))
    assert found == ReplicaListing(ServerId(1), (_replica(GroupId(7)), _replica(GroupId(8))))
