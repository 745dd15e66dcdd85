"""Reading of an image into a fresh state, in small steps. It believes nothing that it did not check."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import msgpack
from attrs import frozen

from zraft.config.features import LEVEL_OF_NATIVE, LEVEL_OF_TOPICS, check_level
from zraft.topics.registry import Registry
from zraft.topics.registry_image import RegistryReader
from zraft.tree.digest import MODULUS, session_hash
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
    shown,
)
from zraft.tree.image.small_items import small_shares
from zraft.tree.image.znodes_reader import ZnodesReader
from zraft.tree.members import WantedMember, is_change
from zraft.tree.node import BORN, NodeTable
from zraft.tree.origins import BOOT_ID_BYTES_MAX, Origin, OriginRow
from zraft.tree.sessions.kept import Kept
from zraft.tree.sessions.session import PASSWORD_BYTES, Session
from zraft.tree.sessions.will import Will
from zraft.tree.settings import Settings
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, ServerId
from zraft_core.topics.message import COORDINATOR
from zraft_core.znodes.acl import AclTable
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT
from zraft_core.znodes.stat import INT32_MAX

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_NIL: Final = msgpack.packb(None)
_DATA_BYTES_MAX: Final = 2**30
_PATH_BYTES_MAX: Final = 2**24
_ACL_ENTRIES_MAX: Final = 2**20

_SESSION_TYPES: Final = (int, int, bytes, int, tuple, int, int)
_ROW_TYPES: Final = (int, int, bytes, int, int, bytes)
_MEMBER_TYPES: Final = (int, int, bool, str)
_HEAD_TYPES: Final = (*(int,) * 10, dict)
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

    A step costs about 4 us per item; memory is the new state and the block. After an error it is of no use.
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
        self._head: tuple[Any, ...] | None = None
        self._end: tuple[Any, ...] | None = None
        self._settings = Settings()
        self._rows: dict[Origin, OriginRow] = {}
        self._members: dict[ServerId, WantedMember] = {}
        self._sessions: dict[int, Session] = {}
        self._topics = RegistryReader()
        self._znodes = ZnodesReader(self._sessions)
        self._total = 0

    @property
    def items(self) -> int:
        """Znodes and sessions read so far."""
        return self._znodes.count + len(self._sessions)

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the image; nothing is read yet.

        Raises:
            ProtocolError: one item needs more than 2 GiB.
        """
        try:
            self._unpacker.feed(block)
        except msgpack.BufferFull:
            raise ProtocolError("image: one item takes more than 2 GiB") from None

    def step(self, items: int) -> bool:
        """Read up to `items` records of what was fed, or do as much of what is left to do after the last one.

        Returns:
            False: it is used up (but for the beginning of a record), and nothing is left to do.

        Raises:
            ProtocolError: the image is no image, or contradicts itself; the message names the item.
            FeatureLevelError: it is of a feature level that this release does not know.
        """
        records: list[Any] = []
        broken: Exception | None = None
        try:
            # What is read before an error stays in the list.
            records.extend(islice(self._unpacker, items))
        except (ValueError, TypeError, LookupError) as error:
            # These come from the decoder: broken bytes, a map with a map as key, nesting without end, an item
            # of absurd length.
            broken = error
        self._take(records)
        if broken is not None:
            raise ProtocolError(f"image: after {self.items} items: not MessagePack: {broken!r}") from broken
        return len(records) == items or (self._end is not None and self._znodes.link(items))

    def _take(self, records: list[Any]) -> None:
        ordinary = records and self._head is not None and self._end is None
        shares = self._znodes.take_many(records) if ordinary else None
        if shares is None:
            shares = sum(map(self._take_one, records))
        self._total = (self._total + shares) % MODULUS

    def finish(self) -> ImageState:
        """Return the state, once all of the image was fed and read.

        Raises:
            ProtocolError: it is not complete, or does not fit together.
        """
        if self._head is None or self._end is None:
            raise ProtocolError(
                f"image: ends after {self.items} items without its end record: it was cut off"
            )
        if not self._is_between_records():
            raise ProtocolError("image: more bytes follow its end record")
        found = self._znodes
        assert found.linked, "an image was finished before all its steps"
        for owner, paths in found.unowned.items():
            raise ProtocolError(
                f"image: ephemeral {min(paths)!r} belongs to session {owner:#x}, which is missing"
            )
        for path in BORN:
            if path not in found.nodes:
                raise ProtocolError(f"image: znode {path!r} is missing, which every cluster is born with")
        found.check_truncated()
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
            nodes=found.nodes,
            acls=found.acls,
            mortal=found.mortal,
            limited=found.limited,
            ghosts=found.ghosts,
            hidden={path: names for path, names in found.truncated.items() if names.hidden_count},
            shares=self._total,
            digest=int.from_bytes(self._end[3], "big"),
        )
        computed = (self._total + sum(small_shares(state)) + registry.digest.value()) % MODULUS
        if computed != state.digest:
            raise ProtocolError(
                f"image: its state has digest {computed:032x}, its end record says {state.digest:032x}"
            )
        return state

    def _is_between_records(self) -> bool:
        """Return whether no beginning of a record is left: then a byte that is a whole record is read as that record."""
        self._unpacker.feed(_NIL)
        try:
            return self._unpacker.unpack() is None
        except (msgpack.OutOfData, ValueError, TypeError, LookupError):
            return False

    # -- records

    def _take_one(self, record: Any) -> int:
        """Take an item; return its share of the digest, as far as it is one of those kept."""
        if record.__class__ is not tuple or not record or record[0].__class__ is not int:
            raise ProtocolError(
                f"image: after {self.items} items: expected [kind, ...], found {shown(record)}"
            )
        kind = record[0]
        if self._end is not None:
            raise ProtocolError(f"image: a record of kind {kind} follows the end record: {shown(record)}")
        if kind == HEAD:
            self._take_head(record)
        elif self._head is None:
            raise ProtocolError(f"image: begins with a record of kind {kind}, not with its head")
        elif kind == ZNODE:
            return self._znodes.take(record, may_be_truncated=self._head[2] >= LEVEL_OF_NATIVE)
        elif kind == SESSION:
            return self._take_session(record)
        elif kind == ACL:
            self._znodes.take_acl(record)
        elif kind == ROW:
            self._take_row(record)
        elif kind == MEMBER:
            self._take_member(record)
        elif kind == GHOST:
            self._znodes.take_ghost(record, may_be_truncated=self._head[2] >= LEVEL_OF_NATIVE)
        elif kind == REGISTRY:
            self._take_topics(record)
        elif kind == END:
            if tuple(map(type, record)) != _END_TYPES or len(record[3]) != DIGEST_BYTES:
                raise ProtocolError(
                    f"image: end record: expected [kind, znodes, sessions, digest], found {shown(record)}"
                )
            _, znodes, sessions, _ = record
            if (znodes, sessions) != (self._znodes.count, len(self._sessions)):
                raise ProtocolError(
                    f"image: holds {self._znodes.count} znodes and {len(self._sessions)} sessions, "
                    f"its end record says {znodes} and {sessions}"
                )
            self._end = record
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
            raise ProtocolError(f"image: head: wrong fields: {shown(record)}")
        check_level(record[2], "the image")
        if not all(0 <= number <= _INT64_MAX for number in record[3:10]):
            raise ProtocolError(f"image: head: a counter out of bounds: {shown(record)}")
        settings = Settings().changed(record[10], record[2])
        if settings is None:
            raise ProtocolError(f"image: head: settings out of bounds: {shown(record[10])}")
        self._head = record
        self._settings = settings

    def _take_row(self, record: tuple[Any, ...]) -> None:
        if tuple(map(type, record)) != _ROW_TYPES:
            raise ProtocolError(f"image: row: wrong fields: {shown(record)}")
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
            raise ProtocolError(f"image: row of server {server}: out of bounds: {shown(record)}")
        self._rows[origin] = row = OriginRow()
        row.boot, row.seq, row.boot_id = boot, seq, boot_id

    def _take_member(self, record: tuple[Any, ...]) -> None:
        if tuple(map(type, record)) != _MEMBER_TYPES:
            raise ProtocolError(f"image: member: wrong fields: {shown(record)}")
        _, server, voter, address = record
        change = (server, PARTICIPANT if voter else OBSERVER, address)
        if server in self._members or not is_change(change):
            raise ProtocolError(
                f"image: member {server}: it comes twice, or is out of bounds: {shown(record)}"
            )
        self._members[ServerId(server)] = WantedMember(voter, address)

    def _take_topics(self, record: tuple[Any, ...]) -> None:
        assert self._head is not None
        if tuple(map(type, record)) != (int, bytes) or self._head[2] < LEVEL_OF_TOPICS:
            raise ProtocolError(
                f"image: topics: wrong fields, or before feature level {LEVEL_OF_TOPICS}: {shown(record)}"
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

    def _take_session(self, record: tuple[Any, ...]) -> int:
        plain, memory = record[: len(_SESSION_TYPES)], record[len(_SESSION_TYPES) :]
        if tuple(map(type, plain)) != _SESSION_TYPES:
            raise ProtocolError(f"image: session: wrong fields: {shown(record)}")
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
        session.ephemerals = self._znodes.unowned.pop(session_id, session.ephemerals)
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
            raise ProtocolError(f"image: session {session.id:#x}: unexpected fields {shown(memory)}")
        kept, will = memory
        if kept is not None:
            session.kept = Kept.read(kept)
            if session.kept is None:
                raise ProtocolError(f"image: session {session.id:#x}: no kept outcomes: {shown(kept)}")
        if will is not None:
            session.will = Will.read(will)
            if session.will is None:
                raise ProtocolError(f"image: session {session.id:#x}: no will: {shown(will)}")
