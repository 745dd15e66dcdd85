"""Errors of topics, beside those of `zraft_client.errors`."""

from __future__ import annotations

from zraft_client.errors import ClientError, FailedError
from zraft_core.errors import Code


class NoTopicError(FailedError, KeyError):
    """Error of a topic that does not exist, or has no such partition."""

    __str__ = FailedError.__str__

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.NO_NODE)


class ConditionFailedError(FailedError):
    """The message claimed a step of a consumer that was taken already: it is delivered nowhere (D-9d)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.BAD_VERSION)


class NeverDeliveredError(FailedError):
    """A destination was deleted, or given up, before the message arrived: it is delivered nowhere and never will be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.NO_NODE)


class ProducerEndedError(FailedError):
    """The producer was closed, or its session expired.

    What it had under way is unknown; open another one to continue.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.SESSION_EXPIRED)


class OffsetGoneError(FailedError):
    """The offset that was asked for is gone: retention removed it, or it was lost with a partition that was given up.

    `first` is where the partition begins now.
    """

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message, Code.NO_NODE)
        self.first = first


class LinkError(ClientError):
    """A server could not be asked now: it is down, or has no answer. Another one may have, or the same one later."""

    retriable = True
