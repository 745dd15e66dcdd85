"""Kafka Lite's client calls on a topic of the cluster (docs/ancestors/kafkalite.md).

Programs begin with `mount_producer` and `mount_consumer_group`.
"""

from zraft_client.kafkalite.consumers import ConsumerGroup, ConsumerRecord, mount_consumer_group
from zraft_client.kafkalite.errors import (
    BrokerDisconnectError,
    InvalidPartitionIdError,
    KafkaLiteError,
    LeaderNotFoundError,
)
from zraft_client.kafkalite.producers import LiteProducer, mount_producer

__all__ = [
    "BrokerDisconnectError",
    "ConsumerGroup",
    "ConsumerRecord",
    "InvalidPartitionIdError",
    "KafkaLiteError",
    "LeaderNotFoundError",
    "LiteProducer",
    "mount_consumer_group",
    "mount_producer",
]
