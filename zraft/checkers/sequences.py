"""Check of sequential znodes: numbered once each, in order, taken at most once, listed while they were there."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from zraft.checkers.history import (
    READS,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)

_NUMBERED: Final = re.compile(r"-[0-9]{10}\Z")


def check_sequences(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where sequential znodes contradict `sequence` or `queue`.

    `sequence`: one path per acknowledged create, numbers grow with zxids, no payload under two paths. `queue`: no item is
    taken twice.
    """
    found: list[Violation] = []
    made: dict[str, Operation] = {}
    payloads: dict[tuple[str, str], set[str]] = defaultdict(set)
    taken: dict[str, Operation] = {}
    parents: dict[str, list[Operation]] = defaultdict(list)
    prefixes = {
        (one.path, one.value)
        for one in operations(histories)
        if one.kind is Kind.CREATE and one.path.endswith("-") and one.value is not None
    }
    for one in operations(histories):
        if one.outcome is not Outcome.OK:
            continue
        if one.kind is Kind.CREATE and one.path.endswith("-"):
            assert one.created is not None, one
            if one.created in made:
                found.append(
                    Violation("sequence", f"one path twice: {describe(made[one.created])}; {describe(one)}")
                )
            made[one.created] = one
            parents[one.path.rpartition("/")[0]].append(one)
            if one.value is not None:
                payloads[one.path, one.value].add(one.created)
        elif one.kind in READS and one.value is not None and (one.path[:-10], one.value) in prefixes:
            payloads[one.path[:-10], one.value].add(one.path)
        elif one.kind is Kind.DELETE and one.path[:-10].endswith("-"):
            if one.path in taken:
                found.append(Violation("queue", f"taken twice: {describe(taken[one.path])}; {describe(one)}"))
            taken[one.path] = one
    for (prefix, payload), paths in payloads.items():
        if len(paths) > 1:
            found.append(Violation("sequence", f"{prefix}: created twice with {payload!r}: {sorted(paths)}"))
    for creates in parents.values():
        creates.sort(key=lambda one: one.zxid)
        for before, after in itertools.pairwise(creates):
            if (before.created or "")[-10:] >= (after.created or "")[-10:]:
                found.append(
                    Violation(
                        "sequence",
                        f"numbers against zxids: {describe(before)} {before.created}; {describe(after)} {after.created}",
                    )
                )
    return found


def check_lists(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where the histories contradict `children`.

    `children`: a list with zxid z has every sequential znode that was made up to z and not deleted, and none that was.

    Each number is given once, so a znode that was deleted never comes back. Ephemerals may be missing: sessions end.
    """
    made: dict[str, list[Operation]] = defaultdict(list)
    deleted: dict[str, int] = {}
    unsure: set[str] = set()
    lists: dict[str, list[Operation]] = defaultdict(list)
    for one in operations(histories):
        if one.kind is Kind.DELETE and one.outcome is Outcome.UNKNOWN:
            unsure.add(one.path)
        if one.outcome is not Outcome.OK:
            continue
        if one.kind is Kind.DELETE and _NUMBERED.search(one.path):
            deleted[one.path] = one.zxid
        elif one.kind is Kind.CREATE and one.created is not None and one.path.endswith("-"):
            made[one.created.rpartition("/")[0]].append(one)
        elif one.kind in (Kind.CHILDREN, Kind.SYNC_CHILDREN):
            lists[one.path].append(one)
    found: list[Violation] = []
    for parent, rows in lists.items():
        births = sorted(made[parent], key=lambda one: one.zxid)
        present: dict[str, Operation] = {}
        place = 0
        for row in sorted(rows, key=lambda one: one.zxid):
            while place < len(births) and births[place].zxid <= row.zxid:
                present[births[place].created or ""] = births[place]
                place += 1
            names = {f"{parent}/{name}" for name in row.names}
            for path in [path for path in present if deleted.get(path, row.zxid + 1) <= row.zxid]:
                del present[path]
            found += [
                Violation("children", f"{path} is missing: {describe(present[path])}; {describe(row)}")
                for path in present.keys() - names - unsure
                if not present[path].ephemeral
            ]
            found += [
                Violation("children", f"{path} was deleted at {deleted[path]:#x}: {describe(row)}")
                for path in names
                if deleted.get(path, row.zxid + 1) <= row.zxid
            ]
    return found
