"""A cut through many partitions at one time of the order of all messages, for a backup. Pure: what is read is handed in.

A partition's deliveries of times up to the cut's are final once its frontier is above that time. So a message that was
delivered at several partitions is below the cut at all of them, or at none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from zraft_core.topics.message import Delivery
from zraft_core.topics.stamps import Stamp


@frozen
class Cut:
    """Everything delivered with a stamp of `time` or an earlier one is below the cut."""

    time: int

    @classmethod
    def above(cls, frontiers: Iterable[Stamp]) -> Cut:
        """Return the lowest cut that is above everything delivered where these are the frontiers."""
        return cls(max((frontier.time for frontier in frontiers), default=0))

    @property
    def needed(self) -> int:
        """The time that each partition has to pass.

        It is one more than the cut's: at that time itself a partition may still deliver what takes the bypass (D-17b).
        """
        return self.time + 1

    def passed(self, frontier: Stamp) -> bool:
        """Return whether a partition with this frontier delivers nothing below the cut any more."""
        return frontier.time >= self.needed

    def below(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return those of a partition's next deliveries that are below the cut, which are the first ones."""
        for at, delivery in enumerate(deliveries):
            if delivery.stamp.time > self.time:
                return deliveries[:at]
        return deliveries


def after_conditions(offsets: dict[bytes, int], home: int, deliveries: Iterable[Delivery]) -> None:
    """Move the offsets of consumers that were read before the cut by the conditions of what was delivered since (D-9d).

    A message with a condition takes its consumer a step further, so the two belong together.

    Args:
        offsets: by consumer; it is changed.
        home: the group whose offsets these are.
        deliveries: the group's next ones below the cut.
    """
    for delivery in deliveries:
        condition = delivery.message.condition
        if condition is None or condition.home != home:
            continue
        if offsets.get(condition.consumer, 0) == condition.expected:
            offsets[condition.consumer] = condition.following
