"""Table `members`: configurations of groups, as their logs say."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed, Standing
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class MembershipRow(Placed):
    """One configuration in a server's log.

    Attributes:
        source: `entry`, or `base` or `restore` if it is the one that the log began with (then `index` is where it begins);
            `founders` before the first one, at index 0: the group was founded by these.
        frame, record: number of the write, and its own in that: order within one server's log.
        voters, learners, observers, leaving: server numbers by role, ascending.
        outgoing: the voters before it, if it is a joint one.
        instances: hexadecimal instance of each member, in order of all server numbers of `servers`.
    """

    group: int
    index: int
    term: int
    source: str = "entry"
    standing: str = Standing.COMMITTED.value
    frame: int = 0
    record: int = 0
    servers: tuple[int, ...]
    instances: tuple[str, ...] = ()
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    observers: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()


MEMBERS: Final = Table("members", MembershipRow, "configurations of groups, as their logs say")
