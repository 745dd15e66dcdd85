"""Owns what Raft and the disk were promised, seen from outside: frames on disk, messages sent, roles and commits.

A shadow of each server's durable log is kept from the frames whose fsync returned. Against it every message
that claims durability is compared the moment it leaves, so that a rule of D-7 broken in one corner of the code
is found at its first use and not only when a crash happens to expose it. Checked, each under its name:
`election`, `leader completeness`, `log matching`, `committed`, `commit`, `durable vote`, `durable match`,
`heartbeat commit`, `wiped voter`, `recovery`, `truncation`, `digest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from zraft.ids import Instance, ServerId
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    RequestVote,
    RequestVoteReply,
)
from zraft.storage.records import EntryRecord, HardStateRecord, Record, TruncateRecord
from zraft.testing.broken import BrokenPromiseError
from zraft.transport.messages import PeerMessage, Sender


class Shadow:
    """What is certainly durable on one server: term and vote, and the term of each entry (index 0 is a sentinel)."""

    __slots__ = ("hard", "instance", "lost_terms", "terms", "wiped")

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.hard = HardState()
        self.terms = [0]
        self.wiped = False
        self.lost_terms: list[int] = []
        """What the disk held that this one replaced: its acknowledgements may still be on their way."""

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            match record:
                case EntryRecord(_, entry):
                    assert entry.index == len(self.terms), f"{entry.index=} after {len(self.terms) - 1}"
                    self.terms.append(entry.term)
                case TruncateRecord(_, from_index):
                    del self.terms[from_index:]
                case HardStateRecord(_, hard_state):
                    self.hard = hard_state
                case _:
                    pass

    def copy(self) -> Shadow:
        other = Shadow(self.instance)
        other.hard, other.terms = self.hard, list(self.terms)
        other.wiped, other.lost_terms = self.wiped, self.lost_terms
        return other

    def held(self, index: int, term: int) -> bool:
        """Whether it holds the entry, or held it when its disk was lost."""
        return self.holds(index, term) or (index < len(self.lost_terms) and self.lost_terms[index] == term)

    def holds(self, index: int, term: int) -> bool:
        return index < len(self.terms) and self.terms[index] == term

    @property
    def last_index(self) -> int:
        return len(self.terms) - 1


class RaftChecks:
    """One Raft group's promises over all of its servers."""

    def __init__(self, servers: Sequence[ServerId]) -> None:
        self._servers = servers
        self.shadows: dict[ServerId, Shadow] = {}
        self.leaders: dict[int, ServerId] = {}
        self.committed: list[Entry | None] = [None]
        """The committed entry of each index; [0] is a sentinel."""
        self._entries: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._votes: dict[tuple[ServerId, int], ServerId] = {}
        self._digests: dict[int, tuple[int, ServerId]] = {}
        self.grants = self.matches = self.truncations = self.recoveries = self.compared_digests = 0

    def fail(self, checker: str, found: str) -> NoReturn:
        raise BrokenPromiseError(checker, found)

    def _majority(self, have: int) -> bool:
        return 2 * have > len(self._servers)

    # -- disks
    def formatted(self, server: ServerId, instance: Instance) -> None:
        replaced = self.shadows.get(server)
        self.shadows[server] = shadow = Shadow(instance)
        if replaced is not None:
            shadow.wiped = True
            shadow.lost_terms = replaced.terms

    def writing(self, server: ServerId, records: Sequence[Record]) -> None:
        """A frame is handed to the disk. Entries of equal (index, term) are equal, and so is all before them."""
        terms = self.shadows[server].terms
        last_term = {len(terms) - 1: terms[-1]}
        for record in records:
            if isinstance(record, TruncateRecord):
                self.truncations += 1
                index = record.from_index
                last_term = {index - 1: terms[index - 1] if index <= len(terms) else -1}
                for at in range(index, min(len(terms), len(self.committed))):
                    entry = self.committed[at]
                    if entry is not None and entry.term == terms[at]:
                        self.fail(
                            "truncation", f"S{server} truncates entry {at} of term {entry.term}: committed"
                        )
            elif isinstance(record, EntryRecord):
                entry = record.entry
                before = last_term.get(entry.index - 1)
                if before is None:
                    self.fail("log matching", f"S{server} writes entry {entry.index} after {last_term}")
                known = self._entries.setdefault((entry.index, entry.term), (entry, before))
                if known != (entry, before):
                    self.fail(
                        "log matching",
                        f"S{server} has another entry at index {entry.index}, term {entry.term}: "
                        f"{entry} after term {before}, elsewhere {known[0]} after term {known[1]}",
                    )
                last_term = {entry.index: entry.term}

    def durable(self, server: ServerId, records: Sequence[Record]) -> None:
        """The frame's fsync returned."""
        self.shadows[server].write(records)

    def recovered(
        self, server: ServerId, hard: HardState, terms: Sequence[int], in_flight: Sequence[Record] | None
    ) -> None:
        """After a crash: exactly what was durable, with or without the frame whose fsync had not returned."""
        self.recoveries += 1
        shadow = self.shadows[server]
        possible = [shadow]
        if in_flight is not None:
            with_frame = shadow.copy()
            with_frame.write(in_flight)
            possible.append(with_frame)
        for state in possible:
            if state.terms[1:] == list(terms) and state.hard == hard:
                self.shadows[server] = state
                return
        self.fail(
            "recovery",
            f"S{server} recovers {hard} and {len(terms)} entries; durable were {shadow.hard} and "
            f"{shadow.last_index}, a frame of {in_flight and len(in_flight)} records was in flight",
        )

    # -- messages
    def sent(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        """What leaves a server must already be true on its disk (D-7)."""
        server = sender.server
        shadow = self.shadows[server]
        for message in messages:
            if isinstance(message, RequestVoteReply):
                if message.granted:
                    self.grants += 1
                    if shadow.wiped:
                        self.fail(
                            "wiped voter", f"S{server} lost its disk and votes in term {message.term} (D-1)"
                        )
                    if not self._vote_is_durable(shadow, message.term, to):
                        self.fail(
                            "durable vote",
                            f"S{server} grants S{to} its vote of term {message.term}, on disk is {shadow.hard}",
                        )
                    self._voted(server, message.term, to)
            elif isinstance(message, RequestVote):
                if not self._vote_is_durable(shadow, message.term, server):
                    self.fail(
                        "durable vote",
                        f"S{server} campaigns in term {message.term}, on disk is {shadow.hard}",
                    )
                self._voted(server, message.term, server)
            elif isinstance(message, AppendEntriesReply):
                if message.accepted:
                    self._acknowledged(server, shadow, to, message)
            elif isinstance(message, AppendEntries | Heartbeat):
                if self.leaders.get(message.term) != server or shadow.hard.term != message.term:
                    self.fail(
                        "durable vote",
                        f"S{server} leads in term {message.term}: elected is {self.leaders.get(message.term)}, "
                        f"on its disk is {shadow.hard}",
                    )
                if isinstance(message, Heartbeat) and message.leader_commit:
                    entry = self.committed[message.leader_commit]
                    follower = self.shadows[to]
                    assert entry is not None
                    if not follower.wiped and not follower.holds(message.leader_commit, entry.term):
                        self.fail(
                            "heartbeat commit",
                            f"S{server} tells S{to} to commit {message.leader_commit}, which it does not hold (D-7)",
                        )

    @staticmethod
    def _vote_is_durable(shadow: Shadow, term: int, candidate: ServerId) -> bool:
        """Exactly this vote, or a later term: then no other vote of `term` can ever be cast."""
        return shadow.hard == HardState(term, candidate) or shadow.hard.term > term

    def _voted(self, server: ServerId, term: int, candidate: ServerId) -> None:
        other = self._votes.setdefault((server, term), candidate)
        if other != candidate:
            self.fail("election", f"S{server} votes for S{other} and S{candidate} in term {term}")

    def _acknowledged(
        self, server: ServerId, shadow: Shadow, to: ServerId, message: AppendEntriesReply
    ) -> None:
        self.matches += 1
        if shadow.wiped:
            self.fail("wiped voter", f"S{server} lost its disk and acknowledges {message.match_index} (D-1)")
        if message.match_index > shadow.last_index or shadow.hard.term < message.term:
            self.fail(
                "durable match",
                f"S{server} acknowledges entry {message.match_index} to S{to} in term {message.term}; "
                f"on its disk are {shadow.last_index} entries and {shadow.hard}",
            )

    # -- roles and commits
    def leads(self, server: ServerId, term: int, terms: Sequence[int]) -> None:
        """`server` became leader of `term`; `terms` are those of its log's entries from index 1 on."""
        other = self.leaders.setdefault(term, server)
        if other != server:
            self.fail("election", f"S{server} and S{other} both lead in term {term}")
        votes = sum(
            shadow.hard == HardState(term, server) and not shadow.wiped for shadow in self.shadows.values()
        )
        later = sum(shadow.hard.term > term or shadow.wiped for shadow in self.shadows.values())
        if not self._majority(votes + later):
            self.fail("election", f"S{server} leads in term {term} with {votes} votes on disk")
        for index in range(len(self.committed) - 1, 0, -1):
            entry = self.committed[index]
            assert entry is not None
            if index > len(terms) or terms[index - 1] != entry.term:
                self.fail(
                    "leader completeness",
                    f"S{server} leads in term {term} without committed entry {index} of term {entry.term}",
                )
            # By log matching, equal at the last committed index means equal before it.
            break

    def commits(self, server: ServerId, entries: Sequence[Entry], leads_term: int | None) -> list[Entry]:
        """`server` takes these entries for committed, in order. Returns those nobody had committed before.

        `leads_term` is the term it leads in: what it commits beyond all others it commits by counting.
        """
        new: list[Entry] = []
        last = entries[-1]
        if leads_term not in (None, last.term) and last.index >= len(self.committed):
            self.fail(
                "older term",
                f"S{server} leads in term {leads_term} and commits entry {last.index} of term {last.term} "
                "by counting (Raft 5.4.2)",
            )
        for entry in entries:
            if entry.index < len(self.committed):
                if self.committed[entry.index] != entry:
                    self.fail(
                        "committed",
                        f"S{server} commits {entry} at {entry.index}, elsewhere {self.committed[entry.index]}",
                    )
                continue
            assert entry.index == len(self.committed)
            # A crashed voter's copy counts: it will be there again, because its disk holds it.
            holders = sum(shadow.held(entry.index, entry.term) for shadow in self.shadows.values())
            if not self._majority(holders):
                self.fail(
                    "commit",
                    f"S{server} commits entry {entry.index} of term {entry.term}, which {holders} disks hold",
                )
            self.committed.append(entry)
            new.append(entry)
        return new

    def state(self, server: ServerId, index: int, digest: int) -> None:
        """Equal index, equal state (D-26)."""
        known = self._digests.setdefault(index, (digest, server))
        if known[1] != server:
            self.compared_digests += 1
        if known[0] != digest:
            self.fail(
                "digest", f"after entry {index}, S{server} has digest {digest:x}, S{known[1]} {known[0]:x}"
            )

    def assert_saw_enough(self) -> None:
        """A checker that was never fed would always pass."""
        seen = {
            "leaders": len(self.leaders),
            "granted votes": self.grants,
            "acknowledged appends": self.matches,
            "committed entries": len(self.committed) - 1,
            "compared digests": self.compared_digests,
        }
        least = {
            "leaders": 1,
            "granted votes": 1,
            "acknowledged appends": 50,
            "committed entries": 50,
            "compared digests": 20,
        }
        for name, minimum in least.items():
            if seen[name] < minimum:
                self.fail("saw enough", f"only {seen[name]} {name}, at least {minimum} expected: {seen}")
