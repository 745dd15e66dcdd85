"""Partitions that take or deliver no messages, with names and reasons in words, as one server knows it. Pure.

A server knows the partitions that it holds (`zraft.server.partitions.troubles`). The leader of the coordination group
also knows which servers do not answer, so it can tell of a partition whose servers are all gone, and of one that is not
set up yet. Whoever asks all servers puts their answers together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from attrs import frozen

from zraft.groups.statistics import AbsentVoter
from zraft.monitoring.statistics import Listing
from zraft.raft.membership.quorum import majority
from zraft.server.coordination.topic_registry import ANSWERS_WITHIN_MS
from zraft.server.engine.driver import Driver
from zraft.server.operators.partitions import homes_of
from zraft.server.operators.status import NO_PROBLEMS, PartitionProblem
from zraft.server.partitions.troubles import Trouble, TroubleKind
from zraft.topics.registry import Registry
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.registry_values import Disks, GroupRecord

PROBLEMS_MAX: Final = 50
"""Partitions that one server names. Whatever is wrong with more of them is most likely the same."""
DELETED: Final = "(deleted)"
"""Stands for the name of a topic that is deleted; its partitions have the numbers of their groups."""
NAMED_MAX: Final = 3
"""Other partitions that one reason names."""
ERROR_CHARACTERS_MAX: Final = 300


@frozen
class Coordinator:
    """Knowledge of the leader of the coordination group about servers.

    Attributes:
        disks: the disk of each member of the cluster.
        silent_ms: since when each server that does not answer has been silent.
    """

    disks: Mapping[ServerId, Instance]
    silent_ms: Mapping[ServerId, int]


def coordinator_of(driver: Driver) -> Coordinator | None:
    """Return what a server knows of others as the leader of the coordination group; None if it is not."""
    raft = driver.raft
    if raft is None or driver.leadership is None:
        return None
    led_ms = driver.coordination.leader_uptime_ms
    silent = {server: led_ms if ms is None else ms for server, ms in raft.silences.items()}
    return Coordinator(
        {server: member.instance for server, member in raft.membership.members.items()},
        {server: ms for server, ms in silent.items() if ms >= ANSWERS_WITHIN_MS},
    )


def why_lost(registry: Registry, group: GroupId, coordinator: Coordinator) -> str | None:
    """Return in words why a group has no majority; None if it may have one."""
    record = registry.groups.get(group)
    absent = () if record is None else _absent(record, coordinator)
    if not absent or record is None:
        return None
    voters = {server for server, _ in _holders(record)}
    said = ", ".join(map(_absence, absent))
    return f"group {group}: {len(absent)} of its {len(voters)} replicas do not answer: {said}"


def partition_problems(
    registry: Registry, server: ServerId, troubles: Sequence[Trouble], coordinator: Coordinator | None
) -> Listing[PartitionProblem]:
    """Return the partitions in trouble, those of topics whose names come first before others.

    Args:
        troubles: what the replicas on `server`, which is asked, know.
        coordinator: given if `server` leads the coordination group.
    """
    found = {trouble.group: trouble for trouble in troubles}
    if coordinator is not None:
        for trouble in _unanswered(registry, coordinator):
            known = found.get(trouble.group)
            if known is None or known.kind is TroubleKind.NO_LEADER:
                found[trouble.group] = trouble
    if not found and coordinator is None:
        return NO_PROBLEMS
    names = _Names(registry)
    rows = [
        PartitionProblem(
            *names.places[group], group, trouble.kind, _words(trouble, server, names), trouble.for_ms
        )
        for group, trouble in found.items()
        if group in names.places
    ]
    if coordinator is not None:
        rows += _unfounded(registry, found.keys(), names)
    rows.sort(key=lambda row: (row.topic, row.partition))
    return Listing(tuple(rows[:PROBLEMS_MAX]), len(rows))


# -- what the leader of the coordination group knows


def _unanswered(registry: Registry, coordinator: Coordinator) -> Iterator[Trouble]:
    for group, record in registry.living.items():
        absent = _absent(record, coordinator)
        if absent:
            for_ms = [one.silent_ms for one in absent if one.silent_ms is not None]
            voters = {server for server, _ in _holders(record)}
            yield Trouble(
                group, TroubleKind.NO_MAJORITY, min(for_ms, default=None), len(voters), absent=absent
            )


def _absent(record: GroupRecord, coordinator: Coordinator) -> tuple[AbsentVoter, ...]:
    """Return the servers that do not answer, if the partition has no majority without them."""
    if not all(_is_lost(disks, coordinator) for disks in (record.wanted, record.former) if disks):
        return ()  # one set of disks may decide, and while it is moved it is not known here which of them votes
    found: dict[ServerId, AbsentVoter] = {}
    for server, instance in _holders(record):
        if coordinator.disks.get(server) != instance:
            found[server] = AbsentVoter(server, coordinator.silent_ms.get(server), replaced=True)
        elif server in coordinator.silent_ms:
            found[server] = AbsentVoter(server, coordinator.silent_ms[server])
    return tuple(found[server] for server in sorted(found))


def _holders(record: GroupRecord) -> Iterable[tuple[ServerId, Instance]]:
    return dict.fromkeys((*record.wanted, *record.former))


def _is_lost(disks: Disks, coordinator: Coordinator) -> bool:
    answering = sum(
        coordinator.disks.get(server) == instance and server not in coordinator.silent_ms
        for server, instance in disks
    )
    return answering < majority(len(disks))


def _unfounded(registry: Registry, known: Iterable[GroupId], names: _Names) -> Iterator[PartitionProblem]:
    """Yield the partitions that a topic is to have and that take no messages yet."""
    kind, skipped = TroubleKind.FOUNDING, set(known)
    for topic in registry.topics.values():
        lost = registry.given_up.intersection(topic.partitions) if registry.given_up else ()
        for group in lost:
            text = "it was given up, and an empty partition is to take its place"
            yield PartitionProblem(*names.places[group], group, kind, text)
        for group in topic.adding:
            if group not in skipped:
                place = names.places[group]
                yield PartitionProblem(*place, group, kind, "it is being added to the topic")
        for number in range(len(topic.partitions) + len(topic.adding), topic.wanted):
            yield PartitionProblem(topic.name, number, 0, kind, "it is not created yet")


# -- in words


class _Names:
    """Names of partitions by group."""

    def __init__(self, registry: Registry) -> None:
        self.places = homes_of(registry)
        self.moving: dict[GroupId, tuple[ServerId, ...]] = {}
        for group in registry.deleting:
            if group not in registry.given_up:
                self.places[group] = DELETED, group
        for group, record in registry.groups.items():
            if not record.placed:
                self.moving[group] = tuple(server for server, _ in record.wanted)

    def of(self, group: GroupId) -> str:
        place = self.places.get(group)
        if place is None or place[0] == DELETED:
            return f"a partition of a deleted topic (group {group})"
        return f"{place[0]}/{place[1]}"


def _words(trouble: Trouble, server: ServerId, names: _Names) -> str:
    said = _reason(trouble, server, names)
    target = names.moving.get(trouble.group)
    if target and trouble.kind in (TroubleKind.NO_MAJORITY, TroubleKind.NO_LEADER):
        said += f"; it is being moved to servers {', '.join(map(str, target))}"
    return said


def _reason(trouble: Trouble, server: ServerId, names: _Names) -> str:
    match trouble.kind:
        case TroubleKind.NO_MAJORITY:
            absent = ", ".join(_absence(one) for one in trouble.absent)
            return f"{len(trouble.absent)} of its {trouble.voters} replicas do not answer: {absent}"
        case TroubleKind.NO_LEADER:
            if not trouble.absent:
                return "no leader is known, though all of its replicas answer"
            absent = ", ".join(_absence(one) for one in trouble.absent)
            return f"no leader is known, though a majority of its replicas answers; {absent}"
        case TroubleKind.COPY_FAILED:
            others = (
                "" if trouble.leader in (None, server) else f"; server {trouble.leader} has another and leads"
            )
            return f"its copy on server {server} cannot be used: {_shortened(trouble.error)}{others}"
        case TroubleKind.DISK_FULL:
            return f"server {server} leads it, and has no room on its disk for what it delivers"
        case TroubleKind.WAITING:
            return _waiting(trouble, names)
        case TroubleKind.FOUNDING:
            return "it is being set up"


def _absence(one: AbsentVoter) -> str:
    if one.replaced:
        return f"server {one.server} (the disk that held it is gone)"
    if one.silent_ms is None:
        return f"server {one.server} (not heard of since this server started)"
    return f"server {one.server} (for {one.silent_ms // 1000} s)"


def _waiting(trouble: Trouble, names: _Names) -> str:
    said = [f"{count} for {names.of(group)}" for group, count in islice(trouble.awaited, NAMED_MAX)]
    left = len(trouble.awaited) - len(said)
    if left > 0:
        said.append(f"and others for {left} more partitions")
    whom = f": {', '.join(said)}" if said else ""
    messages = "1 message waits" if trouble.pending == 1 else f"{trouble.pending} messages wait"
    return f"{messages} for other partitions to agree on the order{whom}"


def _shortened(error: str) -> str:
    line = " ".join(error.split())
    return line if len(line) <= ERROR_CHARACTERS_MAX else line[: ERROR_CHARACTERS_MAX - 1] + "…"
