"""Values that a program processes, and the token by which it commits them."""

from __future__ import annotations

from attrs import frozen


@frozen
class CommitToken:
    """A processed message and its claim (`CommitToken`). It is small enough to pass on instead of the message."""

    topic: str
    partition: int
    offset: int
    epoch: int


@frozen
class Message:
    """One message, handed out under the claim `epoch`.

    The epoch is a fencing token: of two owners of a partition the later one has the higher epoch, so a store that
    remembers the highest one it saw can refuse what a stopped process writes late.
    """

    topic: str
    partition: int
    offset: int
    value: bytes
    epoch: int

    @property
    def token(self) -> CommitToken:
        """The token that commits this message."""
        return CommitToken(self.topic, self.partition, self.offset, self.epoch)


@frozen
class PartitionOffsets:
    """Offsets of a partition.

    `current`: first message not committed here; `committed`: where a successor would start. Ends are
    exclusive.
    """

    current: int
    earliest: int
    latest: int
    committed: int
