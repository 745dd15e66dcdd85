"""The diary of a soak keeps what is known between its pieces, in a file that a killed process leaves whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import asdict, evolve, frozen

from tests.soak.samples import Sample, Used


@frozen
class Piece:
    """A piece that came to its end. `wrong`: what broke in it, in words."""

    number: int
    load_s: float
    wrong: tuple[str, ...]


@frozen
class Diary:
    """A soak so far.

    Attributes:
        seed: what decides every piece, with its number.
        ports: all ports of the servers and the links between them, the same in each piece.
        begun: how many pieces were begun; the number of one that was killed is not used again.
        pieces: those that came to their end.
    """

    seed: int
    ports: tuple[int, ...]
    begun: int = 0
    pieces: tuple[Piece, ...] = ()

    @property
    def load_s(self) -> float:
        """Seconds of load in all pieces that came to their end."""
        return sum(piece.load_s for piece in self.pieces)

    def begin(self) -> Diary:
        """Return the diary after another piece was begun."""
        return evolve(self, begun=self.begun + 1)

    def end(self, piece: Piece) -> Diary:
        """Return the diary after a piece came to its end."""
        return evolve(self, pieces=(*self.pieces, piece))


class Place:
    """The files of a soak in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "servers"
        self._diary = directory / "diary.json"
        self._samples = directory / "samples.jsonl"

    def piece(self, number: int) -> Path:
        """Return where one piece keeps its own files."""
        return self.directory / f"piece-{number:03}"

    def read(self) -> Diary | None:
        """Return the diary; None if there is none yet."""
        if not self._diary.exists():
            return None
        found = json.loads(self._diary.read_text(encoding="utf-8"))
        pieces = tuple(Piece(one["number"], one["load_s"], tuple(one["wrong"])) for one in found["pieces"])
        return Diary(found["seed"], tuple(found["ports"]), found["begun"], pieces)

    def write(self, diary: Diary) -> None:
        """Put this diary in the place of the former one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        fresh = self._diary.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(diary), indent=2), encoding="utf-8")
        fresh.replace(self._diary)

    def add(self, sample: Sample) -> None:
        """Append a sample."""
        with self._samples.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def samples(self, diary: Diary) -> Sequence[Sample]:
        """Return the samples of all pieces that came to their end."""
        if not self._samples.exists():
            return ()
        ended = {piece.number for piece in diary.pieces}
        rows = []
        for line in self._samples.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a process was killed while it wrote this line
                rows.append(json.loads(line))
        return [
            Sample(
                row["at_s"],
                row["piece"],
                tuple(Used(**one) for one in row["servers"]),
                tuple(row["write_ms"]),
            )
            for row in rows
            if row["piece"] in ended
        ]
