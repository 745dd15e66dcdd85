"""The values that order messages: ids, final times, stamps. Plain tuples, because they are compared all the time."""

from __future__ import annotations

from typing import Final, NamedTuple

from zraft_core.ids import GroupId, ProducerId

TIME_MAX: Final = 2**62
"""Largest time that a client may ask for: a clock above it could be counted up for ever and still fit 64 bits."""

AFTER_ALL_GROUPS: Final = GroupId(2**63 - 1)
"""Stands in the floor of a partition that advanced: everything of this time, whichever group fixed it, is behind."""


class MessageId(NamedTuple):
    """Id of a message, everywhere and for ever: numbers of a producer count from 1."""

    producer: ProducerId
    seq: int


class FinalTime(NamedTuple):
    """The largest proposal of a message's destinations and who made it. Unique, because a group proposes a time once."""

    time: int
    group: GroupId


class Stamp(NamedTuple):
    """The place of a delivery in the order of all messages.

    A message that was agreed on has (time, group, 0, 0), the same at all its destinations. One that took the bypass
    comes after the last of those at its only destination: (time, group, sub, destination), sub counting from 1.
    """

    time: int
    group: GroupId
    sub: int
    single: GroupId


BEGINNING: Final = FinalTime(0, GroupId(0))
"""Below everything."""
