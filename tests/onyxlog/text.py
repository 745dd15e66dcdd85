"""A text of any length, the same everywhere: what the word counts in these tests count."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from onyxlog.jobs.segments import Segment

VOCABULARY: Final = tuple(f"word{number}" for number in range(5_000))


def line(number: int, words: int = 3) -> dict[str, Any]:
    """Line `number`; early words of the vocabulary are more frequent."""
    found = []
    state = number * 2_654_435_761 + 12_345
    for _ in range(words):
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) & 0xFFFF_FFFF_FFFF_FFFF
        share = state >> 44  # 20 bits
        found.append(VOCABULARY[share * share * 5_000 >> 40])
    return {"n": number, "line": " ".join(found)}


def words(segment: Segment) -> list[dict[str, str]]:
    return [{"word": word} for word in segment["line"].split(" ")]


def places(segment: Segment) -> list[dict[str, Any]]:
    """Words with where they stand, so that each is told from all others."""
    number = segment["n"]
    return [{"at": [number, part], "word": word} for part, word in enumerate(segment["line"].split(" "))]


def counts(lines: int, words: int = 3) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(lines):
        found.update(line(number, words)["line"].split(" "))
    return found
