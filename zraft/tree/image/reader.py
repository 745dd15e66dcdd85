"""Reading of an image into a fresh state, in small steps. It believes nothing that it did not check."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import msgpack
from attrs import frozen

from zraft.config.features import LEVEL_OF_NATIVE, LEVEL_OF_TOPICS, check_level
from zraft.topics.registry import Registry
from zraft.topics.registry_image import RegistryReader
from zraft.tree.children import SPLIT_AT, ManyNames
from zraft.tree.digest import MODULUS, record_hash, session_hash
from zraft.tree.hiding import Hidden
from zraft.tree.image.layout import (
    ACL,
    DIGEST_BYTES,
    END,
    FORMAT,
    GHOST,
    HEAD,
    MEMBER,
    REGISTRY,
    ROW,
    SESSION,
    ZNODE,
)
from zraft.tree.image.small_items import small_shares
from zraft.tree.lifetime import TTL_MS_MAX
from zraft.tree.members import WantedMember, is_change
from zraft.tree.node import BORN, SHARD_COUNT, SHARD_SHIFT, Lifetime, NodeTable, Znode
from zraft.tree.origins import BOOT_ID_BYTES_MAX, Origin, OriginRow
from zraft.tree.paths import ROOT, is_valid_name, is_valid_path
from zraft.tree.quota import LIMITS, limited_path
from zraft.tree.sessions.kept import Kept
from zraft.tree.sessions.session import PASSWORD_BYTES, Session
from zraft.tree.sessions.will import Will
from zraft.tree.settings import Settings
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, ServerId
from zraft_core.topics.message import COORDINATOR
from zraft_core.znodes.acl import OPEN_ACL, Acl, AclTable
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN

_SHARD_MASK: Final = SHARD_COUNT - 1
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_DATA_BYTES_MAX: Final = 2**30
_PATH_BYTES_MAX: Final = 2**24
_ACL_ENTRIES_MAX: Final = 2**20

_SESSION_TYPES: Final = (int, int, bytes, int, tuple, int, int)
_ROW_TYPES: Final = (int, int, bytes, int, int, bytes)
_MEMBER_TYPES: Final = (int, int, bool, str)
_HEAD_TYPES: Final = (*(int,) * 10, dict)
_GHOST_TYPES: Final = (int, str, int)
_TRUNCATED_FIELDS: Final = 14
_END_TYPES: Final = (int, int, int, bytes)


@frozen(eq=False)
class ImageState:
    """A complete, checked state, for `Machine.adopt`, which takes its parts over: use it once."""

    feature_level: int
    last_zxid: int
    position: int
    log_time: int
    wall_time: int
    index: int
    term: int
    faults: int
    settings: Settings
    rows: dict[Origin, OriginRow]
    members: dict[ServerId, WantedMember]
    sessions: dict[int, Session]
    registry: Registry
    nodes: NodeTable
    acls: AclTable
    mortal: set[str]
    limited: set[str]
    ghosts: dict[str, int]
    hidden: Hidden
    shares: int
    """The folded shares of all znodes and sessions."""
    digest: int
    """The digest of the whole state, as the image says; the shares agree with it."""


class ImageReader:
    """`feed` blocks of any size; after each, `step` until it is False; when all is fed, `finish`.

    A step costs about 6 us per item; memory is the new state and the block. After an error it is of no use.
    """

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(
            use_list=False,
            strict_map_key=False,
            max_buffer_size=2**31 - 1,
            max_bin_len=_DATA_BYTES_MAX,
            max_str_len=_PATH_BYTES_MAX,
            max_array_len=_ACL_ENTRIES_MAX,
            max_map_len=1_000,
            max_ext_len=0,
        )
        self._fed = self._end_at = 0
        self._head: tuple[Any, ...] | None = None
        self._end: tuple[Any, ...] | None = None
        self._settings = Settings()
        self._rows: dict[Origin, OriginRow] = {}
        self._members: dict[ServerId, WantedMember] = {}
        self._sessions: dict[int, Session] = {}
        self._topics = RegistryReader()
        self._nodes = NodeTable()
        self._acls = AclTable()
        self._acl_numbers: dict[int, Acl] = {0: OPEN_ACL}
        self._mortal: set[str] = set()
        self._limited: set[str] = set()
        self._orphans: list[dict[str, set[str] | ManyNames]] = [{} for _ in range(SHARD_COUNT)]
        """Names of children whose parent was not read yet, by its path; in shards, as one large dict would stall."""
        self._truncated: Hidden = {}
        self._ghosts: dict[str, int] = {}
        self._unowned: dict[int, set[str]] = {}
        """Ephemerals whose session was not read yet."""
        self._znode_count = 0
        self._total = 0

    @property
    def items(self) -> int:
        """Znodes and sessions read so far."""
        return self._znode_count + len(self._sessions)

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the image; nothing is read yet.

        Raises:
            ProtocolError: one item needs more than 2 GiB.
        """
        self._fed += len(block)
        try:
            self._unpacker.feed(block)
        except msgpack.BufferFull:
            raise ProtocolError("image: one item takes more than 2 GiB") from None

    def step(self, items: int) -> bool:
        """Read up to `items` records of what was fed. False: it is used up (but for the beginning of a record).

        Raises:
            ProtocolError: the image is no image, or contradicts itself; the message names the item.
            FeatureLevelError: it is of a feature level that this release does not know.
        """
        unpack = self._unpacker.unpack
        total = self._total
        try:
            for _ in range(items):
                try:
                    record = unpack()
                except msgpack.OutOfData:
                    return False
                if record.__class__ is tuple and record and record[0] == ZNODE:
                    total += self._take_znode(record)
                else:
                    total += self._take_other(record)
            return True
        except ProtocolError:
            raise
        except (ValueError, TypeError, LookupError) as error:
            # These come from the decoder: broken bytes, a map with a map as key, nesting without end, an item
            # of absurd length.
            raise ProtocolError(f"image: after {self.items} items: not MessagePack: {error!r}") from error
        finally:
            self._total = total % MODULUS

    def finish(self) -> ImageState:
        """Return the state, once all of the image was fed and read.

        Raises:
            ProtocolError: it is not complete, or does not fit together.
        """
        if self._head is None or self._end is None:
            raise ProtocolError(
                f"image: ends after {self.items} items without its end record: it was cut off"
            )
        if self._fed != self._end_at:
            raise ProtocolError("image: more bytes follow its end record")
        _, znodes, sessions, digest = self._end
        if (znodes, sessions) != (self._znode_count, len(self._sessions)):
            raise ProtocolError(
                f"image: holds {self._znode_count} znodes and {len(self._sessions)} sessions, "
                f"its end record says {znodes} and {sessions}"
            )
        for path, names in chain.from_iterable(shard.items() for shard in self._orphans):
            if path in self._ghosts and not names:
                continue
            raise ProtocolError(f"image: znode {path!r} is missing, which other znodes have as parent")
        for owner, paths in self._unowned.items():
            raise ProtocolError(
                f"image: ephemeral {min(paths)!r} belongs to session {owner:#x}, which is missing"
            )
        for path in BORN:
            if path not in self._nodes:
                raise ProtocolError(f"image: znode {path!r} is missing, which every cluster is born with")
        for path, names in self._truncated.items():
            parent = self._nodes.get(path)
            if (not names.hidden_count) if parent is None else (parent.ephemeral_owner and len(names)):
                raise ProtocolError(
                    f"image: truncated znode {path!r}: a ghost without hidden children, or an ephemeral with others"
                )
        registry = self._registry()
        _, _, level, last_zxid, position, log_time, wall_time, index, term, faults, _ = self._head
        state = ImageState(
            feature_level=level,
            last_zxid=last_zxid,
            position=position,
            log_time=log_time,
            wall_time=wall_time,
            index=index,
            term=term,
            faults=faults,
            settings=self._settings,
            rows=self._rows,
            members=self._members,
            sessions=self._sessions,
            registry=registry,
            nodes=self._nodes,
            acls=self._acls,
            mortal=self._mortal,
            limited=self._limited,
            ghosts=self._ghosts,
            hidden={path: names for path, names in self._truncated.items() if names.hidden_count},
            shares=self._total,
            digest=int.from_bytes(digest, "big"),
        )
        found = (self._total + sum(small_shares(state)) + registry.digest.value()) % MODULUS
        if found != state.digest:
            raise ProtocolError(
                f"image: its state has digest {found:032x}, its end record says {state.digest:032x}"
            )
        return state

    # -- records

    def _take_other(self, record: Any) -> int:
        """Take an item; return its share of the digest, as far as it is one of those kept."""
        if record.__class__ is not tuple or not record or record[0].__class__ is not int:
            raise ProtocolError(
                f"image: after {self.items} items: expected [kind, ...], found {_shown(record)}"
            )
        kind = record[0]
        if self._end is not None:
            raise ProtocolError(f"image: a record of kind {kind} follows the end record")
        if kind == HEAD:
            self._take_head(record)
        elif self._head is None:
            raise ProtocolError(f"image: begins with a record of kind {kind}, not with its head")
        elif kind == SESSION:
            return self._take_session(record)
        elif kind == ACL:
            self._take_acl(record)
        elif kind == ROW:
            self._take_row(record)
        elif kind == MEMBER:
            self._take_member(record)
        elif kind == GHOST:
            self._take_ghost(record)
        elif kind == REGISTRY:
            self._take_topics(record)
        elif kind == END:
            if tuple(map(type, record)) != _END_TYPES or len(record[3]) != DIGEST_BYTES:
                raise ProtocolError(
                    f"image: end record: expected [kind, znodes, sessions, digest], found {_shown(record)}"
                )
            self._end = record
            self._end_at = self._unpacker.tell()
        else:
            raise ProtocolError(
                f"image: after {self.items} items: a record of kind {kind}, which this release does not know"
            )
        return 0

    def _take_head(self, record: tuple[Any, ...]) -> None:
        if self._head is not None:
            raise ProtocolError("image: a second head")
        if len(record) > 1 and record[1] != FORMAT:
            raise ProtocolError(
                f"image: format {record[1]!r}, this release knows {FORMAT}: use the release that wrote it, or a newer one"
            )
        if tuple(map(type, record)) != _HEAD_TYPES:
            raise ProtocolError(f"image: head: wrong fields: {_shown(record)}")
        check_level(record[2], "the image")
        if not all(0 <= number <= _INT64_MAX for number in record[3:10]):
            raise ProtocolError(f"image: head: a counter out of bounds: {_shown(record)}")
        settings = Settings().changed(record[10], record[2])
        if settings is None:
            raise ProtocolError(f"image: head: settings out of bounds: {_shown(record[10])}")
        self._head = record
        self._settings = settings

    def _take_row(self, record: tuple[Any, ...]) -> None:
        if tuple(map(type, record)) != _ROW_TYPES:
            raise ProtocolError(f"image: row: wrong fields: {_shown(record)}")
        _, server, instance, boot, seq, boot_id = record
        origin = server, instance
        if origin in self._rows:
            raise ProtocolError(f"image: row of server {server}, instance {instance.hex()}: it comes twice")
        if not (
            SERVER_ID_MIN <= server <= SERVER_ID_MAX
            and len(instance) <= INSTANCE_BYTES
            and 0 <= boot <= _INT64_MAX
            and 0 <= seq <= _INT64_MAX
            and len(boot_id) <= BOOT_ID_BYTES_MAX
        ):
            raise ProtocolError(f"image: row of server {server}: out of bounds: {_shown(record)}")
        self._rows[origin] = row = OriginRow()
        row.boot, row.seq, row.boot_id = boot, seq, boot_id

    def _take_member(self, record: tuple[Any, ...]) -> None:
        if tuple(map(type, record)) != _MEMBER_TYPES:
            raise ProtocolError(f"image: member: wrong fields: {_shown(record)}")
        _, server, voter, address = record
        change = (server, PARTICIPANT if voter else OBSERVER, address)
        if server in self._members or not is_change(change):
            raise ProtocolError(
                f"image: member {server}: it comes twice, or is out of bounds: {_shown(record)}"
            )
        self._members[ServerId(server)] = WantedMember(voter, address)

    def _take_ghost(self, record: tuple[Any, ...]) -> None:
        if tuple(map(type, record)) != _GHOST_TYPES or not self._may_be_first(record[2]):
            raise ProtocolError(f"image: ghost: wrong fields: {_shown(record)}")
        _, path, first = record
        orphans = self._orphans[hash(path) >> SHARD_SHIFT & _SHARD_MASK]
        if path in orphans or path in self._nodes or not is_valid_path(path):
            raise ProtocolError(f"image: ghost {path!r}: it comes too late, or twice, or is no path")
        self._ghosts[path] = first
        orphans[path] = self._truncated[path] = ManyNames((), first)

    def _take_topics(self, record: tuple[Any, ...]) -> None:
        assert self._head is not None
        if tuple(map(type, record)) != (int, bytes) or self._head[2] < LEVEL_OF_TOPICS:
            raise ProtocolError(
                f"image: topics: wrong fields, or before feature level {LEVEL_OF_TOPICS}: {_shown(record)}"
            )
        self._topics.take(record[1])

    def _registry(self) -> Registry:
        """Return the registry of all its pieces; none are there below the level of topics."""
        assert self._head is not None
        if self._head[2] < LEVEL_OF_TOPICS:
            return Registry()
        registry = self._topics.finish()
        for producer, owner in registry.producers.items():
            if producer != COORDINATOR and owner not in self._sessions:
                raise ProtocolError(
                    f"image: producer {producer:#x} belongs to session {owner:#x}, which is missing"
                )
        return registry

    def _may_be_first(self, first: Any) -> bool:
        assert self._head is not None
        return first.__class__ is int and 0 < first <= INT32_MAX and self._head[2] >= LEVEL_OF_NATIVE

    def _take_session(self, record: tuple[Any, ...]) -> int:
        plain, memory = record[: len(_SESSION_TYPES)], record[len(_SESSION_TYPES) :]
        if tuple(map(type, plain)) != _SESSION_TYPES:
            raise ProtocolError(f"image: session: wrong fields: {_shown(record)}")
        _, session_id, password, timeout_ms, owner, attached, written = plain
        if (
            not _INT64_MIN <= session_id <= _INT64_MAX
            or session_id == 0
            or len(password) != PASSWORD_BYTES
            or tuple(map(type, owner)) != (int, bytes, int)
            or not SERVER_ID_MIN <= owner[0] <= SERVER_ID_MAX
            or not 0 < timeout_ms <= INT32_MAX
            or not 0 <= attached <= written <= _INT64_MAX
        ):
            raise ProtocolError(f"image: session {session_id:#x}: a field out of bounds")
        if session_id in self._sessions:
            raise ProtocolError(f"image: session {session_id:#x}: it comes twice")
        session = Session(session_id, password, timeout_ms, owner, attached)
        session.write_position = written
        session.ephemerals = self._unowned.pop(session_id, session.ephemerals)
        if memory:
            self._remember(session, memory)
        session.folded = session_hash(session)
        self._sessions[session_id] = session
        return session.folded

    def _remember(self, session: Session, memory: tuple[Any, ...]) -> None:
        """Take what a session has done once, and what it leaves behind."""
        head = self._head
        assert head is not None
        if head[2] < LEVEL_OF_NATIVE or len(memory) != 2 or memory == (None, None):
            raise ProtocolError(f"image: session {session.id:#x}: unexpected fields {_shown(memory)}")
        kept, will = memory
        if kept is not None:
            session.kept = Kept.read(kept)
            if session.kept is None:
                raise ProtocolError(f"image: session {session.id:#x}: no kept outcomes: {_shown(kept)}")
        if will is not None:
            session.will = Will.read(will)
            if session.will is None:
                raise ProtocolError(f"image: session {session.id:#x}: no will: {_shown(will)}")

    def _take_acl(self, record: tuple[Any, ...]) -> None:
        if len(record) != 3 or record[1].__class__ is not int or record[2].__class__ is not tuple:
            raise ProtocolError(f"image: ACL: wrong fields: {_shown(record)}")
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
                f"image: ACL {number}: expected [[bits, scheme, id], ...], found {_shown(acl)}"
            )
        self._acl_numbers[number] = acl

    def _take_znode(self, record: tuple[Any, ...]) -> int:
        """Take a znode; return its share of the digest.

        It is called a million times in a row, so it is written out.
        """
        if self._head is None:
            raise ProtocolError("image: begins with a znode, not with its head")
        first = 0
        plain = record
        if len(record) == _TRUNCATED_FIELDS:
            plain, first = record[:-1], record[-1]
            if not self._may_be_first(first):
                raise ProtocolError(f"image: znode: first {_shown(first)}, in {_shown(record)}")
        try:
            _, path, data, number, czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, whose = (
                plain
            )
        except ValueError:
            raise ProtocolError(f"image: znode: expected 13 fields, found {_shown(record)}") from None
        if not (
            path.__class__ is str
            and (data.__class__ is bytes or data is None)
            and (
                number.__class__
                is czxid.__class__
                is mzxid.__class__
                is pzxid.__class__
                is ctime.__class__
                is mtime.__class__
                is version.__class__
                is creates.__class__
                is aversion.__class__
                is int
            )
            and (whose.__class__ is int or whose.__class__ is tuple)
        ):
            raise ProtocolError(f"image: znode: wrong fields: {_shown(record)}")
        acl = self._acl_numbers.get(number)
        if acl is None:
            raise ProtocolError(f"image: znode {path!r}: it has ACL {number}, which was not given")
        # None of the five is below 0 or has more than 63 bits.
        if not (
            (czxid | mzxid | pzxid | ctime | mtime) >> 63 == 0
            and INT32_MIN <= version <= INT32_MAX
            and INT32_MIN <= creates <= INT32_MAX
            and INT32_MIN <= aversion <= INT32_MAX
        ):
            raise ProtocolError(f"image: znode {path!r}: a number out of bounds: {_shown(record[4:])}")
        slash = path.rfind("/")
        name = path[slash + 1 :]
        if path != ROOT and (slash < 0 or slash == 1 or not is_valid_name(name)):
            raise ProtocolError(f"image: znode {path!r}: this is no path")
        if self._end is not None:
            raise ProtocolError(f"image: znode {path!r} follows the end record")
        shards = self._nodes.shards
        place = hash(path) >> SHARD_SHIFT & _SHARD_MASK
        shard = shards[place]
        if path in shard:
            raise ProtocolError(f"image: znode {path!r}: it comes twice")

        if acl is not OPEN_ACL:
            acl = self._acls.hold(acl)
        node = Znode(data, acl, czxid, ctime, 0)
        # Equal numbers stay one object, as they were: that is 100 bytes of memory for most znodes.
        if mzxid != czxid:
            node.mzxid = mzxid
        if pzxid != czxid:
            node.pzxid = pzxid
        if mtime != ctime:
            node.mtime = mtime
        node.version = version
        node.creates = creates
        node.aversion = aversion
        shard[path] = node
        self._nodes.data_bytes += len(path) + (len(data) if data else 0)
        self._znode_count += 1
        if whose != 0:
            self._take_owner(path, node, whose)
        children = self._orphans[place].pop(path, None)
        if children is not None and path in self._ghosts:
            raise ProtocolError(f"image: znode {path!r}: it is a ghost as well")
        if first:
            many = children if isinstance(children, ManyNames) else ManyNames(children or ())
            many.truncate(first)
            node.children = self._truncated[path] = many
        elif children is not None:
            if node.ephemeral_owner:
                raise ProtocolError(f"image: znode {path!r}: an ephemeral with children")
            node.children = children
        if slash > 0:
            parent_path = path[:slash]
        elif path == ROOT:
            node.folded = share = record_hash(path, data, acl, record)
            return share
        else:
            parent_path = ROOT
        place = hash(parent_path) >> SHARD_SHIFT & _SHARD_MASK
        parent = shards[place].get(parent_path)
        if parent is None:
            orphans = self._orphans[place]
            siblings = orphans.get(parent_path)
            if siblings is None:
                orphans[parent_path] = {name}
            else:
                siblings.add(name)
                if len(siblings) == SPLIT_AT and siblings.__class__ is set:
                    orphans[parent_path] = ManyNames(siblings)
        else:
            siblings = parent.children
            if siblings is None:
                if parent.ephemeral_owner:
                    raise ProtocolError(f"image: znode {parent_path!r}: an ephemeral with children")
                parent.children = {name}
            else:
                siblings.add(name)
                if len(siblings) == SPLIT_AT and siblings.__class__ is set:
                    parent.children = ManyNames(siblings)
        if name == LIMITS:
            top = limited_path(parent_path)
            if top is not None:
                self._limited.add(top)
        node.folded = share = record_hash(path, data, acl, record)
        return share

    def _take_owner(self, path: str, node: Znode, whose: Any) -> None:
        if whose.__class__ is int:
            if not _INT64_MIN <= whose <= _INT64_MAX:
                raise ProtocolError(f"image: znode {path!r}: its session {whose:#x} is no number of 64 bits")
            node.ephemeral_owner = whose
            session = self._sessions.get(whose)
            if session is not None:
                session.ephemerals.add(path)
            else:
                self._unowned.setdefault(whose, set()).add(path)
            return
        if (
            tuple(map(type, whose)) != (int, int)
            or not 0 <= whose[0] <= TTL_MS_MAX
            or not 0 <= whose[1] <= _INT64_MAX
        ):
            raise ProtocolError(f"image: znode {path!r}: expected [ttl_ms, since_ms], found {_shown(whose)}")
        node.lifetime = Lifetime(*whose)
        self._mortal.add(path)


def _shown(value: Any) -> str:
    """Return a value for a message: short, whatever it is."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
