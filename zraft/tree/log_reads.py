"""Reading a log: a range of a directory's sequential znodes, with bounded work, however many there are."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.tree.children import ManyChildren
from zraft.tree.machine import Machine
from zraft.tree.paths import ROOT
from zraft_core.errors import Code
from zraft_core.znodes.acl import OPEN_ACL, READ, Ids, permits

HOLES_MAX: Final = 4_096
"""Numbers without an entry that one read passes over: about 1 ms."""


@frozen
class LogPage:
    """A piece of a log. Go on reading at `next`, which is `end` when all was read.

    `entries` are (position, data, czxid), positions being the sequence numbers; `first_visible` is where the log
    begins, as it was truncated last; `end` is the number that the next entry gets.
    """

    entries: tuple[tuple[int, bytes | None, int], ...]
    next: int
    first_visible: int
    end: int


def read_log(
    machine: Machine, directory: str, prefix: str, first: int, limit: int, bytes_max: int, ids: Ids
) -> LogPage | Code:
    """Return entries `prefix` and number, from number `first` on.

    They are up to `limit`, or about `bytes_max` of data, at least one.

    Returns:
        BAD_ARGUMENTS for a prefix with a slash; NO_NODE without the directory; NO_AUTH if it, or the first entry that
        there is, may not be read. An unreadable entry further on ends the page.
    """
    assert limit > 0
    if "/" in prefix:
        return Code.BAD_ARGUMENTS
    node = machine.find(directory)
    if node is None:
        return Code.NO_NODE
    if not permits(node.acl, READ, ids):
        return Code.NO_AUTH
    first_visible = node.children.first if isinstance(node.children, ManyChildren) else 0
    end = max(
        node.creates, first_visible
    )  # it is below 0 after 2^31 children, when no more entries have numbers
    number = max(first, first_visible)
    stem = f"{directory if directory != ROOT else ''}/{prefix}"
    entries: list[tuple[int, bytes | None, int]] = []
    size = holes = 0
    find = machine.nodes.get
    while number < end and len(entries) < limit and size < bytes_max and holes < HOLES_MAX:
        entry = find(f"{stem}{number:010d}")
        if entry is None:
            holes += 1
        else:
            if entry.acl is not OPEN_ACL and not permits(entry.acl, READ, ids):
                if not entries:
                    return Code.NO_AUTH
                break
            size += entry.data_length
            if entries and size > bytes_max:
                break
            entries.append((number, entry.data, entry.czxid))
        number += 1
    return LogPage(tuple(entries), number, first_visible, end)
