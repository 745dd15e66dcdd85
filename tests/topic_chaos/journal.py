"""What a producer's process writes down, and how it is read after the process was killed. Pure but for the file it is given.

A line is written before a message is sent, and another one when its outcome is known; each in one write, so that a kill
loses at most the last one. Times are of the machine's monotonic clock, the same for all processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from attrs import evolve, frozen

FILLER: Final = b"." * 40


class Key(NamedTuple):
    """What tests know a message by: who sent it and its number there. It is in the payload."""

    sender: str
    number: int


class Outcome(Enum):
    OPEN = "open"
    """Nobody knows: it may be delivered, everywhere or nowhere."""
    DELIVERED = "delivered"
    NEVER = "never"


@frozen
class Sent:
    """A message as its sender saw it. `places` are (topic, partition); times in ns."""

    key: Key
    places: frozenset[tuple[str, int]]
    sent_ns: int
    outcome: Outcome = Outcome.OPEN
    told_ns: int = 0


def payload_of(key: Key) -> bytes:
    return f"{key.sender} {key.number} ".encode() + FILLER


def key_of(payload: bytes) -> Key:
    """Raises ValueError if the payload is none of these, or was changed."""
    sender, number, filler = payload.split(b" ", 2)
    if filler != FILLER:
        raise ValueError(f"payload {payload[:40]!r} was changed")
    return Key(sender.decode(), int(number))


class Journal:
    """For one process. Its file may be read while it runs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def sending(self, key: Key, places: Iterable[tuple[str, int]], now_ns: int) -> None:
        listed = ",".join(f"{topic}/{partition}" for topic, partition in sorted(places))
        self._write(f"S {key.sender} {key.number} {now_ns} {listed}")

    def told(self, key: Key, outcome: Outcome, now_ns: int) -> None:
        self._write(f"E {key.sender} {key.number} {now_ns} {outcome.value}")

    def note(self, text: str) -> None:
        self._write(f"# {text}")

    def _write(self, line: str) -> None:
        os.write(self._descriptor, line.encode() + b"\n")


def read_journal(text: str) -> dict[Key, Sent]:
    """All messages of a journal; a last line that is not whole is left out.

    Raises:
        ValueError: a whole line is none of a journal's.
    """
    found: dict[Key, Sent] = {}
    for kind, *fields in _lines(text):
        if kind == "#":
            continue
        sender, number, at, rest = fields
        key = Key(sender, int(number))
        if kind == "S":
            places = frozenset(
                (topic, int(partition))
                for topic, _, partition in (one.rpartition("/") for one in rest.split(","))
            )
            found[key] = Sent(key, places, int(at))
        else:
            found[key] = evolve(found[key], outcome=Outcome(rest), told_ns=int(at))
    return found


def _lines(text: str) -> Iterator[list[str]]:
    whole, _, _ = text.rpartition("\n")
    for line in whole.splitlines():
        yield line.split(" ", 1 if line.startswith("#") else 4)
