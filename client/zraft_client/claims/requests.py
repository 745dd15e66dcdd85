"""Requests of a consumer to the service that have no answer yet.

Pure: effects out, answers in.

Each request has a number and a deadline. One that is not answered in time gets None, which says nothing about
whether it was carried out; a later answer is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from zraft_client.claims.port import Fetched, Seen
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.commands import ClaimCommand


@frozen
class Submit:
    """Effect: let a partition's group carry out a command."""

    number: int
    topic: str
    partition: int
    command: ClaimCommand


@frozen
class Look:
    """Look at a partition's claims."""

    number: int
    topic: str
    partition: int
    group: str


@frozen
class Fetch:
    """Fetch messages of a partition."""

    number: int
    topic: str
    partition: int
    first: int
    count: int


NEVER: Final = 2**63 - 1
"""A time that never comes."""

Effect = Submit | Look | Fetch
Reply = ClaimAnswer | Seen | Fetched | None
Then = Callable[[ClaimAnswer | None, int], None]
"""Takes the answer, None if it did not come in time, and the time."""


class Requests:
    """All requests of one consumer."""

    def __init__(self) -> None:
        self._number = 0
        self._effects: list[Effect] = []
        self._waiting: dict[int, tuple[int, Callable[[Reply, int], None]]] = {}

    def submit(
        self,
        topic: str,
        partition: int,
        command: ClaimCommand,
        deadline_ms: int,
        then: Then,
    ) -> int:
        """Send a command to a partition's group, and return the request's number.

        `then` is called once, with the answer, or with None at the deadline.
        """

        def taken(reply: Reply, now_ms: int) -> None:
            assert not isinstance(reply, Seen | Fetched), f"{reply!r:.80} to {command!r:.80}"
            then(reply, now_ms)

        number = self._wait(deadline_ms, taken)
        self._effects.append(Submit(number, topic, partition, command))
        return number

    def look(
        self,
        topic: str,
        partition: int,
        group: str,
        deadline_ms: int,
        then: Callable[[Seen | None, int], None],
    ) -> int:
        """Ask for a partition's claims and bounds, and return the request's number.

        `then` is called once, with the answer, or with None at the deadline.
        """

        def taken(reply: Reply, now_ms: int) -> None:
            assert reply is None or isinstance(reply, Seen), f"{reply!r:.80} to a look"
            then(reply, now_ms)

        number = self._wait(deadline_ms, taken)
        self._effects.append(Look(number, topic, partition, group))
        return number

    def fetch(
        self,
        topic: str,
        partition: int,
        first: int,
        count: int,
        deadline_ms: int,
        then: Callable[[Fetched | None, int], None],
    ) -> int:
        """Ask for a partition's records, and return the request's number.

        `then` is called once, with the answer, or with None at the deadline.
        """

        def taken(reply: Reply, now_ms: int) -> None:
            assert reply is None or isinstance(reply, Fetched), f"{reply!r:.80} to a fetch"
            then(reply, now_ms)

        number = self._wait(deadline_ms, taken)
        self._effects.append(Fetch(number, topic, partition, first, count))
        return number

    def _wait(self, deadline_ms: int, then: Callable[[Reply, int], None]) -> int:
        self._number += 1
        self._waiting[self._number] = (deadline_ms, then)
        return self._number

    def answered(self, number: int, reply: Reply, now_ms: int) -> bool:
        """Pass the reply on; return False if nobody waits for it any more."""
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return False
        waiting[1](reply, now_ms)
        return True

    def on_time(self, now_ms: int) -> None:
        """Give up what is overdue."""
        for number in [one for one, (deadline_ms, _) in self._waiting.items() if deadline_ms <= now_ms]:
            self.answered(number, None, now_ms)

    def take_effects(self) -> list[Effect]:
        """Return the requests to send, and forget them."""
        taken, self._effects = self._effects, []
        return taken

    @property
    def next_due_ms(self) -> int:
        """The nearest deadline in milliseconds, or `NEVER`."""
        return min((deadline_ms for deadline_ms, _ in self._waiting.values()), default=NEVER)
