"""What metrics and operators see of a server's groups: counts, never a series per group."""

from __future__ import annotations

from attrs import frozen


@frozen
class GroupsStatistics:
    """A moment of one `GroupHost`; the `_total` fields count since it was made.

    `misplaced` are groups led here that another server should lead and could. `touched_total` are groups that were
    looked at, one per group and turn: what the work of a server grows with. `log_oldest_group` is the one that needs the
    oldest part of the log. `entries_total` and `commands_total` are what
    leaders here appended, no-ops and changes of members apart.
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
