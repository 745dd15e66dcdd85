"""Vector clocks over the events of a run, and their text for ShiViz. Pure.

An event is two lines, `HOST {"HOST": n, ...}` and what happened. ShiViz reads a file of them with the expression PARSER,
its default. Source: https://bestchai.bitbucket.io/shiviz/, "Log format".
"""

from __future__ import annotations

import json
from typing import Final

from attrs import frozen

PARSER: Final = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"

Clock = dict[str, int]


@frozen
class Event:
    """What happened at a host; `clock` says how many events of each host it knows of, itself included."""

    host: str
    clock: Clock
    text: str


class Trace:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._clocks: dict[str, Clock] = {}

    def note(self, host: str, text: str) -> Clock:
        """Something happened at a host. What is returned travels with a message that it sends by this."""
        if not host or any(letter.isspace() for letter in host) or "\n" in text or not text:
            raise ValueError(
                f"expected a host without spaces and one line of text, found {host!r} and {text!r}"
            )
        clock = self._clocks.setdefault(host, {})
        clock[host] = clock.get(host, 0) + 1
        self.events.append(Event(host, dict(clock), text))
        return dict(clock)

    def hear(self, host: str, sent: Clock, text: str) -> None:
        """A host received a message: from now on it knows what its sender knew."""
        clock = self._clocks.setdefault(host, {})
        for other, count in sent.items():
            clock[other] = max(count, clock.get(other, 0))
        self.note(host, text)

    def text(self) -> str:
        """All of it, as ShiViz reads it."""
        return "".join(f"{one.host} {json.dumps(one.clock)}\n{one.text}\n" for one in self.events)
