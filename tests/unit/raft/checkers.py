"""What Raft promises (paper, figure 3), checked from outside after every output of every server.

The checkers read logs, disks and commit indexes; they share no code with the core. `finish` demands that they
saw enough to mean anything.
"""

from __future__ import annotations

from tests.unit.raft.network import Network
from zraft.raft.core import Raft
from zraft.raft.messages import Entry
from zraft.raft.ready import Ready
from zraft.raft.role import Role
from zraft_core.ids import ServerId


class Violation(Exception):
    """A promise was broken; the message names it and the facts."""


class Checkers:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.leaders: dict[int, int] = {}  # term -> server
        self.written: dict[tuple[int, int], tuple[Entry, int]] = {}  # (index, term) -> entry, term before it
        self.committed: list[Entry] = []
        self.checked: dict[int, tuple[Raft, int]] = {}  # server -> (its life, commit index checked)
        self.read_floor: dict[tuple[int, int], int] = {}
        self.reads_seen = 0
        network.observe = self.observe

    def observe(self, server: int, raft: Raft, ready: Ready) -> None:
        if raft.role is Role.LEADER and self.leaders.get(raft.term) != server:
            self.election_safety(server, raft)
            self.leader_completeness(server, raft)
        if ready.write is not None:
            for entry in ready.write.entries:
                self.log_matching(server, raft, entry)
        life, upto = self.checked.get(server, (raft, 0))
        if life is not raft:
            upto = 0
        if raft.commit_index > upto or life is not raft:
            self.state_machine_safety(server, raft, upto)
            self.checked[server] = (raft, raft.commit_index)
        for context, index in ready.read_states:
            self.linearizable_read(server, context, index)

    def election_safety(self, server: int, raft: Raft) -> None:
        """At most one leader can be elected in a term (section 5.2)."""
        other = self.leaders.setdefault(raft.term, server)
        if other != server:
            raise Violation(f"election safety: servers {other} and {server} both lead term {raft.term}")

    def leader_completeness(self, server: int, raft: Raft) -> None:
        """A leader's log holds every entry committed in earlier terms (section 5.4)."""
        for entry in self.committed:
            if entry.index > raft.log.last_index or raft.log.entry(entry.index) != entry:
                raise Violation(
                    f"leader completeness: server {server} leads term {raft.term} without {entry}"
                )

    def log_matching(self, server: int, raft: Raft, entry: Entry) -> None:
        """Entries of equal index and term are equal, and so is everything before them (section 5.3)."""
        if entry.index > raft.log.last_index or raft.log.entry(entry.index) != entry:
            return  # truncated again within the same turn
        before = raft.log.term_at(entry.index - 1)
        known = self.written.setdefault((entry.index, entry.term), (entry, before))
        if known != (entry, before):
            raise Violation(
                f"log matching: server {server} writes {entry} after term {before}, but {known} exists"
            )

    def state_machine_safety(self, server: int, raft: Raft, upto: int) -> None:
        """What is committed is the same everywhere (5.4.3) and durable on a majority of disks (D-7)."""
        if raft.commit_index > raft.log.last_index:
            raise Violation(f"server {server} commits {raft.commit_index} beyond its log")
        for index in range(upto + 1, raft.commit_index + 1):
            entry = raft.log.entry(index)
            if index <= len(self.committed):
                if self.committed[index - 1] != entry:
                    raise Violation(
                        f"state machine safety: server {server} commits {entry}, "
                        f"committed before: {self.committed[index - 1]}"
                    )
                continue
            self.committed.append(entry)
            voters = self.network.membership.voters
            holding = [voter for voter in voters if self.durable(voter, entry)]
            if 2 * len(holding) <= len(voters):
                raise Violation(f"durability: server {server} commits {entry}, durable only on {holding}")

    def durable(self, server: int, entry: Entry) -> bool:
        entries = self.network.disks[ServerId(server)].entries
        return len(entries) >= entry.index and entries[entry.index - 1] == entry

    def read_begins(self, server: int, context: int) -> None:
        self.read_floor[server, context] = len(self.committed)

    def linearizable_read(self, server: int, context: int, index: int) -> None:
        """A read sees everything that was committed before it began (dissertation 6.4)."""
        self.reads_seen += 1
        floor = self.read_floor[server, context]
        if index < floor:
            raise Violation(f"stale read: server {server} may read at {index}, {floor} was committed before")

    def finish(self, *, commits: int, terms: int = 1, reads: int = 0) -> None:
        assert len(self.committed) >= commits, f"only {len(self.committed)} commits seen"
        assert len(self.leaders) >= terms, f"only {len(self.leaders)} leaderships seen"
        assert self.reads_seen >= reads, f"only {self.reads_seen} reads seen"
