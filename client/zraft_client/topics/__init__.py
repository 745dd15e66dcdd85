"""Topics for programs: producers, consumers, one order over all partitions.

docs/reference/client.md shows how to use them, and docs/explanation/topics.md has the promises.

Start with `Topics` over a `Client`; `BlockingTopics` is the same for threads.
"""

from zraft_client.topics.admin import Topics
from zraft_client.topics.blocking import BlockingTopics
from zraft_client.topics.consumer import Consumer, Start
from zraft_client.topics.errors import (
    ConditionFailedError,
    LinkError,
    NeverDeliveredError,
    NoTopicError,
    OffsetGoneError,
    ProducerEndedError,
)
from zraft_client.topics.merged import MergedConsumer
from zraft_client.topics.options import Acknowledge, Consumed, Order, round_robin_partitioner
from zraft_client.topics.payloads import Compression, PayloadError
from zraft_client.topics.producer import Producer
from zraft_client.topics.sent import Sent
from zraft_client.topics.values import Bounds, Metadata, Receipt, Record, Topic
from zraft_core.records import MissingPackageError
from zraft_core.topics.merger import MergePosition
from zraft_core.topics.producer import Reach
from zraft_core.topics.stamps import MessageId, Stamp

__all__ = [
    "Acknowledge",
    "BlockingTopics",
    "Bounds",
    "Compression",
    "ConditionFailedError",
    "Consumed",
    "Consumer",
    "LinkError",
    "MergePosition",
    "MergedConsumer",
    "MessageId",
    "Metadata",
    "MissingPackageError",
    "NeverDeliveredError",
    "NoTopicError",
    "OffsetGoneError",
    "Order",
    "PayloadError",
    "Producer",
    "ProducerEndedError",
    "Reach",
    "Receipt",
    "Record",
    "Sent",
    "Stamp",
    "Start",
    "Topic",
    "Topics",
    "round_robin_partitioner",
]
