"""The leader's view of the members: who asks to be let in, who answers, what each can do and what each computed.

It is part of one leadership, so it begins empty with each. Several times a second it looks whether the
membership is as wanted (`reconciliation`), whether all members can do more than the cluster does (D-5), and
whether any member's state differs (`zraft.groups.digests`, D-26).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zraft.config.features import LEVEL_OF_MEMBERS
from zraft.groups.digests import DigestTable
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import MemberRole
from zraft.server.coordination import reconciliation
from zraft.server.coordination.reconciliation import JoinRequest, MembershipSituation, next_step, refusals
from zraft.transport.messages import Join, MemberReport, NotMember, PeerMessage, Verdict, Welcome
from zraft.tree.machine import Machine
from zraft.tree.members import Wanted, WantedMember
from zraft_core.errors import ConfigError
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT
from zraft_core.znodes.txn import FEATURE, MEMBERS, Command

LOOK_INTERVAL_MS: Final = 50
"""How often the leader looks at the members."""
PROGRESS_INTERVAL_MS: Final = 100
"""A learner has caught up when it holds what was committed this long ago: less than an election timeout."""

ANSWER_INTERVAL_MS: Final = 150
"""At most once in this time a stranger is told that it is no member."""
ANSWERS_MAX: Final = 512
"""How many strangers are remembered as answered; then all of them are forgotten."""
VERDICT_INTERVAL_MS: Final = 1_000
"""How often the members are told the digests of their majority."""
LEAVE_MS: Final = 250
"""How long a member that is to leave has to hear of it, answer its clients and let them go: some round trips."""


class MembershipKeeper:
    """The members, as one leadership cares for them.

    Attributes:
        digests: what the members computed.
        notices: sentences about what was decided or refused, for the log; the process takes them.
    """

    def __init__(
        self, me: ServerId, features: int, now_ms: int, observers: Mapping[ServerId, str] | None = None
    ) -> None:
        """Begin with no reports.

        Args:
            features: the highest feature level that this server can apply.
            observers: observers by address; they are let in as soon as the log names the founders as members.
        """
        self._observers = observers or {}
        self._me = me
        self._began_ms = now_ms
        self._features = features
        self._joins: dict[ServerId, JoinRequest] = {}
        self._announced: dict[ServerId, tuple[Instance, int]] = {}
        self._answered_at: dict[tuple[ServerId, Instance], int] = {}
        self.digests = DigestTable()
        self._look_at = 0
        self._progress_at = 0
        self._commit_then: int | None = None
        """The index that was committed one to two intervals ago; None while that was before this leadership."""
        self._commit_lately: int | None = None
        self._verdict_at = 0
        self._proposed_at_position = -1
        self._replaced: frozenset[ServerId] = frozenset()
        """Members that are dead and whose number an empty disk shows, to replace them."""
        self._leaving_since: dict[ServerId, int] = {}
        """When each member that is to leave had nothing left but its clients."""
        self._settled: tuple[Membership, Wanted] | None = None
        """A configuration and the wish that it was found to fulfil."""
        self._told: dict[ServerId, str] = {}
        self.notices: list[str] = []

    # -- what members and others say

    def on_join(
        self,
        server: ServerId,
        instance: Instance,
        join: Join,
        raft: Raft,
        cluster: bytes,
        wanted: Wanted,
        now_ms: int,
    ) -> PeerMessage | None:
        """Take the request of an empty disk to be let in; return the answer, or None if there is none yet."""
        if join.cluster != cluster:
            return None
        self._joins[server] = JoinRequest(instance, now_ms)
        self._announced[server] = (instance, join.features)
        membership = raft.membership
        if membership.has(server, instance) and raft.membership_committed:
            return Welcome(cluster, raft.members_changed_index, membership.encode())
        if server not in wanted and server not in membership.members:
            return self.not_member(server, instance, raft, cluster, now_ms)
        return None

    def not_member(
        self, server: ServerId, instance: Instance, raft: Raft, cluster: bytes, now_ms: int
    ) -> NotMember | None:
        """Return the message that tells a stranger that it is one; None if it was told a moment ago."""
        key = (server, instance)
        if now_ms - self._answered_at.get(key, -ANSWER_INTERVAL_MS) < ANSWER_INTERVAL_MS:
            return None
        if len(self._answered_at) >= ANSWERS_MAX:
            self._answered_at.clear()
        self._answered_at[key] = now_ms
        return NotMember(cluster, raft.members_changed_index)

    def on_report(self, server: ServerId, instance: Instance, report: MemberReport) -> None:
        """Take a member's report: what it can do, and the digests of its state."""
        self._announced[server] = (instance, report.features)
        self.digests.report(server, report.digests)

    # -- a share of the leader's turn

    def step(
        self, raft: Raft, machine: Machine, own: Iterable[tuple[int, int]], now_ms: int
    ) -> tuple[list[Command], Verdict | None]:
        """Do a share of the leader's turn.

        Returns:
            Commands for the log, and the digests of the majority if all members are to be told; in most turns
            neither.
        """
        if now_ms >= self._progress_at:
            self._progress_at = now_ms + PROGRESS_INTERVAL_MS
            self._commit_then, self._commit_lately = self._commit_lately, raft.commit_index
        if now_ms < self._look_at:
            return [], None
        self._look_at = now_ms + LOOK_INTERVAL_MS
        if self._joins:
            # Who waits asks again and again. Others have been let in, were refused, or are gone.
            self._joins = {
                server: join
                for server, join in self._joins.items()
                if now_ms - join.at_ms <= reconciliation.JOIN_VALID_MS
            }
            self._replaced = frozenset(
                server
                for server, silence in self._silences(raft, now_ms).items()
                if silence >= reconciliation.DEAD_AFTER_MS and server in self._joins
            )
        self._reconcile(raft, machine, now_ms)
        verdict = None
        if now_ms >= self._verdict_at:
            self._verdict_at = now_ms + VERDICT_INTERVAL_MS
            self.digests.report(self._me, own)
            decided = self.digests.decide(raft.membership.voters)
            if decided:
                verdict = Verdict(tuple(decided))
        return self._commands(raft, machine), verdict

    def has_settled(self, membership: Membership) -> bool:
        """Return whether this configuration is as wanted, and nobody asks to be let in."""
        return not self._joins and self._settled is not None and self._settled[0] is membership

    def _commands(self, raft: Raft, machine: Machine) -> list[Command]:
        """Return commands that raise the feature level, when all members can follow, and that log the members, once."""
        if machine.position == 0 or self._proposed_at_position >= machine.position:
            return []
        commands: list[Command] = []
        level = machine.feature_level
        if level < self._features:
            level = self.level_of_all(raft.membership)
        if level > machine.feature_level:
            commands.append((FEATURE, level))
        elif machine.feature_level >= LEVEL_OF_MEMBERS and not machine.members and raft.membership_committed:
            rows = tuple(
                (server, PARTICIPANT if member.voter else OBSERVER, member.address)
                for server, member in raft.membership.members.items()
            ) + tuple(
                (server, OBSERVER, address)
                for server, address in self._observers.items()
                if server not in raft.membership.members
            )
            commands.append((MEMBERS, True, -1, rows))
        if commands:
            self._proposed_at_position = machine.position
        return commands

    def features_of(self, server: ServerId, instance: Instance) -> int | None:
        """Return the highest feature level that a member announced to this leader; None if it announced none."""
        announced = self._announced.get(server)
        return announced[1] if announced is not None and announced[0] == instance else None

    def level_of_all(self, membership: Membership) -> int:
        """Return the highest level that every member announced; 0 while one is silent.

        A disk that asks to take the place of a lost one speaks for it: it is let in only when its level is
        high enough.
        """
        level = self._features
        for server, member in membership.members.items():
            if server == self._me or not member.instance:
                continue
            instance, features = self._announced.get(server, (None, 0))
            level = min(level, features if instance == member.instance or server in self._replaced else 0)
        return level

    def _reconcile(self, raft: Raft, machine: Machine, now_ms: int) -> None:
        settled = self._settled
        if not self._joins and settled is not None:
            if settled[0] is raft.membership and settled[1] == machine.members:
                return
            self._settled = None
        if not machine.members or not raft.may_change_membership or not _has_applied_the_last(raft, machine):
            return
        wanted = self._wanted(raft, machine, now_ms)
        if not self._joins and reconciliation.is_as_wanted(raft.membership, wanted):
            if wanted is machine.members:
                self._settled = (raft.membership, dict(wanted))
            return
        situation = MembershipSituation(
            self._me,
            raft.membership,
            wanted,
            self._joins,
            self._silences(raft, now_ms),
            # This is computed only now: a server's new disk has not what its last one had caught up with (D-1).
            frozenset(raft.followers_at(self._commit_then) if self._commit_then is not None else ()),
            now_ms,
            frozenset(server for server, silence in raft.silences.items() if silence is None),
        )
        self._tell(refusals(situation))
        step = next_step(situation)
        if step is None:
            return
        if step.members is None:
            self._tell({self._me: step.reason})
            return
        try:
            index = raft.change_membership(step.members)
        except ConfigError as error:
            self._tell({self._me: f"the membership cannot be changed ({step.reason}): {error}"})
            return
        if index is not None:
            self.notices.append(f"membership changes with entry {index}: {step.reason}")

    def _wanted(self, raft: Raft, machine: Machine, now_ms: int) -> Wanted:
        """Return the members that are wanted for now: one that has to leave stays while its partitions move away (D-18).

        Without it their groups would have lost a disk each before they had another one. Afterwards it stays
        for a moment in which it answers its clients and lets them go. A member that does not answer is not
        waited for: what it held is copied from others, and its clients have left it.
        """
        members = raft.membership.members
        leaving = [server for server in members if server not in machine.members]
        self._leaving_since = {s: since for s, since in self._leaving_since.items() if s in leaving}
        if not leaving:
            return machine.members
        silences = self._silences(raft, now_ms)
        wanted = dict(machine.members)
        for server in leaving:
            member = members[server]
            belongs = member.role in (MemberRole.VOTER, MemberRole.OBSERVER)
            if not belongs or silences.get(server, 0) >= reconciliation.DEAD_AFTER_MS:
                continue
            if machine.registry.groups_on((server, member.instance)):
                self._leaving_since.pop(server, None)
                self._tell(
                    {
                        server: f"server {server} leaves when the partitions of topics on its disk have moved, or when it "
                        "is stopped (see `zraft topic describe`)"
                    }
                )
            elif now_ms - self._leaving_since.setdefault(server, now_ms) >= LEAVE_MS:
                continue
            wanted[server] = WantedMember(member.voter, member.address)
        return wanted

    def _silences(self, raft: Raft, now_ms: int) -> dict[ServerId, int]:
        return {
            server: now_ms - self._began_ms if silence is None else silence
            for server, silence in raft.silences.items()
        }

    def _tell(self, told: dict[ServerId, str]) -> None:
        for server, text in told.items():
            if self._told.get(server) != text:
                self.notices.append(text)
        self._told.update(told)


def _has_applied_the_last(raft: Raft, machine: Machine) -> bool:
    """Return whether the last change of members is applied here; before that, the wish in the state may be an older one."""
    return machine.index >= raft.members_changed_index
