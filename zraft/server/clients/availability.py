"""State of this server towards its clients."""

from __future__ import annotations


class Availability:
    """Flags that the driver sets in each turn, and by which clients are served or not.

    Attributes:
        serving: sessions may be attached, and told something, now.
        removed: this server belongs to the cluster no longer. It serves nobody, not even reads.
        leaving: this server is about to stop, or to be removed. Nobody is attached any more.
        deaf: what clients send is not looked at any more, so that those that ask all the time come to an end, too.
    """

    __slots__ = ("deaf", "leaving", "removed", "serving")

    def __init__(self) -> None:
        self.serving = False
        self.removed = False
        self.leaving = False
        self.deaf = False
