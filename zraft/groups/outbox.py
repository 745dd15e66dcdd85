"""The messages that a turn sends: by receiver, and those that this server sends to itself.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zraft.transport.messages import PeerMessage
from zraft_core.ids import ServerId


class PeerOutbox:
    """The messages of the present turn; each receiver gets its own together.

    Attributes:
        local: messages to this server itself, as an origin or a leader. They are handled like all others,
            without network.
    """

    def __init__(self, server: ServerId) -> None:
        self._server = server
        self._sends: dict[ServerId, list[PeerMessage]] = {}
        self.local: list[PeerMessage] = []

    def send(self, to: ServerId, message: PeerMessage) -> None:
        """Send `message` at the end of this turn; to this server itself, within the turn or in the next."""
        if to == self._server:
            self.local.append(message)
        elif to in self._sends:
            self._sends[to].append(message)
        else:
            self._sends[to] = [message]

    def send_each(self, messages: Iterable[tuple[ServerId, PeerMessage]]) -> None:
        """Send each of these to its receiver, which is another server, at the end of this turn."""
        sends = self._sends
        for to, message in messages:
            if to in sends:
                sends[to].append(message)
            else:
                sends[to] = [message]

    def send_all(self, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        """Send these to another server at the end of this turn."""
        if to in self._sends:
            self._sends[to] += messages
        else:
            self._sends[to] = [*messages]

    @property
    def waits(self) -> bool:
        """True if something is to be sent to other servers."""
        return bool(self._sends)

    def take_local(self) -> list[PeerMessage]:
        """Return what this server said to itself since the last call."""
        taken, self.local = self.local, []
        return taken

    def take(self) -> list[tuple[ServerId, list[PeerMessage]]]:
        """Return what is to be sent to other servers, by receiver."""
        if not self._sends:
            return []
        sends, self._sends = self._sends, {}
        return list(sends.items())
