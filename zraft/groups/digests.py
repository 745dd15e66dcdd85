"""Comparison of the members' states: digests at the same entries, compared by the group's leader (D-26).

Every member notes a digest of its state after the same entries and reports it to the leader, which tells
everybody what the majority has. A server that differs must not send another answer, and stops as a whole:
what it computes cannot be trusted, and its votes in every group are on one disk.

`DigestTable` and `check_digests` serve every group. Members of the coordination group report their digests
with the rest of their reports (`MemberReport`, `Verdict`), and its leader repeats its verdicts;
`GroupComparison` is for all other groups.

Pure. Source: rule D-26 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from zraft.groups.host import GroupHost
from zraft.groups.replica import HostedReplica
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft.transport.messages import GroupDigests, GroupVerdict, PeerMessage
from zraft_core.errors import ZraftError
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId

POINTS_KEPT_MAX: Final = 8
"""How many entries are compared at once; older ones have been decided, or never will be."""

PER_MESSAGE_MAX: Final = 64
"""How many digests a message holds: as many as the codec takes."""

ALARMS_KEPT_MAX: Final = 16
"""How many alarms wait for the log; further ones are only counted."""
"""How many alarms wait for the log; further ones are only counted."""

Point = tuple[int, int]
"""The index of an entry, and the digest of the state after it."""

_Noted = tuple[GroupId, int, int]


class DivergedError(ZraftError):
    """The state of this server differs from the majority's: it must stop, and begin anew from another server's state."""


class DigestTable:
    """The digests that the members of one group reported to its leader, by index and server.

    Attributes:
        disagreements: sentences for the log about points without a majority. No server stops for them.
        alarms_total: how many points had no majority.
    """

    def __init__(self) -> None:
        self._reported: dict[int, dict[ServerId, int]] = {}
        self._decided: dict[int, int] = {}
        self.disagreements: list[str] = []
        self.alarms_total = 0

    def report(self, server: ServerId, digests: Iterable[Point]) -> None:
        """Take the digests that a server has reported."""
        for index, digest in digests:
            if index in self._decided or index in self._reported or self._is_new(index):
                self._reported.setdefault(index, {})[server] = digest
        while len(self._reported) > POINTS_KEPT_MAX:
            oldest = min(self._reported)
            del self._reported[oldest]
            self._decided.pop(oldest, None)

    def _is_new(self, index: int) -> bool:
        return len(self._reported) < POINTS_KEPT_MAX or index > min(self._reported)

    def decide(self, voters: Collection[ServerId]) -> list[Point]:
        """Count the reports, and return every point on which a majority of the voters has agreed so far, with its digest."""
        needed = majority(len(voters))
        for index, reported in self._reported.items():
            if index in self._decided:
                continue
            counts = Counter(digest for server, digest in reported.items() if server in voters)
            if not counts:
                continue
            digest, count = counts.most_common(1)[0]
            if count >= needed:
                self._decided[index] = digest
            elif sum(counts.values()) == len(voters):
                self._decided[index] = -1
                self.alarms_total += 1
                shown = ", ".join(f"server {s}: {d:032x}" for s, d in sorted(reported.items()))
                self.disagreements.append(
                    f"no two of a majority agree on the state at entry {index} ({shown}): nobody stops, compare "
                    "the data directories with `zraft log verify`"
                )
        return self.decided

    @property
    def decided(self) -> list[Point]:
        """The points on which a majority has agreed, each with the majority's digest, by index."""
        return [(index, digest) for index, digest in sorted(self._decided.items()) if digest >= 0]


def check_digests(group: GroupId, own: Iterable[Point], verdict: Iterable[Point]) -> None:
    """Compare the majority's digests with this server's own.

    Raises:
        DivergedError: they differ at some index.
    """
    noted = dict(own)
    for index, digest in verdict:
        mine = noted.get(index)
        if mine is not None and mine != digest:
            whose = "this server" if group == COORDINATION_GROUP else f"group {group} on this server"
            raise DivergedError(
                f"the state of {whose} differs from the majority's since entry {index} at the latest (digest "
                f"{mine:032x}, the majority has {digest:032x}): it serves no longer. Its directory is kept aside "
                "for examination, and it joins again with an empty one"
            )


class GroupComparison:
    """Both sides of the comparison, member and leader, for all groups of one server but the coordination group.

    Attributes:
        compared_total: points that a majority agreed on, of groups led here.
        alarms: sentences for the log about points without a majority. No server stops for them.
        alarms_total: how many points had no majority.
    """

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._tables: dict[GroupId, tuple[int, DigestTable]] = {}
        self._told: dict[GroupId, int] = {}
        self.compared_total = 0
        self.alarms_total = 0
        self.alarms: list[str] = []

    def forget(self, group: GroupId) -> None:
        """Forget a group that is gone."""
        self._tables.pop(group, None)
        self._told.pop(group, None)

    def turn(self, applied: Iterable[GroupId]) -> list[tuple[ServerId, PeerMessage]]:
        """Return the messages that follow from applied entries: digests to leaders, and verdicts on groups led here.

        Raises:
            DivergedError: this server leads a group and is in its minority.
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
                # The older ones are sent again, because a message may have been lost, and the leader may be new.
                noted.setdefault(raft.leader, []).extend((group, *point) for point in replica.digests)
        if not noted and not verdicts:
            return []
        return [*_messages(noted, GroupDigests), *_messages(verdicts, GroupVerdict)]

    def on_digests(
        self, server: ServerId, instance: Instance, message: GroupDigests
    ) -> list[tuple[ServerId, PeerMessage]]:
        """Take the digests that a member reports to this server as the leader; return the verdicts that follow.

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
        """Compare the digests of a group's majority, which its leader sent, with this server's own.

        Raises:
            DivergedError: this server has another digest at one of the entries.
        """
        for group, index, digest in message.digests:
            replica = self._host.groups.get(group)
            if replica is not None and replica.raft.leader == server:
                check_digests(group, replica.digests, [(index, digest)])

    def _table(self, replica: HostedReplica) -> DigestTable:
        term = replica.raft.term
        known = self._tables.get(replica.group)
        if known is None or known[0] != term:
            known = self._tables[replica.group] = (term, DigestTable())
        return known[1]

    def _decide(self, replica: HostedReplica, verdicts: dict[ServerId, list[_Noted]]) -> None:
        """Add to `verdicts` what is decided now and was not before."""
        _, table = self._tables[replica.group]
        raft = replica.raft
        said = table.decided
        for point in table.decide(raft.membership.voters):
            if point in said:
                continue
            self.compared_total += 1
            for server in raft.membership.members:
                if server != raft.server:
                    verdicts.setdefault(server, []).append((replica.group, *point))
            check_digests(replica.group, replica.digests, [point])
        while table.disagreements:
            self.alarms_total += 1
            problem = table.disagreements.pop(0)
            if len(self.alarms) < ALARMS_KEPT_MAX:
                self.alarms.append(f"group {replica.group}: {problem}")


def _messages(
    items: dict[ServerId, list[_Noted]], make: type[GroupDigests] | type[GroupVerdict]
) -> list[tuple[ServerId, PeerMessage]]:
    return [
        (server, make(tuple(noted[at : at + PER_MESSAGE_MAX])))
        for server, noted in items.items()
        for at in range(0, len(noted), PER_MESSAGE_MAX)
    ]
