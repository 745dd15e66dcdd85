"""The state digest: a sum over all items of the state, equal on all servers at equal index (D-26).

Each item (znode, session, row, setting, counter) is hashed by itself, BLAKE2b over its MessagePack form; the
digest is the sum modulo 2^128 (AdHash). So it depends neither on any order nor on when it is asked for, and a
write pays only for a mark: the marked items are hashed again when the digest is next wanted. Only new znodes are hashed
at once, while many are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgpack

from zraft.tree.node import HASH_BYTES, NodeTable, Znode, may_rest, node_form, share_of
from zraft.tree.sessions.session import Session

MODULUS: Final = 2**128
DIRTY_MAX: Final = 65_536
"""With more marks than this no digest is noted, as it would stall the server, and each entry works off `FOLD_BATCH`."""
FOLD_BATCH: Final = 1_000
"""Items hashed in an entry when there are many: more than an entry usually marks, and about 3 ms."""
FOLD_MAX: Final = 8_000
"""Items hashed in an entry at most: about 20 ms."""
MARKS_MAX: Final = 2**20
"""Marks above this are worked off at once, also while a server is behind: it bounds their memory."""
DIGEST_EVERY: Final = 1_024
"""A digest is noted after each entry whose index is a multiple of this (D-26).

A busy group passes a point every second or so, so a divergence is found within seconds; and what changes again and
again, like a counter or the parent of queued znodes, is hashed once in a thousand entries, not once per entry.
"""
DIGESTS_KEPT: Final = 8
"""Enough for servers up to 8,000 entries apart to have a point in common."""
PENDING_AT_POINT: Final = 1_000
"""Marks that `relieve` leaves to the point itself: about 3 ms."""


# It is kept between calls because making a packer costs as much as using it.
_pack = msgpack.Packer(use_bin_type=True).pack
_number = int.from_bytes


def item_hash(*fields: Any) -> int:
    """Return the share of one item; `fields` start with its kind, so that no two kinds can be confused."""
    return share_of(_pack(fields))


def node_hash(path: str, node: Znode) -> int:
    """Return a znode's share of the digest."""
    return share_of(node_form(path, node))


def session_hash(session: Session) -> int:
    """Return a session's share of the digest."""
    # Ephemerals follow from the znodes' owners.
    return item_hash(
        "session",
        session.id,
        session.password,
        session.timeout_ms,
        session.owner,
        session.attach_position,
        session.write_position,
        *session.memory(),
    )


_T = TypeVar("_T")


class ToldMarks(set[_T]):
    """Marks that somebody is told of while what they mark is still as it was."""

    __slots__ = ("_before",)

    def __init__(self, marks: Iterable[_T], before: Callable[[_T], None]) -> None:
        super().__init__(marks)
        self._before = before

    def add(self, mark: _T, /) -> None:
        """Mark an item, after telling the writer of an image about it."""
        self._before(mark)
        super().add(mark)


def _due(marks: int, entries_left: int, *, behind: bool) -> int:
    """Return how many of the marks are to be worked off in this entry."""
    due = 0
    if not behind:
        due = max((marks - PENDING_AT_POINT) // entries_left, FOLD_BATCH if marks > DIRTY_MAX else 0)
    return max(min(due, FOLD_MAX), marks - MARKS_MAX)


class TreeDigest:
    """The sum over znodes and sessions, brought up to date lazily.

    An item's `folded` is its share of `total`. Whoever changes, adds or removes an item marks it *before*: so an
    image that is being written learns of it in time, at no cost while none is (`tell`). Marks are paths and ids;
    one whose item is gone means nothing, because what is removed takes its share along at once.

    While `is_busy`, more changes between two points than the point itself can work off. A new znode is hashed at once then:
    it is in the processor's caches, which makes up for the few that are changed or removed before their turn would come.
    And it rests, if it may, as the bytes that were hashed.
    """

    __slots__ = ("_nodes", "_sessions", "before_node", "dirty_nodes", "dirty_sessions", "is_busy", "total")

    def __init__(self, nodes: NodeTable, sessions: dict[int, Session]) -> None:
        self._nodes = nodes
        self._sessions = sessions
        self.total = 0
        self.dirty_nodes: set[str] = {path for path, _ in nodes.items()}
        self.dirty_sessions: set[int] = set(sessions)
        self.before_node: Callable[[str], None] | None = None
        self.is_busy = False

    def tell(self, before_node: Callable[[str], None], before_session: Callable[[int], None]) -> None:
        """Call these before each mark from now on, also where the mark is there already."""
        self.before_node = before_node
        self.dirty_nodes = ToldMarks(self.dirty_nodes, before_node)
        self.dirty_sessions = ToldMarks(self.dirty_sessions, before_session)

    def tell_nobody(self) -> None:
        """Tell the writer of an image nothing any more."""
        self.before_node = None
        self.dirty_nodes = set(self.dirty_nodes)
        self.dirty_sessions = set(self.dirty_sessions)

    def new_marks(self) -> set[str]:
        """Return an empty set that may stand in for `dirty_nodes` for a while."""
        return set() if self.before_node is None else ToldMarks((), self.before_node)

    def restart(self, total: int) -> None:
        """Begin anew with other items: folded, with these shares together."""
        self.tell_nobody()
        self.dirty_nodes = set()
        self.dirty_sessions = set()
        self.total = total

    def relieve(self, entries_left: int, *, behind: bool) -> None:
        """Work off a bounded number of marks; called once per entry, of which `entries_left` still begin before a point.

        So that few are left at the point, and as late as that allows: what changes often is hashed once. If the server is
        `behind`, entries wait to be applied, and maybe clients for them: then hashing waits.
        """
        many = len(self.dirty_nodes) > PENDING_AT_POINT
        self.is_busy = many and not behind
        if many:
            self._fold_nodes(_due(len(self.dirty_nodes), entries_left, behind=behind))
        if len(self.dirty_sessions) > PENDING_AT_POINT:
            self._fold_sessions(_due(len(self.dirty_sessions), entries_left, behind=behind))

    def take_new(self, path: str, node: Znode) -> Znode | bytes:
        """Take up a znode that is complete, but not yet in the table; return what the table is to hold."""
        if not self.is_busy:
            self.dirty_nodes.add(path)
            return node
        if self.before_node is not None:
            self.before_node(path)
        form = node_form(path, node)
        hashed = blake2b(form, digest_size=HASH_BYTES).digest()
        node.folded = share = _number(hashed, "big")
        self.total = (self.total + share) % MODULUS
        return hashed + form if may_rest(node) else node

    @property
    def pending(self) -> int:
        """Marks to work off before the digest is known: about 4 us each."""
        return len(self.dirty_nodes) + len(self.dirty_sessions)

    def fold(self, limit: int) -> None:
        """Work off up to `limit` marks of each kind, for moments without other work."""
        self._fold_nodes(min(limit, len(self.dirty_nodes)))
        self._fold_sessions(min(limit, len(self.dirty_sessions)))

    def folded_total(self, extra: Iterable[int]) -> int:
        """Return the digest as of now, with the shares of items that are not kept folded."""
        self._fold_nodes(len(self.dirty_nodes))
        self._fold_sessions(len(self.dirty_sessions))
        return (self.total + sum(extra)) % MODULUS

    def full_total(self, extra: Iterable[int]) -> int:
        """Return the same from scratch, touching nothing."""
        total = sum(node_hash(path, node) for path, node in self._nodes.items())
        total += sum(map(session_hash, self._sessions.values()))
        return (total + sum(extra)) % MODULUS

    def _fold_nodes(self, limit: int) -> None:
        dirty, total = self.dirty_nodes, self.total
        for _ in range(limit):
            path = dirty.pop()
            node = self._nodes.get(path)
            if node is not None:
                share = node_hash(path, node)
                total += share - node.folded
                node.folded = share
        self.total = total % MODULUS

    def _fold_sessions(self, limit: int) -> None:
        dirty, total = self.dirty_sessions, self.total
        for _ in range(limit):
            session = self._sessions.get(dirty.pop())
            if session is not None:
                share = session_hash(session)
                total += share - session.folded
                session.folded = share
        self.total = total % MODULUS
