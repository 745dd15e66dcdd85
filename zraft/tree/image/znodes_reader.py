"""Reading of an image's znodes: ordinary ones many at a time, all others one by one.

A million znodes are read while nobody is served, so this is written for speed. What can be asked of a whole slice of
records is asked once, of its columns; if any answer is no, each record of the slice is looked at by itself, which also
finds the words for an error. Which znode is whose child is written down in lists at first, and is told to the parents when
everything was read: then a parent need not be found for each of its children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import msgpack

from zraft.tree.children import SPLIT_AT, ManyChildren
from zraft.tree.hiding import Hidden
from zraft.tree.image.layout import GHOST, ZNODE, shown
from zraft.tree.lifetime import TTL_MS_MAX
from zraft.tree.node import (
    HASH_BYTES,
    SHARD_COUNT,
    SHARD_SHIFT,
    Lifetime,
    NodeTable,
    Znode,
    share_of,
)
from zraft.tree.paths import NO_NAMES, ROOT, is_valid_name, is_valid_path
from zraft.tree.quota import LIMITS, limited_path
from zraft.tree.sessions.session import Session
from zraft_core.errors import ProtocolError
from zraft_core.znodes.acl import OPEN_ACL, Acl, AclTable
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN

_SHARD_MASK: Final = SHARD_COUNT - 1
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_FIELDS: Final = 13
_TRUNCATED_FIELDS: Final = 14
_GHOST_TYPES: Final = (int, str, int)
_TIMES_KEPT_MAX: Final = 65_536
_CHILDREN_PER_ITEM: Final = 32
"""Paths that go into a dict in the time of reading one znode."""

_pack = msgpack.Packer(use_bin_type=True).pack
_number = int.from_bytes

_TUPLE: Final = {tuple}
_STR: Final = {str}
_INT: Final = {int}
_ZNODE: Final = {ZNODE}
_ALL_FIELDS: Final = {_FIELDS}
_DATA: Final = {bytes, type(None)}
_WHOSE: Final = {int, tuple}
_END: Final = "\0"
_NO_PATH: Final = ("//", *(f"/{name}{_END}" for name in sorted(NO_NAMES)))
"""A text of valid paths, each followed by `_END`, has none of these in it, unless the root is one of them."""
_LIMITS_END: Final = f"/{LIMITS}{_END}"

_Families = list[dict[str, list[str]]]


class ZnodesReader:
    """Znodes, ghosts and ACLs of an image. `take` each; when all are taken, `link` until it is False.

    Args:
        sessions: those that were read so far; ephemerals are told to them.

    Attributes:
        count: znodes taken.
        unowned: ephemerals whose session was not read yet.
        truncated: children of truncated directories and ghosts, since `link`.
    """

    def __init__(self, sessions: Mapping[int, Session]) -> None:
        self._sessions = sessions
        self.nodes = NodeTable()
        self.acls = AclTable()
        self.mortal: set[str] = set()
        self.limited: set[str] = set()
        self.ghosts: dict[str, int] = {}
        self.truncated: Hidden = {}
        self.unowned: dict[int, set[str]] = {}
        self.count = 0
        self._acl_numbers: dict[int, Acl] = {0: OPEN_ACL}
        self._firsts: dict[str, int] = {}
        # In shards, as one large dict would stall. The root's children are those of "".
        self._families: _Families = [{} for _ in range(SHARD_COUNT)]
        self._large: tuple[ManyChildren, list[str]] | None = None
        """A directory whose children are taken over piece by piece, and those that are left."""
        # Znodes of one entry have one time, and equal times stay one object, as they were: 32 bytes of memory each.
        self._times: dict[int, int] = {}

    def take_acl(self, record: tuple[Any, ...]) -> None:
        """Take an ACL, before the first znode that has it."""
        if len(record) != 3 or record[1].__class__ is not int or record[2].__class__ is not tuple:
            raise ProtocolError(f"image: ACL: wrong fields: {shown(record)}")
        _, number, acl = record
        if number in self._acl_numbers:
            raise ProtocolError(f"image: ACL {number}: it comes twice")
        if not acl or not all(
            entry.__class__ is tuple
            and tuple(map(type, entry)) == (int, str, str)
            and INT32_MIN <= entry[0] <= INT32_MAX
            for entry in acl
        ):
            raise ProtocolError(
                f"image: ACL {number}: expected [[bits, scheme, id], ...], found {shown(acl)}"
            )
        self._acl_numbers[number] = acl

    def take_ghost(self, record: tuple[Any, ...], *, may_be_truncated: bool) -> None:
        """Take a directory that was deleted before its hidden children were."""
        assert record[0] == GHOST
        if tuple(map(type, record)) != _GHOST_TYPES or not (may_be_truncated and _is_first(record[2])):
            raise ProtocolError(f"image: ghost: wrong fields: {shown(record)}")
        _, path, first = record
        if path in self._firsts or path in self.nodes or not is_valid_path(path):
            raise ProtocolError(f"image: ghost {path!r}: it comes too late, or twice, or is no path")
        self.ghosts[path] = first
        self._truncate(path, first)

    def take_many(self, records: Sequence[Any]) -> int | None:
        """Take znodes of which none is truncated; return the sum of their shares of the digest.

        None is returned if they are other records, or if anything is wrong with one of them: then none of them was taken.
        """
        if set(map(type, records)) != _TUPLE or set(map(len, records)) != _ALL_FIELDS:
            return None
        columns = tuple(zip(*records, strict=True))
        kinds, paths, datas, numbers = columns[:4]
        of_64_bits, versions, whose = columns[4:9], columns[9:12], columns[12]
        if not (
            set(map(type, paths)) == _STR
            and set(map(type, datas)) <= _DATA
            and set(map(type, chain(kinds, numbers, *of_64_bits, *versions))) == _INT
            and set(map(type, whose)) <= _WHOSE
            and set(kinds) == _ZNODE
            and min(map(min, of_64_bits)) >= 0
            and max(map(max, of_64_bits)) <= _INT64_MAX
            and min(map(min, versions)) >= INT32_MIN
            and max(map(max, versions)) <= INT32_MAX
            and self._acl_numbers.keys() >= set(numbers)
        ):
            return None
        text = _END.join((*paths, ""))
        if not _are_plain_paths(text, len(paths)):
            return None
        if _LIMITS_END in text:
            self._take_limits(paths)
        nodes = self.nodes
        nodes.data_bytes += len(text) - len(paths) + sum(map(len, filter(None, datas)))
        self.count += len(paths)
        acls = map(self._acl_numbers.__getitem__, numbers)
        shards, families = nodes.shards, self._families
        self._forget_times()
        total = 0
        for fields in zip(paths, datas, acls, *of_64_bits, *versions, whose, strict=True):
            path = fields[0]
            placed: Znode | bytes
            if fields[2] is OPEN_ACL and fields[-1] == 0:
                # It rests until somebody uses it; a directory, until its children are told to it.
                form: bytes = _pack(("node", *fields))
                hashed = blake2b(form, digest_size=HASH_BYTES).digest()
                placed = hashed + form
                total += _number(hashed, "big")
            else:
                placed = node = self._znode(*fields)
                total += node.folded
            if shards[hash(path) >> SHARD_SHIFT & _SHARD_MASK].setdefault(path, placed) is not placed:
                raise ProtocolError(f"image: znode {path!r}: it comes twice")
            parent = path[: path.rfind("/")]
            family = families[hash(parent) >> SHARD_SHIFT & _SHARD_MASK]
            if parent in family:
                family[parent].append(path)
            else:
                family[parent] = [path]
        return total

    def take(self, record: tuple[Any, ...], *, may_be_truncated: bool) -> int:
        """Take one znode; return its share of the digest.

        Args:
            may_be_truncated: the feature level of the image knows truncated directories.

        Raises:
            ProtocolError: something is wrong with it.
        """
        first = 0
        plain = record
        if len(record) == _TRUNCATED_FIELDS:
            plain, first = record[:-1], record[-1]
            if not (may_be_truncated and _is_first(first)):
                raise ProtocolError(f"image: znode: first {shown(first)}, in {shown(record)}")
        if len(plain) != _FIELDS:
            raise ProtocolError(f"image: znode: expected 13 fields, found {shown(record)}")
        _, path, data, number, *numbers, whose = plain
        if not (
            path.__class__ is str
            and (data.__class__ is bytes or data is None)
            and set(map(type, (number, *numbers))) == _INT
            and (whose.__class__ is int or whose.__class__ is tuple)
        ):
            raise ProtocolError(f"image: znode: wrong fields: {shown(record)}")
        acl = self._acl_numbers.get(number)
        if acl is None:
            raise ProtocolError(f"image: znode {path!r}: it has ACL {number}, which was not given")
        if not (
            all(0 <= number <= _INT64_MAX for number in numbers[:5])
            and all(INT32_MIN <= number <= INT32_MAX for number in numbers[5:])
        ):
            raise ProtocolError(f"image: znode {path!r}: a number out of bounds: {shown(record[4:])}")
        parent, slash, name = path.rpartition("/")
        if path != ROOT and (not slash or parent == "/" or not is_valid_name(name)):
            raise ProtocolError(f"image: znode {path!r}: this is no path")
        if path in self.nodes:
            raise ProtocolError(f"image: znode {path!r}: it comes twice")
        self._forget_times()
        node = self._znode(path, data, acl, *numbers, whose, *((first,) if first else ()))
        self.nodes.insert(path, node)
        self.count += 1
        if first:
            self._truncate(path, first)
        if path != ROOT:
            self._family(parent).append(path)
        if name == LIMITS:
            self._take_limits((path,))
        return node.folded

    def _znode(self, *fields: Any) -> Znode:
        """Return a znode with its share of the digest; if it belongs to a session, that is told.

        Args:
            fields: those of its form, after the first.
        """
        path, data, acl, czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, whose, *_ = fields
        ctime = self._times.setdefault(ctime, ctime)
        node = Znode(data, acl if acl is OPEN_ACL else self.acls.hold(acl), czxid, ctime, 0)
        if mzxid != czxid:
            node.mzxid = mzxid
        if pzxid != czxid:
            node.pzxid = pzxid
        if mtime != ctime:
            node.mtime = mtime
        node.version, node.creates, node.aversion = version, creates, aversion
        if whose != 0:
            self._take_owner(path, node, whose)
        node.folded = share_of(_pack(("node", *fields)))
        return node

    def link(self, items: int) -> bool:
        """Tell parents who their children are, as many as take about the time of reading `items` znodes.

        Returns:
            False: all know.

        Raises:
            ProtocolError: a parent is missing, or must not have children.
        """
        families = self._families
        while items > 0:
            if self._large is not None:
                many, paths = self._large
                taken = paths[-items:]
                many.extend(taken)
                del paths[-items:]
                items -= len(taken)
                if not paths:
                    self._large = None
            elif families[-1]:
                parent, paths = families[-1].popitem()
                items -= 1 + len(paths) // _CHILDREN_PER_ITEM
                self._link(parent or ROOT, paths)
            elif len(families) > 1:
                families.pop()
            else:
                return False
        return True

    @property
    def linked(self) -> bool:
        """True if `link` has nothing left to do."""
        return self._large is None and len(self._families) == 1 and not self._families[0]

    def _link(self, path: str, children: list[str]) -> None:
        first = self._firsts.get(path, 0)
        node = self.nodes.get(path)
        if node is None:
            if path not in self.ghosts:
                raise _missing(path)
        elif path in self.ghosts:
            raise ProtocolError(f"image: znode {path!r}: it is a ghost as well")
        elif node.ephemeral_owner and not first:
            raise ProtocolError(f"image: znode {path!r}: an ephemeral with children")
        if first or len(children) >= SPLIT_AT:
            many = ManyChildren((), first)
            if node is not None:
                node.children = many
            if first:
                self.truncated[path] = many
            self._large = many, children
        else:
            assert node is not None
            node.children = dict.fromkeys(children)

    def check_truncated(self) -> None:
        """Raise ProtocolError if a truncated directory or ghost contradicts itself, when all is linked."""
        for path, children in self.truncated.items():
            node = self.nodes.get(path)
            if node is None and children:
                raise _missing(path)
            if (not children.hidden_count) if node is None else (node.ephemeral_owner and children):
                raise ProtocolError(
                    f"image: truncated znode {path!r}: a ghost without hidden children, or an ephemeral with others"
                )

    def _take_owner(self, path: str, node: Znode, whose: Any) -> None:
        if whose.__class__ is int:
            if not _INT64_MIN <= whose <= _INT64_MAX:
                raise ProtocolError(f"image: znode {path!r}: its session {whose:#x} is no number of 64 bits")
            node.ephemeral_owner = whose
            session = self._sessions.get(whose)
            if session is not None:
                session.ephemerals.add(path)
            else:
                self.unowned.setdefault(whose, set()).add(path)
            return
        if (
            tuple(map(type, whose)) != (int, int)
            or not 0 <= whose[0] <= TTL_MS_MAX
            or not 0 <= whose[1] <= _INT64_MAX
        ):
            raise ProtocolError(f"image: znode {path!r}: expected [ttl_ms, since_ms], found {shown(whose)}")
        node.lifetime = Lifetime(*whose)
        self.mortal.add(path)

    def _forget_times(self) -> None:
        """Bound the memory of times that come but once."""
        if len(self._times) > _TIMES_KEPT_MAX:
            self._times.clear()

    def _truncate(self, path: str, first: int) -> None:
        self._firsts[path] = first
        self._family("" if path == ROOT else path)

    def _family(self, parent: str) -> list[str]:
        return self._families[hash(parent) >> SHARD_SHIFT & _SHARD_MASK].setdefault(parent, [])

    def _take_limits(self, paths: Sequence[str]) -> None:
        """Note the quotas among these znodes."""
        for path in paths:
            parent, _, name = path.rpartition("/")
            if name == LIMITS and (top := limited_path(parent or ROOT)) is not None:
                self.limited.add(top)


def _is_first(first: Any) -> bool:
    return first.__class__ is int and 0 < first <= INT32_MAX


def _are_plain_paths(text: str, count: int) -> bool:
    """Return whether these are `count` valid paths of printable ASCII, without the root, each followed by `_END`."""
    return (
        text.isascii()
        and text.count(_END) == count
        and text.replace(_END, "").isprintable()
        and text.startswith("/")
        and text.count(_END + "/") == count - 1
        and not any(wrong in text for wrong in _NO_PATH)
    )


def _missing(path: str) -> ProtocolError:
    return ProtocolError(f"image: znode {path!r} is missing, which other znodes have as parent")
