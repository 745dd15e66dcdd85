"""Decodes native requests: MessagePack maps in, typed values out; writes carry the command that the log will hold.

Every field is checked here, for what stands in a command goes to all servers. A field that a request does not know is
refused: a misspelt `version` must not become an unconditional write. Messages without `id` are Zatt's and are read as
Zatt read them, whatever else they carry.

Source: docs/PROTOCOL-NATIVE.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import field, frozen

from zraft_core.errors import MarshallingError
from zraft_core.messagepack import shown
from zraft_core.wire import native_topics as topics
from zraft_core.wire.connect import NO_PASSWORD, PASSWORD_BYTES
from zraft_core.wire.dictionary import (
    DEFAULT,
    directory_of,
    entry_name,
    entry_of,
    pack_value,
)
from zraft_core.wire.native_fields import (
    ID_MAX,
    INT64_MAX,
    INT64_MIN,
    Message,
    binary,
    boolean,
    data_of,
    id_of,
    integer,
    shown_type,
    text,
    unknown,
    version_of,
    wrong,
)
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN
from zraft_core.znodes.txn import (
    ADD,
    CHECK,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    MULTI,
    PUT,
    SET_DATA,
    TRUNCATE,
    WILL,
    Command,
)

__all__ = ["id_of", "shown_type"]

ITEMS_LIMIT: Final = 1_000
ITEMS_LIMIT_MAX: Final = 10_000
LOG_LIMIT: Final = 1_000
LOG_LIMIT_MAX: Final = 10_000
MULTI_OPERATIONS_MAX: Final = 4_096
FLOOR_TIMEOUT_MS: Final = 10_000
FLOOR_TIMEOUT_MS_MAX: Final = 60_000

FLAG_CONTAINER: Final = 4
_TTL_FLAGS: Final = {0: 5, 2: 6}
"""Of createTTL, as ZooKeeper numbers them: persistent, and sequential."""


# -- what a request can be


@frozen
class Hello:
    """A session, new or to be resumed; `last_zxid` is the last one that the client has seen."""

    id: int
    timeout_ms: int
    session: int
    password: bytes = field(repr=False)
    last_zxid: int


@frozen
class Ping:
    """Is anybody there? Also keeps the session alive."""

    id: int


@frozen
class Close:
    """End the session, if there is one, and the connection."""

    id: int


@frozen
class Authenticate:
    """The client says who it is, as in ZooKeeper's `auth`; with scheme sasl one step of a login."""

    id: int
    scheme: str
    credentials: bytes = field(repr=False)


@frozen
class Write:
    """A command for the log. `kind` is the request's type; `seq` None: as often as it is sent.

    `id` None: Zatt's form, answered once. `forward` False: answered with a redirect by a server that does not lead.
    """

    id: int | None
    kind: str
    command: Command
    seq: int | None = None
    floor: int = 0
    forward: bool = True


@frozen
class Config:
    """Add a server (`server` None: the next free number) or delete one, by its "HOST:PORT"."""

    id: int | None
    add: bool
    address: str
    server: int | None


@frozen
class GetEntry:
    """One entry of a dictionary."""

    directory: str
    name: str


@frozen
class GetState:
    """All entries of a dictionary in one map."""

    directory: str


@frozen
class GetItems:
    """Some entries, from behind a cursor."""

    directory: str
    after: str
    limit: int


@frozen
class GetSize:
    """How many entries a dictionary has."""

    directory: str


@frozen
class ReadZnode:
    path: str


@frozen
class ReadExists:
    path: str


@frozen
class ReadChildren:
    path: str


@frozen
class ReadOwners:
    """The sessions of a znode's ephemeral children, and how long each is silent."""

    path: str


@frozen
class ReadLog:
    """Sequential znodes of a directory from a number on."""

    directory: str
    prefix: str
    first: int
    limit: int
    bytes_max: int


@frozen
class ReadSync:
    """Nothing but that all that was committed is applied here."""


@frozen
class ReadDiagnostic:
    """What the server says of itself (Z-14)."""


@frozen
class ReadMembers:
    """Who belongs to the cluster."""


Query = (
    GetEntry
    | GetState
    | GetItems
    | GetSize
    | ReadZnode
    | ReadExists
    | ReadChildren
    | ReadOwners
    | ReadLog
    | ReadSync
    | ReadDiagnostic
    | ReadMembers
    | topics.ReadTopics
)


@frozen
class Read:
    """A query, answered once this server has applied `floor`; `linearizable`: and all that was committed before it came."""

    id: int | None
    kind: str
    query: Query
    linearizable: bool
    floor: int = 0
    timeout_ms: int = FLOOR_TIMEOUT_MS


@frozen
class SubscribeDictionary:
    id: int
    directory: str
    credit: int


@frozen
class SubscribeLog:
    id: int
    directory: str
    prefix: str
    first: int
    credit: int


@frozen
class SubscribePath:
    id: int
    path: str
    recursive: bool


@frozen
class Credit:
    """More bytes for a subscription; not answered."""

    subscription: int
    bytes: int


@frozen
class Unsubscribe:
    id: int
    subscription: int


Request = (
    Hello
    | Ping
    | Close
    | Authenticate
    | Write
    | Config
    | Read
    | SubscribeDictionary
    | SubscribeLog
    | SubscribePath
    | Credit
    | Unsubscribe
    | topics.TopicRequest
)


def _directory(message: Message) -> str:
    return directory_of(text(message, "dictionary", DEFAULT))


def _entry(message: Message) -> tuple[str, bytes]:
    """The path of the entry that a message is about, and what its data begins with."""
    if "key" not in message:
        raise wrong(message, "key", "a key")
    name, head = entry_of(message["key"])
    return f"{_directory(message)}/{name}", head


# -- commands


def _put(message: Message) -> Command:
    path, head = _entry(message)
    if "value" not in message:
        raise wrong(message, "value", "any value")
    version = message.get("version")
    if version is not None:
        version = integer(message, "version", None, -1, INT32_MAX)
    return PUT, path, head + pack_value(message["value"]), version


def _delete(message: Message) -> Command:
    return DELETE, _entry(message)[0], version_of(message)


def _increment(message: Message) -> Command:
    path, head = _entry(message)
    return ADD, path, head, integer(message, "amount", 1, INT64_MIN, INT64_MAX)


def _create(message: Message) -> Command:
    path, data = text(message, "path"), data_of(message, "data")
    flags = integer(message, "flags", 0, 0, FLAG_CONTAINER)
    acl = _acl(message)
    ttl = message.get("ttl")
    if ttl is not None:
        ttl = integer(message, "ttl", None, 1, 2**40 - 1)
        if flags not in _TTL_FLAGS:
            raise MarshallingError(
                f"create: flags: found {flags} with a ttl, expected 0 or 2 (sequential): nothing else may have one"
            )
        return CREATE_TTL, path, data, acl, _TTL_FLAGS[flags], ttl
    opcode = CREATE_CONTAINER if flags == FLAG_CONTAINER else CREATE2
    return opcode, path, data, acl, flags, 0


def _acl(message: Message) -> tuple[tuple[int, str, str], ...] | None:
    acl = message.get("acl")
    if acl is None:
        return None
    expected = 'an array of [rights, scheme, id], such as [[31, "world", "anyone"]]'
    if acl.__class__ is not tuple:
        raise wrong(message, "acl", expected)
    for entry in acl:
        if entry.__class__ is not tuple or [part.__class__ for part in entry] != [int, str, str]:
            raise wrong(message, "acl", expected)
        if not INT32_MIN <= entry[0] <= INT32_MAX:
            raise wrong(message, "acl", expected)
    return acl


def _set(message: Message) -> Command:
    return SET_DATA, text(message, "path"), data_of(message, "data"), version_of(message)


def _remove(message: Message) -> Command:
    return DELETE, text(message, "path"), version_of(message)


def _check(message: Message) -> Command:
    return CHECK, text(message, "path"), version_of(message)


def _multi(message: Message) -> Command:
    operations = message.get("operations")
    if operations.__class__ is not tuple or len(operations) > MULTI_OPERATIONS_MAX:
        raise wrong(message, "operations", f"an array of at most {MULTI_OPERATIONS_MAX} maps")
    assert operations is not None
    parts: list[Command] = []
    for place, operation in enumerate(operations):
        if operation.__class__ is not dict:
            raise MarshallingError(f"multi: operations[{place}]: found {shown(operation)}, expected a map")
        kind = operation.get("type")
        entry = _PARTS.get(kind) if kind.__class__ is str else None
        if entry is None:
            raise MarshallingError(
                f"multi: operations[{place}]: type: found {shown(kind)}, expected one of {', '.join(_PARTS)}"
            )
        make, fields = entry
        if not operation.keys() <= fields:
            raise unknown(operation, fields)
        parts.append(make(operation))
    return MULTI, tuple(parts)


def _truncate(message: Message) -> Command:
    origin = message.get("origin_path")
    if origin is not None:
        origin = text(message, "origin_path")
    return (
        TRUNCATE,
        text(message, "directory"),
        integer(message, "first", None, 0, INT64_MAX),
        origin,
        data_of(message, "origin_data"),
    )


def _will(message: Message) -> Command:
    if message.get("parent") is None:
        return WILL, None, "", None
    return WILL, text(message, "parent"), text(message, "prefix"), data_of(message, "data")


def _append(message: Message) -> Command:
    """Zatt's `append`: change or delete a key."""
    data = message.get("data")
    if data.__class__ is not dict:
        raise wrong(message, "data", "a map with action, key and value")
    assert data is not None
    entry = {"type": "append", "key": data["key"]} if "key" in data else {"type": "append"}
    match data.get("action"):
        case "change":
            if "value" not in data:
                raise MarshallingError("append: data: found no value, expected one for action change")
            return _put(entry | {"value": data["value"]})
        case "delete":
            return _delete(entry)
        case action:
            raise MarshallingError(f"append: action: found {shown(action)}, expected change or delete")


_WRITE_FIELDS: Final = frozenset({"type", "id", "seq", "floor", "forward"})
_PART_FIELD: Final = frozenset({"type"})
_FIELDS: Final[dict[str, tuple[Callable[[Message], Command], frozenset[str]]]] = {
    "put": (_put, frozenset({"dictionary", "key", "value", "version"})),
    "delete": (_delete, frozenset({"dictionary", "key", "version"})),
    "increment": (_increment, frozenset({"dictionary", "key", "amount"})),
    "create": (_create, frozenset({"path", "data", "flags", "acl", "ttl"})),
    "set": (_set, frozenset({"path", "data", "version"})),
    "remove": (_remove, frozenset({"path", "version"})),
    "check": (_check, frozenset({"path", "version"})),
    "multi": (_multi, frozenset({"operations"})),
    "truncate": (_truncate, frozenset({"directory", "first", "origin_path", "origin_data"})),
    "will": (_will, frozenset({"parent", "prefix", "data"})),
    "append": (_append, frozenset({"data"})),
    **topics.WRITES,
}
_PARTS: Final = {
    kind: (_FIELDS[kind][0], _FIELDS[kind][1] | _PART_FIELD)
    for kind in ("put", "delete", "increment", "create", "set", "remove", "check")
}
_WRITES: Final = {
    kind: (make, fields | _WRITE_FIELDS) for kind, (make, fields) in _FIELDS.items() if kind != "check"
}


# -- requests


def decode_request(message: Any) -> Request:
    """One message that carries an id.

    Raises:
        MarshallingError: what was found, and what was expected.
    """
    if message.__class__ is not dict:
        raise MarshallingError(f"a message that is {shown(message)}, expected a map")
    kind = message.get("type")
    if kind.__class__ is not str:
        raise wrong(message, "type", "a string")
    number: int = message["id"]
    write = _WRITES.get(kind)
    if write is not None:
        make, fields = write
        if not message.keys() <= fields:
            raise unknown(message, fields)
        command = make(message)
        seq = message.get("seq")
        if seq is None:
            return Write(number, kind, command, None, 0, boolean(message, "forward", True))
        return Write(
            number,
            kind,
            command,
            integer(message, "seq", None, 1, INT64_MAX),
            integer(message, "floor", 0, 0, INT64_MAX),
            boolean(message, "forward", True),
        )
    other = _OTHERS.get(kind)
    if other is None:
        raise MarshallingError(f"type: found {shown(kind)}, expected one of {', '.join(sorted(_TYPES))}")
    decode, fields = other
    if not message.keys() <= fields:
        raise unknown(message, fields)
    return decode(message)


def decode_one_shot(message: Any) -> Write | Read | Config:
    """One of Zatt's messages, which carry no id: get, append, diagnostic, config.

    Raises:
        MarshallingError: it is none.
    """
    if message.__class__ is not dict:
        raise MarshallingError(f"a message that is {shown(message)}, expected a map")
    match message.get("type"):
        case "get":
            return Read(None, "get", GetState(directory_of(DEFAULT)), linearizable=True)
        case "append":
            return Write(None, "append", _append(message), forward=boolean(message, "forward", False))
        case "diagnostic":
            return Read(None, "diagnostic", ReadDiagnostic(), linearizable=False)
        case "config":
            return _config(message, None)
        case kind:
            raise MarshallingError(
                f"type: found {shown(kind)} in a message without id, expected get, append, diagnostic or config: all "
                "others need an id"
            )


def _hello(message: Message) -> Hello:
    session = message.get("session")
    password = NO_PASSWORD
    if session is None:
        session = 0
    else:
        session = integer(message, "session", None, INT64_MIN, INT64_MAX)
        if session:
            password = binary(message, "password")
            if len(password) != PASSWORD_BYTES:
                raise wrong(message, "password", f"{PASSWORD_BYTES} bytes")
    return Hello(
        message["id"],
        integer(message, "timeout_ms", None, 0, INT32_MAX),
        session,
        password,
        integer(message, "last_zxid", 0, 0, INT64_MAX),
    )


def _authenticate(message: Message) -> Authenticate:
    return Authenticate(message["id"], text(message, "scheme"), binary(message, "credentials"))


def _config(message: Message, number: int | None) -> Config:
    action = message.get("action")
    if action not in ("add", "delete"):
        raise wrong(message, "action", "add or delete")
    host = text(message, "address")
    port = integer(message, "port", None, 1, 65_535)
    if not 1 <= len(host) <= 253 or not host.isprintable():
        raise wrong(message, "address", "a host name or an address of 1 to 253 characters")
    server = message.get("server")
    if server is not None:
        server = integer(message, "server", None, 1, 254)
    address = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    return Config(number, action == "add", address, server)


def _read(message: Message, query: Query) -> Read:
    consistency = message.get("consistency", "linearizable")
    if consistency not in ("linearizable", "local"):
        raise wrong(message, "consistency", "linearizable or local")
    return Read(
        message["id"],
        message["type"],
        query,
        consistency == "linearizable",
        integer(message, "floor", 0, 0, INT64_MAX),
        integer(message, "timeout_ms", FLOOR_TIMEOUT_MS, 0, FLOOR_TIMEOUT_MS_MAX),
    )


def _get(message: Message) -> Read:
    directory = _directory(message)
    if "key" not in message:
        return _read(message, GetState(directory))
    return _read(message, GetEntry(directory, entry_name(message["key"])))


def _items(message: Message) -> Read:
    after = message.get("after")
    limit = integer(message, "limit", ITEMS_LIMIT, 1, ITEMS_LIMIT_MAX)
    return _read(
        message, GetItems(_directory(message), "" if after is None else text(message, "after"), limit)
    )


def _log(message: Message) -> Read:
    query = ReadLog(
        text(message, "directory"),
        text(message, "prefix", ""),
        integer(message, "first", 0, 0, INT64_MAX),
        integer(message, "limit", LOG_LIMIT, 1, LOG_LIMIT_MAX),
        integer(message, "bytes", INT32_MAX, 1, INT32_MAX),
    )
    return _read(message, query)


def _subscribe(
    message: Message,
) -> SubscribeDictionary | SubscribeLog | SubscribePath | topics.SubscribeProducer:
    what = [name for name in _SUBSCRIBE_FIELDS if name in message]
    if len(what) != 1:
        raise MarshallingError(
            f"subscribe: found {' and '.join(what) or 'nothing'} to subscribe to, expected one of dictionary, log, path "
            "and producer"
        )
    fields = _SUBSCRIBE_FIELDS[what[0]]
    if not message.keys() <= fields:
        raise unknown(message, fields)
    if what[0] == "producer":
        return topics.subscribe_producer(message)
    if what[0] == "path":
        return SubscribePath(message["id"], text(message, "path"), boolean(message, "recursive", False))
    credit = integer(message, "credit", None, 0, INT32_MAX)
    if what[0] == "dictionary":
        return SubscribeDictionary(message["id"], _directory(message), credit)
    return SubscribeLog(
        message["id"],
        text(message, "log"),
        text(message, "prefix", ""),
        integer(message, "first", 0, 0, INT64_MAX),
        credit,
    )


_BASE: Final = frozenset({"type", "id"})
_READ_FIELDS: Final = _BASE | {"consistency", "floor", "timeout_ms"}
_SUBSCRIBE_FIELDS: Final = {
    "dictionary": _BASE | {"dictionary", "credit"},
    "log": _BASE | {"log", "prefix", "first", "credit"},
    "path": _BASE | {"path", "recursive"},
    "producer": _BASE | topics.PRODUCER_FIELDS,
}

_OTHERS: Final[dict[str, tuple[Callable[[Message], Request], frozenset[str]]]] = {
    "hello": (_hello, _BASE | {"timeout_ms", "session", "password", "last_zxid"}),
    "ping": (lambda m: Ping(m["id"]), _BASE),
    "close": (lambda m: Close(m["id"]), _BASE),
    "auth": (_authenticate, _BASE | {"scheme", "credentials"}),
    "get": (_get, _READ_FIELDS | {"dictionary", "key"}),
    "items": (_items, _READ_FIELDS | {"dictionary", "after", "limit"}),
    "size": (lambda m: _read(m, GetSize(_directory(m))), _READ_FIELDS | {"dictionary"}),
    "read": (lambda m: _read(m, ReadZnode(text(m, "path"))), _READ_FIELDS | {"path"}),
    "exists": (lambda m: _read(m, ReadExists(text(m, "path"))), _READ_FIELDS | {"path"}),
    "children": (lambda m: _read(m, ReadChildren(text(m, "path"))), _READ_FIELDS | {"path"}),
    "owners": (lambda m: _read(m, ReadOwners(text(m, "path"))), _READ_FIELDS | {"path"}),
    "log": (_log, _READ_FIELDS | {"directory", "prefix", "first", "limit", "bytes"}),
    "sync": (lambda m: _read(m, ReadSync()), _READ_FIELDS),
    "diagnostic": (lambda m: Read(m["id"], "diagnostic", ReadDiagnostic(), False), _BASE),
    "members": (lambda m: Read(m["id"], "members", ReadMembers(), False), _BASE),
    "config": (lambda m: _config(m, m["id"]), _BASE | {"action", "address", "port", "server"}),
    "subscribe": (_subscribe, frozenset().union(*_SUBSCRIBE_FIELDS.values())),
    "unsubscribe": (
        lambda m: Unsubscribe(m["id"], integer(m, "subscription", None, 0, ID_MAX)),
        _BASE | {"subscription"},
    ),
    "credit": (
        lambda m: Credit(m["id"], integer(m, "bytes", None, 0, INT32_MAX)),
        _BASE | {"bytes"},
    ),
    "topics": (lambda m: _read(m, topics.read_topics(m)), _READ_FIELDS | {"digest"}),
    **{kind: (decode, _BASE | fields) for kind, (decode, fields) in topics.REQUESTS.items()},
}
_TYPES: Final = frozenset(_WRITES) | frozenset(_OTHERS)
