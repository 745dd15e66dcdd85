"""The state machine of a group: the small interface that whatever a group replicates has for its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zraft.raft.messages import Entry


class EntryTaker(Protocol):
    """State to which a replica applies entries. It changes by committed entries alone, and alike on every server (D-5)."""

    @property
    def stopped(self) -> bool:
        """True if it met an entry that it cannot carry out: it takes no more, and no image is made of it."""

    def apply(self, entry: Entry) -> bool:
        """Take the next entry, of whatever kind. The machine keeps for its owner what a leader has to do about it.

        Returns:
            Whether it is carried out. If not, and the machine has not stopped, a part of it is: call this
            again with the same entry, in another turn.
        """


class StateMachine(EntryTaker, Protocol):
    """The replicated state of a group that a host has."""

    def snapshot(self) -> bytes:
        """Return all of the state, as `prepare_restore` takes it. It is small: large data is in files of its own (D-13)."""

    def prepare_restore(self, image: bytes) -> Callable[[], None]:
        """Read an image, and change nothing yet.

        Returns:
            A function that makes this machine what another one was when it gave `image`. It cannot fail. Call it
            before anything else is applied.

        Raises:
            ProtocolError: the bytes are no image.
        """

    def digest(self) -> int:
        """Return 128 bits that are equal where the states are equal (D-26)."""
