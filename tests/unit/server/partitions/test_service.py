"""What connections are answered by a server's partitions: reads from memory and disk, claims, offsets, and refusals."""

from __future__ import annotations

from collections.abc import Set

import pytest
from attrs import evolve

from tests.unit.groups.hosts import DISKS, S1, S2
from tests.unit.server.partitions.cluster import Cluster
from tests.unit.server.partitions.programs import Client, Producing
from zraft.config.features import LEVEL_OF_ROUNDS
from zraft.groups.snapshots.delivery_tasks import AppendDeliveries, SyncDeliveries
from zraft.server.partitions.delivery_tail import DeliveryTail
from zraft.server.partitions.hosted_partition import NOWHERE
from zraft.server.partitions.leadership import PartitionLeadership
from zraft.server.partitions.settings import PartitionsSettings
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.storage.errors import DeliveriesDifferError
from zraft.topics.service import Consumers, Fetched, TopicClient
from zraft_core.claims.answers import Accepted, ClaimsView, Granted, Reason, Refused
from zraft_core.claims.commands import (
    ClaimPartition,
    Commit,
    Configure,
    Expire,
    Heartbeat,
    Pause,
)
from zraft_core.claims.values import Mode
from zraft_core.errors import ConfigError
from zraft_core.ids import GroupId, ServerId
from zraft_core.layout import to_bytes
from zraft_core.topics.codec import decode_message
from zraft_core.topics.message import Round
from zraft_core.topics.messages import Answer, StartRequest
from zraft_core.topics.producer import Reach

SMALL_TAIL = PartitionsSettings(tail_bytes_max=2_000)


def started(settings: PartitionsSettings | None = None, groups: int = 1) -> tuple[Cluster, Producing]:
    cluster = Cluster(*[1] * groups, settings=settings)
    cluster.rest()
    producing = Producing(cluster)
    cluster.run(60)
    return cluster, producing


def fill(cluster: Cluster, producing: Producing, count: int, size: int = 100) -> None:
    (group, *_) = cluster.groups
    for at in range(count):
        producing.say(group, payload=b"%06d" % at + bytes(size))
    cluster.run_until(lambda: not producing.producer.undecided())
    cluster.run(80)


def fetch(
    cluster: Cluster, server: ServerId, offset: int, *, bytes_max: int = 1 << 20, wait_ms: int = 0
) -> Fetched:
    client = Client()
    (group, *_) = cluster.groups
    cluster.servers[server].partitions.topics.fetch(client, 1, group, offset, bytes_max, wait_ms)
    cluster.run_until(lambda: bool(client.fetched), wait_ms + 100)
    ((id, fetched),) = client.fetched
    assert id == 1
    return fetched


def followers(cluster: Cluster) -> list[ServerId]:
    leader = cluster.leader(cluster.groups[0])
    return [server for server in DISKS if server != leader]


# -- fetching


@pytest.mark.parametrize("settings", [None, SMALL_TAIL], ids=["memory", "disk"])
def test_every_replica_gives_all_deliveries_from_any_offset_in_order(
    settings: PartitionsSettings | None,
) -> None:
    cluster, producing = started(settings)
    fill(cluster, producing, 120)
    for server in DISKS:
        found, offset = [], 0
        while offset < 120:
            fetched = fetch(cluster, server, offset, bytes_max=3_000)
            assert [one[0] for one in fetched.deliveries] == list(range(offset, fetched.next))
            assert fetched.end == 120
            found += [decode_message(message).payload[:6] for _, _, message in fetched.deliveries]
            stamps = [stamp for _, stamp, _ in fetched.deliveries]
            assert stamps == sorted(stamps)
            if fetched.next < fetched.end:
                assert fetched.frontier == stamps[-1]
            else:
                assert fetched.frontier >= stamps[-1]
            offset = fetched.next
        assert found == [b"%06d" % at for at in range(120)]
    if settings is SMALL_TAIL:
        assert cluster.servers[S1].hosted(cluster.groups[0]).tail.first > 50
        assert cluster.servers[S1].partitions.statistics().tails_bytes <= 2_000


@pytest.mark.parametrize("settings", [None, SMALL_TAIL], ids=["memory", "disk"])
def test_the_first_delivery_at_a_time_or_later_is_found_by_the_leader_alone(
    settings: PartitionsSettings | None,
) -> None:
    cluster, producing = started(settings)
    for _ in range(4):
        fill(cluster, producing, 30)
    (group,) = cluster.groups
    times = [(one.offset, one.time) for entry in cluster.applied[group].values() for one in entry.deliveries]
    assert len({time for _, time in times}) > 3

    def found(time_ms: int) -> int | None:
        client = Client()
        service = cluster.service_of(group)
        assert service is not None
        service.offset_at(client, 1, group, time_ms)
        cluster.run_until(lambda: bool(client.offsets))
        ((_, answer),) = client.offsets
        return answer.offset

    for time_ms in sorted({time + near for _, time in times for near in (-1, 0, 1)}):
        assert found(time_ms) == next((offset for offset, time in times if time >= time_ms), 120)
    (other, _) = followers(cluster)
    client = Client()
    cluster.servers[other].partitions.topics.offset_at(client, 1, group, 0)
    cluster.run(10)
    assert [(refusal.kind, refusal.leader) for _, refusal in client.refused] == [
        ("not_leader", cluster.leader(group))
    ]


def test_what_a_search_finds_counts_only_before_the_tail_as_it_was_when_it_began() -> None:
    """Deliveries that come and leave memory while the disk is read are later than those that memory had."""
    cluster, producing = started(SMALL_TAIL)
    fill(cluster, producing, 60)
    (group,) = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    server, client = cluster.servers[leader], Client()
    server.partitions.topics.offset_at(client, 1, group, 1 << 60)
    cluster.run_until(lambda: bool(server.reads))
    (search,) = server.reads
    server.reads.clear()
    assert server.hosted(group).tail.first > 0
    fill(cluster, producing, 60)
    server.reads.append(search)
    cluster.run_until(lambda: bool(client.offsets))
    assert [answer.offset for _, answer in client.offsets] == [60]


def test_reads_from_the_disk_bring_no_more_into_memory_at_once_than_they_may() -> None:
    """All that may wait were under way together, and brought 256 MB before anybody counted them as answers."""
    settings = evolve(SMALL_TAIL, reads_bytes_max=3_000_000, payload_bytes_max=1_000_000)
    cluster, producing = started(settings)
    fill(cluster, producing, 120)
    clients = [Client() for _ in range(20)]
    server = cluster.servers[S1]
    for at, client in enumerate(clients):
        size = 1 if at % 2 else 1_000_000
        server.partitions.topics.fetch(client, 1, cluster.groups[0], 0, size, 0)
    assert len(server.reads) == 3
    assert server.partitions.topics.reading == 20
    most = 0

    def answered() -> bool:
        nonlocal most
        most = max(most, len(server.reads))
        return all(client.fetched for client in clients)

    cluster.run_until(answered, 100)
    assert most == 3
    assert server.partitions.topics.reading == 0
    assert [len(client.fetched[0][1].deliveries) > 1 for client in clients] == [True, False] * 10


def test_at_least_one_delivery_is_given_however_little_was_asked_for() -> None:
    cluster, producing = started()
    fill(cluster, producing, 3, size=5_000)
    assert [one[0] for one in fetch(cluster, S2, 1, bytes_max=1).deliveries] == [1]


def test_a_fetch_at_the_end_waits_for_what_comes_and_no_longer_than_it_may() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    client = Client()
    (server, other) = followers(cluster)
    cluster.servers[server].partitions.topics.fetch(client, 7, group, 0, 1 << 20, 1_000)
    cluster.run(100)
    assert not client.fetched
    producing.say(group, payload=b"x")
    cluster.run_until(lambda: bool(client.fetched), 200)
    ((id, fetched),) = client.fetched
    assert (id, len(fetched.deliveries), fetched.next) == (7, 1, 1)
    began = cluster.now_ms
    late = fetch(cluster, other, 1, wait_ms=300)
    assert (late.deliveries, late.next, late.end) == ([], 1, 1)
    assert 300 <= cluster.now_ms - began <= 310


def test_only_the_confirmed_leader_tells_where_a_partition_begins_and_ends() -> None:
    cluster, producing = started()
    fill(cluster, producing, 4)
    (group,) = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    looked = fetch(cluster, leader, 2**62)
    assert (looked.deliveries, looked.first, looked.end, looked.next) == ([], 0, 4, 2**62)
    # A follower may lag behind what was acknowledged: it says who leads.
    client = Client()
    for id, server in enumerate(followers(cluster)):
        cluster.servers[server].partitions.topics.fetch(client, id, group, 2**62, 0, 0)
    cluster.run(10)
    assert not client.fetched
    assert [(id, one.kind, one.leader) for id, one in client.refused] == [
        (id, "not_leader", leader) for id in range(2)
    ]


def test_a_partition_that_grows_while_its_leader_is_confirmed_gives_what_was_beyond_its_end_before() -> None:
    cluster, producing = started()
    fill(cluster, producing, 4)
    (group,) = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    end, given = 4, 0
    for ms in range(8):
        for _ in range(2):
            producing.say(group)
        cluster.run(ms)
        fetched = fetch(cluster, leader, end + 1, wait_ms=0)
        assert [one[0] for one in fetched.deliveries] in ([], [end + 1])
        assert fetched.end == end + 2 or not fetched.deliveries
        given += len(fetched.deliveries)
        cluster.run_until(lambda: not producing.producer.undecided())
        cluster.run(80)
        end += 2
    assert given > 0


def test_what_a_state_from_elsewhere_brought_is_not_given_before_it_can_be_read_and_nothing_is_promised() -> (
    None
):
    """Seed 70000063 of partitions: a fetch between the installation of a snapshot and the turn that looks at it."""
    cluster, producing = started()
    fill(cluster, producing, 4)
    (group,) = cluster.groups
    (server, _) = followers(cluster)
    cluster.servers[server].partitions.hosted[group].tail = DeliveryTail(2)
    fetched = fetch(cluster, server, 3)
    assert (fetched.deliveries, fetched.next, fetched.end) == ([], 3, 4)
    assert fetched.frontier == NOWHERE


def test_who_waits_at_an_idle_partition_sees_it_advance_when_that_is_needed() -> None:
    cluster, _ = started(groups=2)
    idle = cluster.groups[0]
    client = Client()
    (server, _) = followers(cluster)
    topics = cluster.servers[server].partitions.topics
    topics.fetch(client, 1, idle, 0, 1 << 20, 2_000)
    cluster.run(50)
    topics.need(idle, 41)
    cluster.run_until(lambda: bool(client.fetched), 200)
    ((_, fetched),) = client.fetched
    assert not fetched.deliveries
    assert fetched.frontier.time >= 41
    # It is there already: whoever begins to wait now is told by asking again.
    topics.fetch(client, 2, idle, 0, 1 << 20, 2_000)
    cluster.run(20)
    assert len(client.fetched) == 1
    topics.need(idle, 41)
    cluster.run(3)
    assert len(client.fetched) == 2


def test_what_retention_removed_is_refused_with_the_new_beginning() -> None:
    cluster, producing = started(PartitionsSettings(tail_bytes_max=500, retain_interval_ms=500))
    (group,) = cluster.groups
    fill(cluster, producing, 150)
    assert fetch(cluster, S2, 0).first == 0
    cluster.coordinator.retained[group] = DeliveryRetention(bytes_min=1_000)
    cluster.run(600)
    client = Client()
    cluster.servers[S2].partitions.topics.fetch(client, 1, group, 0, 1 << 20, 0)
    cluster.run(5)
    ((_, refused),) = client.refused
    assert refused.kind == "gone"
    assert refused.first is not None
    assert refused.first > 10
    assert fetch(cluster, S2, refused.first).deliveries[0][0] == refused.first


def test_a_slow_disk_of_deliveries_is_seen_by_nobody_who_follows() -> None:
    """What is not on the disk stays in memory, above its bound."""
    cluster, producing = started(SMALL_TAIL)
    cluster.servers[S2].disk_stopped = True
    fill(cluster, producing, 100)
    assert [one[0] for one in fetch(cluster, S2, 0).deliveries] == list(range(100))
    tail = cluster.servers[S2].hosted(cluster.groups[0]).tail
    assert tail.first == 0
    assert tail.written == 0
    assert cluster.servers[S2].partitions.cut_index(cluster.groups[0]) == 0
    cluster.servers[S2].disk_stopped = False
    cluster.run(5)
    assert tail.size <= 2_000


def test_the_log_may_go_as_far_as_deliveries_are_durable_and_no_further() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    fill(cluster, producing, 10)
    one = cluster.servers[S1]
    applied = one.host.groups[group].applied_index
    assert one.partitions.cut_index(group) < applied
    one.tasks.append(SyncDeliveries(group))
    cluster.run(3)
    assert one.partitions.cut_index(group) == applied


# -- producers


def test_a_message_is_refused_where_its_group_is_not_led_and_where_it_is_not() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    leader = cluster.leader(group)
    message = producing.producer.multicast([group], b"x")
    ((_, request),) = producing.producer.requests(message.mid.seq)
    client = Client()
    for server in followers(cluster):
        cluster.servers[server].partitions.topics.produce(client, 3, group, (request,))
    cluster.servers[S1].partitions.topics.produce(client, 4, GroupId(999), (request,))
    cluster.run(2)
    kinds = [(id, refusal.kind, refusal.leader) for id, refusal in client.refused]
    assert sorted(kinds)[:2] == [(3, "not_leader", leader)] * 2
    assert sorted(kinds)[2][:2] == (4, "no_group")


def test_a_payload_that_no_entry_should_hold_is_refused_by_its_size() -> None:
    cluster, producing = started(PartitionsSettings(payload_bytes_max=1_000))
    (group,) = cluster.groups
    message = producing.producer.multicast([group], bytes(1_001))
    ((_, request),) = producing.producer.requests(message.mid.seq)
    client = Client()
    cluster.leading(group).topics.produce(client, 3, group, (request,))
    cluster.run(2)
    ((_, refused),) = client.refused
    assert refused.kind == "too_large"
    assert "partitions.payload_bytes_max" in refused.detail


def test_a_message_to_more_partitions_than_allowed_is_refused_unless_it_has_begun() -> None:
    """The setting is changed at run time: what was begun before comes to its end."""
    cluster, producing = started(groups=3)
    begun = producing.say(*cluster.groups)
    cluster.run_until(lambda: begun.mid in producing.ended)
    registry = cluster.coordinator.registry
    registry.settings = evolve(registry.settings, destinations_max=2)
    group, *_ = cluster.groups
    fresh = producing.producer.multicast(cluster.groups, b"")
    ((_, request), *_) = producing.producer.requests(fresh.mid.seq)
    client = Client()
    topics = cluster.leading(group).topics
    topics.produce(client, 3, group, (evolve(request, message=begun),))
    topics.produce(client, 4, group, (request,))
    cluster.run(2)
    ((id, refused),) = client.refused
    assert (id, refused.kind) == (4, "too_large")
    assert "3 partitions; at most 2 are allowed (setting topics_destinations_max)" in refused.detail
    assert [reply.answer for _, reply in client.replies] == [Answer.DELIVERED]
    registry.settings = evolve(registry.settings, destinations_max=3)
    topics.produce(client, 5, group, (request,))
    cluster.run_until(lambda: any(id == 5 and reply.mid == fresh.mid for id, reply in client.replies))


def test_all_messages_of_a_turn_are_one_entry_and_those_that_come_meanwhile_a_few_more() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    before = cluster.leading(group).statistics().entries_total
    for _ in range(500):
        producing.say(group)
    cluster.run_until(lambda: not producing.producer.undecided())
    assert cluster.leading(group).statistics().entries_total == before + 1
    for _ in range(100):
        producing.say(group)
        cluster.step()
    cluster.run_until(lambda: not producing.producer.undecided())
    assert cluster.leading(group).statistics().entries_total <= before + 101


def test_a_producer_that_tells_one_destination_is_told_when_all_have_delivered() -> None:
    cluster, producing = started(groups=3)
    producing.producer.reach = Reach.ONE
    message = producing.say(*cluster.groups)
    cluster.run_until(lambda: message.mid in producing.ended, 140)
    assert any(reply.everywhere and reply.answer is Answer.DELIVERED for reply in producing.told)


def test_a_leader_that_is_deposed_tells_those_who_wait_where_to_go() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    one = cluster.servers[leader]
    client = Client()
    message = producing.producer.multicast([group], b"x")
    ((_, request),) = producing.producer.requests(message.mid.seq)
    cluster.isolate(leader)
    one.partitions.topics.produce(client, 5, group, (request,))
    one.partitions.topics.claim(client, 6, group, Configure(1_000))
    one.partitions.topics.claims_view(client, 7, group, "g")
    cluster.run(1_500)
    assert {id: refusal.kind for id, refusal in client.refused} == {
        5: "not_leader",
        6: "timeout",
        7: "not_leader",
    }
    assert not client.replies
    assert not client.claims


def test_a_connection_that_is_gone_is_told_nothing() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    client = Client()
    topics = cluster.leading(group).topics
    message = producing.producer.multicast([group], b"x")
    ((_, request),) = producing.producer.requests(message.mid.seq)
    topics.produce(client, 5, group, (request,))
    topics.claim(client, 6, group, Configure(1_000))
    topics.fetch(client, 7, group, 0, 1 << 20, 1_000)
    topics.claims_view(client, 8, group, "g")
    topics.drop(client)
    cluster.run(200)
    assert not [*client.replies, *client.claims, *client.fetched, *client.refused]
    assert cluster.payloads(group) == [b"x"], "what was taken goes on"
    assert cluster.leading(group).statistics().fetches_waiting == 0


def test_connections_that_leave_together_are_forgotten_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions look once through all that waits, and not once for each connection."""
    cluster, _ = started()
    (group,) = cluster.groups
    partitions = cluster.leading(group)
    clients = [Client() for _ in range(50)]
    for client in clients:
        partitions.topics.fetch(client, 1, group, 0, 1 << 20, 1_000)
        partitions.topics.claims_view(client, 2, group, "g")
    forgotten: list[Set[TopicClient]] = []
    drop = PartitionLeadership.drop

    def noted(self: PartitionLeadership, gone: Set[TopicClient]) -> None:
        forgotten.append(gone)
        drop(self, gone)

    monkeypatch.setattr(PartitionLeadership, "drop", noted)
    for client in clients[1:]:
        partitions.topics.drop(client)
    cluster.run(1)
    assert forgotten == [set(clients[1:])]
    assert partitions.statistics().fetches_waiting == 1
    cluster.run(1_010)
    assert [len(clients[0].fetched), len(clients[0].claims)] == [1, 1]
    assert not any(client.fetched or client.claims or client.refused for client in clients[1:])


# -- claims


def claim(cluster: Cluster, *commands: object) -> list[object]:
    client = Client()
    (group, *_) = cluster.groups
    for at, command in enumerate(commands):
        cluster.leading(group).topics.claim(client, at, group, command)  # type: ignore[arg-type]
    cluster.run_until(lambda: len(client.claims) == len(commands))
    assert [id for id, _ in client.claims] == list(range(len(commands)))
    return [answer for _, answer in client.claims]


def show(cluster: Cluster, name: str) -> ClaimsView:
    client = Client()
    (group, *_) = cluster.groups
    cluster.leading(group).topics.claims_view(client, 1, group, name)
    cluster.run_until(lambda: bool(client.claims))
    ((_, view),) = client.claims
    assert isinstance(view, ClaimsView)
    return view


def test_a_claims_epoch_is_the_position_of_its_command_within_the_entry() -> None:
    """D-16: of commands of one entry, each has a position of its own, after those of topics."""
    cluster, producing = started()
    (group,) = cluster.groups
    producing.say(group)
    first, second = claim(
        cluster,
        ClaimPartition("g", "a", "i", 1, 0, Mode.AT_LEAST_ONCE),
        ClaimPartition("h", "a", "i", 1, 0, Mode.AT_LEAST_ONCE),
    )
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert second.claim.epoch == first.claim.epoch + 1
    accepted = claim(cluster, Commit("g", first.claim.epoch, 1))[0]
    assert isinstance(accepted, Accepted)
    assert accepted.committed == 1
    assert isinstance(claim(cluster, Commit("g", first.claim.epoch, 2))[0], Refused), "beyond the end"


def test_a_silent_owner_expires_by_log_time_and_one_that_beats_does_not() -> None:
    cluster, _ = started()
    claim(cluster, Configure(200))
    dead, alive = claim(
        cluster,
        ClaimPartition("dead", "a", "i", 1, 0, Mode.AT_LEAST_ONCE),
        ClaimPartition("alive", "a", "i", 1, 0, Mode.AT_LEAST_ONCE),
    )
    assert isinstance(dead, Granted)
    assert isinstance(alive, Granted)
    for beat in range(1, 9):
        cluster.run(100)
        (answer,) = claim(cluster, Heartbeat("alive", alive.claim.epoch, beat, 0))
        assert isinstance(answer, Accepted)
        if beat == 3:
            assert show(cluster, "dead").claims, "two intervals are not over"
    cluster.run(200)
    assert not show(cluster, "dead").claims
    (fenced,) = claim(cluster, Heartbeat("dead", dead.claim.epoch, 1, 0))
    assert isinstance(fenced, Refused)
    assert fenced.reason is Reason.FENCED
    # Without a claim there is nothing to look at, and the leader sleeps.
    cluster.run(1_000)
    leader = cluster.leader(cluster.groups[0])
    assert leader is not None
    assert cluster.servers[leader].host.groups[cluster.groups[0]].asleep


def test_nobody_expires_because_the_leader_changed_or_slept() -> None:
    cluster, _ = started()
    (group,) = cluster.groups
    claim(cluster, Configure(300))
    (granted,) = claim(cluster, ClaimPartition("g", "a", "i", 1, 0, Mode.AT_LEAST_ONCE))
    assert isinstance(granted, Granted)
    cluster.run(400)
    old = cluster.leader(group)
    assert old is not None
    target = next(server for server in DISKS if server != old)
    for one in cluster.servers.values():
        one.host.prefer(group, target)
    cluster.run_until(lambda: cluster.leader(group) == target)
    cluster.run(350)
    assert show(cluster, "g").claims, "a new leadership gives every owner its whole time again"
    cluster.run(900)
    assert not show(cluster, "g").claims


def test_expiry_is_for_leaders_alone_to_say() -> None:
    cluster, _ = started()
    (granted,) = claim(cluster, ClaimPartition("g", "a", "i", 1, 0, Mode.AT_LEAST_ONCE))
    assert isinstance(granted, Granted)
    (refused,) = claim(cluster, Expire("g", granted.claim.epoch, granted.claim.heard_ms))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.INVALID
    assert show(cluster, "g").claims


def test_a_view_has_the_leaders_time_though_nothing_is_logged() -> None:
    cluster, _ = started()
    claim(cluster, Pause("g", 1_000_000, 0))
    before = show(cluster, "g")
    cluster.run(500)
    assert show(cluster, "g").log_time_ms - before.log_time_ms >= 500


def test_a_deposed_leader_that_does_not_know_shows_nothing() -> None:
    cluster, _ = started()
    (group,) = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    cluster.isolate(leader)
    client = Client()
    cluster.servers[leader].partitions.topics.claims_view(client, 1, group, "g")
    cluster.servers[leader].partitions.topics.offset_of(client, 2, group, b"c")
    cluster.servers[leader].partitions.topics.consumers(client, 3, group)
    cluster.run(250)
    assert cluster.servers[leader].hosted(group).leadership is not None, "it still believes to lead"
    assert not client.claims
    assert not client.offsets
    assert not client.consumers


# -- stored offsets


def test_a_consumers_offset_is_stored_read_and_forgotten() -> None:
    cluster, _ = started()
    (group,) = cluster.groups
    client = Client()
    topics = cluster.leading(group).topics
    topics.offset_of(client, 1, group, b"c")
    cluster.run(30)
    topics.seek(client, 2, group, b"c", 42)
    cluster.run(30)
    topics.offset_of(client, 3, group, b"c")
    cluster.run(30)
    topics.seek(client, 4, group, b"c", None)
    cluster.run(30)
    assert [(id, offset.offset) for id, offset in client.offsets] == [(1, None), (2, 42), (3, 42), (4, None)]


def test_whoever_consumes_a_partition_is_told_with_its_place() -> None:
    cluster, _ = started()
    (group,) = cluster.groups
    client = Client()
    topics = cluster.leading(group).topics
    topics.seek(client, 1, group, b"late", 2)
    topics.seek(client, 2, group, b"early", 1)
    claim(cluster, ClaimPartition("g", "anna", "i", 1, 0, Mode.AT_LEAST_ONCE))
    topics.consumers(client, 3, group)
    cluster.run(60)
    end = cluster.leading(group).topics._hosted[group].end
    expected = ((b"early", 1, None), (b"late", 2, None), (b"g", 0, ("anna",)))
    assert client.consumers == [(3, Consumers(group, expected, end))]


def test_more_requests_than_may_wait_are_refused() -> None:
    cluster, _ = started(PartitionsSettings(requests_max=3))
    (group,) = cluster.groups
    client = Client()
    for id in range(5):
        cluster.leading(group).topics.seek(client, id, group, b"c%d" % id, id)
    cluster.run(30)
    assert [refusal.kind for _, refusal in client.refused] == ["busy"] * 2
    assert len(client.offsets) == 3
    cluster.leading(group).topics.seek(client, 9, group, b"c", 9)
    cluster.run(30)
    assert len(client.offsets) == 4


@pytest.mark.parametrize(
    ("settings", "knob"),
    [
        (PartitionsSettings(tick_ms=0), "partitions.tick_ms"),
        (PartitionsSettings(payload_bytes_max=3 << 20), "partitions.payload_bytes_max"),
        (PartitionsSettings(claims_heartbeat_ms=10), "partitions.claims_heartbeat_ms"),
    ],
)
def test_a_setting_out_of_its_bounds_is_named(settings: PartitionsSettings, knob: str) -> None:
    with pytest.raises(ConfigError, match=knob):
        settings.validate()


# -- what cannot go on


def test_d26_a_server_whose_deliveries_contradict_its_state_leaves_the_partition_to_others() -> None:
    cluster, producing = started()
    (group,) = cluster.groups
    fill(cluster, producing, 5)
    leader = cluster.leader(group)
    assert leader is not None
    one = cluster.servers[leader]
    waiting, reading = Client(), Client()
    one.partitions.topics.fetch(waiting, 1, group, 5, 1 << 20, 5_000)
    one.partitions.performed(AppendDeliveries(group, (), 3), DeliveriesDifferError("offset 3 is another one"))
    cluster.run_until(lambda: cluster.leader(group) not in (None, leader))
    fill(cluster, producing, 5)
    assert len(cluster.payloads(group)) == 10
    applied = one.host.groups[group].applied_index
    cluster.run(1_000)
    assert one.host.groups[group].applied_index == applied, "nothing is applied any more"
    assert cluster.leader(group) != leader, "although it is preferred"
    assert list(one.partitions.notices) == [
        f"partition of group {group} stopped on this server: offset 3 is another one"
    ]
    assert one.partitions.failures == {group: "offset 3 is another one"}
    assert one.partitions.statistics().stopped == one.partitions.statistics().failed == 1
    one.hosted(group).tail.shrink(0)
    one.partitions.topics.fetch(reading, 2, group, 0, 1 << 20, 0)
    cluster.run(2)
    assert [refusal.kind for _, refusal in reading.refused] == ["failed"]


def test_an_entry_that_nobody_understands_stops_its_group_and_no_other() -> None:
    cluster, producing = started(groups=2)
    group, other = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    assert cluster.servers[leader].host.propose(group, to_bytes((7, 1, 0, b"", ())), 1) is not None
    cluster.run(200)
    for one in cluster.servers.values():
        assert one.hosted(group).machine.stopped
        assert one.hosted(group).leadership is None
        assert "upgrade this server" in one.partitions.notices[0]
        assert not one.hosted(other).machine.stopped
    client = Client()
    message = producing.producer.multicast([group], b"x")
    ((_, request),) = producing.producer.requests(message.mid.seq)
    cluster.servers[leader].partitions.topics.produce(client, 1, group, (request,))
    cluster.run(2)
    ((_, refused),) = client.refused
    assert refused.kind == "not_leader"
    assert "upgrade this server" in refused.detail
    assert producing.say(other).mid
    cluster.run_until(lambda: bool(cluster.payloads(other)))


def test_d12_log_time_goes_on_where_the_last_leadership_left_it() -> None:
    cluster, _ = started()
    (group,) = cluster.groups
    cluster.run(700)
    (before,) = claim(cluster, Configure(5_000))
    old = cluster.leader(group)
    target = next(server for server in DISKS if server != old)
    for one in cluster.servers.values():
        one.host.prefer(group, target)
    cluster.run_until(lambda: cluster.leader(group) == target)
    (after,) = claim(cluster, Configure(5_000))
    assert isinstance(before, Accepted)
    assert isinstance(after, Accepted)
    assert 700 <= before.log_time_ms <= after.log_time_ms <= before.log_time_ms + 100, (
        "neither back to nothing nor on by the time in which nobody led"
    )


# -- feature levels


def test_nothing_of_a_newer_level_is_logged_before_it_is_in_force() -> None:
    """A client may know of it before the leader does: it asks again (D-5)."""
    cluster, producing = started()
    cluster.coordinator.features = LEVEL_OF_ROUNDS - 1
    (group, *_) = cluster.groups
    leader = cluster.leader(group)
    assert leader is not None
    topics = cluster.servers[leader].partitions.topics
    client = Client()
    message = producing.producer.multicast([group], b"early")
    round_ = evolve(message, payload=b"", number=0, round=Round(1, 1))
    topics.produce(client, 1, group, (StartRequest(message, 0, 0, staged=True),))
    topics.produce(client, 1, group, (StartRequest(round_, 0, 0),))
    chosen = ClaimPartition("g", "c", "i", 1, 0, Mode.AT_LEAST_ONCE, heartbeat_ms=300)
    topics.claim(client, 2, group, chosen)
    cluster.run_until(lambda: len(client.refused) == 3)
    assert [(id, refusal.kind) for id, refusal in client.refused] == [(1, "busy"), (1, "busy"), (2, "busy")]
    cluster.coordinator.features = LEVEL_OF_ROUNDS
    topics.claim(client, 3, group, chosen)
    cluster.run_until(lambda: bool(client.claims))
    assert isinstance(client.claims[0][1], Granted)
