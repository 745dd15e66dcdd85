"""Placement of groups' replicas and leaders: from the registry and the present disks to commands.

Pure and without memory: what was decided and is not in the registry yet is decided again, alike, and changes nothing
then. One move of a group at a time: while it is on its way it is sent elsewhere only if a disk that it was to get is no
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from attrs import frozen

from zraft.topics.registry import Registry
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.registry_commands import CreateGroup, PlaceGroup, RegistryCommand
from zraft_core.topics.registry_values import Disks, GroupRecord

GROUPS_AT_ONCE: Final = 128
"""Created by one look: each is a log, a vote and a leader to be found."""
MOVES_AT_ONCE: Final = 8
"""Groups under way because a disk is gone: each is copied over the network and to a disk."""
BALANCED_AT_ONCE: Final = 2
"""Groups under way for the sake of balance only."""


@frozen
class Disk:
    """The disk of a server that may hold partitions.

    `answers`: the server was heard of lately. `dead`: it was not for so long that others are to stand in for it.
    """

    instance: Instance
    answers: bool = True
    dead: bool = False


@frozen
class PlacementSituation:
    """Situation to decide on.

    `replication` is how many disks are to hold each partition, if there are as many.
    """

    registry: Registry
    disks: Mapping[ServerId, Disk]
    replication: int


def decide(situation: PlacementSituation) -> list[RegistryCommand]:
    """Return what to log now: replicas for disks that are gone, then balance, then missing partitions."""
    return _Look(situation).commands() if situation.disks else []


class _Look:
    """One decision. `load` counts the partitions that each disk is wanted for, `led` those that it is preferred for."""

    def __init__(self, situation: PlacementSituation) -> None:
        self._registry = situation.registry
        self._disks = situation.disks
        self._replication = situation.replication
        self._load = dict.fromkeys(situation.disks, 0)
        self._led = dict.fromkeys(situation.disks, 0)
        self._moved: dict[GroupId, Disks] = {}
        self._under_way = 0
        for record in self._registry.living.values():
            self._under_way += not record.placed
            self._count(record.wanted, 1)

    def commands(self) -> list[RegistryCommand]:
        self._repair()
        if not self._moved:
            self._balance()
        preferred = self._preferred()
        found: list[RegistryCommand] = []
        for group, record in self._registry.living.items():
            wanted, leader = self._moved.get(group, record.wanted), preferred[group]
            if leader in self._led:
                self._led[leader] += 1
            if wanted != record.wanted or leader != record.preferred:
                found.append(PlaceGroup(group, wanted, leader))
        found += islice(self._missing(), GROUPS_AT_ONCE)
        return found

    def _there(self, disk: tuple[ServerId, Instance]) -> bool:
        known = self._disks.get(disk[0])
        return known is not None and known.instance == disk[1]

    def _count(self, disks: Disks, by: int) -> None:
        for disk in disks:
            if self._there(disk):
                self._load[disk[0]] += by

    def _move(self, record: GroupRecord, wanted: Disks) -> None:
        self._count(record.wanted, -1)
        self._count(wanted, 1)
        self._moved[record.group] = wanted
        self._under_way += record.placed

    def _by_rank(self, without: set[ServerId]) -> list[ServerId]:
        """Return who should get a replica next: who answers and holds the least."""
        disks = self._disks
        return sorted(
            (server for server in disks if server not in without),
            key=lambda server: (disks[server].dead, not disks[server].answers, self._load[server], server),
        )

    # -- disks that are gone, and how many there should be

    def _repair(self) -> None:
        for record in self._registry.living.values():
            gone = not all(map(self._there, record.wanted))
            if not gone and (not record.placed or self._under_way >= MOVES_AT_ONCE):
                continue
            wanted = self._repaired(record)
            if wanted != record.wanted and (self._under_way < MOVES_AT_ONCE or not record.placed):
                self._move(record, wanted)

    def _repaired(self, record: GroupRecord) -> Disks:
        disks, count = self._disks, self._replication
        there = [disk for disk in record.wanted if self._there(disk)]
        alive = [disk for disk in there if not disks[disk[0]].dead]
        # A server with a new disk takes its place again. Servers that hold more than others give way first,
        # if there are too many.
        anew = [(s, disks[s].instance) for s, i in record.wanted if s in disks and (s, i) not in there]
        alive.sort(key=lambda disk: (self._load[disk[0]], disk))
        wanted = [*alive, *anew][:count]
        others = self._by_rank({server for server, _ in record.wanted})
        wanted += [
            (server, disks[server].instance)
            for server in others[: max(0, count - len(wanted))]
            if not disks[server].dead
        ]
        # A server that nobody can replace is waited for.
        wanted += [disk for disk in there if disks[disk[0]].dead][: max(0, count - len(wanted))]
        return tuple(sorted(wanted)) or record.wanted

    # -- balance

    def _balance(self) -> None:
        """Move from who holds the most to who holds the least, while the difference is more than one."""
        able = [server for server, disk in self._disks.items() if disk.answers and not disk.dead]
        while self._under_way < BALANCED_AT_ONCE and len(able) > 1:
            most = max(able, key=lambda server: (self._load[server], -server))
            least = min(able, key=lambda server: (self._load[server], server))
            record = self._movable(most, least) if self._load[most] > self._load[least] + 1 else None
            if record is None:
                return
            others = [disk for disk in record.wanted if disk[0] != most]
            self._move(record, tuple(sorted([*others, (least, self._disks[least].instance)])))

    def _movable(self, source: ServerId, target: ServerId) -> GroupRecord | None:
        for group, record in self._registry.living.items():
            servers = {server for server, _ in record.wanted}
            ready = record.placed and group not in self._moved and group not in self._registry.deleting
            if ready and source in servers and target not in servers:
                return record
        return None

    # -- leaders

    def _preferred(self) -> dict[GroupId, ServerId]:
        """Spread evenly; who is only silent for a moment stays preferred."""
        disks = self._disks
        may_lead: dict[GroupId, list[ServerId]] = {}
        present: dict[GroupId, ServerId | None] = {}
        for group, record in self._registry.living.items():
            servers = [server for server, _ in self._moved.get(group, record.wanted)]
            alive = [server for server in servers if server in disks and not disks[server].dead]
            may_lead[group] = alive or servers
            present[group] = record.preferred
        return preferred_leaders(may_lead, present)

    # -- partitions that topics lack

    def _missing(self) -> Iterator[CreateGroup]:
        registry, disks = self._registry, self._disks
        room = registry.settings.groups_max - len(registry.groups)
        lacking = (topic.topic for topic in registry.topics.values() for _ in range(registry.lacking(topic)))
        for topic in islice(lacking, max(0, room)):
            servers = self._by_rank(set())[: self._replication]
            founders = tuple(sorted((server, disks[server].instance) for server in servers))
            self._count(founders, 1)
            answering = [server for server in servers if disks[server].answers]
            leader = min(answering or servers, key=lambda server: (self._led[server], server))
            self._led[leader] += 1
            yield CreateGroup(topic, founders, leader)


def preferred_leaders(
    groups: Mapping[GroupId, Iterable[ServerId]], present: Mapping[GroupId, ServerId | None]
) -> dict[GroupId, ServerId]:
    """Return leaders spread evenly over the servers that hold the groups, changing as few as that takes.

    Args:
        groups: the servers that may lead each group, at least one.
        present: who is preferred now, if anybody.
    """
    preferred: dict[GroupId, ServerId] = {}
    held: dict[ServerId, int] = {}
    ordered = {group: sorted(servers) for group, servers in sorted(groups.items())}
    for group, servers in ordered.items():
        server = present.get(group)
        if server is None or server not in servers:
            server = min(servers, key=lambda one: (held.get(one, 0), one))
        preferred[group] = server
        held[server] = held.get(server, 0) + 1
    moved = True
    while moved:
        moved = False
        for group, servers in ordered.items():
            server = preferred[group]
            least = min(servers, key=lambda one: (held.get(one, 0), one))
            if held[server] > held.get(least, 0) + 1:
                preferred[group] = least
                held[server] -= 1
                held[least] = held.get(least, 0) + 1
                moved = True
    return preferred
