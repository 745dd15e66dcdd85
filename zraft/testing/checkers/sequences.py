"""Whether sequential creates were numbered once each, in order, and a queue's items were taken at most once."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from zraft.testing.checkers.history import (
    READS,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)


def check_sequences(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """`sequence`: one path per acknowledged create, numbers grow with zxids, no payload under two paths.
    `queue`: no item is taken twice."""
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
