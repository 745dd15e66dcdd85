"""Matching of a leader's log and a follower's: what an AppendEntries, or its refusal, says about a log.

Functions of a log and a message; they change neither (section 3.5, and section 5.3 of the paper).
"""

from __future__ import annotations

from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntries, AppendEntriesReply, Entry, EntryKind
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId


def check_entries(message: AppendEntries) -> bool:
    """Check that this is a piece of a log, and return whether it holds a membership.

    Raises:
        ProtocolError: it is not.
    """
    index, term, position = message.prev_log_index, message.prev_log_term, None
    membership = False
    for entry in message.entries:
        index += 1
        if (
            entry.index != index
            or not term <= entry.term <= message.term
            or (position is not None and entry.position != position)
        ):
            raise ProtocolError(
                f"AppendEntries of term {message.term} holds entry {entry.index} of term {entry.term} at "
                f"position {entry.position}, expected entry {index} of term {term} to {message.term} at "
                f"position {position}"
            )
        term = entry.term
        position = entry.position + entry.count
        if entry.kind is EntryKind.MEMBERSHIP:
            Membership.decode(entry.payload)
            membership = True
    if not message.entries:
        raise ProtocolError(f"AppendEntries of term {message.term} without entries, expected at least one")
    return membership


def find_conflict(
    log: Log, commit_index: int, leader: ServerId, message: AppendEntries
) -> tuple[int, int] | None:
    """Return why a follower cannot append: (conflict_index, conflict_term) of its refusal, None if it can.

    Raises:
        ProtocolError: the leader contradicts what is committed.
    """
    prev = message.prev_log_index
    if prev > log.last_index:
        return log.last_index + 1, 0
    if prev < log.first_index - 1:
        return None
    term = log.term_at(prev)
    if term == message.prev_log_term:
        return None
    if prev <= commit_index:
        raise ProtocolError(
            f"server {leader} leads term {message.term} with entry {prev} of term "
            f"{message.prev_log_term}, but the one of term {term} is committed here"
        )
    # The leader has everything that is committed here, so it need not look further back.
    return max(log.first_index_of_term_at(prev), commit_index + 1), term


def new_entries(log: Log, message: AppendEntries) -> tuple[Entry, ...]:
    """Return the entries from the first on that we lack or that conflicts with ours (section 3.5, step 3).

    A late or repeated message is a prefix of what we hold and must not shorten it. What lies before the base
    is committed, and so equal.
    """
    entries = message.entries
    if message.prev_log_index == log.last_index:
        return entries
    for place, entry in enumerate(entries):
        if entry.index > log.last_index or (
            entry.index >= log.first_index - 1 and log.term_at(entry.index) != entry.term
        ):
            return entries[place:]
    return ()


def next_probe(log: Log, refusal: AppendEntriesReply) -> int:
    """Return where the logs may agree, from a refusal (section 5.3 of the paper, last but one paragraph).

    Our last entry not above the question whose term is not above the follower's there: if it is of that
    term, the logs may agree up to it; otherwise nothing of that term agrees, and the follower's run of it
    is skipped as a whole. So a probe settles one term, however many entries it has.
    """
    prev = refusal.prev_log_index
    if refusal.conflict_term == 0:
        return min(refusal.conflict_index, prev)
    index = log.last_index_of_term_at_most(refusal.conflict_term, prev)
    if index >= log.first_index - 1 and log.term_at(index) == refusal.conflict_term:
        return min(index + 1, prev)  # the base counts, too: its term is known
    return min(index + 1, refusal.conflict_index, prev)
