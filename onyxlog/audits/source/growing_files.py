"""Following of files that only grow, record by record: journals of servers, recordings of peers.

Knows no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from onyxlog.audits.source.file_tables import FilePiece
from onyxlog.audits.source.options import Options
from onyxlog.audits.source.plan import Piece

Sizes = dict[str, int]
"""The number of bytes that were read, by file."""


class GrowingFiles:
    """Follower of files that only grow.

    `pieces_now` lists the present files. `size` returns up to where a file holds whole records, at most up to
    the place that it is given. `bytes_per_batch` does not divide these: they are small beside logs.
    """

    def __init__(
        self,
        options: Options,
        pieces_now: Callable[[], Sequence[FilePiece]],
        size: Callable[[FilePiece, int], int],
    ) -> None:
        self._options = options
        self._pieces_now = pieces_now
        self._size = size
        self._known: Sizes = {}
        self._frozen: Sizes | None = None

    def freeze(self) -> None:
        """Give only what exists now."""
        self._frozen = self._sizes()

    def initial(self) -> Sizes:
        """Return the sizes from which the files are followed: none, or those of now."""
        return {} if self._options.starting == "earliest" else self._sizes()

    def latest(self, start: Sizes, bytes_max: int | None) -> Sizes:
        """Return how far the files go."""
        there = self._sizes() if self._frozen is None else self._frozen
        return {path: max(size, start.get(path, 0)) for path, size in there.items()}

    def pieces(self, start: Sizes, end: Sizes) -> Sequence[Piece]:
        """Return the files that have grown, with the range of bytes in which records of this batch begin."""
        return [
            evolve(piece, first=start.get(piece.path, 0), end=end[piece.path])
            for piece in self._pieces_now()
            if end.get(piece.path, 0) > start.get(piece.path, 0)
        ]

    def done(self, end: Sizes) -> None:
        """Do nothing, since nothing is kept."""

    def _sizes(self) -> Sizes:
        self._known = {
            piece.path: self._size(piece, self._known.get(piece.path, 0)) for piece in self._pieces_now()
        }
        return dict(self._known)
