"""What became of each piece, kept between runs on the same state of the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Final

from attrs import frozen

STATE: Final = "state.json"


class Result(Enum):
    OK = "ok"
    FAILED = "failed"
    OUT_OF_TIME = "out of time"
    CANNOT = "cannot be done here"
    WAITS = "waits"
    NOT_RUN = "not run"

    @property
    def is_failure(self) -> bool:
        return self in (Result.FAILED, Result.OUT_OF_TIME, Result.WAITS)


@frozen
class Outcome:
    """`said`: the last line of its output, or why it cannot be done."""

    result: Result
    took_s: float = 0.0
    said: str = ""


class Record:
    """The outcomes below one directory, saved after each piece."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / STATE
        self._outcomes: dict[str, Outcome] = {}
        if self._path.exists():
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._outcomes = {
                name: Outcome(Result(one["result"]), one["took_s"], one["said"])
                for name, one in found.items()
            }

    def of(self, piece: str) -> Outcome:
        return self._outcomes.get(piece, Outcome(Result.NOT_RUN))

    def save(self, piece: str, outcome: Outcome) -> None:
        self._outcomes[piece] = outcome
        written = {
            name: {"result": one.result.value, "took_s": one.took_s, "said": one.said}
            for name, one in self._outcomes.items()
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(written, indent=2), encoding="utf-8")
        fresh.replace(self._path)


def table(pieces: Iterable[str], record: Record) -> str:
    """The summary of a run, one line per piece, as Markdown."""
    names = tuple(pieces)
    width = max(map(len, names))
    lines = [f"| {'piece':{width}} | result              |  time | last line |", "|--|--|--|--|"]
    total_s = 0.0
    for name in names:
        outcome = record.of(name)
        total_s += outcome.took_s
        lines.append(
            f"| {name:{width}} | {outcome.result.value:19} | {clock(outcome.took_s)} | {outcome.said} |"
        )
    lines.append(f"| {'all':{width}} | {'':19} | {clock(total_s)} | |")
    return "\n".join(lines)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:2}:{int(seconds) % 60:02}"


def state_of(checkout: Path) -> str:
    """A name for what is in the checkout now, whether it is committed or not: git's for the tree.

    Raises:
        subprocess.CalledProcessError: it is no checkout of git.
    """
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "GIT_INDEX_FILE": str(Path(scratch) / "index")}

        def git(*words: str) -> str:
            done = subprocess.run(
                ["git", *words], cwd=checkout, env=environment, capture_output=True, text=True, check=True
            )
            return done.stdout.strip()

        git("add", "--all")
        return git("write-tree")
