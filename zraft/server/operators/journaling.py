"""Decision what a server notes for audits: what changed in a group since it was looked at last.

Pure. Looked at after turns; costs a few comparisons then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from attrs import define

from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft.storage.journal import DIGEST_BYTES, JournalNote, NoteKind
from zraft_core.ids import COORDINATION_GROUP, GroupId

COMMIT_INTERVAL_MS: Final = 1_000
"""A commit of the coordination group that moves all the time is noted so often."""
GROUP_COMMIT_INTERVAL_MS: Final = 60_000
"""The same of any other group, of which there may be hundreds."""


@define
class _Seen:
    """Notes so far about a group."""

    led: int = 0
    committed: int = 0
    committed_at: int = 0
    digest_index: int = 0


class Journaling:
    """Notes for audits about all groups of a server."""

    def __init__(self) -> None:
        self._seen: dict[GroupId, _Seen] = {}

    def opened(self, raft: Raft | None, wall_ms: int) -> JournalNote:
        """Return the first note of a process."""
        term, index = (0, 0) if raft is None else (raft.term, raft.log.last_index)
        return JournalNote(NoteKind.OPENED, COORDINATION_GROUP, term, index, wall_ms)

    def closed(self, raft: Raft | None, wall_ms: int) -> JournalNote:
        """Return the last one, if it ends in good order."""
        term, index = (0, 0) if raft is None else (raft.term, raft.commit_index)
        return JournalNote(NoteKind.CLOSED, COORDINATION_GROUP, term, index, wall_ms)

    def forget(self, group: GroupId) -> None:
        """Forget a group that has no replica here any more."""
        self._seen.pop(group, None)

    def look(
        self, raft: Raft, digests: Iterable[tuple[int, int]], wall_ms: int
    ) -> Generator[JournalNote, None, None]:
        """Yield what is to be noted of a group now; nearly always nothing.

        `digests` are the newest ones of its state, by index.

        Whoever cannot write one down takes no more of them: it comes again with the next look, before all that is newer.
        A leadership whose end was lost would seem to commit what its successor did.
        """
        group = raft.group
        seen = self._seen.get(group)
        if seen is None:
            seen = self._seen[group] = _Seen()
        led = raft.term if raft.role is Role.LEADER else 0
        if led != seen.led:
            if seen.led:
                yield JournalNote(NoteKind.STEPPED_DOWN, group, seen.led, raft.log.last_index, wall_ms)
                seen.led = 0
            if led:
                votes = tuple(map(int, raft.elected_by))
                yield JournalNote(NoteKind.BECAME_LEADER, group, led, raft.noop_index, wall_ms, votes)
                seen.led = led
        interval_ms = COMMIT_INTERVAL_MS if group == COORDINATION_GROUP else GROUP_COMMIT_INTERVAL_MS
        if raft.commit_index > seen.committed and wall_ms - seen.committed_at >= interval_ms:
            index = min(raft.commit_index, raft.log.last_index)
            yield JournalNote(NoteKind.COMMITTED, group, raft.log.term_at(index), index, wall_ms)
            seen.committed, seen.committed_at = index, wall_ms
        for index, digest in digests:
            if index > seen.digest_index:
                yield JournalNote(
                    NoteKind.DIGEST, group, 0, index, wall_ms, (), digest.to_bytes(DIGEST_BYTES, "big")
                )
                seen.digest_index = index
