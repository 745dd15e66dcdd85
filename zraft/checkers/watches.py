"""Check that watches told everything they promise, in order, and before the client could see it otherwise.

What must have happened is taken from acknowledged writes; events of writes that were not answered are allowed, if
somebody tried them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from attrs import define, field

from zraft.checkers.history import (
    READS,
    WRITES,
    Connected,
    Disconnected,
    Event,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)
from zraft_core.errors import Code

CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3
_TYPES: Final = {Kind.CREATE: CREATED, Kind.DELETE: DELETED, Kind.SET: CHANGED, Kind.MULTI_SET: CHANGED}


@define
class _Watching:
    """One client's watches as its records go by."""

    once: dict[str, int] = field(factory=dict)
    """Path of a one-shot watch to the zxid from which on it tells."""
    recursive: dict[str, int] = field(factory=dict)
    """Path of a recursive watch to the zxid up to which all was told, or was before it."""
    event_zxid: int = 0
    restoring: bool = False


@define
class _Writes:
    """Acknowledged changes of znodes, by path, and what was tried."""

    zxids: dict[str, list[int]]
    found: dict[tuple[str, int], Operation]
    tried: set[str]
    trees: dict[str, list[tuple[int, str]]] = field(factory=dict)
    """The changes at and under each top, in order; filled when first asked for."""

    def after(self, path: str, zxid: int, until: int) -> list[Operation]:
        """Return the changes of `path` in (zxid, until]."""
        zxids = self.zxids.get(path, [])
        return [
            self.found[path, one] for one in zxids[bisect_right(zxids, zxid) : bisect_right(zxids, until)]
        ]

    def below(self, top: str, zxid: int, until: int) -> list[tuple[int, str]]:
        """Return (zxid, path) of changes at and under `top` in (zxid, until]."""
        changes = self.trees.get(top)
        if changes is None:
            changes = self.trees[top] = sorted(
                (one, path)
                for path, zxids in self.zxids.items()
                if path == top or path.startswith(top + "/")
                for one in zxids
            )
        return changes[bisect_left(changes, (zxid + 1, "")) : bisect_left(changes, (until + 1, ""))]


def check_watches(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where the histories contradict `watch`.

    `watch`: no event lost, none twice, none invented, in order of zxids, each before an answer that shows more.

    A one-shot watch lasts over reconnects, because clients restore it. A recursive one is judged per connection.
    """
    writes = _collect(histories)
    found: list[Violation] = []
    for history in histories:
        _check_client(history, writes, found)
    return found


def _collect(histories: Sequence[Sequence[Record]]) -> _Writes:
    by_path: dict[str, dict[int, Operation]] = defaultdict(dict)
    tried: set[str] = set()
    for one in operations(histories):
        if one.kind not in WRITES:
            continue
        for path in (one.created or one.path, *one.further):
            if one.outcome is Outcome.OK:
                by_path[path][one.zxid] = one
            if one.outcome is not Outcome.FAIL:
                tried.add(path)
            if one.ephemeral and one.outcome is not Outcome.FAIL:
                tried.add(path)
    return _Writes(
        {path: sorted(zxids) for path, zxids in by_path.items()},
        {(path, zxid): one for path, zxids in by_path.items() for zxid, one in zxids.items()},
        tried,
    )


def _check_client(history: Sequence[Record], writes: _Writes, found: list[Violation]) -> None:
    state = _Watching()
    for record in history:
        match record:
            case Connected():
                state.recursive.clear()
                state.event_zxid = 0
                state.restoring = bool(state.once)
                if not record.resumed:
                    state.once.clear()
                    state.restoring = False
            case Disconnected():
                state.recursive.clear()
            case Expired():
                state.once.clear()
            case Event():
                _on_event(record, state, writes, found)
            case Operation() if record.outcome is not Outcome.UNKNOWN:
                _on_answer(record, state, writes, found)


def _on_event(event: Event, state: _Watching, writes: _Writes, found: list[Violation]) -> None:
    if event.zxid >= 0:
        if event.zxid < state.event_zxid:
            found.append(Violation("watch", f"out of order: {event} after one of zxid {state.event_zxid:#x}"))
        state.event_zxid = max(state.event_zxid, event.zxid)
    if event.path not in writes.tried:
        found.append(Violation("watch", f"nobody changed it: {event}"))
    covering = [top for top in state.recursive if event.path == top or event.path.startswith(top + "/")]
    if event.path in state.once:
        since = state.once.pop(event.path)
        if 0 <= event.zxid <= since:
            found.append(Violation("watch", f"of a change before the watch was set at {since:#x}: {event}"))
    elif not covering:
        found.append(Violation("watch", f"nobody watched, or it was told already: {event}"))
    write = writes.found.get((event.path, event.zxid))
    if write is not None and _TYPES[write.kind] != event.type:
        found.append(Violation("watch", f"of another type: {event}, {describe(write)}"))
    for top in covering:
        missed = [
            (zxid, path)
            for zxid, path in writes.below(top, state.recursive[top], event.zxid)
            if (zxid, path) < (event.zxid, event.path) and zxid < event.zxid
        ]
        if missed:
            found.append(Violation("watch", f"lost: changes {missed[:3]} under {top} before {event}"))
        state.recursive[top] = max(state.recursive[top], event.zxid)


def _on_answer(one: Operation, state: _Watching, writes: _Writes, found: list[Violation]) -> None:
    if one.kind is Kind.RESTORE_WATCHES:
        state.restoring = False
        return
    if not one.zxid:
        return
    if not state.restoring:
        for path, since in list(state.once.items()):
            missed = writes.after(path, since, one.zxid)
            if missed:
                found.append(
                    Violation(
                        "watch",
                        f"no event for {describe(missed[0])}, watched since {since:#x}, before {describe(one)}",
                    )
                )
                del state.once[path]
        if (
            one.kind in READS
            and one.path in state.once
            and one.mzxid is not None
            and one.mzxid > state.once[one.path]
        ):
            found.append(
                Violation("watch", f"no event before the read that shows the change: {describe(one)}")
            )
            del state.once[one.path]
    for top, since in list(state.recursive.items()):
        lost = writes.below(top, since, one.zxid)
        if lost:
            found.append(Violation("watch", f"lost: changes {lost[:3]} under {top} before {describe(one)}"))
        state.recursive[top] = max(since, one.zxid)
    if one.kind is Kind.ADD_WATCH and one.outcome is Outcome.OK:
        state.recursive[one.path] = one.zxid
    elif one.watch and (one.outcome is Outcome.OK or one.code == Code.NO_NODE):
        state.once.setdefault(one.path, one.zxid)
