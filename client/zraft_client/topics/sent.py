"""Records and messages on their way, as their sender sees them, and their outcome in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from zraft_client.errors import ClientError, UnknownOutcomeError
from zraft_client.topics.errors import ConditionFailedError, NeverDeliveredError
from zraft_client.topics.values import Receipt
from zraft_core.topics.message import Message
from zraft_core.topics.producer import Ended, Ending
from zraft_core.topics.stamps import MessageId


class SentMessage:
    """A message on its way, with all its records. Nothing is made for a record whose sender does not wait."""

    __slots__ = ("_error", "_offsets", "_waiting", "_waiting_for_more", "accepted", "ended", "message")

    def __init__(self) -> None:
        self.message: Message | None = None
        """None until its records are sent."""
        self.accepted = False
        """True if it is certain what becomes of it, whatever breaks: it is delivered, or fails by its condition."""
        self.ended = False
        """True if the outcome is known."""
        self._offsets: Mapping[tuple[str, int], int] = {}
        self._error: Callable[[], ClientError] | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Those who wait for the acceptance."""
        self._waiting_for_more: dict[asyncio.Future[None], None] = {}
        """Those who wait for the outcome."""

    def on_accepted(self, *, counts: bool) -> None:
        """Note the acceptance; with `counts` it is the outcome."""
        self.accepted = True
        _wake(self._waiting)
        if counts:
            self._end()

    def on_end(
        self, offsets: Mapping[tuple[str, int], int], error: Callable[[], ClientError] | None = None
    ) -> None:
        """Note the end. `error` makes what is raised, for each who waits; without one the message is delivered."""
        if not self.ended:
            self._offsets, self._error = offsets, error
            self._end()
        self.accepted = self.accepted or error is None
        _wake(self._waiting)

    def _end(self) -> None:
        self.ended = True
        _wake(self._waiting_for_more)

    async def until_accepted(self) -> None:
        """Wait for the acceptance.

        Raises:
            ClientError: what the message failed with.
        """
        if not (self.accepted or self.ended):
            await _wait(self._waiting)
        if not self.accepted and self._error is not None:
            raise self._error()

    async def until_known(self) -> None:
        """Wait for the outcome, whatever it is."""
        if not self.ended:
            await _wait(self._waiting_for_more)

    async def until_ended(self, index: int) -> Receipt:
        """Wait for the outcome, and return the receipt of a record.

        Raises:
            ClientError: what the message failed with.
        """
        await self.until_known()
        if self._error is not None:
            raise self._error()
        assert self.message is not None, "what was not sent has an error"
        offsets = {place: offset + index for place, offset in self._offsets.items()}
        return Receipt(self.message.mid, offsets, index)


async def _wait(waiting: dict[asyncio.Future[None], None]) -> None:
    future = asyncio.get_running_loop().create_future()
    waiting[future] = None
    try:
        await future
    finally:
        waiting.pop(future, None)


def _wake(waiting: dict[asyncio.Future[None], None]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()


class Sent:
    """A record on its way: await it for its receipt. Pass it as `after` to order a later one behind it."""

    __slots__ = ("index", "together")

    def __init__(self, together: SentMessage, index: int) -> None:
        self.together = together
        """The message that it travels in."""
        self.index = index
        """Its place there."""

    @property
    def id(self) -> MessageId | None:
        """The id of its message; None while the message may get more records."""
        message = self.together.message
        return None if message is None else message.mid

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self.together.ended

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self.together.until_ended(self.index).__await__()

    async def accepted(self) -> None:
        """Wait until it is certain to be delivered, or to fail by its condition.

        What the message failed with is raised.
        """
        await self.together.until_accepted()


def error_of_end(ended: Ended, *, conditional: bool) -> Callable[[], ClientError] | None:
    """Return what makes the error for how a message ended, or None if it was delivered."""
    which = f"message {ended.mid.seq} of producer {ended.mid.producer}"
    match ended.ending:
        case Ending.DELIVERED:
            return None
        case Ending.FAILED:
            why = "the consumer has not come to where its condition expects it"
            return partial(ConditionFailedError, f"{which}: {why}")
        case Ending.DECIDED:
            if not conditional:
                return None
            why = "delivered, or failed by its condition; nobody remembers which"
            return partial(UnknownOutcomeError, f"{which}: {why}", settled=True)
        case Ending.NEVER:
            why = "a destination was deleted or given up before it arrived"
            return partial(NeverDeliveredError, f"{which}: {why}")
        case Ending.UNKNOWN:
            why = "all its destinations were removed"
            return partial(UnknownOutcomeError, f"{which}: {why}", settled=True)
