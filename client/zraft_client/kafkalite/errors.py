"""Kafka Lite's errors (K-5). Each is also the client library's error for the same thing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zraft_client.errors import ClientError, DeadlineError, FailedError, NotSentError, UnknownOutcomeError
from zraft_client.topics.errors import LinkError, NoTopicError, ProducerEndedError


class KafkaLiteError(ClientError):
    """The base class of Kafka Lite's errors."""


class InvalidPartitionIdError(KafkaLiteError, ValueError):
    """The topic has no partition of this number."""


class BrokerDisconnectError(KafkaLiteError, ConnectionError):
    """No server can be asked, or the session ended. A message under way is delivered once or not at all."""

    retriable = True


class LeaderNotFoundError(KafkaLiteError, TimeoutError):
    """The partition had no leader that answered in time. A message may yet be delivered, once."""

    retriable = True


@contextmanager
def translated() -> Iterator[None]:
    """Raise Kafka Lite's error for one of the client library; an error that Kafka Lite does not have stays as it is.

    Raises:
        InvalidPartitionIdError: the topic has no such partition.
        BrokerDisconnectError: no server can be asked, or the session ended.
        LeaderNotFoundError: no leader answered in time.
    """
    try:
        yield
    except NoTopicError as error:
        raise InvalidPartitionIdError(str(error)) from error
    except (NotSentError, LinkError, ProducerEndedError, UnknownOutcomeError) as error:
        raise BrokerDisconnectError(str(error)) from error
    except (DeadlineError, TimeoutError) as error:
        raise LeaderNotFoundError(str(error) or "no leader answered in time") from error
    except FailedError:
        raise
