"""Messages on their way out: those that may leave at once, and those held until a write is durable (D-7)."""

from __future__ import annotations

from zraft.raft.messages import AppendEntriesReply, Message
from zraft_core.ids import ServerId


class Outbox:
    """Messages in the order in which they may leave.

    Attributes:
        messages: may leave at once. Who takes them leaves an empty list.
        persisted: the newest write that is durable.
    """

    __slots__ = ("_held", "messages", "persisted")

    def __init__(self) -> None:
        self.messages: list[tuple[ServerId, Message]] = []
        self._held: dict[int, list[tuple[ServerId, Message]]] = {}  # keyed by the write that they wait for
        self.persisted = 0

    def send_after(self, number: int, to: ServerId, message: Message) -> None:
        """Send once write `number`, maybe one that is not taken yet, is durable; at once if it is."""
        if number <= self.persisted:
            self.messages.append((to, message))
        elif number in self._held:
            self._held[number].append((to, message))
        else:
            self._held[number] = [(to, message)]

    def withhold_acknowledgements(self, index: int) -> None:
        """Drop acknowledgements that are held of entries from `index` on: the log has others there, or none, by now.

        Writes that wait together become durable together, so such an entry may never have been durable for a moment.
        """
        for number, held in self._held.items():
            self._held[number] = [
                (to, message)
                for to, message in held
                if not (
                    isinstance(message, AppendEntriesReply)
                    and message.accepted
                    and message.match_index >= index
                )
            ]

    def release(self, number: int) -> None:
        """Write `number` and all before it are durable."""
        self.persisted = number
        if self._held:
            for waited_for in sorted(self._held):
                if waited_for > number:
                    return
                self.messages += self._held.pop(waited_for)
