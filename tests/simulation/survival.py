"""Decides how much of a cluster may be destroyed: whose disk may be lost without losing what was committed, or for ever
the ability to commit.

A disk counts as long as its server has it. For every configuration that any log may hold, and for each in which the
present one may end by what operators asked for, a majority of the disks that vote must go on existing. Learners whose
disk is gone are counted as voters, for one may be promoted in the moment of its loss. Disks of new servers are not
counted: they vote only when they have caught up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tests.simulation.configurations import LEARNER, Configuration, Disk
from tests.simulation.model import History
from tests.simulation.process import Process
from tests.simulation.raft_checks import RaftChecks
from zraft_core.ids import ServerId

Wish = Mapping[ServerId, tuple[bool, str]]


class Survival:
    """What exists, and what must not be lost. `wishes`: everything that operators' commands may have made of it."""

    def __init__(self, checks: RaftChecks, processes: Collection[Process], history: History) -> None:
        self._checks = checks
        self._processes = processes
        self._history = history
        self.pending: list[tuple[tuple[int, int, str], ...]] = []
        """Changes that operators asked for and that may still be carried out, in order."""

    def wishes(self, *more: tuple[tuple[int, int, str], ...]) -> list[Wish]:
        """Who may be wanted in the end: any of the pending changes may still happen, or not."""
        found: list[dict[ServerId, tuple[bool, str]]] = [dict(self._history.wanted)]
        for changes in (*self.pending, *more):
            for wish in list(found):
                after = dict(wish)
                for server, part, address in changes:
                    if part:
                        after[ServerId(server)] = (part == 1, address)
                    else:
                        after.pop(ServerId(server), None)
                if after not in found:
                    found.append(after)
        return list(found)

    def configurations(self) -> list[Configuration]:
        """All that some log may hold from the newest committed one on."""
        checks = self._checks
        since = checks.configurations[-1][0] if checks.configurations else 0
        found = [checks.configurations[-1][1]] if checks.configurations else []
        for shadow in checks.shadows.values():
            found += [configuration for index, configuration in shadow.configurations if index >= since]
        for process in self._processes:
            if process.driver is not None and process.driver.raft is not None:
                raft = process.driver.raft
                if raft.members_changed_index >= since and raft.membership.members:
                    found.append(Configuration.read(raft.membership.encode()))
        return list({id(one): one for one in found}.values())

    def counted_on(self, server: ServerId) -> bool:
        """Whether the disk that a server has now belongs to any configuration."""
        shadow = self._checks.shadows.get(server)
        opened = any(process.server == server and process.opened for process in self._processes)
        return (
            opened
            and shadow is not None
            and any(c.has((server, shadow.instance)) for c in self.configurations())
        )

    def rotten(self, server: ServerId, snapshot: tuple[int, int]) -> None:
        """The snapshot (index, term) of a server is no longer what it was."""
        self._checks.shadows[server].snapshots.pop(snapshot, None)

    def survives(
        self, lost: Iterable[ServerId] = (), more: tuple[tuple[int, int, str], ...] | None = None
    ) -> bool:
        """Whether the disks of these servers may be lost, and these changes be asked for."""
        gone = set(lost)
        shadows = self._checks.shadows
        gone |= {p.server for p in self._processes if not p.opened or p.must_be_replaced or p.may_be_damaged}

        def exists(disk: Disk) -> bool:
            shadow = shadows.get(disk[0])
            return shadow is not None and shadow.instance == disk[1] and disk[0] not in gone

        wishes = self.wishes() if more is None else self.wishes(more)
        for configuration in self.configurations():
            learners = {
                (server, instance)
                for server, (instance, role) in configuration.members.items()
                if role == LEARNER and instance and not exists((server, instance))
            }
            for half in (configuration.voters, configuration.outgoing):
                groups = [set(half), {*half, *learners}]
                groups += [
                    {disk for disk in groups[1] if disk[0] in wish and wish[disk[0]][0]} for wish in wishes
                ]
                if not all(2 * sum(map(exists, group)) > len(group) for group in groups if group):
                    return False
        return True
