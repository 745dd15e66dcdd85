"""Partitions on several servers, around the shipped hosts: birth, multicast, leaders that change, what connections see."""

from __future__ import annotations

from tests.unit.groups.hosts import DISKS
from tests.unit.server.partitions.cluster import Cluster
from tests.unit.server.partitions.programs import Producing
from zraft.transport.messages import Bundle, GroupLeader
from zraft_core.topics.codec import decode_message, encode_bundles
from zraft_core.topics.messages import Need


def test_a_group_is_born_by_its_leader_and_takes_messages() -> None:
    cluster = Cluster(1)
    cluster.rest()
    (group,) = cluster.groups
    producing = Producing(cluster)
    cluster.run(60)
    producing.say(group, payload=b"hello")
    cluster.run_until(lambda: not producing.producer.undecided())
    assert cluster.payloads(group) == [b"hello"]
    cluster.run(50)
    for server in DISKS:
        assert [decode_message(one).payload for one in cluster.payloads(group, server)] == [b"hello"]


def test_a_message_to_several_groups_is_delivered_at_all_of_them() -> None:
    cluster = Cluster(1, 1, 1)
    cluster.rest()
    producing = Producing(cluster)
    cluster.run(60)
    message = producing.say(*cluster.groups)
    cluster.run_until(lambda: message.mid in producing.ended)
    assert [cluster.payloads(group) for group in cluster.groups] == [[b"m1"]] * 3


def test_a_server_that_a_group_has_left_trusts_who_speaks_for_it_and_not_the_leader_that_it_had() -> None:
    cluster = Cluster(1)
    cluster.rest()
    (group,) = cluster.groups
    led = cluster.leader(group)
    left, elected = (server for server in DISKS if server != led)
    server = cluster.servers[left]
    server.host.retire(group)
    server.partitions.receive(elected, GroupLeader(group, 9, elected))
    server.partitions.tell(group, Need(1))
    (sent,) = server.partitions.take_outgoing()
    assert sent[0] == elected
    (blob,) = encode_bundles(group, (Need(1),))
    server.partitions.receive(elected, Bundle(group, blob))
    assert server.partitions.take_outgoing() == [], "who led it once is no news"
