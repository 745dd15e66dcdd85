"""Stored values and messages of a Raft group.

Values only, no behaviour.

Names follow Ongaro's dissertation. Every message carries the sender's term. The sender itself
(server id and disk instance) is not in the message: the transport authenticates it and hands it to
`Raft.step`, so that a message can never claim to be from somebody else (D-1, D-6).

All times are ticks of one millisecond, counted by whoever drives the group.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from attrs import frozen

from zraft_core.ids import GroupId, Instance, ServerId


class EntryKind(IntEnum):
    """Kinds of entries by their payload; the state machine sees COMMANDS only."""

    NOOP = 0
    COMMANDS = 1
    MEMBERSHIP = 2


@frozen
class Entry:
    """One log entry: one batch of commands (design: one entry per turn of the leader's loop).

    `position` is the cumulative number of the entry's first command in this group's log and `count`
    how many there are (D-16); a NOOP or MEMBERSHIP entry has count 0. Positions start at 1.
    """

    index: int
    term: int
    kind: EntryKind
    position: int
    count: int
    payload: bytes

    @property
    def next_position(self) -> int:
        """Position of the first command after this entry."""
        return self.position + self.count


@frozen
class HardState:
    """Term and vote.

    They must be durable before any message that depends on them leaves (D-7): one atomic record.
    """

    term: int = 0
    voted_for: ServerId | None = None


class MemberRole(IntEnum):
    """Roles of a server in a configuration. The numbers stand in MEMBERSHIP entries."""

    VOTER = 1
    LEARNER = 2
    """Follows; is to vote once it has caught up."""
    OBSERVER = 3
    """Follows; never votes."""
    LEAVING = 4
    """In a joint configuration only: a voter of the outgoing one that is no member of the next."""


UNKNOWN_INSTANCE: Final = Instance(b"")
"""The instance of a member that was added by its number and address, and has not been seen yet. It never
votes.
"""


@frozen
class Member:
    """One server of a configuration: the disk instance that counts, its role, and where it is reached.

    `address` is "HOST:PORT", "" if unknown.
    """

    instance: Instance
    role: MemberRole = MemberRole.VOTER
    address: str = ""

    @property
    def voter(self) -> bool:
        """True if the server votes in the configuration that holds in the end."""
        return self.role is MemberRole.VOTER


@frozen
class PreVote:
    """Question whether the receiver would vote for the sender in `term` (one above its own).

    It changes nobody's state (dissertation 9.6).
    """

    group: GroupId
    term: int
    last_log_index: int
    last_log_term: int


@frozen
class PreVoteReply:
    """`term` is the term asked about when granted, the refuser's own term otherwise."""

    group: GroupId
    term: int
    granted: bool


@frozen
class RequestVote:
    """`transfer`: the leader asked for this election by `TimeoutNow`, so that who still hears it may vote (3.10)."""

    group: GroupId
    term: int
    last_log_index: int
    last_log_term: int
    transfer: bool = False


@frozen
class RequestVoteReply:
    """Answer to `RequestVote`."""

    group: GroupId
    term: int
    granted: bool


@frozen
class AppendEntries:
    """Entries from `prev_log_index + 1` on; never empty (what an empty one is for is a `Heartbeat`)."""

    group: GroupId
    term: int
    prev_log_index: int
    prev_log_term: int
    leader_commit: int
    entries: tuple[Entry, ...]


@frozen
class AppendEntriesReply:
    """Answer to one AppendEntries.

    Accepted: `match_index` = prev_log_index + number of entries, all of it durable at the sender.
    Refused: `prev_log_index` repeats the question, `conflict_term` is the term the follower has there
    (0 if its log is shorter) and `conflict_index` the first index of that term, or its last index + 1.
    """

    group: GroupId
    term: int
    accepted: bool
    match_index: int
    prev_log_index: int = 0
    conflict_index: int = 0
    conflict_term: int = 0


@frozen
class Heartbeat:
    """`leader_commit` is min(commit, what this follower is known to match), so that it is safe to obey (D-7).

    `round` numbers the leader's quorum rounds; check-quorum and ReadIndex count the replies per round.
    Round 0 belongs to none and asks for no reply: it carries a new commit index at once, or says to a follower whose
    answer is not needed that the leader lives.
    """

    group: GroupId
    term: int
    round: int
    leader_commit: int


@frozen
class HeartbeatReply:
    """`last_index` is the sender's last log index, so that a lost append is noticed one heartbeat later."""

    group: GroupId
    term: int
    round: int
    last_index: int


@frozen
class ReadIndex:
    """A follower asks the leader for a read index; `context` is the asker's own number for the read."""

    group: GroupId
    term: int
    context: int


@frozen
class ReadIndexReply:
    """Answer to `ReadIndex`."""

    group: GroupId
    term: int
    context: int
    index: int


@frozen
class TimeoutNow:
    """The leader hands its leadership over: campaign at once, without pre-vote (dissertation 3.10).

    Matters in the term it names only, so that a late or repeated one does nothing.
    """

    group: GroupId
    term: int


Message = (
    PreVote
    | PreVoteReply
    | RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendEntriesReply
    | Heartbeat
    | HeartbeatReply
    | ReadIndex
    | ReadIndexReply
    | TimeoutNow
)

NO_INDEX: Final = 0
"""The index before the first entry; its term is 0."""
