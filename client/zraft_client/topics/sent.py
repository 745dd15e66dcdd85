"""A message on its way, as its sender sees it, and its outcome in words."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from zraft_client.errors import ClientError, UnknownOutcomeError
from zraft_client.topics.errors import ConditionFailedError, NeverDeliveredError
from zraft_client.topics.values import Receipt
from zraft_core.topics.message import Message
from zraft_core.topics.producer import Ended, Ending
from zraft_core.topics.stamps import MessageId


class Sent:
    """A message on its way: await it for its receipt. Pass its `id` as `after` to order a later one behind it."""

    __slots__ = ("_accepted", "_future", "message")

    def __init__(self, message: Message, loop: asyncio.AbstractEventLoop) -> None:
        self.message = message
        self._future: asyncio.Future[Receipt] = loop.create_future()
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._future.add_done_callback(_retrieved)
        self._accepted.add_done_callback(_retrieved)

    @property
    def id(self) -> MessageId:
        """The message's id; pass it as `after` to order a later message behind this one."""
        return self.message.mid

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.shield(self._future).__await__()

    async def accepted(self) -> None:
        """Wait until it is certain to be delivered, or to fail by its condition.

        What the message failed with is raised.
        """
        await asyncio.shield(self._accepted)

    def on_accepted(self, receipt: Receipt | None) -> None:
        """Note the acceptance, with a receipt if that is what counts; for the producer."""
        if not self._accepted.done():
            self._accepted.set_result(None)
        if receipt is not None and not self._future.done():
            self._future.set_result(receipt)

    def on_end(self, receipt: Receipt | None, error: ClientError | None) -> None:
        """Note the end; for the producer."""
        for future in (self._future, self._accepted):
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            elif future is self._future:
                assert receipt is not None, "an end without an error has a receipt"
                self._future.set_result(receipt)
            else:
                self._accepted.set_result(None)


def _retrieved(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # the awaiting caller raises it, or flush, or nobody wants it


def error_of_end(ended: Ended, *, conditional: bool) -> ClientError | None:
    """Return the error for how a message ended, or None if it was delivered."""
    which = f"message {ended.mid.seq} of producer {ended.mid.producer}"
    match ended.ending:
        case Ending.DELIVERED:
            return None
        case Ending.FAILED:
            return ConditionFailedError(
                f"{which}: the consumer has not come to where its condition expects it"
            )
        case Ending.DECIDED:
            if not conditional:
                return None
            return UnknownOutcomeError(
                f"{which}: delivered, or failed by its condition; nobody remembers which", settled=True
            )
        case Ending.NEVER:
            return NeverDeliveredError(f"{which}: a destination was deleted before it arrived")
        case Ending.UNKNOWN:
            return UnknownOutcomeError(f"{which}: all its destinations were removed", settled=True)
