"""Functions of the jobs in these tests."""

from __future__ import annotations

from typing import Any

from onyxlog.jobs.segments import Segment

WORDS = ("log", "peer", "ring", "task", "slot", "pulse", "origin", "window", "barrier", "root", "leaf")


def line(number: int, words: int = 3) -> dict[str, Any]:
    """Line `number` of a text that is as long as wanted."""
    return {
        "number": number,
        "line": " ".join(WORDS[(number * 7 + 3 * part + number // 11) % len(WORDS)] for part in range(words)),
    }


def split(segment: Segment) -> list[dict[str, Any]]:
    number = segment["number"]
    return [{"word": word, "at": f"{number}.{part}"} for part, word in enumerate(segment["line"].split(" "))]


def counts(lines: int, words: int = 3) -> dict[str, int]:
    """What a word count of so many lines has to say."""
    found: dict[str, int] = {}
    for number in range(lines):
        for segment in split(line(number, words)):
            found[segment["word"]] = found.get(segment["word"], 0) + 1
    return found


def fail_on_ring(segment: Segment) -> Segment:
    if segment["word"] == "ring":
        raise ValueError("no rings here")
    return segment


def raise_on(segment: Segment, *_: Any) -> Any:
    raise ValueError("not this one")


class RaisingVerdict:
    @staticmethod
    def handle_exception(context: Any, at: str, exception: Exception) -> str:
        raise OSError("no verdict")


class Unplain:
    """An aggregate whose state cannot be stored."""

    def initial(self) -> Any:
        return set()

    def add(self, state: Any, segment: Segment) -> Any:
        return state | {segment["word"]}

    def merge(self, state: Any, other: Any) -> Any:
        return state | other

    def result(self, state: Any) -> Any:
        return len(state)
