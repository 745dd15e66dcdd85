"""The numbers of a server's groups for metrics and operators: counts of all, and what a leader knows of its followers."""

from __future__ import annotations

from attrs import frozen

from zraft_core.ids import ServerId


@frozen
class FollowerState:
    """A member of a group as the group's leader knows it at a moment.

    Attributes:
        behind: entries of the leader's log that the member is not known to have; None while its log is not known.
        silent_ticks: ticks since it last answered the leader; None if it did not in this leadership.
        in_sync: whether it answers, and has everything that is committed or is sent the rest right now.
    """

    server: ServerId
    behind: int | None
    silent_ticks: int | None
    in_sync: bool


@frozen
class GroupsStatistics:
    """The numbers of one `GroupHost` at a moment; the `_total` fields count since it was made.

    Attributes:
        misplaced: groups led here that another server should lead and could.
        silent_servers: servers that belong to groups led here and do not answer shared heartbeats.
        log_needed_bytes: bytes of the log back to the oldest entry that any group needs.
        log_oldest_group: the group that needs the oldest part of the log.
        touched_total: groups that were looked at, one per group and turn: a server's work grows with this
            number.
        mistakes_total: messages that no correct peer sends.
        strangers_total: messages to groups that are not here.
        entries_total, commands_total: what leaders here appended, without no-ops and changes of members.
    """

    groups: int
    leading: int
    following: int
    campaigning: int
    learning: int
    leaderless: int
    asleep: int
    misplaced: int
    silent_servers: int
    log_needed_bytes: int
    log_oldest_group: int
    turns_total: int
    touched_total: int
    mistakes_total: int
    strangers_total: int
    moves_total: int
    snapshots_total: int
    entries_total: int
    commands_total: int


@frozen
class AbsentVoter:
    """A voter of a group that does not answer, as this server sees it.

    Attributes:
        silent_ms: time since it last said anything about groups; None if it never did.
        replaced: whether the server answers, but with another disk, which does not vote in this group (D-1).
    """

    server: ServerId
    silent_ms: int | None
    replaced: bool = False
