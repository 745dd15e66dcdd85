"""Kafka Lite's errors (K-5), each also the client library's that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zraft_client.errors import ClientError, DeadlineError, FailedError, NotSentError, UnknownOutcomeError
from zraft_client.topics.errors import LinkError, NoTopicError, ProducerEndedError


class KafkaLiteError(ClientError):
    """Root of the three."""


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
    """Say what went wrong in Kafka Lite's words; what it has no word for stays what it is."""
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
