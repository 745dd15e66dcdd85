"""Groups inside whole drivers: what they share with the coordination group, and what its state makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from tests.simulation.groups.counter import AppendCounter
from tests.so_far import so_far
from tests.unit.groups.calls import Calls
from tests.unit.groups.hosts import DISKS, S1, S2, S3
from tests.unit.server.hosting import STEP_MS, World, record
from zraft.config.sections import SnapshotConfig
from zraft.groups.digests import DivergedError
from zraft.groups.hosted_groups import GroupsShare
from zraft.groups.settings import GroupSettings
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.pull import CHUNK_BYTES
from zraft.groups.snapshots.sending import GIVE_UP_MS
from zraft.groups.snapshots.snapshots import COMPACT_INTERVAL_MS, SNAPSHOTS_KEPT
from zraft.groups.snapshots.tasks import (
    Abort,
    Begin,
    Complete,
    Finish,
    Load,
    Purge,
    ReadSnapshot,
    Receive,
    RemoveSnapshots,
    WriteBlock,
)
from zraft.groups.snapshots.writing import RETRY_MS
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntries, Entry, EntryKind
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.manifest import Manifest, encode_manifest
from zraft.storage.delivery.values import beginning
from zraft.storage.errors import DiskFullError
from zraft.storage.records import ForgetRecord, RestoreRecord
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.transport.messages import DeliveryList, Edge, Sender, SnapshotOffer, SnapshotRequest
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import Placed
from zraft_core.znodes.txn import FEATURE, TOPICS, Command


def _founded(groups: int, settings: GroupSettings | None = None) -> World:
    world = World(settings)
    world.run(1_500)
    assert any(server.driver.role is Role.LEADER for server in world.servers.values())
    world.add_groups(groups)
    world.run(1_500)
    return world


def test_a_disk_of_the_members_that_took_the_place_of_others_in_the_log_is_vouched_for() -> None:
    """The index of an entry does not say which configuration it is: the next leader may put another one there."""
    world = _founded(1)
    follower = next(server for server in world.servers.values() if server.driver.role is not Role.LEADER)
    raft = follower.driver.raft
    assert raft is not None
    world.down = set(DISKS) - {follower.sender.server}
    (other, another) = sorted(world.down)
    index, term, position = raft.log.last_index, raft.log.last_term, raft.log.next_position

    def follow(leader: ServerId, leads_in: int, replaced: Mapping[ServerId, Instance]) -> None:
        """Receive, and do not know to be committed, that these servers have other disks from entry `index + 1` on."""
        members = {
            server: evolve(member, instance=replaced.get(server, member.instance))
            for server, member in committed.members.items()
        }
        entry = Entry(index + 1, leads_in, EntryKind.MEMBERSHIP, position, 0, Membership(members).encode())
        append = AppendEntries(COORDINATION_GROUP, leads_in, index, term, 0, (entry,))
        follower.driver.receive(Sender(leader, DISKS[leader], 1), [append])
        world.step()
        assert raft.members_changed_index == index + 1

    committed = raft.membership
    first, second = Instance(b"first" + bytes(11)), Instance(b"second" + bytes(10))
    follow(other, raft.term + 1, {another: first})
    assert follower.host.groups[GroupId(1)].raft.knows(another, first)
    follow(another, raft.term + 1, {other: second})
    assert follower.host.groups[GroupId(1)].raft.knows(other, second)


def test_groups_of_the_table_are_led_where_they_should_be_and_apply_alike_everywhere() -> None:
    world = _founded(6)
    for number in range(1, 7):
        assert world.leader(number) is world.servers[list(DISKS)[number % 3]]
        world.write(number, b"one", b"two", b"three")
    world.run(200)
    for number in range(1, 7):
        assert world.counts(number) == [3, 3, 3]


def test_d13_records_of_all_groups_of_a_turn_are_one_frame_with_those_of_the_coordination_group() -> None:
    world = _founded(6)
    leader = next(server for server in world.servers.values() if server.driver.role is Role.LEADER)
    leader.frames.clear()
    # What leaders of groups are asked for, and a command of the coordination group, in one turn.
    led = [number for number in range(1, 7) if leader.leads(number)]
    leader.partitions.proposals = [(GroupId(number), b"x") for number in led]
    leader.driver.submit((FEATURE, 1), lambda result: None)
    world.run(200)
    shared = [frame for frame in leader.frames if len({record.group for record in frame}) > 1]
    assert any({COORDINATION_GROUP, *led} <= {record.group for record in frame} for frame in shared)


def test_d10_a_group_writes_no_frame_while_one_of_the_coordination_group_is_under_way() -> None:
    world = _founded(3)
    leader = next(server for server in world.servers.values() if server.driver.role is Role.LEADER)
    leader.disk_stuck = True
    leader.driver.submit((FEATURE, 1), lambda result: None)
    world.run(100)
    assert leader.writing
    frames = len(leader.frames)
    led = next(number for number in range(1, 4) if leader.leads(number))
    world.write(led, b"x")
    # `World.step` asserts that no second frame comes; the entry waits, and is not counted as durable here.
    world.run(100)
    assert len(leader.frames) == frames
    leader.disk_stuck = False
    world.run(200)
    assert world.counts(led) == [1, 1, 1]


def test_a_dead_servers_groups_are_led_by_others_and_it_catches_up() -> None:
    world = _founded(6)
    world.down.add(S2)
    world.run(1_500)
    for number in range(1, 7):
        world.write(number, b"x")
    world.run(300)
    for number in range(1, 7):
        assert world.counts(number) == [1, 1]
    world.down.clear()
    world.run(1_500)
    for number in range(1, 7):
        assert world.counts(number) == [1, 1, 1]
    assert sum(world.servers[S2].leads(number) for number in range(1, 7)) == 2, (
        "led where they should be again"
    )


def test_messages_of_who_the_coordination_group_does_not_know_reach_no_group() -> None:
    """D-1: the key may be another cluster's as well."""
    world = _founded(1)
    server = world.servers[S1]
    stranger = Sender(S2, Instance(b"?" * 16), 9)
    server.driver.receive(stranger, [Edge(b"x")])
    assert server.partitions.received == []
    server.driver.receive(world.servers[S2].sender, [Edge(b"x")])
    assert server.partitions.received == [(S2, Edge(b"x"))]


def test_what_partitions_say_goes_out_and_what_they_say_to_themselves_comes_back() -> None:
    world = _founded(1)
    world.servers[S1].partitions.outgoing = [(S1, Edge(b"me")), (S3, Edge(b"you"))]
    world.run(50)
    assert world.servers[S1].partitions.received == [(S1, Edge(b"me"))]
    assert world.servers[S3].partitions.received == [(S1, Edge(b"you"))]


def test_d18_no_replica_is_made_before_the_coordination_group_has_applied_what_its_log_held_at_the_start() -> (
    None
):
    """An older state may name groups that this disk has forgotten for good: they would vote with nothing."""
    world = World(entries=[Entry(1, 1, EntryKind.NOOP, 1, 0, b"")])
    world.add_groups(2)
    world.step()
    assert not any(server.host.groups for server in world.servers.values())
    world.run(2_000)
    assert all(len(server.host.groups) == 2 for server in world.servers.values())


def test_d18_a_removed_group_is_forgotten_by_the_log_then_its_files_go_and_meanwhile_nothing_is_compacted() -> (
    None
):
    world = _founded(2)
    server = world.servers[S1]
    world.table.remove(1)
    server.effects.clear()
    world.run(100)
    assert server.partitions.closed_groups == [GroupId(1)]
    assert ForgetRecord(GroupId(1)) in [record for frame in server.frames for record in frame]
    deliveries = [task for effects in server.effects for task in effects.deliveries]
    assert deliveries == [delivery_tasks.RemoveDeliveries(GroupId(1))]
    groups = server.driver.groups
    assert groups is not None
    assert so_far(groups.removing)
    # The snapshots' thread takes away the directory of both, so it comes last.
    assert not any(effects.tasks for effects in server.effects)
    server.driver.delivered(deliveries[0], None)
    world.run(100)
    tasks = [task for effects in server.effects for task in effects.tasks]
    assert tasks == [RemoveSnapshots(GroupId(1))]
    assert so_far(groups.removing)
    server.driver.performed(tasks[0], None)
    assert not groups.removing
    assert list(server.host.groups) == [2]


def test_d13_an_image_waits_for_what_its_group_delivered_and_the_log_is_cut_after_that() -> None:
    settings = GroupSettings(snapshot_bytes=2_000, keep_log_bytes_max=1)
    world = _founded(1, settings)
    server = world.leader(1)
    group = GroupId(1)
    server.partitions.cuts[group] = 0
    server.effects.clear()
    world.write(1, *[bytes(300)] * 20)
    world.run(300)
    assert world.counts(1) == [20, 20, 20]
    assert not any(effects.tasks for effects in server.effects)
    asked = [task for effects in server.effects for task in effects.deliveries]
    assert delivery_tasks.SyncDeliveries(group) in asked
    server.partitions.synced({group: server.host.groups[group].applied_index})
    server.effects.clear()
    world.run(50)
    begin, block, finish = [task for effects in server.effects for task in effects.tasks]
    assert isinstance(begin, Begin)
    assert isinstance(block, WriteBlock)
    assert isinstance(finish, Finish)
    server.driver.performed(begin, None)
    server.driver.performed(block, None)
    world.run(50)
    assert not any(effects.group_compactions for effects in server.effects)
    info = SnapshotInfo(begin.header, "/x", 1, 1, finish.digest, 0)
    server.effects.clear()
    server.driver.performed(finish, info)
    world.run(50)
    assert [task for effects in server.effects for task in effects.tasks] == [Purge(group, SNAPSHOTS_KEPT)]
    compactions = [one for effects in server.effects for one in effects.group_compactions]
    assert compactions == [(group, begin.header.meta.index)]


def test_an_image_that_could_not_be_written_is_taken_anew_and_written_no_sooner_than_any_groups() -> None:
    settings = GroupSettings(snapshot_bytes=2_000, keep_log_bytes_max=1)
    world = _founded(1, settings)
    server, group = world.leader(1), GroupId(1)
    server.effects.clear()
    world.write(1, *[bytes(300)] * 20)
    world.run(300)
    begin, block, finish = [task for effects in server.effects for task in effects.tasks]
    server.effects.clear()
    for task in (begin, block, finish):
        server.driver.performed(task, DiskFullError("/snap: no space"))
    world.run(RETRY_MS - 200)
    assert [task for effects in server.effects for task in effects.tasks] == [Abort(group)]
    assert "no snapshot of group 1 could be written" in server.driver.snapshots.work.problems[-1]
    server.effects.clear()
    world.run(1_000)
    again, _, last = [task for effects in server.effects for task in effects.tasks]
    assert isinstance(again, Begin)
    assert isinstance(begin, Begin)
    assert again.header.meta.index == server.host.groups[group].applied_index > begin.header.meta.index
    assert again.header.id != begin.header.id
    assert isinstance(last, Finish)
    assert server.driver.groups is not None
    assert server.driver.groups.snapshots_failed_total == 1


def test_d4_a_group_becomes_the_state_that_arrived_within_a_turn_and_its_log_begins_anew_with_that_turns_frame() -> (
    None
):
    world = _founded(1)
    leader, group, id = world.leader(1), GroupId(1), b"i" * 16
    server = next(one for one in world.servers.values() if one is not leader)
    raft, machine = server.host.groups[group].raft, AppendCounter()
    index = raft.commit_index + 5
    machine.commands, machine.last_index = 7, index
    membership = raft.log.membership_at(raft.commit_index)
    assert membership is not None
    header = SnapshotHeader(
        group,
        SnapshotMeta(index, raft.term, 8, membership),
        b"c" * 16,
        leader.sender.server,
        leader.sender.instance,
        id,
        1,
        0,
    )
    info = SnapshotInfo(header, "/x", 10, 1, 0, 0)

    def asked() -> list[Any]:
        server.effects.clear()
        world.step()
        return [task for effects in server.effects for task in (*effects.tasks, *effects.deliveries)]

    server.driver.receive(leader.sender, [SnapshotOffer(group, raft.term, index, raft.term, id, 10)])
    assert asked() == [Receive(group, id, 10)]
    server.driver.performed(Receive(group, id, 10), 10)  # the file is here already
    assert asked() == []
    manifest = Manifest(group, beginning(group))
    server.driver.receive(leader.sender, [DeliveryList(group, id, encode_manifest(manifest))])
    assert asked() == [delivery_tasks.BeginFetch(group, manifest)]
    server.driver.delivered(delivery_tasks.BeginFetch(group, manifest), None)
    assert asked() == [delivery_tasks.CompleteFetch(group)]
    server.driver.delivered(delivery_tasks.CompleteFetch(group), index)
    assert asked() == [Complete(group, id)]
    server.driver.performed(Complete(group, id), info)
    first, second = asked()
    assert (first, second) == (Load(info, first=True), Load(info))
    server.driver.performed(first, machine.snapshot())
    server.driver.performed(second, None)
    assert server.host.groups[group].applied_index < index, "not before a turn"
    server.frames.clear()
    assert asked() == [Purge(group, SNAPSHOTS_KEPT)]
    assert server.host.groups[group].applied_index == index
    assert server.partitions.machines[group].commands == 7
    assert RestoreRecord(group, header.meta) in server.frames[0]
    assert server.driver.groups is not None
    assert server.driver.groups.installed_total == 1
    assert group not in server.driver.snapshots.receiver


def test_while_the_disk_of_deliveries_takes_no_more_nothing_is_applied_and_the_tasks_come_again_in_order() -> (
    None
):
    world = _founded(1)
    server = world.leader(1)
    groups = server.driver.groups
    assert groups is not None
    first = delivery_tasks.AppendDeliveries(GroupId(1), (), 1)
    second = delivery_tasks.AppendDeliveries(GroupId(1), (), 2)
    groups.refused([first])
    others = [other for other in world.servers.values() if other is not server]
    world.write(1, b"x")
    server.partitions.tasks.append(second)
    server.effects.clear()
    world.step()
    assert server.effects[-1].deliveries == [first, second]
    groups.refused([first, second])
    for _ in range(40):
        world.step()
        groups.refused(server.effects[-1].deliveries)
    assert server.partitions.machines[GroupId(1)].commands == 0
    assert not server.partitions.proposals or all(
        o.partitions.machines[GroupId(1)].commands == 0 for o in others
    )
    groups.refused([])
    world.run(300)
    assert world.counts(1) == [1, 1, 1]


def test_a_leader_says_that_its_group_is_placed_until_the_coordination_group_shows_it() -> None:
    world = _founded(1)
    wanted = ((S1, DISKS[S1]), (S3, DISKS[S3]))
    world.table.change(1, wanted=wanted, former=tuple(DISKS.items()), preferred=S1)
    submitted: list[Command] = []
    groups = world.servers[S1].driver.groups
    assert groups is not None
    groups._submit = submitted.append
    world.run(6_000)
    assert world.leader(1) is world.servers[S1]
    placed = (TOPICS, encode_registry(Placed(GroupId(1), wanted)))
    assert submitted[:2] == [placed] * 2, "said again while the table does not show it"
    assert not world.servers[S2].host.groups[GroupId(1)].retired
    world.table.change(1, former=())
    world.run(100)
    submitted.clear()
    world.run(5_000)
    assert submitted == []
    assert world.servers[S2].host.groups[GroupId(1)].retired
    assert world.servers[S1].host.groups[GroupId(1)].raft.membership.voters == (S1, S3)


def test_d18_a_disk_that_neither_founds_nor_is_wanted_takes_no_part() -> None:
    world = _founded(0)
    two = ((S1, DISKS[S1]), (S2, DISKS[S2]))
    world.table.put(record(1, founders=two, wanted=two, preferred=S1))
    world.run(1_000)
    assert world.servers[S3].host.groups == {}
    assert world.leader(1) is world.servers[S1]


def test_idle_groups_make_no_frames_and_a_bounded_number_of_messages() -> None:
    world = _founded(30)
    world.run(3_000)
    for server in world.servers.values():
        server.frames.clear()
        server.effects.clear()
    world.run(1_000)
    for server in world.servers.values():
        touched = [record for frame in server.frames for record in frame if record.group]
        assert touched == []


@pytest.mark.parametrize("leads", [True, False])
def test_d26_a_server_of_which_one_groups_state_differs_from_the_majoritys_must_stop(leads: bool) -> None:
    world = _founded(2, GroupSettings(digest_interval=4))
    leader = world.leader(1)
    wrong = leader if leads else next(one for one in world.servers.values() if one is not leader)
    world.write(1, *[b"x"] * 3)
    world.run(200)
    hosted = [server.driver.groups for server in world.servers.values()]
    assert sum(groups.digests.compared_total for groups in hosted if groups is not None) >= 1
    wrong.partitions.machines[GroupId(1)]._chain = b"!" * 16

    def go_on() -> None:
        for number in range(20):
            world.write(1, b"%d" % number)
            world.run(50)

    with pytest.raises(DivergedError, match="group 1 on this server differs"):
        go_on()
    right = [server for server in world.servers.values() if server is not wrong]
    points = [dict(server.host.groups[GroupId(1)].digests) for server in right]
    shared = set(points[0]) & set(points[1])
    assert shared
    assert all(points[0][index] == points[1][index] for index in shared)


def test_d26_without_a_majority_it_is_an_alarm_and_nobody_stops() -> None:
    world = _founded(1, GroupSettings(digest_interval=4))
    for number, server in enumerate(world.servers.values()):
        server.partitions.machines[GroupId(1)]._chain = b"%d" % number * 16
    for number in range(10):
        world.write(1, b"%d" % number)
        world.run(50)
    digests = world.leader(1).driver.groups.digests  # type: ignore[union-attr]
    assert digests.alarms_total >= 1
    assert "no two of a majority agree" in digests.alarms[0]
    assert world.counts(1) == [10, 10, 10]


def test_a_turn_of_the_groups_asks_only_what_something_happened_to() -> None:
    """Transfers, digests, images and the table are not looked at in the turns of a write."""
    world = _founded(1)
    leader = world.leader(1)
    groups = leader.driver.groups
    assert groups is not None
    calls, turns, turn = Calls(), 0, groups.turn

    def counted(*args: Any, **named: Any) -> GroupsShare | None:
        nonlocal turns
        turns += 1
        with calls.counted():
            return turn(*args, **named)

    groups.turn = counted  # type: ignore[method-assign]
    for number in range(50):
        world.write(1, bytes(100))
        # At no multiple of the interval of heartbeats, which would meet each write, or none.
        world.run((4 + 2 * (number % 2)) * STEP_MS)
    assert leader.partitions.machines[GroupId(1)].commands >= 50
    assert calls.of("zraft/groups").total() <= 20 * turns, calls.of("zraft/groups").most_common()


def test_a_leader_whose_followers_have_what_they_pulled_looks_at_snapshots_no_more_in_each_turn() -> None:
    """Else every turn of a server that once sent an image of a topic would go past all of them."""
    world = _founded(1)
    server = next(one for one in world.servers.values() if one.driver.role is Role.LEADER)
    snapshots = server.driver.snapshots
    header = SnapshotHeader(GroupId(1), SnapshotMeta(5, 1, 6, b""), b"c" * 16, S1, DISKS[S1], b"i" * 16, 1, 0)
    snapshots.found(SnapshotInfo(header, "/x", 10, 1, 0, 0))
    snapshots.sender.offer(GroupId(1), S2, snapshots.newest[GroupId(1)], term=1, match=0, now_ms=world.now)
    assert snapshots.sender.receivers
    world.run(2 * GIVE_UP_MS + COMPACT_INTERVAL_MS + 100)
    assert not snapshots.sender.receivers


def test_what_followers_of_all_groups_ask_for_is_read_within_the_servers_one_budget() -> None:
    """`snapshot.send_bytes_per_s` is what a server sends, not what each kind of group does."""
    world = _founded(1)
    server = next(one for one in world.servers.values() if one.driver.role is Role.FOLLOWER)
    other = next(one for one in world.servers.values() if one is not server)
    groups, id, asked = (COORDINATION_GROUP, GroupId(1)), b"i" * 16, 60
    server.effects.clear()
    for group in groups:
        header = SnapshotHeader(
            group,
            SnapshotMeta(5, 1, 6, b""),
            b"c" * 16,
            server.sender.server,
            server.sender.instance,
            id,
            1,
            0,
        )
        info = SnapshotInfo(header, "/x", asked * CHUNK_BYTES, 1, 0, 0)
        sender = server.driver.snapshots.sender
        assert sender.offer(group, other.sender.server, info, term=1, match=0, now_ms=server.driver.clock.now)
    for number in range(asked):
        requests = [SnapshotRequest(group, 1, id, number * CHUNK_BYTES, CHUNK_BYTES) for group in groups]
        server.driver.receive(other.sender, requests)
    ms = 50
    world.run(ms)
    read = [task for effects in server.effects for task in effects.tasks if isinstance(task, ReadSnapshot)]
    assert {task.group for task in read} == {*groups}
    bytes_per_s = SnapshotConfig().send_bytes_per_s
    at_once = bytes_per_s // 20
    assert at_once <= sum(task.length for task in read) <= at_once + bytes_per_s * ms // 1000 + CHUNK_BYTES
    assert read == sorted(read, key=lambda task: task.offset), "in the order in which they were asked for"
