"""Owns what a simulated client remembers of what it asked: its requests in flight and its watches."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.rights import Ids


class Call:
    """One request: what was asked, and what was known when it was asked."""

    __slots__ = (
        "body",
        "floor",
        "ids",
        "invoked_ms",
        "nth",
        "number",
        "opcode",
        "operations",
        "parts",
        "path",
        "reply_zxid",
        "signature",
        "watch",
        "xid",
    )

    def __init__(
        self,
        xid: int,
        opcode: int,
        path: str,
        body: bytes,
        *,
        watch: bool = False,
        signature: tuple[object, ...] | None = None,
        operations: Sequence[int] = (),
        parts: Sequence[tuple[int, str]] = (),
        number: int = 0,
    ) -> None:
        self.xid = xid
        self.opcode = opcode
        self.path = path
        self.body = body
        self.watch = watch
        self.signature = signature
        """How the write will stand in the log; None for reads."""
        self.operations = operations
        self.parts = parts
        """Of a multiRead: (opcode, path)."""
        self.number = number
        """Mode of an addWatch, or what a checkWatches or removeWatches looks for."""
        self.ids: Ids = ()
        """What the connection had proved when this was sent; of an auth: once it is answered."""
        self.floor = 0
        """The highest zxid that any client had seen acknowledged when this was sent."""
        self.invoked_ms = 0
        self.nth = 0
        self.reply_zxid = 0


class Rearming:
    """A setWatches in flight: what it asked for, and the events (zxid, type, path) that came since."""

    __slots__ = ("child", "data", "persistent", "recursive", "relative_zxid", "told")

    def __init__(self, watches: Watches, relative_zxid: int) -> None:
        self.data = watches.data
        self.child = watches.child
        self.persistent = watches.persistent
        self.recursive = watches.recursive
        self.relative_zxid = relative_zxid
        self.told: list[tuple[int, int, str]] = []


class Watches:
    """What a client's library believes to be armed, and what its server still has of it.

    One-shot watches: path to the zxid since which it is armed. The server drops one whose event the client may not
    read; the library does not notice, and asks for it again after a reconnect. Those are in `silent_data` and
    `silent_child`. `rearming` is None when no setWatches is in flight.
    """

    __slots__ = (
        "child",
        "cursor",
        "data",
        "ids_before",
        "persistent",
        "rearming",
        "recursive",
        "silent_child",
        "silent_data",
    )

    def __init__(self) -> None:
        self.data: dict[str, int] = {}
        self.child: dict[str, int] = {}
        self.persistent: dict[str, None] = {}
        self.recursive: dict[str, None] = {}
        self.silent_data: set[str] = set()
        self.silent_child: set[str] = set()
        self.cursor = 0
        """Events of the history before this one are accounted for on this connection."""
        self.ids_before: Ids | None = None
        """After an auth, until the next zxid is seen: what the connection had proved before. Its answer has no zxid."""
        self.rearming: Rearming | None = None

    def __bool__(self) -> bool:
        return bool(self.data or self.child or self.persistent or self.recursive)

    @property
    def lasting(self) -> bool:
        return bool(self.persistent or self.recursive)

    def forget_all(self) -> None:
        """The library starts anew."""
        self.data, self.child, self.persistent, self.recursive = {}, {}, {}, {}
        self.silent_data, self.silent_child = set(), set()
        self.rearming = None
