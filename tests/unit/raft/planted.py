"""Bugs on purpose, each a known mistake of a known system: the checkers must notice every one."""

from __future__ import annotations

from collections.abc import Callable

from zraft.raft.core import Raft
from zraft.raft.membership.quorum import VoteResult, agreed_value, majority_value
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntriesReply, HardState, Message
from zraft.raft.progress import Progress
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import ServerId


class ForgetsVote(Raft):
    """The vote is not recovered at start (flaw 2)."""

    def _recover_hard_state(self, hard_state: HardState) -> None:
        super()._recover_hard_state(HardState(hard_state.term, None))


class SendsBeforeSync(Raft):
    """Votes, vote requests and acknowledgements do not wait for the disk (flaw 4, D-7)."""

    def _send_after(self, number: int, to: ServerId, message: Message) -> None:
        super()._send_after(0, to, message)


class AcknowledgesBeforeSync(Raft):
    """Only appends are acknowledged before they are durable (D-7)."""

    def _send_after(self, number: int, to: ServerId, message: Message) -> None:
        super()._send_after(0 if isinstance(message, AppendEntriesReply) else number, to, message)


class CountsOwnLogBeforeSync(Raft):
    """The leader counts what it holds, not what it has made durable (D-7)."""

    def _own_match_index(self) -> int:
        return self.log.last_index


class CommitsOldTermsByCounting(Raft):
    """Figure 8 (flaw 11)."""

    def _may_count(self, index: int) -> bool:
        return True


class HeartbeatCommitsAboveMatch(Raft):
    """The heartbeat carries the leader's commit index (D-7)."""

    def _heartbeat_commit(self, progress: Progress) -> int:
        return self.commit_index


class VotesByTermOnly(Raft):
    """The index of a candidate's last entry is not compared (flaw 1)."""

    def _log_is_current(self, last_log_index: int, last_log_term: int) -> bool:
        return last_log_term >= self.log.last_term


class ReadsWithoutRound(Raft):
    """A leader answers reads without asking whether it still leads (flaw 17)."""

    def _add_read(self, asker: ServerId, context: int) -> None:
        if asker == self.server and self.role is Role.LEADER:
            self._read_states.append((context, self.commit_index))


class ReadsBeforeOwnCommit(Raft):
    """A new leader answers reads at a commit index that its predecessor was ahead of (dissertation 6.4)."""

    def _begin_round(self) -> None:
        self._reads.begin_round(self.round + 1, self.commit_index)
        super()._begin_round()


class TrustsHeartbeatReply(Raft):
    """The last index of a heartbeat's reply counts as replicated (flaw 9)."""

    def _on_heartbeat_reply(self, progress, message):  # type: ignore[no-untyped-def]
        super()._on_heartbeat_reply(progress, message)
        if self.role is Role.LEADER and progress.accepted(
            min(message.last_index, self.log.last_index), self.now
        ):
            self._maybe_commit()


class CountsJointAsOne(Raft):
    """A joint configuration is decided by its new voters alone (section 4.3)."""

    def _agreed(self, value_of: Callable[[ServerId], int]) -> int:
        return agreed_value(self.membership.final(), value_of)

    def _vote_result(self) -> VoteResult:
        return self._election.result(self.membership.final())


class CountsLearners(Raft):
    """Whoever gets the log counts for commit and votes (section 4.2.1)."""

    def _agreed(self, value_of: Callable[[ServerId], int]) -> int:
        return majority_value(map(value_of, self.membership.members))


class LeavingLeaderCountsItself(Raft):
    """A leader that is no member of the next configuration counts itself for it (section 4.2.2)."""

    def _agreed(self, value_of: Callable[[ServerId], int]) -> int:
        voters = self.membership.voters
        if self.server in voters or self.membership.joint:
            return super()._agreed(value_of)
        return majority_value([*map(value_of, voters), self._own_match_index()])


class ReplacesVotersAtOnce(Raft):
    """Any set of voters follows any other without a joint configuration (section 4.3)."""

    def _append_membership(self, membership: Membership) -> int:
        return super()._append_membership(membership.final())


class TakesAnySnapshot(Raft):
    """A late snapshot takes entries back (flaw 13)."""

    def _accepts_snapshot(self, meta: SnapshotMeta) -> bool:
        return True
