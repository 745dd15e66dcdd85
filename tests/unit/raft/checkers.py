"""What Raft promises (paper, figure 3), checked from outside after every output of every server.

The checkers read logs, disks and commit indexes; they share no code with the core but the reading of a membership. `finish`
demands that they saw enough to mean anything.
"""

from __future__ import annotations

from collections import Counter

from tests.unit.raft.network import Network
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind
from zraft.raft.ready import LogWrite, Ready
from zraft.raft.role import Role
from zraft_core.ids import Instance


class Violation(Exception):
    """A promise was broken; the message names it and the facts."""


class Checkers:
    """All servers of a network.

    Attributes:
        leaders: the disk that led in each term.
        committed: what was applied anywhere, in order.
        reads: by the number of each read, how much was committed when it began.
        seen: how often everything was seen.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.leaders: dict[int, Instance] = {}
        self.committed: list[Entry] = []
        self.reads: dict[int, int] = {}
        self.seen: Counter[str] = Counter()
        self._written: dict[tuple[int, int], tuple[Entry, int]] = {}
        """By index and term, the entry and the term before it."""
        self._durable_checked = 0
        network.observe = self.observe

    def observe(self, server: int, raft: Raft, ready: Ready) -> None:
        """A server took a turn."""
        self.look(server, raft)
        if ready.write is not None:
            self._log_matching(server, raft, ready.write)
        for context, index in ready.read_states:
            if index < self.reads[context]:
                raise Violation(f"stale read: S{server} at {index}, committed {self.reads[context]}")
            self.seen["reads"] += 1
        self._state_machine_safety(server, raft)

    def look(self, server: int, raft: Raft) -> None:
        """A server leads, or commits, perhaps in the middle of a turn."""
        if raft.role is Role.LEADER:
            self._election_safety(server, raft)
            self._durability(server, raft)

    def _election_safety(self, server: int, raft: Raft) -> None:
        """At most one leader can be elected in a term (section 5.2)."""
        me = self.network.disks[server].instance
        known = self.leaders.get(raft.term)
        if known == me:
            return
        if known is not None:
            raise Violation(f"election safety: two servers lead term {raft.term}")
        self.leaders[raft.term] = me
        if not raft.membership.has_voter(raft.server, me):
            self.seen["leaders without a vote"] += 1
        self._elected(server, raft)
        self._leader_completeness(server, raft)

    def _elected(self, server: int, raft: Raft) -> None:
        """Who leads has the durable votes of a majority, of both while joint (D-7, section 4.3)."""
        members, votes = raft.membership.members, self.network.votes
        for voters in filter(None, (raft.membership.voters, raft.membership.outgoing)):
            granted = [voter for voter in voters if votes.get((raft.term, members[voter].instance)) == server]
            if 2 * len(granted) <= len(voters):
                raise Violation(
                    f"votes: S{server} leads term {raft.term}, of {voters} only {granted} voted for it"
                )

    def _leader_completeness(self, server: int, raft: Raft) -> None:
        """A leader's log holds every entry committed in earlier terms (section 5.4)."""
        log = raft.log
        if log.last_index < len(self.committed):
            raise Violation(f"leader completeness: S{server} ends at {log.last_index}")
        for entry in self.committed:
            if entry.index >= log.first_index - 1 and log.term_at(entry.index) != entry.term:
                raise Violation(f"leader completeness: S{server} lacks {entry}")

    def _durability(self, server: int, raft: Raft) -> None:
        """What a leader commits is on the disks of a majority, of both while joint (D-7, section 4.3)."""
        index, disks = raft.commit_index, self.network.disks
        if index <= self._durable_checked:
            return
        before, self._durable_checked = self._durable_checked, index
        term = raft.log.term_at(index)
        counted_by = raft.membership
        for at, payload in raft.log.memberships:
            if before < at <= index and Membership.decode(payload).joint:
                # The final one was only appended when the joint one was committed, which that one did.
                counted_by = Membership.decode(payload)
        for voters in filter(None, (counted_by.voters, counted_by.outgoing)):
            holding = [
                voter
                for voter in voters
                if disks[voter].instance == counted_by.members[voter].instance
                and disks[voter].holds(index, term)
            ]
            if 2 * len(holding) <= len(voters):
                raise Violation(
                    f"durability: S{server} commits {index} of term {term}, of {voters} only {holding} hold it"
                )

    def _log_matching(self, server: int, raft: Raft, write: LogWrite) -> None:
        """Entries of equal index and term are equal, and so is everything before them (section 5.3)."""
        before = -1
        for entry in write.entries:
            at = entry.index - 1
            if before < 0:
                if not raft.log.first_index - 1 <= at <= raft.log.last_index:
                    return
                before = raft.log.term_at(at)
            known = self._written.setdefault((entry.index, entry.term), (entry, before))
            if known != (entry, before):
                raise Violation(f"log matching: S{server} writes {entry} after {before}, known {known}")
            before = entry.term

    def _state_machine_safety(self, server: int, raft: Raft) -> None:
        """What is committed is the same everywhere (5.4.3)."""
        if raft.commit_index > raft.log.last_index:
            raise Violation(f"S{server} commits {raft.commit_index} beyond its log")
        applied = self.network.applied
        for index in range(applied[server] + 1, raft.applicable_index + 1):
            entry = raft.log.entry(index)
            if index <= len(self.committed):
                if self.committed[index - 1] != entry:
                    raise Violation(f"state machine safety: S{server} applies {entry}")
            else:
                assert index == len(self.committed) + 1
                self.committed.append(entry)
                if entry.kind is EntryKind.MEMBERSHIP:
                    self.seen["joint" if Membership.decode(entry.payload).joint else "simple"] += 1
            applied[server] = index

    def finish(self, *, commits: int, terms: int = 1) -> None:
        assert len(self.committed) >= commits, f"only {len(self.committed)} commits seen"
        assert len(self.leaders) >= terms, f"only {len(self.leaders)} leaderships seen"
