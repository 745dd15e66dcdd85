"""Whether a group's members have the same state: digests at the same entries, compared by its leader (D-26).

As for the coordination group (`divergence`), but for all groups at once: every member notes its digest every so many
entries and tells the leader, which tells all what the majority has. A server of which one group differs stops as a whole:
what it computes cannot be trusted, and its votes in every group are on one disk. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zraft.groups.divergence import DigestComparison, DivergedError
from zraft.groups.host import GroupHost
from zraft.groups.replica import Replica
from zraft.raft.role import Role
from zraft.transport.messages import GroupDigests, GroupVerdict, PeerMessage
from zraft_core.ids import GroupId, Instance, ServerId

PER_MESSAGE_MAX: Final = 64
"""As many as the codec takes."""

ALARMS_KEPT_MAX: Final = 16

_Noted = tuple[GroupId, int, int]


class GroupComparison:
    """Both sides, for all groups of one server.

    Attributes:
        compared_total: points that a majority agreed on, of groups led here.
        alarms: points without a majority, for the log. Nobody stops for them.
    """

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._tables: dict[GroupId, tuple[int, DigestComparison, set[int]]] = {}
        self._told: dict[GroupId, int] = {}
        self.compared_total = 0
        self.alarms_total = 0
        self.alarms: list[str] = []

    def forget(self, group: GroupId) -> None:
        """It is gone."""
        self._tables.pop(group, None)
        self._told.pop(group, None)

    def turn(self, applied: Iterable[GroupId]) -> list[tuple[ServerId, PeerMessage]]:
        """What to say about groups that took entries.

        Raises:
            DivergedError: this server, which leads a group, is in its minority.
        """
        noted: dict[ServerId, list[_Noted]] = {}
        verdicts: dict[ServerId, list[_Noted]] = {}
        for group in applied:
            replica = self._host.groups.get(group)
            if replica is None or not replica.digests or replica.digests[-1][0] <= self._told.get(group, 0):
                continue
            raft = replica.raft
            if raft.role is Role.LEADER:
                self._told[group] = replica.digests[-1][0]
                self._table(replica).report(raft.server, replica.digests)
                self._decide(replica, verdicts)
            elif raft.leader is not None:
                self._told[group] = replica.digests[-1][0]
                # The ones before, too: one message may be lost, and the leader new.
                noted.setdefault(raft.leader, []).extend((group, *point) for point in replica.digests)
        if not noted and not verdicts:
            return []
        return [*_messages(noted, GroupDigests), *_messages(verdicts, GroupVerdict)]

    def on_digests(
        self, server: ServerId, instance: Instance, message: GroupDigests
    ) -> list[tuple[ServerId, PeerMessage]]:
        """What a member computed, to the leader.

        Raises:
            DivergedError: this server is in a group's minority.
        """
        verdicts: dict[ServerId, list[_Noted]] = {}
        for group, index, digest in message.digests:
            replica = self._host.groups.get(group)
            if replica is None or replica.raft.role is not Role.LEADER:
                continue
            if replica.raft.membership.has(server, instance):
                self._table(replica).report(server, [(index, digest)])
                self._decide(replica, verdicts)
        return _messages(verdicts, GroupVerdict)

    def on_verdict(self, server: ServerId, message: GroupVerdict) -> None:
        """What the majority has, from a leader.

        Raises:
            DivergedError: this server has something else.
        """
        for group, index, digest in message.digests:
            replica = self._host.groups.get(group)
            if replica is not None and replica.raft.leader == server:
                _check(replica, index, digest)

    def _table(self, replica: Replica) -> DigestComparison:
        term = replica.raft.term
        known = self._tables.get(replica.group)
        if known is None or known[0] != term:
            known = self._tables[replica.group] = (term, DigestComparison(), set())
        return known[1]

    def _decide(self, replica: Replica, verdicts: dict[ServerId, list[_Noted]]) -> None:
        """Say once what is decided now."""
        _, table, said = self._tables[replica.group]
        raft = replica.raft
        decided = table.decide(raft.membership.voters)
        for index, digest in decided:
            if index in said:
                continue
            said.add(index)
            self.compared_total += 1
            for server in raft.membership.members:
                if server != raft.server:
                    verdicts.setdefault(server, []).append((replica.group, index, digest))
            _check(replica, index, digest)
        said.intersection_update({index for index, _ in decided})
        while table.disagreements:
            self.alarms_total += 1
            problem = table.disagreements.pop(0)
            if len(self.alarms) < ALARMS_KEPT_MAX:
                self.alarms.append(f"group {replica.group}: {problem}")


def _check(replica: Replica, index: int, digest: int) -> None:
    mine = dict(replica.digests).get(index)
    if mine is not None and mine != digest:
        raise DivergedError(
            f"the state of group {replica.group} on this server differs from the majority's since its entry {index} at "
            f"the latest (digest {mine:032x}, the majority has {digest:032x}): it serves no longer. Its directory is "
            "kept aside for examination, and it joins again with an empty one"
        )


def _messages(
    items: dict[ServerId, list[_Noted]], make: type[GroupDigests] | type[GroupVerdict]
) -> list[tuple[ServerId, PeerMessage]]:
    return [
        (server, make(tuple(noted[at : at + PER_MESSAGE_MAX])))
        for server, noted in items.items()
        for at in range(0, len(noted), PER_MESSAGE_MAX)
    ]
