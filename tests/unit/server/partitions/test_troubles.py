"""What a server knows of partitions that do not take or do not deliver messages, on servers in memory."""

from __future__ import annotations

from typing import Any

from tests.unit.groups.hosts import S1, S2, S3
from tests.unit.server.partitions.cluster import Cluster
from tests.unit.server.partitions.programs import Producing
from zraft.server.partitions.settings import LEADERLESS_MS
from zraft.server.partitions.troubles import PENDING_MS, Trouble, TroubleKind
from zraft.transport.messages import Bundle, Sender
from zraft_core.ids import GroupId, Instance, ServerId


def troubles(cluster: Cluster, server: ServerId) -> dict[GroupId, Trouble]:
    return {one.group: one for one in cluster.servers[server].partitions.troubles()}


def test_partitions_that_work_have_no_trouble() -> None:
    cluster = Cluster(2, 1)
    cluster.rest()
    producing = Producing(cluster)
    cluster.run(60)
    message = producing.say(*cluster.groups)
    cluster.run_until(lambda: message.mid in producing.ended)
    cluster.run(PENDING_MS)
    assert [troubles(cluster, server) for server in cluster.servers] == [{}, {}, {}]


def test_a_replica_that_lost_its_majority_names_the_servers_that_do_not_answer_and_since_when() -> None:
    cluster = Cluster(2)
    cluster.rest()
    cluster.stopped = {S2, S3}
    cluster.run(5_000)
    found = troubles(cluster, S1)
    assert found.keys() == set(cluster.groups)
    for one in found.values():
        assert (one.kind, one.voters) == (TroubleKind.NO_MAJORITY, 3)
        assert [absent.server for absent in one.absent] == [S2, S3]
        assert all(4_000 <= (absent.silent_ms or 0) <= 5_100 for absent in one.absent)
        assert one.for_ms is not None
        assert LEADERLESS_MS <= one.for_ms <= 5_000
    cluster.heal()
    cluster.rest()
    assert troubles(cluster, S1) == {}


def test_an_election_that_takes_no_longer_than_elections_do_is_no_trouble() -> None:
    cluster = Cluster(3)
    cluster.rest()
    cluster.stopped = {S3}
    seen = set[TroubleKind]()
    for _ in range(3_000):
        cluster.step()
        seen |= {one.kind for server in (S1, S2) for one in troubles(cluster, server).values()}
    assert seen == set()


def test_a_server_that_answers_with_another_disk_is_absent_from_a_partition() -> None:
    cluster = Cluster(1)
    cluster.rest()
    (group,) = cluster.groups
    cluster.isolate(S1)
    cluster.run(4_000)
    host = cluster.servers[S1].host
    stranger = Sender(S2, Instance(b"n" * 16), 1)
    host.receive(stranger, [])
    absent = {one.server: one for one in host.absent_voters(group)}
    assert absent[S2].replaced
    assert not absent[S3].replaced


def test_messages_that_wait_name_the_partition_that_they_wait_for() -> None:
    cluster = Cluster(1, 1)
    cluster.rest()
    first, second = cluster.groups
    producing = Producing(cluster)
    cluster.run(60)
    lost = cluster._send

    def send(sender: Sender, to: ServerId, said: list[Any]) -> None:
        lost(sender, to, [one for one in said if not isinstance(one, Bundle)])

    cluster._send = send  # type: ignore[method-assign]
    waiting = producing.producer.multicast((first, second), b"waits")
    request = dict(producing.producer.requests(waiting.mid.seq))[first]
    service = cluster.service_of(first)
    assert service is not None
    service.produce(producing, 0, first, (request,))
    cluster.run(PENDING_MS + 500)
    leader = cluster.leader(first)
    assert leader is not None
    found = troubles(cluster, leader)
    assert found.keys() == {first}
    one = found[first]
    assert (one.kind, one.pending, one.awaited) == (TroubleKind.WAITING, 1, ((second, 1),))
    assert one.for_ms is not None
    assert one.for_ms >= PENDING_MS


def test_deliveries_that_cannot_be_used_are_told_with_the_error_and_with_who_leads() -> None:
    cluster = Cluster(1)
    cluster.rest()
    (group,) = cluster.groups
    leader = cluster.leader(group)
    other = next(server for server in cluster.servers if server != leader)
    cluster.servers[other].hosted(group).failure = "segment 7: corrupt at offset 12"
    (one,) = cluster.servers[other].partitions.troubles()
    assert (one.kind, one.leader) == (TroubleKind.COPY_FAILED, leader)
    assert one.error == "segment 7: corrupt at offset 12"
