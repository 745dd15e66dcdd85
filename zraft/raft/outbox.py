"""Messages on their way out: those that may leave at once, and those held until a write is durable (D-7)."""

from __future__ import annotations

from zraft.raft.messages import Message
from zraft_core.ids import ServerId


class Outbox:
    """Messages in the order in which they may leave.

    Attributes:
        messages: may leave at once.
    """

    __slots__ = ("_held", "_persisted", "messages")

    def __init__(self) -> None:
        self.messages: list[tuple[ServerId, Message]] = []
        self._held: dict[int, list[tuple[ServerId, Message]]] = {}  # keyed by the write that they wait for
        self._persisted = 0

    def send_after(self, number: int, to: ServerId, message: Message) -> None:
        """Send once write `number`, maybe one that is not taken yet, is durable; at once if it is."""
        if number <= self._persisted:
            self.messages.append((to, message))
        else:
            self._held.setdefault(number, []).append((to, message))

    def release(self, number: int) -> None:
        """Write `number` and all before it are durable."""
        self._persisted = number
        if self._held:
            for waited_for in sorted(held for held in self._held if held <= number):
                self.messages += self._held.pop(waited_for)

    def take(self) -> tuple[tuple[ServerId, Message], ...]:
        """Return the messages that may leave, and forget them."""
        messages = tuple(self.messages)
        if messages:
            self.messages.clear()
        return messages
