"""Native requests and the fields of each: MessagePack maps in, typed values out; writes carry the log's command.

Every field is checked here, for what stands in a command goes to all servers. A field that a request does not know is
refused: a misspelt `version` must not become an unconditional write. Messages without `id` are Zatt's and are read as
Zatt read them, whatever else they carry. The tables of fields in the document come from these declarations.

Source: docs/PROTOCOL-NATIVE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import NOTHING, field, frozen

from zraft_core.errors import MarshallingError, ProtocolError
from zraft_core.layout import (
    NUMBER_MAX,
    Field,
    FieldError,
    Fields,
    Form,
    any_binary,
    any_string,
    anything,
    boolean,
    choice,
    from_one,
    integer,
    listed,
    number,
    optional,
    parameters,
    row,
    wrong,
)
from zraft_core.messagepack import SHOWN_CHARACTERS_MAX, shown
from zraft_core.wire.connect import NO_PASSWORD
from zraft_core.wire.dictionary import (
    DEFAULT,
    directory_of,
    entry_name,
    entry_of,
    pack_value,
)
from zraft_core.wire.native import partition_requests as topics
from zraft_core.wire.native.partition_requests import ID, PASSWORD, proof_of, request
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

ID_MAX: Final = 2**32 - 1
INT64_MIN: Final = -(2**63)
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
    """Data and stat of a znode."""

    path: str


@frozen
class ReadExists:
    """Stat of a znode, if it exists."""

    path: str


@frozen
class ReadChildren:
    """Names of a znode's children, and its stat."""

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
    """Nothing; it is answered when all that was committed is applied here."""


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
    """Changes of a dictionary's entries, pushed as far as `credit` bytes go."""

    id: int
    directory: str
    credit: int


@frozen
class SubscribeLog:
    """Entries of a log from number `first` on, pushed as far as `credit` bytes go."""

    id: int
    directory: str
    prefix: str
    first: int
    credit: int


@frozen
class SubscribePath:
    """Events of a znode, and with `recursive` of all below it."""

    id: int
    path: str
    recursive: bool = False


@frozen
class Credit:
    """More bytes for a subscription; not answered."""

    subscription: int
    bytes: int


@frozen
class Unsubscribe:
    """End a subscription."""

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

Asked = Write | Read | Config
"""Any message without an id."""


# -- commands


def _put(key: Any, value: Any, dictionary: str = DEFAULT, version: int | None = None) -> Command:
    name, head = entry_of(key)
    return PUT, f"{directory_of(dictionary)}/{name}", head + pack_value(value), version


def _delete(key: Any, dictionary: str = DEFAULT, version: int | None = None) -> Command:
    return DELETE, f"{directory_of(dictionary)}/{entry_name(key)}", -1 if version is None else version


def _increment(key: Any, dictionary: str = DEFAULT, amount: int = 1) -> Command:
    name, head = entry_of(key)
    return ADD, f"{directory_of(dictionary)}/{name}", head, amount


def _create(
    path: str,
    data: bytes | None = None,
    flags: int = 0,
    acl: tuple[tuple[int, str, str], ...] | None = None,
    ttl: int | None = None,
) -> Command:
    if ttl is not None:
        if flags not in _TTL_FLAGS:
            raise MarshallingError(
                f"create: flags: found {flags} with a ttl, expected 0 or 2 (sequential): nothing else may have one"
            )
        return CREATE_TTL, path, data, acl, _TTL_FLAGS[flags], ttl
    opcode = CREATE_CONTAINER if flags == FLAG_CONTAINER else CREATE2
    return opcode, path, data, acl, flags, 0


def _set(path: str, data: bytes | None = None, version: int | None = None) -> Command:
    return SET_DATA, path, data, -1 if version is None else version


def _remove(path: str, version: int | None = None) -> Command:
    return DELETE, path, -1 if version is None else version


def _check(path: str, version: int | None = None) -> Command:
    return CHECK, path, -1 if version is None else version


def _truncate(
    directory: str, first: int, origin_path: str | None = None, origin_data: bytes | None = None
) -> Command:
    return TRUNCATE, directory, first, origin_path, origin_data


def _will(parent: str | None = None, prefix: str | None = None, data: bytes | None = None) -> Command:
    if parent is None:
        return WILL, None, "", None
    if prefix is None:
        raise wrong("will.prefix", any_string.expected, NOTHING)
    return WILL, parent, prefix, data


ABSENT: Final = object()
"""Stands for a field whose absence means something else than nil."""


def _change(action: str, key: Any, value: Any = ABSENT) -> Command:
    """Zatt's `append`: change or delete a key."""
    if action == "delete":
        return _delete(key)
    if value is ABSENT:
        raise MarshallingError("append: data: found no value, expected one for action change")
    return _put(key, value)


_key: Final = anything("a key")
_value: Final = anything("any value")
_data: Final = optional(any_binary)
_version: Final = optional(integer(INT32_MIN, INT32_MAX))
_int64: Final = integer(INT64_MIN, NUMBER_MAX)
_acl: Final = listed(row(rights=integer(INT32_MIN, INT32_MAX), scheme=any_string, id=any_string), NUMBER_MAX)


def _part(called: str, made: Callable[..., Command], **own: Form) -> Fields[Command]:
    return Fields(called, made, parameters(made, **own), skips="type")


_PARTS: Final[Mapping[str, Fields[Command]]] = {
    fields.called: fields
    for fields in (
        _part(
            "put",
            _put,
            key=_key,
            value=_value,
            dictionary=any_string,
            version=optional(integer(-1, INT32_MAX)),
        ),
        _part("delete", _delete, key=_key, dictionary=any_string, version=_version),
        _part("increment", _increment, key=_key, dictionary=any_string, amount=_int64),
        _part(
            "create",
            _create,
            path=any_string,
            data=_data,
            flags=integer(0, FLAG_CONTAINER),
            acl=optional(_acl),
            ttl=optional(integer(1, 2**40 - 1)),
        ),
        _part("set", _set, path=any_string, data=_data, version=_version),
        _part("remove", _remove, path=any_string, version=_version),
        _part("check", _check, path=any_string, version=_version),
    )
}
"""The operations of a multi, each with its own fields; all but a check are writes, too."""


def _operation(value: Any, name: str) -> Command:
    if type(value) is not dict:
        raise wrong(name, "a map", value)
    kind = value.get("type")
    part = _PARTS.get(kind) if type(kind) is str else None
    if part is None:
        raise wrong(f"{name}.type", f"one of {', '.join(_PARTS)}", kind)
    return part.unpack(value, name)


_zatts_change: Final = Fields(
    "append.data",
    _change,
    parameters(_change, action=choice("change", "delete"), key=_key, value=_value),
    ignores=True,
)
_WRITES: Final[tuple[Fields[Command], ...]] = (
    *(fields for kind, fields in _PARTS.items() if kind != "check"),
    Fields.of(
        "multi",
        lambda operations: (MULTI, operations),
        operations=listed(Form(_operation, expected="a map of an operation"), MULTI_OPERATIONS_MAX),
    ),
    Fields.of(
        "truncate",
        _truncate,
        directory=any_string,
        first=number,
        origin_path=optional(any_string),
        origin_data=_data,
    ),
    Fields.of("will", _will, parent=optional(any_string), prefix=optional(any_string), data=_data),
    Fields.of(
        "append",
        lambda data: data,
        data=Form(_zatts_change.unpack, expected="a map of action, key and value"),
    ),
    *topics.WRITES,
)
"""Their own fields."""

OF_WRITES: Final = {
    "id": Field(ID),
    "seq": Field(optional(from_one), None),
    "floor": Field(optional(number), None),
    "forward": Field(boolean, True),
}
"""The fields that every write may have, in front of its own."""


def _write(own: Fields[Command]) -> Fields[Write]:
    kind, command = own.called, own.made

    def made(id: int, seq: int | None, floor: int | None, forward: bool, *values: Any) -> Write:
        return Write(id, kind, command(*values), seq, 0 if seq is None else floor or 0, forward)

    return Fields(kind, made, {**OF_WRITES, **own.fields}, skips="type")


# -- reads


def _get(key: Any = ABSENT, dictionary: str = DEFAULT) -> Query:
    directory = directory_of(dictionary)
    return GetState(directory) if key is ABSENT else GetEntry(directory, entry_name(key))


def _items(dictionary: str = DEFAULT, after: str | None = None, limit: int = ITEMS_LIMIT) -> Query:
    return GetItems(directory_of(dictionary), after or "", limit)


def _size(dictionary: str = DEFAULT) -> Query:
    return GetSize(directory_of(dictionary))


def _log(
    directory: str, prefix: str = "", first: int = 0, limit: int = LOG_LIMIT, bytes: int = INT32_MAX
) -> Query:
    return ReadLog(directory, prefix, first, limit, bytes)


_READS: Final[tuple[Fields[Query], ...]] = (
    Fields.of("get", _get, key=_key, dictionary=any_string),
    Fields.of(
        "items",
        _items,
        dictionary=any_string,
        after=optional(any_string),
        limit=integer(1, ITEMS_LIMIT_MAX),
    ),
    Fields.of("size", _size, dictionary=any_string),
    Fields.of("read", ReadZnode, path=any_string),
    Fields.of("exists", ReadExists, path=any_string),
    Fields.of("children", ReadChildren, path=any_string),
    Fields.of("owners", ReadOwners, path=any_string),
    Fields.of(
        "log",
        _log,
        directory=any_string,
        prefix=any_string,
        first=number,
        limit=integer(1, LOG_LIMIT_MAX),
        bytes=integer(1, INT32_MAX),
    ),
    Fields.of("sync", ReadSync),
    *topics.READS,
)
"""Their own fields."""

LINEARIZABLE: Final = "linearizable"
OF_READS: Final = {
    "id": Field(ID),
    "consistency": Field(choice(LINEARIZABLE, "local"), LINEARIZABLE),
    "floor": Field(number, 0),
    "timeout_ms": Field(integer(0, FLOOR_TIMEOUT_MS_MAX), FLOOR_TIMEOUT_MS),
}
"""The fields that every read may have, in front of its own."""


def _read(own: Fields[Query]) -> Fields[Read]:
    kind, query = own.called, own.made

    def made(id: int, consistency: str, floor: int, timeout_ms: int, *values: Any) -> Read:
        return Read(id, kind, query(*values), consistency == LINEARIZABLE, floor, timeout_ms)

    return Fields(kind, made, {**OF_READS, **own.fields}, skips="type")


# -- everything else


def _hello(
    id: int, timeout_ms: int, session: int | None = None, password: Any = None, last_zxid: int = 0
) -> Hello:
    return Hello(
        id, timeout_ms, session or 0, proof_of("hello", password) if session else NO_PASSWORD, last_zxid
    )


def _config(action: str, address: str, port: int, server: int | None = None, id: int | None = None) -> Config:
    if not 1 <= len(address) <= 253 or not address.isprintable():
        raise wrong("config.address", "a host name or an address of 1 to 253 characters", address)
    host = f"[{address}]" if ":" in address and not address.startswith("[") else address
    return Config(id, action == "add", f"{host}:{port}", server)


def _subscribe_dictionary(id: int, dictionary: str, credit: int) -> SubscribeDictionary:
    return SubscribeDictionary(id, directory_of(dictionary), credit)


def _subscribe_log(id: int, log: str, credit: int, prefix: str = "", first: int = 0) -> SubscribeLog:
    return SubscribeLog(id, log, prefix, first, credit)


_credit: Final = integer(0, INT32_MAX)
_CONFIG: Final = parameters(
    _config,
    action=choice("add", "delete"),
    address=any_string,
    port=integer(1, 65_535),
    server=optional(integer(1, 254)),
    id=ID,
)

_OTHERS: Final[tuple[Fields[Request], ...]] = (
    request(
        "hello",
        _hello,
        timeout_ms=integer(0, INT32_MAX),
        session=optional(_int64),
        password=PASSWORD,
        last_zxid=number,
    ),
    request("ping", Ping),
    request("close", Close),
    request("auth", Authenticate, scheme=any_string, credentials=any_binary),
    request("diagnostic", lambda id: Read(id, "diagnostic", ReadDiagnostic(), False)),
    request("members", lambda id: Read(id, "members", ReadMembers(), False)),
    Fields("config", _config, _CONFIG, skips="type"),
    request("unsubscribe", Unsubscribe, subscription=integer(0, ID_MAX)),
    Fields("credit", Credit, {"id": Field(ID), "bytes": Field(_credit)}, skips="type"),
)

SUBSCRIBE: Final[dict[str, Fields[Request]]] = {
    "dictionary": request("subscribe", _subscribe_dictionary, dictionary=any_string, credit=_credit),
    "log": request(
        "subscribe", _subscribe_log, log=any_string, credit=_credit, prefix=any_string, first=number
    ),
    "path": request("subscribe", SubscribePath, path=any_string, recursive=boolean),
    "producer": topics.SUBSCRIBE,
}
"""By the field that says what is subscribed to."""

_ALL: Final[tuple[Fields[Request], ...]] = (
    *map(_write, _WRITES),
    *map(_read, _READS),
    *_OTHERS,
    *topics.REQUESTS,
)
REQUESTS: Final[dict[str, Fields[Request]]] = {fields.called: fields for fields in _ALL}
"""All requests but subscribe, by their types."""

ZATTS: Final[Mapping[str, Fields[Asked]]] = {
    "get": Fields(
        "get", lambda: Read(None, "get", GetState(directory_of(DEFAULT)), linearizable=True), {}, ignores=True
    ),
    "append": Fields(
        "append",
        lambda command, forward: Write(None, "append", command, forward=forward),
        {"data": REQUESTS["append"].fields["data"], "forward": Field(boolean, False)},
        ignores=True,
    ),
    "diagnostic": Fields(
        "diagnostic",
        lambda: Read(None, "diagnostic", ReadDiagnostic(), linearizable=False),
        {},
        ignores=True,
    ),
    "config": Fields("config", _config, _CONFIG, ignores=True),
}
"""Messages without an id, by their type."""


def _subscription(message: Mapping[Any, Any]) -> Fields[Request]:
    what = [name for name in SUBSCRIBE if name in message]
    if len(what) != 1:
        raise MarshallingError(
            f"subscribe: found {' and '.join(what) or 'nothing'} to subscribe to, expected one of dictionary, log, path "
            "and producer"
        )
    return SUBSCRIBE[what[0]]


# -- messages


def id_of(message: Any) -> int | None:
    """The id of a message, None if it carries none. For errors, too, so it is looked for in anything.

    Raises:
        MarshallingError: it is no id.
    """
    if message.__class__ is not dict or "id" not in message:
        return None
    number = message["id"]
    if number.__class__ is int and 0 <= number <= ID_MAX:
        return number
    raise MarshallingError(f"id: found {shown(number)}, expected {ID.expected}")


def shown_type(message: Mapping[Any, Any]) -> str:
    """The type of a message, for errors."""
    kind = message.get("type")
    return kind[:SHOWN_CHARACTERS_MAX] if isinstance(kind, str) else "message"


def decode_request(message: Any) -> Request:
    """One message that carries an id.

    Raises:
        MarshallingError: what was found, and what was expected.
    """
    if message.__class__ is not dict:
        raise MarshallingError(f"a message that is {shown(message)}, expected a map")
    kind = message.get("type")
    try:
        if kind.__class__ is not str:
            raise wrong("message.type", any_string.expected, message.get("type", NOTHING))
        fields = REQUESTS.get(kind)
        if fields is None:
            if kind != "subscribe":
                known = ", ".join(sorted({*REQUESTS, "subscribe"}))
                raise MarshallingError(f"type: found {shown(kind)}, expected one of {known}")
            fields = _subscription(message)
        return fields.unpack(message, fields.called)
    except MarshallingError:
        raise
    except ProtocolError as error:
        raise _refusal(error) from error


def decode_one_shot(message: Any) -> Asked:
    """One of Zatt's messages, which carry no id: get, append, diagnostic, config.

    Raises:
        MarshallingError: it is none.
    """
    if message.__class__ is not dict:
        raise MarshallingError(f"a message that is {shown(message)}, expected a map")
    kind = message.get("type")
    fields = ZATTS.get(kind) if kind.__class__ is str else None
    if fields is None:
        raise MarshallingError(
            f"type: found {shown(kind)} in a message without id, expected {', '.join([*ZATTS][:-1])} or {[*ZATTS][-1]}: all "
            "others need an id"
        )
    try:
        return fields.unpack(message, fields.called)
    except MarshallingError:
        raise
    except ProtocolError as error:
        raise _refusal(error) from error


def _refusal(error: ProtocolError) -> MarshallingError:
    """Return the error that a client is told, in words of MessagePack and not of Python."""
    if isinstance(error, FieldError):
        found = "nothing" if error.value is NOTHING else shown(error.value)
        return MarshallingError(f"{error.field}: found {found}, expected {error.expected}")
    return MarshallingError(str(error))
