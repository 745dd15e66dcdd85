"""What a group replicates: the small face that every state machine of a group shows to its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zraft.raft.messages import Entry


class EntryTaker(Protocol):
    """What a replica applies entries to. It changes by committed entries alone, and alike on every server (D-5)."""

    @property
    def stopped(self) -> bool:
        """It met an entry that it cannot carry out: it takes no more, and there is no image of it."""

    def apply(self, entry: Entry) -> bool:
        """Take the next entry, of whatever kind. What its leader is to do about it, the machine keeps for its owner.

        Returns:
            Whether it is carried out. If not, and the machine has not stopped, a part of it is: call this again with the
            same entry, in another turn.
        """


class StateMachine(EntryTaker, Protocol):
    """The replicated state of a group that a host has."""

    def snapshot(self) -> bytes:
        """All of the state, as `prepare_restore` takes it. Small: what is large lies in files of its own (D-13)."""

    def prepare_restore(self, image: bytes) -> Callable[[], None]:
        """Read an image, and change nothing yet.

        Returns:
            A function that makes this machine what another one was when it gave `image`. It cannot fail. Call it
            before anything else is applied.

        Raises:
            ProtocolError: the bytes are no image.
        """

    def digest(self) -> int:
        """128 bits that are equal where the states are equal (D-26)."""
