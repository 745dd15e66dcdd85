"""Decides what a server notes for audits: what changed since it was looked at last.

Pure. Looked at after turns; costs a few comparisons then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zraft.ids import COORDINATION_GROUP
from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft.storage.journal import DIGEST_BYTES, Kind, Note
from zraft.tree.machine import Machine

COMMIT_INTERVAL_MS: Final = 1_000
"""A commit that moves all the time is noted so often."""


class Journaling:
    """Of the coordination group."""

    def __init__(self) -> None:
        self._led = 0
        self._committed = 0
        self._committed_at = 0
        self._digest_index = 0

    def opened(self, raft: Raft | None, wall_ms: int) -> Note:
        """The first note of a process."""
        term, index = (0, 0) if raft is None else (raft.term, raft.log.last_index)
        return Note(Kind.OPENED, COORDINATION_GROUP, term, index, wall_ms)

    def closed(self, raft: Raft | None, wall_ms: int) -> Note:
        term, index = (0, 0) if raft is None else (raft.term, raft.commit_index)
        return Note(Kind.CLOSED, COORDINATION_GROUP, term, index, wall_ms)

    def look(self, raft: Raft, machine: Machine, wall_ms: int) -> Iterator[Note]:
        """What is to be noted now; nearly always nothing."""
        group = COORDINATION_GROUP
        led = raft.term if raft.role is Role.LEADER else 0
        if led != self._led:
            if self._led:
                yield Note(Kind.STEPPED_DOWN, group, self._led, raft.log.last_index, wall_ms)
            if led:
                votes = tuple(map(int, raft.elected_by))
                yield Note(Kind.BECAME_LEADER, group, led, raft.noop_index, wall_ms, votes)
            self._led = led
        commit = raft.commit_index
        if commit > self._committed and wall_ms - self._committed_at >= COMMIT_INTERVAL_MS:
            index = min(commit, raft.log.last_index)
            self._committed, self._committed_at = index, wall_ms
            yield Note(Kind.COMMITTED, group, raft.log.term_at(index), index, wall_ms)
        for index, digest in machine.digests:
            if index > self._digest_index:
                self._digest_index = index
                yield Note(Kind.DIGEST, group, 0, index, wall_ms, (), digest.to_bytes(DIGEST_BYTES, "big"))
