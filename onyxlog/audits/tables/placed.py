"""Columns that begin every row of a server's files: its server and its place.

So a violation can point at them.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class Standing(StrEnum):
    """Standings of an entry in a server's log, as far as the directories that are read tell."""

    COMMITTED = "committed"
    """A majority of voters had it durably in its leader's term, or a durable snapshot holds it, or the server said so."""
    OPEN = "open"
    """The entry is in the log; nothing that is read here shows that it is committed."""
    TRUNCATED = "truncated"
    """A later record of the same log truncated it."""


@frozen(kw_only=True)
class Placed:
    """`server` and `instance` (hexadecimal): the data directory's; `file` and `file_offset` (bytes): the place in it."""

    server: int
    instance: str = ""
    file: str = ""
    file_offset: int = 0
