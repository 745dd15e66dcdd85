"""Partitions on several servers, around the shipped hosts: birth, multicast, leaders that change, what connections see."""

from __future__ import annotations

from tests.unit.server.partitions.cluster import DISKS, Cluster
from tests.unit.server.partitions.programs import Producing
from zraft.topics.codec import decode_message


def test_a_group_is_born_by_its_leader_and_takes_messages() -> None:
    cluster = Cluster(1)
    cluster.rest()
    (group,) = cluster.groups
    producing = Producing(cluster)
    cluster.run(60)
    producing.send(group, payload=b"hello")
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
    message = producing.send(*cluster.groups)
    cluster.run_until(lambda: message.mid in producing.ended)
    assert [cluster.payloads(group) for group in cluster.groups] == [[b"m1"]] * 3
