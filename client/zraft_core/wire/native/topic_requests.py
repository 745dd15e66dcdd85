"""Native requests about topics as a whole: commands for group 0's log, and where everything is.

Source: docs/reference/protocol-native.md, "Topics".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.ids import ProducerId
from zraft_core.layout import Fields, any_binary, from_one, number, optional, string
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CloseProducer,
    CreateTopic,
    DeleteTopic,
    RegisterProducer,
    RetainTopic,
)
from zraft_core.topics.registry_values import Retention
from zraft_core.znodes.txn import TOPICS, Command

TOPIC_NAME_CHARACTERS_MAX: Final = 1_024
"""What is decoded; what a topic may be called is the registry's to say."""

REGISTER_PRODUCER: Final = "register_producer"
CLOSE_PRODUCER: Final = "close_producer"


@frozen
class ReadTopics:
    """Topics, groups and where they are; `digest`: unless they are those that the client has."""

    digest: bytes | None = None


# -- commands


def register_command(session: int) -> Command:
    """Return the command that registers a producer, which the session owns."""
    return TOPICS, encode_registry(RegisterProducer(session))


def close_command(producer: ProducerId) -> Command:
    """Return the command that ends a producer."""
    return TOPICS, encode_registry(CloseProducer(producer))


def _register() -> Command:
    """Whose it is stands in no message: the connection puts its session in."""
    return TOPICS, b""


def _create(
    topic: str, partitions: int, retention_bytes: int | None = None, retention_age_ms: int | None = None
) -> Command:
    retention = Retention(retention_bytes, retention_age_ms)
    return TOPICS, encode_registry(CreateTopic(topic, partitions, retention))


def _retain(topic: str, retention_bytes: int | None = None, retention_age_ms: int | None = None) -> Command:
    return TOPICS, encode_registry(RetainTopic(topic, Retention(retention_bytes, retention_age_ms)))


def _alter(topic: str, partitions: int) -> Command:
    return TOPICS, encode_registry(AlterTopic(topic, partitions))


def _delete(topic: str) -> Command:
    return TOPICS, encode_registry(DeleteTopic(topic))


_topic: Final = string(0, TOPIC_NAME_CHARACTERS_MAX)
_limit: Final = optional(number)

WRITES: Final = (
    Fields.of(REGISTER_PRODUCER, _register),
    Fields.of(CLOSE_PRODUCER, close_command, producer=from_one),
    Fields.of(
        "create_topic",
        _create,
        topic=_topic,
        partitions=from_one,
        retention_bytes=_limit,
        retention_age_ms=_limit,
    ),
    Fields.of("retain_topic", _retain, topic=_topic, retention_bytes=_limit, retention_age_ms=_limit),
    Fields.of("alter_topic", _alter, topic=_topic, partitions=from_one),
    Fields.of("delete_topic", _delete, topic=_topic),
)
"""Their own fields; those of any write are beside them."""

READS: Final = (Fields.of("topics", ReadTopics, digest=optional(any_binary)),)
"""Their own fields; those of any read are beside them."""
