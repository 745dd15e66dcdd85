"""What topics can fail with, beside what `zraft_client.errors` has."""

from __future__ import annotations

from zraft_client.errors import ClientError, FailedError
from zraft_core.errors import Code


class NoTopicError(FailedError, KeyError):
    """There is no such topic, or it has no such partition."""

    __str__ = FailedError.__str__

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.NO_NODE)


class ConditionFailedError(FailedError):
    """The message claimed a step of a consumer that was taken already: it is delivered nowhere (D-9d)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.BAD_VERSION)


class NeverDeliveredError(FailedError):
    """A destination was deleted before the message arrived: it is delivered nowhere and never will be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.NO_NODE)


class ProducerEndedError(FailedError):
    """The producer was closed, or its session expired. What it had under way is unknown; open another one to go on."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.SESSION_EXPIRED)


class OffsetGoneError(FailedError):
    """Retention removed the offset that was asked for; `first` is where the partition begins now."""

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message, Code.NO_NODE)
        self.first = first


class LinkError(ClientError):
    """A server could not be asked now: it is down, or has no answer; another one, or the same later, may have."""

    retriable = True
