"""Owns what the log says of the group's members, read independently of the product's own counting.

A configuration is the payload of a MEMBERSHIP entry, or the roster a cluster was founded with. Which disk counts in
it, and whether some disks are a majority of it (of both halves while it is joint), is decided here and nowhere else in
the checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgpack
from attrs import frozen

from zraft_core.ids import Instance, ServerId

VOTER: Final = 1
LEARNER: Final = 2
OBSERVER: Final = 3
LEAVING: Final = 4

Disk = tuple[ServerId, Instance]
"""A server's number and which of its disks: whatever counts in consensus is a disk."""


@frozen
class Configuration:
    """Who belongs to the group from one entry of the log on.

    Attributes:
        members: instance (b"" if not seen yet) and role of each.
        voters, outgoing: the disks that make the majorities; the second is empty unless it is joint.
    """

    members: Mapping[ServerId, tuple[Instance, int]]
    voters: tuple[Disk, ...]
    outgoing: tuple[Disk, ...]

    @classmethod
    def read(cls, payload: bytes) -> Configuration:
        """Of a MEMBERSHIP entry."""
        _, rows, *rest = msgpack.unpackb(payload)
        members = {ServerId(s): (Instance(instance), role) for s, instance, role, *_ in rows}
        outgoing = [ServerId(server) for server in rest[0]] if rest else []
        return cls(
            members,
            tuple((s, instance) for s, (instance, role) in members.items() if role == VOTER),
            tuple((server, members[server][0]) for server in outgoing),
        )

    @classmethod
    def of_founders(cls, roster: Iterable[Disk]) -> Configuration:
        """What holds until the log names a configuration."""
        members = {server: (instance, VOTER) for server, instance in roster}
        return cls(members, tuple((s, instance) for s, (instance, _) in members.items()), ())

    def majority(self, has: Callable[[Disk], bool]) -> bool:
        """Whether the disks of which `has` is true are a majority, of both halves while it is joint."""
        halves = (self.voters, self.outgoing) if self.outgoing else (self.voters,)
        return all(2 * sum(map(has, half)) > len(half) for half in halves)

    @property
    def joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def electorate(self) -> set[Disk]:
        """Everybody whose vote may count."""
        return {*self.voters, *self.outgoing}

    def has(self, disk: Disk) -> bool:
        """Whether that disk is a member."""
        member = self.members.get(disk[0])
        return member is not None and member[0] == disk[1] != b""

    @property
    def origins(self) -> set[Disk]:
        """The members whose disk is known: these have origin rows."""
        return {(server, instance) for server, (instance, _) in self.members.items() if instance}
