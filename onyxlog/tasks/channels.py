"""The two ends of a channel: sequence numbers, credit, and what is sent again after a reconnect. Pure.

docs/explanation/onyxlog.md, "Channels". An outlet holds items that its receiver may not have; an inlet holds items that
its worker has not taken. Both are bounded by the window, in items.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from onyxlog.tasks.items import ChannelEnd, ChannelError, Item, Purpose

WINDOW: Final = 32
"""The number of items that a sender may be ahead of its receiver."""

Frame = bytes | Item
"""An item as it travels: encoded to another group, unchanged within one."""


class Outlet:
    """The sending end.

    Attributes:
        refused: the receiver has left this attempt; what is put is dropped.
    """

    __slots__ = ("_first", "_frames", "_limit", "_sent", "number", "purpose", "receiver", "refused", "sender")

    def __init__(self, number: int, purpose: Purpose, sender: ChannelEnd, receiver: ChannelEnd) -> None:
        self.number = number
        self.purpose = purpose
        self.sender = sender
        self.receiver = receiver
        self.refused = False
        self._frames: deque[Frame] = deque()
        self._first = 0  # sequence number of the first frame held
        self._sent = 0  # frames below it were sent on this connection
        self._limit = 0

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next item."""
        return self._first + len(self._frames)

    @property
    def has_credit(self) -> bool:
        """True if what is put now may be sent now.

        A sender that waits for this stays within the window.
        """
        return self.refused or self.next_sequence < self._limit

    @property
    def has_ready(self) -> bool:
        """True if `take_ready` would return anything."""
        return self._sent < min(self._limit, self.next_sequence)

    def put(self, frame: Frame) -> None:
        """Take an item; one that travels encoded carries `next_sequence`."""
        if not self.refused:
            self._frames.append(frame)

    def take_ready(self) -> Iterator[tuple[int, Frame]]:
        """Return what may be sent now and was not, with its sequence numbers."""
        end = min(self._limit, self.next_sequence)
        while self._sent < end:
            sequence = self._sent
            self._sent += 1
            yield sequence, self._frames[sequence - self._first]

    def on_grant(self, expected: int, limit: int) -> None:
        """Take a grant of the receiver.

        Raises:
            ChannelError: the receiver expects what was never sent, or what it had before.
        """
        if expected > self.next_sequence or expected < self._first:
            raise ChannelError(
                f"grant on channel {self.number}: expected one between {self._first} and {self.next_sequence}, "
                f"found {expected}"
            )
        while self._first < expected:
            self._frames.popleft()
            self._first += 1
        self._sent = max(self._sent, self._first)
        self._limit = max(self._limit, limit)

    def on_disconnected(self) -> None:
        """Prepare to send again what the receiver has not confirmed, once it has said what it expects."""
        self._sent = self._first
        self._limit = 0

    def refuse(self) -> None:
        """Drop everything, now and later: the receiver does not exist any more."""
        self.refused = True
        self._first = self._sent = self.next_sequence
        self._frames.clear()


class Inlet:
    """The receiving end. Grants go to `grant(expected, limit)`; None while there is no connection."""

    __slots__ = (
        "_consumed",
        "_expected",
        "_granted",
        "_queue",
        "_window",
        "grant",
        "purpose",
        "receiver",
        "sender",
    )

    def __init__(
        self, purpose: Purpose, sender: ChannelEnd, receiver: ChannelEnd, *, window: int = WINDOW
    ) -> None:
        self.purpose = purpose
        self.sender = sender
        self.receiver = receiver
        self.grant: Callable[[int, int], None] | None = None
        self._window = window
        self._queue: deque[Item] = deque()
        self._expected = 0
        self._consumed = 0
        self._granted = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> Item | None:
        """The item that `take` would return."""
        return self._queue[0] if self._queue else None

    @property
    def is_full(self) -> bool:
        """True if the sender has to wait, or nearly."""
        return len(self._queue) >= self._window * 3 // 4

    def attach(self, grant: Callable[[int, int], None]) -> None:
        """Attach a connection, the first or another: say what is expected."""
        self.grant = grant
        self._send_grant()

    def detach(self) -> None:
        """Stop granting credit, because the connection ended."""
        self.grant = None

    def on_item(self, sequence: int, item: Item) -> bool:
        """Take an item in; return False if it was here before.

        Raises:
            ChannelError: an item before it is missing, or it was sent without credit.
        """
        if sequence < self._expected:
            return False
        if sequence != self._expected or sequence >= self._granted:
            raise ChannelError(
                f"channel of {self.sender.peer} to {self.receiver.peer}: expected item {self._expected} below "
                f"{self._granted}, found {sequence}"
            )
        self._expected += 1
        self._queue.append(item)
        return True

    def take(self) -> Item:
        """Return the next item; there must be one. Credit is given in halves of the window, to spare messages."""
        item = self._queue.popleft()
        self._consumed += 1
        if self._granted - self._consumed <= self._window // 2:
            self._send_grant()
        return item

    def _send_grant(self) -> None:
        self._granted = self._consumed + self._window
        if self.grant is not None:
            self.grant(self._expected, self._granted)
