"""Requests of a ZooKeeper client, one frozen value per operation that `ZkClientCodec.ask` encodes.

A request knows its opcode, its body, and how to read its answer; record formats as in
docs/reference/protocol-zookeeper.md, where this server lacks the operation, in ZooKeeper's `zookeeper.jute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Generic, TypeVar

from attrs import frozen

from zraft_core.wire.jute import INT, LONG, JuteReader, encode_buffer, encode_texts, encode_ustring
from zraft_core.wire.opcodes import XID_AUTH, XID_SET_WATCHES, Opcode
from zraft_core.wire.requests import WORLD_ANYONE_ALL, Acl
from zraft_core.wire.stat import decode_stat
from zraft_core.znodes.events import AddWatchMode, WatcherType
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import FLAG_EPHEMERAL, FLAG_SEQUENTIAL

FLAG_CONTAINER: Final = 4
FLAG_TTL: Final = 5
FLAG_TTL_SEQUENTIAL: Final = 6

_ACL_ENTRY_BYTES_MIN: Final = 12
_PAIR_BYTES_MIN: Final = 8

T = TypeVar("T")


@frozen
class Request(Generic[T]):
    """Anything a connected client may ask for; `T` is what a successful answer holds."""

    xid: ClassVar[int | None] = None
    """The reserved xid that the operation is sent with, or None for the connection's next."""

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        raise NotImplementedError

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        raise NotImplementedError

    def value(self, reader: JuteReader) -> T:
        """Read the value of a successful answer.

        Raises:
            MarshallingError: the answer's bytes are not those of the value.
        """
        raise NotImplementedError


class _Empty(Request[None]):
    """Answered by a header alone."""

    def value(self, reader: JuteReader) -> None:
        return None


@frozen
class Create(Request[str]):
    """Make a znode; the answer is its path, with the number of a sequential one.

    A container and a znode with `ttl_ms` have opcodes of their own; the flag alone makes neither.
    `acl` None means world:anyone:cdrwa.
    """

    path: str
    data: bytes | None = None
    acl: tuple[Acl, ...] | None = None
    ephemeral: bool = False
    sequential: bool = False
    container: bool = False
    ttl_ms: int | None = None

    @property
    def opcode(self) -> Opcode:
        """The opcode for this kind of znode: container, with a TTL, or plain."""
        if self.container:
            return Opcode.CREATE_CONTAINER
        return Opcode.CREATE if self.ttl_ms is None else Opcode.CREATE_TTL

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        raw = encode_ustring(self.path) + encode_buffer(self.data) + encode_acl(self.acl)
        if self.ttl_ms is not None:
            flags = FLAG_TTL_SEQUENTIAL if self.sequential else FLAG_TTL
            return raw + INT.pack(flags) + LONG.pack(self.ttl_ms)
        if self.container:
            return raw + INT.pack(FLAG_CONTAINER)
        flags = (FLAG_EPHEMERAL if self.ephemeral else 0) | (FLAG_SEQUENTIAL if self.sequential else 0)
        return raw + INT.pack(flags)

    def value(self, reader: JuteReader) -> str:
        """Read the path, with the number of a sequential znode."""
        return reader.read_text()  # a container's and a TTL znode's Stat follows


@frozen
class Delete(_Empty):
    """Delete a znode; version -1 is any."""

    path: str
    version: int = -1

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.DELETE

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path) + INT.pack(self.version)


@frozen
class SetData(Request[Stat]):
    """Set a znode's data; version -1 is any. The answer is its new stat."""

    path: str
    data: bytes | None
    version: int = -1

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.SET_DATA

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path) + encode_buffer(self.data) + INT.pack(self.version)

    def value(self, reader: JuteReader) -> Stat:
        """Read the new stat."""
        return decode_stat(reader)


@frozen
class Exists(Request[Stat]):
    """Ask for a znode's stat, and optionally for one event of it."""

    path: str
    watch: bool = False

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.EXISTS

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return _path_and_watch(self.path, self.watch)

    def value(self, reader: JuteReader) -> Stat:
        """Read the stat."""
        return decode_stat(reader)


@frozen
class GetData(Request[tuple[bytes | None, Stat]]):
    """Ask for a znode's data and stat, and optionally for one event of it."""

    path: str
    watch: bool = False

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.GET_DATA

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return _path_and_watch(self.path, self.watch)

    def value(self, reader: JuteReader) -> tuple[bytes | None, Stat]:
        """Read data and stat."""
        return reader.read_buffer(), decode_stat(reader)


@frozen
class GetChildren(Request[tuple[str, ...]]):
    """Ask for the names of a znode's children, and optionally for one event of them."""

    path: str
    watch: bool = False

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.GET_CHILDREN

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return _path_and_watch(self.path, self.watch)

    def value(self, reader: JuteReader) -> tuple[str, ...]:
        """Read the names."""
        return reader.read_texts()


@frozen
class GetChildren2(Request[tuple[tuple[str, ...], Stat]]):
    """Ask for the names of a znode's children and its stat, and optionally for one event of them."""

    path: str
    watch: bool = False

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.GET_CHILDREN2

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return _path_and_watch(self.path, self.watch)

    def value(self, reader: JuteReader) -> tuple[tuple[str, ...], Stat]:
        """Read names and stat."""
        return reader.read_texts(), decode_stat(reader)


@frozen
class Sync(Request[str]):
    """Ask the server to catch up with the leader; the answer is the path."""

    path: str

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.SYNC

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path)

    def value(self, reader: JuteReader) -> str:
        """Read the path."""
        return reader.read_text()


@frozen
class GetAcl(Request[tuple[tuple[Acl, ...], Stat]]):
    """Ask for a znode's ACL and stat."""

    path: str

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.GET_ACL

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path)

    def value(self, reader: JuteReader) -> tuple[tuple[Acl, ...], Stat]:
        """Read ACL and stat."""

        def entry() -> Acl:
            return reader.read_int(), reader.read_text(), reader.read_text()

        return reader.read_vector(entry, _ACL_ENTRY_BYTES_MIN) or (), decode_stat(reader)


@frozen
class SetAcl(Request[Stat]):
    """`version` is compared with the version of the ACL, not of the data."""

    path: str
    acl: tuple[Acl, ...]
    version: int = -1

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.SET_ACL

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path) + encode_acl(self.acl) + INT.pack(self.version)

    def value(self, reader: JuteReader) -> Stat:
        """Read the new stat."""
        return decode_stat(reader)


@frozen
class Auth(_Empty):
    """A server may answer it ahead of earlier requests, as ZooKeeper does."""

    scheme: str
    auth: bytes
    xid: ClassVar[int | None] = XID_AUTH

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.AUTH

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return INT.pack(0) + encode_ustring(self.scheme) + encode_buffer(self.auth)

    def __repr__(self) -> str:
        return f"Auth(scheme={self.scheme!r})"  # `auth` is a password


@frozen
class WhoAmI(Request[tuple[tuple[str, str], ...]]):
    """(scheme, user) of everything the connection has proved."""

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.WHO_AM_I

    def body(self) -> bytes:
        """Return the request's body, which is empty."""
        return b""

    def value(self, reader: JuteReader) -> tuple[tuple[str, str], ...]:
        """Read the pairs of scheme and user."""

        def pair() -> tuple[str, str]:
            return reader.read_text(), reader.read_text()

        return reader.read_vector(pair, _PAIR_BYTES_MIN) or ()


@frozen
class GetEphemerals(Request[tuple[str, ...]]):
    """Paths of this session's ephemerals that begin with `path`, as text: "/a" also finds "/ab"."""

    path: str = "/"

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.GET_EPHEMERALS

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path)

    def value(self, reader: JuteReader) -> tuple[str, ...]:
        """Read the paths."""
        return reader.read_texts()


@frozen
class GetAllChildrenNumber(Request[int]):
    """Ask for the number of all znodes below a path."""

    path: str

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.GET_ALL_CHILDREN_NUMBER

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path)

    def value(self, reader: JuteReader) -> int:
        """Read the number."""
        return reader.read_int()


@frozen
class AddWatch(_Empty):
    """Add a persistent watch to a path."""

    path: str
    mode: AddWatchMode

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.ADD_WATCH

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path) + INT.pack(self.mode)


@frozen
class CheckWatches(_Empty):
    """Ask whether this client has a watch of this type on a path."""

    path: str
    type: WatcherType

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.CHECK_WATCHES

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path) + INT.pack(self.type)


@frozen
class RemoveWatches(_Empty):
    """Remove this client's watches of this type from a path."""

    path: str
    type: WatcherType

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.REMOVE_WATCHES

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        return encode_ustring(self.path) + INT.pack(self.type)


@frozen
class RestoreWatches(_Empty):
    """Restore watches on a new connection.

    It is setWatches, or setWatches2 if any watch is persistent, since older servers know only the
    former.
    """

    relative_zxid: int
    data: tuple[str, ...] = ()
    exist: tuple[str, ...] = ()
    child: tuple[str, ...] = ()
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()
    xid: ClassVar[int | None] = XID_SET_WATCHES

    @property
    def opcode(self) -> Opcode:
        """The opcode of setWatches2 if any watch is persistent, else that of setWatches."""
        return Opcode.SET_WATCHES2 if self.persistent or self.recursive else Opcode.SET_WATCHES

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        lists = [self.data, self.exist, self.child]
        if self.opcode == Opcode.SET_WATCHES2:
            lists += [self.persistent, self.recursive]
        return LONG.pack(self.relative_zxid) + b"".join(map(encode_texts, lists))


@frozen
class Reconfig(Request[tuple[bytes | None, Stat]]):
    """Change the ensemble; the answer is the new /zookeeper/config."""

    joining: str | None = None
    leaving: str | None = None
    members: str | None = None
    config: int = -1

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.RECONFIG

    def body(self) -> bytes:
        """Return the request's body, without its header."""
        texts = (self.joining, self.leaving, self.members)
        return b"".join(map(encode_ustring, texts)) + LONG.pack(self.config)

    def value(self, reader: JuteReader) -> tuple[bytes | None, Stat]:
        """Read the configuration and its stat."""
        return reader.read_buffer(), decode_stat(reader)


@frozen
class CloseSession(_Empty):
    """End the session."""

    @property
    def opcode(self) -> Opcode:
        """The request's opcode."""
        return Opcode.CLOSE_SESSION

    def body(self) -> bytes:
        """Return the request's body, which is empty."""
        return b""


def encode_acl(acl: Sequence[Acl] | None) -> bytes:
    """Return a vector of ACL entries; None means world:anyone:cdrwa."""
    if acl is None:
        return WORLD_ANYONE_ALL
    entries = [INT.pack(perms) + encode_ustring(scheme) + encode_ustring(name) for perms, scheme, name in acl]
    return INT.pack(len(entries)) + b"".join(entries)


def _path_and_watch(path: str, watch: bool) -> bytes:
    return encode_ustring(path) + (b"\x01" if watch else b"\x00")
