"""Sessions with what they hold, and watches, from the reports that the admin commands answer with, too. Pure.

Lists are bounded: what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zraft.admin.console.encoding import shown
from zraft.admin.console.values import SessionRow, Sessions, Watches, WatchRow
from zraft.monitoring.statistics import ConnectionStatistics, Dump, Listing, WatchesByPath, WatchesBySession

SESSIONS_MAX: Final = 500
WATCHED_MAX: Final = 500
NAMED_MAX: Final = 20
"""Paths of one session, or sessions of one path, that are named; the others are counted."""


def sessions_of(
    dump: Dump, connections: Listing[ConnectionStatistics], watches: WatchesBySession
) -> Sessions:
    """Return the sessions of the cluster, those at this server first."""
    here = {one.session.session: one for one in connections.items if one.session is not None}
    ephemerals = dict(dump.ephemerals.items)
    watched = dict(watches.items)
    known = dict(dump.sessions.items)
    order = sorted(known, key=lambda session: (session not in here, session))[:SESSIONS_MAX]
    rows = []
    for session in order:
        connection = here.get(session)
        holds, looks = ephemerals.get(session, ()), watched.get(session, ())
        rows.append(
            SessionRow(
                shown(session),
                known[session],
                None if connection is None else connection.address,
                None
                if connection is None or connection.session is None
                else connection.session.last_operation,
                tuple(sorted(holds)[:NAMED_MAX]),
                len(holds),
                tuple(sorted(looks)[:NAMED_MAX]),
                len(looks),
            )
        )
    return Sessions(tuple(rows), dump.sessions.total - len(rows))


def watches_of(found: WatchesByPath) -> Watches:
    """Return watched paths in order, with who watches them."""
    rows = [_row(path, sessions) for path, sessions in sorted(found.items)[:WATCHED_MAX]]
    return Watches(tuple(rows), max(0, found.total - sum(row.count for row in rows)))


def _row(path: str, sessions: Iterable[int]) -> WatchRow:
    listed = list(sessions)
    return WatchRow(path, tuple([shown(one) for one in listed[:NAMED_MAX]]), len(listed))
