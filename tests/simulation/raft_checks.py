"""Owns what Raft and the disk were promised, seen from outside: frames on disk, messages sent, roles and commits.

A shadow of each server's durable log is kept from the frames whose fsync returned. Against it every message
that claims durability is compared the moment it leaves, so that a rule of D-7 broken in one corner of the code
is found at its first use and not only when a crash happens to expose it. Majorities are those of the configuration in
the leader's log, and count disks: a replaced one never counts for its successor. Checked, each under its name:
`election`, `leader completeness`, `log matching`, `committed`, `commit`, `durable vote`, `durable match`,
`heartbeat commit`, `wiped voter`, `membership`, `transfer`, `recovery`, `truncation`, `compaction`, `snapshot`, `digest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NoReturn

from attrs import define

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.configurations import Configuration, Disk
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import (
    EntryRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
)
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.ids import Instance, ServerId


class Shadow:
    """What is certainly durable on one disk: term and vote, the term of each entry (index 0 is a sentinel), configurations.

    What a snapshot stands for counts as held: its entries are in the state.
    """

    __slots__ = ("base", "compacted", "configurations", "hard", "instance", "snapshots", "terms")

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.hard = HardState()
        self.terms = [0]
        self.base = 0
        """The log on this disk begins after this index, or before it if compaction has not got as far."""
        self.compacted = 0
        """The server let go of its log up to here."""
        self.configurations: list[tuple[int, Configuration]] = []
        self.snapshots: dict[tuple[int, int], SnapshotInfo] = {}

    def write(self, records: Sequence[Record], committed: Sequence[Entry | None]) -> None:
        for record in records:
            match record:
                case EntryRecord(_, entry):
                    assert entry.index == len(self.terms), f"{entry.index=} after {len(self.terms) - 1}"
                    self.terms.append(entry.term)
                    if entry.kind is EntryKind.MEMBERSHIP:
                        self.configurations.append((entry.index, Configuration.read(entry.payload)))
                case TruncateRecord(_, from_index):
                    self._truncate(from_index)
                case HardStateRecord(_, hard_state):
                    self.hard = hard_state
                case RosterRecord(_, roster):
                    self.configurations = [(0, Configuration.of_founders(roster))]
                case RestoreRecord(_, meta):
                    self.restart_after(meta, committed)

    def _truncate(self, from_index: int) -> None:
        del self.terms[from_index:]
        while self.configurations and self.configurations[-1][0] >= from_index > 0:
            self.configurations.pop()

    def restart_after(self, meta: SnapshotMeta, committed: Sequence[Entry | None]) -> None:
        """The log is dropped and begins after a snapshot."""
        self.base = meta.index
        self.terms = [0, *(entry.term for entry in committed[1 : meta.index + 1] if entry is not None)]
        self.configurations = [(meta.index, Configuration.read(meta.membership))]

    def copy(self) -> Shadow:
        other = Shadow(self.instance)
        other.hard, other.terms, other.base, other.compacted = (
            self.hard,
            list(self.terms),
            self.base,
            self.compacted,
        )
        other.configurations, other.snapshots = list(self.configurations), self.snapshots
        return other

    def holds(self, index: int, term: int) -> bool:
        return index < len(self.terms) and self.terms[index] == term

    @property
    def last_index(self) -> int:
        return len(self.terms) - 1


@define
class Core:
    """What was seen of a server's consensus core since it began: how far it is committed, and in which term it led last."""

    committed: int
    configuration: tuple[int, Configuration] | None = None
    """The newest of its log as of the last turn, with the index of its entry."""
    membership: Membership | None = None
    """The core's own value of `configuration`. Its index does not identify it, as another may take its place in the log."""
    led: int = 0


class RaftChecks:
    """One Raft group's promises over all of its servers.

    Args:
        on_commit: hears of every entry, in order, when the first server commits it.
    """

    COMPARES: ClassVar[bool] = True
    """False while a plant wants to see whether the servers notice by themselves that their states differ (D-26)."""

    def __init__(self, on_commit: Callable[[Entry], None] = lambda entry: None) -> None:
        self._on_commit = on_commit
        self._cores: dict[ServerId, Core] = {}
        self.shadows: dict[ServerId, Shadow] = {}
        """Of the disk that each server has now."""
        self.disks: dict[Disk, Shadow] = {}
        """Of every disk that ever was: what a lost one said may still be on its way."""
        self.leaders: dict[int, ServerId] = {}
        self.committed: list[Entry | None] = [None]
        """The committed entry of each index; [0] is a sentinel."""
        self._committed_in: list[int] = [0]
        """The term of the leadership that committed it, or a later one if a follower was the first to be seen."""
        self.configurations: list[tuple[int, Configuration]] = []
        """The committed ones, with the index of their entry."""
        self._entries: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._votes: dict[tuple[Disk, int], ServerId] = {}
        self._electors: set[Disk] = set()
        """Every disk that was ever counted on by a configuration."""
        self.change_began: dict[tuple[int, int], tuple[dict[Disk, int], int]] = {}
        """When a configuration was first written: how far each log went, and what was committed."""
        self.transfers: set[tuple[ServerId, int]] = set()
        """Who was told to stand for election at once, in which leader's term."""
        self._digests: dict[int, tuple[int, ServerId]] = {}
        self.differs_since: int | None = None
        """The first index at which two servers' states differed, if that was not to be noticed here."""
        self.grants = self.matches = self.truncations = self.recoveries = self.compared_digests = 0
        self.snapshots = self.snapshots_taken = self.snapshots_received = 0

    def fail(self, checker: str, found: str) -> NoReturn:
        raise BrokenPromiseError(checker, found)

    # -- disks
    def formatted(self, server: ServerId, instance: Instance) -> None:
        """A server starts with a disk that it never had before."""
        self.shadows[server] = self.disks[server, instance] = Shadow(instance)

    def _of(self, disk: Disk) -> Shadow | None:
        return self.disks.get(disk)

    def _replace(self, server: ServerId, shadow: Shadow) -> None:
        self.shadows[server] = self.disks[server, shadow.instance] = shadow

    def newest_configuration(self) -> Configuration | None:
        """The newest committed one; None before a cluster was founded."""
        return self.configurations[-1][1] if self.configurations else None

    def writing(self, server: ServerId, records: Sequence[Record]) -> None:
        """A frame is handed to the disk. Entries of equal (index, term) are equal, and so is all before them."""
        shadow = self.shadows[server]
        terms = shadow.terms
        changed_at = shadow.configurations[-1][0] if shadow.configurations else 0
        last_term = {len(terms) - 1: terms[-1]}
        written: dict[int, int] = {}
        for record in records:
            if isinstance(record, TruncateRecord):
                self.truncations += 1
                index = record.from_index
                changed_at = max((at for at, _ in shadow.configurations if at < index), default=0)
                # What is cut off may be of this very frame, and so may be what it leaves.
                last_term = {
                    index - 1: written.get(index - 1, terms[index - 1] if index <= len(terms) else -1)
                }
                for at in range(index, min(len(terms), len(self.committed))):
                    entry = self.committed[at]
                    if entry is not None and entry.term == terms[at]:
                        self.fail(
                            "truncation", f"S{server} truncates entry {at} of term {entry.term}: committed"
                        )
            elif isinstance(record, RosterRecord):
                self._electors.update((s, Instance(instance)) for s, instance in record.roster)
            elif isinstance(record, RestoreRecord):
                self._snapshot_of(server, record.meta)
                changed_at = 0
                last_term = {record.meta.index: record.meta.term}
            elif isinstance(record, EntryRecord):
                entry = record.entry
                if entry.kind is EntryKind.MEMBERSHIP:
                    self._changing(server, entry, changed_at)
                    changed_at = entry.index
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
                written |= last_term

    def _changing(self, server: ServerId, entry: Entry, changed_at: int) -> None:
        """A configuration is written: one at a time, and each was shown to be what it says."""
        configuration = Configuration.read(entry.payload)
        self._electors |= configuration.electorate
        if changed_at >= len(self.committed):
            self.fail(
                "membership",
                f"S{server} writes the configuration of entry {entry.index}, that of {changed_at} is not committed",
            )
        key = (entry.index, entry.term)
        if key not in self.change_began:
            self.change_began[key] = (
                {disk: shadow.last_index for disk, shadow in self.disks.items()},
                len(self.committed) - 1,
            )

    def durable(self, server: ServerId, records: Sequence[Record]) -> None:
        """The frame's fsync returned."""
        self.shadows[server].write(records, self.committed)

    def compacting(self, server: ServerId, index: int, newest: SnapshotInfo | None) -> None:
        """The server no longer needs its log up to `index`: its newest durable snapshot must cover that."""
        covered = newest.header.meta.index if newest is not None else 0
        durable = max((at for at, _ in self.shadows[server].snapshots), default=0)
        if index > min(covered, durable):
            self.fail(
                "compaction", f"S{server} lets go of its log up to {index}; its snapshots end at {durable}"
            )
        self.shadows[server].compacted = max(self.shadows[server].compacted, index)

    def snapshot(self, server: ServerId, info: SnapshotInfo, *, received: bool) -> None:
        """A snapshot became durable: it stands for exactly the committed state at its index."""
        meta = info.header.meta
        self._snapshot_of(server, meta)
        self.shadows[server].snapshots[meta.index, meta.term] = info
        self.snapshots_taken += not received
        self.snapshots_received += received
        self.state(server, meta.index, info.digest, what="a snapshot with")

    def _snapshot_of(self, server: ServerId, meta: SnapshotMeta) -> None:
        entry = self.committed[meta.index] if 0 < meta.index < len(self.committed) else None
        if entry is None or entry.term != meta.term or entry.next_position != meta.next_position:
            self.fail("snapshot", f"S{server} has a snapshot of {meta}; committed there is {entry}")
        before = [c for index, c in self.configurations if index <= meta.index]
        if before and Configuration.read(meta.membership) != before[-1]:
            self.fail(
                "snapshot",
                f"S{server} has a snapshot of entry {meta.index} with other members than {before[-1]}",
            )

    def recovered(
        self,
        server: ServerId,
        hard: HardState,
        log: Log,
        in_flight: Sequence[Record] | None,
        newest: SnapshotInfo | None,
    ) -> None:
        """After a crash: exactly what was durable, with or without the frame whose fsync had not returned.

        Of what a durable snapshot covers the log may hold anything, also nothing.
        """
        self.recoveries += 1
        shadow = self.shadows[server]
        possible = [shadow]
        if in_flight is not None:
            with_frame = shadow.copy()
            with_frame.write(in_flight, self.committed)
            possible.append(with_frame)
        base = log.first_index - 1
        covered = newest.header.meta.index if newest is not None else 0
        if base > covered:
            self.fail(
                "recovery",
                f"S{server} recovers a log from {base + 1} on, its newest snapshot ends at {covered}",
            )
        if newest is not None:
            self._snapshot_of(server, newest.header.meta)
            if (covered, newest.header.meta.term) not in shadow.snapshots:
                # It became durable in the moment of the crash.
                shadow.snapshots[covered, newest.header.meta.term] = newest
        terms = [log.term_at(index) for index in range(log.first_index, log.last_index + 1)]
        for state in possible:
            if state.hard == hard and state.terms[base + 1 :] == terms and state.last_index == log.last_index:
                if base > max(state.base, state.compacted):
                    continue
                self._replace(server, state)
                return
        if newest is not None and base == covered == log.last_index:
            # The log did not reach the snapshot that had just arrived: it begins after it.
            meta = newest.header.meta
            for state in possible:
                if state.hard == hard and not state.holds(meta.index, meta.term):
                    state.restart_after(meta, self.committed)
                    self._replace(server, state)
                    return
        self.fail(
            "recovery",
            f"S{server} recovers {hard} and entries {base + 1} to {log.last_index}, snapshot {covered}; durable were "
            f"{shadow.hard} and {shadow.base + 1} (compacted {shadow.compacted}) to {shadow.last_index}, "
            f"a frame of {in_flight and len(in_flight)} records was in flight",
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
                    if not self._vote_is_durable(shadow, message.term, to):
                        self.fail(
                            "durable vote",
                            f"S{server} grants S{to} its vote of term {message.term}, on disk is {shadow.hard}",
                        )
                    self._voted((server, sender.instance), message.term, to)
            elif isinstance(message, RequestVote):
                if message.transfer and (server, message.term - 1) not in self.transfers:
                    self.fail(
                        "transfer",
                        f"S{server} says that the leader of term {message.term - 1} wants it to lead; it does not",
                    )
                if (server, sender.instance) not in self._electors:
                    self.fail(
                        "wiped voter",
                        f"S{server} campaigns in term {message.term} with a disk that never had a vote (D-1)",
                    )
                if not self._vote_is_durable(shadow, message.term, server):
                    self.fail(
                        "durable vote",
                        f"S{server} campaigns in term {message.term}, on disk is {shadow.hard}",
                    )
                self._voted((server, sender.instance), message.term, server)
            elif isinstance(message, AppendEntriesReply):
                if message.accepted:
                    self._acknowledged(server, shadow, to, message)
            elif isinstance(message, AppendEntries | Heartbeat | TimeoutNow):
                if isinstance(message, TimeoutNow):
                    self.transfers.add((to, message.term))
                if self.leaders.get(message.term) != server or shadow.hard.term != message.term:
                    self.fail(
                        "durable vote",
                        f"S{server} leads in term {message.term}: elected is {self.leaders.get(message.term)}, "
                        f"on its disk is {shadow.hard}",
                    )
                if isinstance(message, Heartbeat) and message.leader_commit:
                    entry = self.committed[message.leader_commit]
                    assert entry is not None
                    followers = [disk for (server_, _), disk in self.disks.items() if server_ == to]
                    if not any(follower.holds(message.leader_commit, entry.term) for follower in followers):
                        self.fail(
                            "heartbeat commit",
                            f"S{server} tells S{to} to commit {message.leader_commit}, which it does not hold (D-7)",
                        )

    @staticmethod
    def _vote_is_durable(shadow: Shadow, term: int, candidate: ServerId) -> bool:
        """Exactly this vote, or a later term: then no other vote of `term` can ever be cast."""
        return shadow.hard == HardState(term, candidate) or shadow.hard.term > term

    def _voted(self, disk: Disk, term: int, candidate: ServerId) -> None:
        other = self._votes.setdefault((disk, term), candidate)
        if other != candidate:
            self.fail("election", f"S{disk[0]} votes for S{other} and S{candidate} in term {term}")

    def _acknowledged(
        self, server: ServerId, shadow: Shadow, to: ServerId, message: AppendEntriesReply
    ) -> None:
        self.matches += 1
        if message.match_index > shadow.last_index or shadow.hard.term < message.term:
            self.fail(
                "durable match",
                f"S{server} acknowledges entry {message.match_index} to S{to} in term {message.term}; "
                f"on its disk are {shadow.last_index} entries and {shadow.hard}",
            )

    # -- roles and commits
    def begins(self, server: ServerId, log: Log) -> None:
        """A server's core starts with this log."""
        self._cores[server] = Core(log.first_index - 1)

    def turned(self, disk: Disk, raft: Raft) -> tuple[int, Configuration]:
        """A server took a turn; gives the newest configuration of its log, and the index of its entry."""
        server, core = disk[0], self._cores[disk[0]]
        newest = self._configuration_of(server, raft)
        before = core.configuration or newest
        core.configuration = newest
        if raft.role is Role.LEADER and core.led != raft.term:
            core.led = raft.term
            self.leads(disk, raft.term, raft.log, before[1])
        commit = min(raft.commit_index, raft.log.last_index)
        known = max(core.committed, raft.log.first_index - 1)
        if commit > known:
            core.committed = commit

            def configuration_for(index: int) -> list[Configuration]:
                # One that follows begins to count when the one before it is committed, at the earliest.
                return [before[1], newest[1]] if index > before[0] else [before[1]]

            while known < commit:
                entries = raft.log.slice(known + 1, commit + 1, 1 << 30)
                known = entries[-1].index
                leads_term = raft.term if raft.role is Role.LEADER and known == commit else None
                for entry in self.commits(server, entries, raft.term, leads_term, configuration_for):
                    self._on_commit(entry)
        return newest

    def _configuration_of(self, server: ServerId, raft: Raft) -> tuple[int, Configuration]:
        core, changed_at = self._cores[server], raft.members_changed_index
        known = core.configuration
        if (
            known is not None
            and known[0] == changed_at <= raft.commit_index
            and core.membership is raft.membership
        ):
            return known
        core.membership = raft.membership
        memberships = raft.log.memberships
        in_force = Configuration.read(raft.membership.encode())
        if memberships and Configuration.read(memberships[-1][1]) != in_force:
            self.fail("membership", f"S{server} uses {in_force}, its log has {memberships[-1]}")
        return changed_at, in_force

    def leads(self, disk: Disk, term: int, log: Log, configuration: Configuration) -> None:
        """A server became leader of `term` with this log, whose newest configuration is given."""
        server = disk[0]
        other = self.leaders.setdefault(term, server)
        if other != server:
            self.fail("election", f"S{server} and S{other} both lead in term {term}")

        def voted(voter: Disk) -> bool:
            shadow = self._of(voter)
            if shadow is None:
                return False
            gone = shadow.hard.term > term and self._votes.get((voter, term)) == server
            return shadow.hard == HardState(term, server) or gone

        if not configuration.majority(voted):
            votes = sorted(voter for voter, _ in filter(voted, self.disks))
            self.fail(
                "election", f"S{server} leads in term {term} with votes of {votes} on disk: {configuration}"
            )
        index = len(self.committed) - 1
        entry = self.committed[index]
        while self._committed_in[index] > term:
            # Its votes came late, as to a server that was stopped: of what later terms committed, and be it entries of
            # earlier ones, it need not know.
            index -= 1
            entry = self.committed[index]
        if entry is not None and (
            index > log.last_index or index < log.first_index - 1 or log.term_at(index) != entry.term
        ):
            # By log matching, equal at the last committed index means equal before it.
            self.fail(
                "leader completeness",
                f"S{server} leads in term {term} without committed entry {index} of term {entry.term}",
            )

    def commits(
        self,
        server: ServerId,
        entries: Sequence[Entry],
        term: int,
        leads_term: int | None,
        configuration_for: Callable[[int], Sequence[Configuration]],
    ) -> list[Entry]:
        """`server`, in `term`, takes these entries for committed, in order. Returns those nobody had committed before.

        `leads_term` is the term it leads in: what it commits beyond all others it commits by counting, the entry
        `index` with the disks of one of `configuration_for(index)`.
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

            # A crashed voter's copy counts: it will be there again, because its disk holds it. That of a lost disk
            # does, for what it acknowledged may have been on its way; its successor's does not.
            def holds(disk: Disk, entry: Entry = entry) -> bool:
                shadow = self._of(disk)
                return shadow is not None and shadow.holds(entry.index, entry.term)

            configurations = configuration_for(entry.index)
            if not any(configuration.majority(holds) for configuration in configurations):
                holders = sorted(holder for holder, _ in filter(holds, self.disks))
                self.fail(
                    "commit",
                    f"S{server} commits entry {entry.index} of term {entry.term}, which disks of {holders} hold: "
                    f"{configurations}",
                )
            self.committed.append(entry)
            self._committed_in.append(term)
            if entry.kind is EntryKind.MEMBERSHIP:
                self.configurations.append((entry.index, Configuration.read(entry.payload)))
            new.append(entry)
        return new

    def state(self, server: ServerId, index: int, digest: int, what: str = "digest") -> None:
        """Equal index, equal state (D-26)."""
        known = self._digests.setdefault(index, (digest, server))
        if known[1] != server:
            self.compared_digests += 1
        if known[0] != digest:
            if not self.COMPARES:
                self.differs_since = min(index, self.differs_since or index)
                return
            self.fail(
                "digest", f"after entry {index}, S{server} has {what} {digest:x}, S{known[1]} {known[0]:x}"
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
