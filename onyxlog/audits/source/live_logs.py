"""Following of the logs of running servers: what is decided for good by now, batch after batch.

A batch ends, in each log, before the first entry that is neither proven to be committed nor truncated. So
what a batch gives never changes, and reading it again after a crash gives the same rows. Knows no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from onyxlog.audits.errors import AuditError
from onyxlog.audits.source.commits import Committed
from onyxlog.audits.source.directories import ServerDirectory
from onyxlog.audits.source.following import Follower, PlacedFrame, Position
from onyxlog.audits.source.options import Options
from onyxlog.audits.source.plan import SURVEYED, Piece, judge, surveyed, wal_piece
from onyxlog.audits.source.server_log import ServerLog, Span, fields_of
from onyxlog.audits.source.survey import Cut, is_cut
from onyxlog.audits.tables.placed import Standing
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.records import RecordReader, is_entry

Offsets = dict[str, dict[str, int]]
"""Segment, offset and frame of the position behind what was read, by data directory.

Plain values, as Spark stores them.
"""
PLANS_KEPT: Final = 4
DECIDED: Final = frozenset({Standing.COMMITTED.value, Standing.TRUNCATED.value})


@frozen
class _Plan:
    """One batch: the pieces, and the positions they lead to."""

    start: Offsets
    end: Offsets
    pieces: tuple[Piece, ...]


class LiveLogs:
    """All servers' logs together; `options` say which table of them."""

    def __init__(self, options: Options, directories: Sequence[ServerDirectory], fs: FileSystem) -> None:
        self._options = options
        self._fs = fs
        self._heads = [ServerLog(fs, directory) for directory in directories]
        self._tails: dict[str, _Tail] = {}
        self._plans: list[_Plan] = []
        self._known: dict[int, Committed] = {}
        self._frozen = False

    def freeze(self) -> None:
        """Give only what exists now."""
        self._look()
        self._frozen = True

    def initial(self) -> Offsets:
        """Return the position before everything.

        If the stream is to begin with what is new, it is the position behind what is decided now.
        """
        start: Offsets = {head.directory.path: as_offset(Position()) for head in self._heads}
        return start if self._options.starting == "earliest" else self.latest(start, None)

    def latest(self, start: Offsets, bytes_max: int | None) -> Offsets:
        """Return where a batch that begins at `start` may end, about `bytes_max` bytes of logs further on.

        Raises:
            AuditError: the checkpoint is of other directories.
            GoneError: what comes next was compacted.
        """
        self._check(start)
        if not self._frozen:
            self._look()
        share = None if bytes_max is None else max(1, bytes_max // len(self._heads))
        pieces: list[Piece] = []
        end: Offsets = {}
        for head in self._heads:
            path = head.directory.path
            tail = self._tail(head, position_of(start[path]))
            before = tail.position
            spans = tail.advance(head, self._known, share)
            end[path] = start[path] if tail.position == before else as_offset(tail.position)
            pieces += self._pieces_of(head, spans)
        if end != start:
            self._plans = [*self._plans[1 - PLANS_KEPT :], _Plan(start, end, tuple(pieces))]
        return end

    def pieces(self, start: Offsets, end: Offsets) -> Sequence[Piece]:
        """Return what a batch reads; the same every time."""
        if start == end:
            return ()
        for plan in self._plans:
            if plan.start == start and plan.end == end:
                return plan.pieces
        # A process that is gone began it: everything up to `end` was decided then, so it is now.
        self._check(start)
        self._look()
        pieces: list[Piece] = []
        for head in self._heads:
            path = head.directory.path
            tail = self._tail(head, position_of(start[path]))
            pieces += self._pieces_of(head, tail.advance_to(position_of(end[path])))
        self._plans = [*self._plans[1 - PLANS_KEPT :], _Plan(start, end, tuple(pieces))]
        return pieces

    def done(self, end: Offsets) -> None:
        """Note that batches up to there will not be asked for again."""
        at = next((i for i, plan in enumerate(self._plans) if plan.end == end), -1)
        self._plans = self._plans[at + 1 :]

    def _check(self, offsets: Mapping[str, Any]) -> None:
        ours = {head.directory.path for head in self._heads}
        if offsets.keys() != ours:
            raise AuditError(
                f"the checkpoint is of {', '.join(sorted(offsets))}, the stream of {', '.join(sorted(ours))}; follow the "
                "same directories, or begin with another checkpoint"
            )

    def _look(self) -> None:
        for head in self._heads:
            if self._options.stops:
                head.advance_to_damage()
            else:
                head.advance()
        self._known = judge(self._fs, self._heads)

    def _tail(self, head: ServerLog, position: Position) -> _Tail:
        """Return the tail of that log at `position`; a new one if it is elsewhere."""
        path = head.directory.path
        tail = self._tails.get(path)
        if tail is None or tail.position != position:
            tail = self._tails[path] = _Tail(self._fs, head.directory, stops=self._options.stops)
            tail.seek(position)
        return tail

    def _pieces_of(self, head: ServerLog, spans: Sequence[Span]) -> list[Piece]:
        if not spans:
            return []
        if self._options.table.name in SURVEYED:
            frames = spans[0].start.position.frame, spans[-1].end.frame
            return [surveyed(self._options, [head], self._known, frames)]
        return [wal_piece(self._options, head, span, self._known, self._options.standings) for span in spans]


class _Tail:
    """One log, as far as batches were made of it. `stops`: damage ends it, and is no error."""

    def __init__(self, fs: FileSystem, directory: ServerDirectory, *, stops: bool) -> None:
        self._stops = stops
        self._follower = Follower(fs, directory.path)
        self._log = ServerLog(fs, directory, self._follower)
        self._records = RecordReader()

    @property
    def position(self) -> Position:
        return self._follower.position

    def seek(self, position: Position) -> None:
        """Read, without giving anything, up to there.

        Raises:
            AuditError: the log that is left begins behind it.
        """
        if not position.segment:
            return
        self.advance_to(position)
        # Closed segments are skipped when they are gone; the frame is what counts.
        if self.position.frame != position.frame:
            raise AuditError(
                f"{self._log.directory.path}/wal: the checkpoint is at frame {position.frame}, the log that is left has "
                f"frames up to {self.position.frame}, or begins later; begin anew with another checkpoint"
            )
        self._follower.position = position

    def advance_to(self, end: Position) -> list[Span]:
        """Return the spans up to `end`."""
        return self._advance(lambda placed: placed.frame.number < end.frame)

    def advance(self, head: ServerLog, known: Mapping[int, Committed], bytes_max: int | None) -> list[Span]:
        """Return the spans up to the first frame in which something is open, or until there is enough."""
        left = bytes_max
        cuts = head.survey.cuts
        limit = head.position.frame

        def takes(placed: PlacedFrame) -> bool:
            nonlocal left
            if placed.frame.number >= limit or (left is not None and left <= 0):
                return False
            if not self._decided(placed, cuts, known):
                return False
            if left is not None:
                left -= placed.frame.end - placed.frame.offset
            return True

        return self._advance(takes)

    def _advance(self, takes: Any) -> list[Span]:
        self._log.begin_span()
        try:
            for placed in self._follower.frames():
                if not takes(placed):
                    self._follower.position = placed.before
                    break
                self._log.take(placed)
        except CorruptionError:
            if not self._stops:
                raise
        return self._log.take_spans()

    def _decided(self, placed: PlacedFrame, cuts: Sequence[Cut], known: Mapping[int, Committed]) -> bool:
        order = self._log.survey.order_of(placed.frame.number)
        for fields in fields_of(self._records, placed):
            if is_entry(fields):
                _, group, index, term, *_ = fields
                committed = known.get(group)
                if not (committed is not None and committed.holds(index, term)) and not is_cut(
                    cuts, group, index, order
                ):
                    return False
            order += 1
        return True


def as_offset(position: Position) -> dict[str, int]:
    """Return a position as a value for JSON."""
    return {"segment": position.segment, "offset": position.offset, "frame": position.frame}


def position_of(offset: Mapping[str, int]) -> Position:
    """Return the position from its value in JSON."""
    return Position(int(offset["segment"]), int(offset["offset"]), int(offset["frame"]))
