"""Requests of the native protocol as the maps that are sent, and their answers as values.

Pure; docs/reference/protocol-native.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from zraft_client.calls import Answer, Kind, Request
from zraft_client.errors import EncodingError
from zraft_client.values import (
    Check,
    Children,
    Consistency,
    Counted,
    Created,
    ItemsPage,
    LogPage,
    Member,
    Owner,
    Owners,
    Receipt,
    Stat,
    Versioned,
    Znode,
    entries_of,
    listed,
)
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.layout import NUMBER_MAX, wrong
from zraft_core.wire.native import results as native_results
from zraft_core.wire.native.fields import INT64_MIN, int64
from zraft_core.wire.native.results import (
    OF_RESULTS,
    OF_WRITES,
    RESULTS,
    STATE,
    AppendResult,
    ChildrenResult,
    CreateResult,
    ExistsResult,
    HelloResult,
    ItemsResult,
    LogResult,
    MembersResult,
    OwnersResult,
    ReadResult,
    SetResult,
    SizeResult,
)
from zraft_core.znodes.stat import INT32_MAX

__all__ = [
    "create",
    "delete",
    "increment",
    "put",
    "remove",
    "set_data",
]

DEFAULT: Final = "default"
"""The dictionary that Zatt's messages are about."""

_LINEARIZABLE: Final = Consistency.LINEARIZABLE

Acl = Sequence[tuple[int, str, str]]
"""ACL entries as (permissions, scheme, id): ZooKeeper's bits READ 1, WRITE 2, CREATE 4, DELETE 8, ADMIN 16."""


# -- answers


def _receipt(answer: Answer) -> Receipt:
    """Read what became of a write; by hand, as every write has one. The layouts name the field that is wrong."""
    try:
        zxid, position = answer["zxid"], answer["position"]
        version, mzxid = (answer["version"], answer["mzxid"]) if "version" in answer else (None, None)
    except KeyError:
        zxid = position = version = mzxid = None
    if (
        type(zxid) is type(position) is int
        and 0 <= zxid | position <= NUMBER_MAX
        and (
            (version is None and mzxid is None)
            or (
                type(version) is type(mzxid) is int
                and -1 <= version <= INT32_MAX
                and 0 <= mzxid <= NUMBER_MAX
            )
        )
    ):
        return Receipt(zxid, position, version, mzxid)
    OF_RESULTS.unpack_map(answer, "write")
    written: AppendResult = RESULTS["append"].unpack_map(answer, "write")
    return Receipt(
        answer["zxid"],
        OF_WRITES.unpack_map(answer, "write").position,
        written.version,
        written.mzxid,
    )


def _counted(answer: Answer) -> Counted:
    value = answer.get("value")
    if type(value) is not int or not INT64_MIN <= value <= NUMBER_MAX:
        RESULTS["increment"].unpack_map(answer, "increment")
        raise wrong("increment.value", int64.expected, value)
    place = _receipt(answer)
    return Counted(value, place.zxid, place.position, place.version, place.mzxid)


def _created(answer: Answer) -> Created:
    result: CreateResult = RESULTS["create"].unpack_map(answer, "create")
    place = _receipt(answer)
    return Created(result.path, result.stat, place.zxid, place.position)


def _versioned(answer: Answer) -> Versioned[Any] | None:
    """Read an entry; by hand, as most reads are of one. The layout names the field that is wrong."""
    try:
        found, value = answer["found"], answer["value"]
        version, mzxid = answer["version"], answer["mzxid"]
    except KeyError:
        found = value = version = mzxid = None
    if found is False and version is None and mzxid is None:
        return None
    if (
        found is not True
        or type(version) is not int
        or type(mzxid) is not int
        or not -1 <= version <= INT32_MAX
        or not 0 <= mzxid <= NUMBER_MAX
    ):
        RESULTS["get"].unpack_map(answer, "get")
        raise wrong("get.found", "true with `version` and `mzxid`, or false without", found)
    if type(value) is tuple or type(value) is dict:
        value = listed(value)
    return Versioned(value, version, mzxid)


def _state(answer: Answer) -> dict[Any, Any]:
    result = STATE.unpack_map(answer, "get")
    return {key: listed(value) for key, value in result.state.items()}


def _items(answer: Answer) -> ItemsPage:
    result: ItemsResult = RESULTS["items"].unpack_map(answer, "items")
    found = tuple(
        (key, Versioned(listed(value), version, mzxid)) for key, value, version, mzxid in result.items
    )
    return ItemsPage(found, result.next)


def _size(answer: Answer) -> int:
    result: SizeResult = RESULTS["size"].unpack_map(answer, "size")
    return result.size


def _znode(answer: Answer) -> Znode:
    result: ReadResult = RESULTS["read"].unpack_map(answer, "read")
    return Znode(result.data or b"", result.stat)


def _stat_or_none(answer: Answer) -> Stat | None:
    result: ExistsResult = RESULTS["exists"].unpack_map(answer, "exists")
    return result.stat


def _stat_written(answer: Answer) -> Receipt:
    result: SetResult = RESULTS["set"].unpack_map(answer, "set")
    place = _receipt(answer)
    return Receipt(place.zxid, place.position, result.stat.version, result.stat.mzxid)


def _children(answer: Answer) -> Children:
    result: ChildrenResult = RESULTS["children"].unpack_map(answer, "children")
    return Children(tuple(sorted(result.names)), result.stat)


def _log_page(answer: Answer) -> LogPage:
    result: LogResult = RESULTS["log"].unpack_map(answer, "log")
    return LogPage(entries_of(result.entries), result.next, result.first, result.end)


def _nothing(_: Answer) -> None:
    return None


def _whole(answer: Answer) -> Answer:
    return answer


_ENVELOPE: Final = frozenset({"id", "type", "success"})


def _bare(answer: Answer) -> dict[str, Any]:
    """Return what was asked for, without what belongs to every answer."""
    return {name: listed(value) for name, value in answer.items() if name not in _ENVELOPE}


# -- dictionaries


def _of(type_: str, dictionary: str) -> dict[str, Any]:
    return {"type": type_} if dictionary == DEFAULT else {"type": type_, "dictionary": dictionary}


def put(dictionary: str, key: Any, value: Any, version: int | None = None) -> Request[Receipt]:
    """Return a write. `version`: None for any, -1 if the key must not exist, otherwise the version that it must have."""
    fields = _of("put", dictionary)
    fields["key"] = key
    fields["value"] = value
    if version is not None:
        fields["version"] = version
    return Request(fields, Kind.WRITE, _receipt)


def delete(dictionary: str, key: Any, version: int | None = None) -> Request[Receipt]:
    """Make a request that deletes a key, if its version is `version`."""
    fields = _of("delete", dictionary)
    fields["key"] = key
    if version is not None:
        fields["version"] = version
    return Request(fields, Kind.WRITE, _receipt)


def increment(dictionary: str, key: Any, amount: int) -> Request[Counted]:
    """Make a request that adds to a key's number."""
    fields = _of("increment", dictionary)
    fields["key"] = key
    fields["amount"] = amount
    return Request(fields, Kind.WRITE, _counted)


def _reading(fields: dict[str, Any], consistency: Consistency, floor: int) -> dict[str, Any]:
    if consistency is not _LINEARIZABLE:
        fields["consistency"] = consistency.value
        fields["floor"] = floor
    return fields


def get(dictionary: str, key: Any, consistency: Consistency, floor: int) -> Request[Versioned[Any] | None]:
    """Return a read. `floor`: the zxid that a local read must have seen."""
    fields = _of("get", dictionary)
    fields["key"] = key
    return Request(_reading(fields, consistency, floor), Kind.READ, _versioned)


def state(dictionary: str, consistency: Consistency, floor: int) -> Request[dict[Any, Any]]:
    """Return a read of the whole dictionary; it is refused if it is larger than the servers' client.reply_bytes_max."""
    return Request(_reading(_of("get", dictionary), consistency, floor), Kind.READ, _state)


def items(
    dictionary: str, after: Any, limit: int | None, consistency: Consistency, floor: int
) -> Request[ItemsPage]:
    """Make a request for a page of a dictionary's items, behind the key `after`."""
    fields = _of("items", dictionary)
    if after is not None:
        fields["after"] = after
    if limit is not None:
        fields["limit"] = limit
    return Request(_reading(fields, consistency, floor), Kind.READ, _items)


def size(dictionary: str, consistency: Consistency, floor: int) -> Request[int]:
    """Make a request for a dictionary's number of keys."""
    return Request(_reading(_of("size", dictionary), consistency, floor), Kind.READ, _size)


# -- znodes


def create(
    path: str,
    data: bytes,
    *,
    ephemeral: bool = False,
    sequential: bool = False,
    container: bool = False,
    ttl_ms: int | None = None,
    acl: Acl | None = None,
) -> Request[Created]:
    """Return a create.

    Raises:
        EncodingError: flags exclude each other.
    """
    fields: dict[str, Any] = {"type": "create", "path": path, "data": data}
    flags = create_flags(
        ephemeral=ephemeral, sequential=sequential, container=container, ttl=ttl_ms is not None
    )
    if flags:
        fields["flags"] = flags
    if ttl_ms is not None:
        fields["ttl"] = ttl_ms
    if acl is not None:
        fields["acl"] = [list(one) for one in acl]
    return Request(fields, Kind.WRITE, _created)


_FLAGS: Final[Mapping[tuple[bool, bool, bool, bool], int]] = {
    # (ephemeral, sequential, container, ttl): that a znode has a time to live is told by its `ttl` alone
    (False, False, False, False): 0,
    (True, False, False, False): 1,
    (False, True, False, False): 2,
    (True, True, False, False): 3,
    (False, False, True, False): 4,
    (False, False, False, True): 0,
    (False, True, False, True): 2,
}


def create_flags(*, ephemeral: bool, sequential: bool, container: bool, ttl: bool) -> int:
    """Return the flags of a create.

    Raises:
        EncodingError: they exclude each other.
    """
    try:
        return _FLAGS[ephemeral, sequential, container, ttl]
    except KeyError:
        raise EncodingError(
            "create: a znode is at most one of ephemeral, container and with a time to live; a container is not sequential"
        ) from None


def set_data(path: str, data: bytes, version: int | None = None) -> Request[Receipt]:
    """Make a request that sets a znode's data, if its version is `version`."""
    fields: dict[str, Any] = {"type": "set", "path": path, "data": data}
    if version is not None:
        fields["version"] = version
    return Request(fields, Kind.WRITE, _stat_written)


def remove(path: str, version: int | None = None) -> Request[Receipt]:
    """Make a request that deletes a znode, if its version is `version`."""
    fields: dict[str, Any] = {"type": "remove", "path": path}
    if version is not None:
        fields["version"] = version
    return Request(fields, Kind.WRITE, _receipt)


def read(path: str, consistency: Consistency, floor: int) -> Request[Znode]:
    """Make a request for a znode's data and stat."""
    return Request(_reading({"type": "read", "path": path}, consistency, floor), Kind.READ, _znode)


def exists(path: str, consistency: Consistency, floor: int) -> Request[Stat | None]:
    """Make a request for a znode's stat, or None if it does not exist."""
    return Request(_reading({"type": "exists", "path": path}, consistency, floor), Kind.READ, _stat_or_none)


def children(path: str, consistency: Consistency, floor: int) -> Request[Children]:
    """Make a request for a znode's children."""
    return Request(_reading({"type": "children", "path": path}, consistency, floor), Kind.READ, _children)


MultiPart = Request[Any] | Check
MultiResult = Receipt | Counted | Created | None


def multi(parts: Sequence[MultiPart]) -> Request[tuple[MultiResult, ...]]:
    """Return a transaction: all or nothing.

    Each part is a write as the functions of this module return it, or a `Check`.

    Raises:
        EncodingError: a part is neither.
    """
    operations: list[Mapping[str, Any]] = []
    for part in parts:
        if isinstance(part, Check):
            operations.append({"type": "check", "path": part.path, "version": part.version})
        elif part.kind is Kind.READ:
            raise EncodingError(f"multi: found {part.fields['type']!r}, expected writes and checks only")
        else:
            operations.append(part.fields)

    def results(answer: Answer) -> tuple[MultiResult, ...]:
        found: native_results.MultiResult = RESULTS["multi"].unpack_map(answer, "multi")
        return tuple(
            _part(part, {**answer, **result}) for part, result in zip(parts, found.results, strict=True)
        )

    return Request({"type": "multi", "operations": operations}, Kind.WRITE, results)


def _part(part: MultiPart, result: Answer) -> MultiResult:
    return None if isinstance(part, Check) else part.convert(result)


# -- logs


def truncate(
    directory: str, first: int, origin_path: str | None = None, origin_data: bytes | None = None
) -> Request[Receipt]:
    """Make a request that deletes the entries of a log before position `first`.

    The same step sets `origin_path` to `origin_data`, if given.
    """
    fields: dict[str, Any] = {"type": "truncate", "directory": directory, "first": first}
    if origin_path is not None:
        fields["origin_path"] = origin_path
        fields["origin_data"] = origin_data
    return Request(fields, Kind.WRITE, _receipt)


def log(
    directory: str,
    prefix: str,
    first: int,
    *,
    limit: int | None,
    bytes_max: int | None,
    consistency: Consistency,
    floor: int,
) -> Request[LogPage]:
    """Make a request for a page of a log's entries, from position `first` on."""
    fields: dict[str, Any] = {"type": "log", "directory": directory, "prefix": prefix, "first": first}
    if limit is not None:
        fields["limit"] = limit
    if bytes_max is not None:
        fields["bytes"] = bytes_max
    return Request(_reading(fields, consistency, floor), Kind.READ, _log_page)


# -- the session and the cluster


def _greeting(answer: Answer) -> HelloResult:
    return RESULTS["hello"].unpack_map(answer, "hello")  # type: ignore[no-any-return]


def hello(
    timeout_ms: int, session: int | None, password: bytes | None, last_zxid: int
) -> Request[HelloResult]:
    """Make the request that begins a connection: a new session, or `session` continued."""
    fields: dict[str, Any] = {"type": "hello", "timeout_ms": timeout_ms, "last_zxid": last_zxid}
    if session is not None:
        fields["session"] = session
        fields["password"] = password
    return Request(fields, Kind.READ, _greeting)


def ping() -> Request[None]:
    """Make a request that shows that the session is alive."""
    return Request({"type": "ping"}, Kind.READ, _nothing)


def close() -> Request[None]:
    """Make the request that ends the session."""
    return Request({"type": "close"}, Kind.READ, _nothing)


def auth(scheme: str, credentials: bytes) -> Request[None]:
    """Make a request that proves who the client is."""
    return Request({"type": "auth", "scheme": scheme, "credentials": credentials}, Kind.READ, _nothing)


def login(token: bytes) -> Request[bytes | None]:
    """Make a request for one step of a SASL login, and return the server's token."""
    return Request(
        {"type": "auth", "scheme": "sasl", "credentials": token},
        Kind.READ,
        lambda answer: RESULTS["auth"].unpack_map(answer, "auth").token,
    )


def will(parent: str | None, prefix: str, data: bytes) -> Request[Receipt]:
    """Make a request for a znode that is created when the session ends."""
    return Request({"type": "will", "parent": parent, "prefix": prefix, "data": data}, Kind.WRITE, _receipt)


def sync() -> Request[int]:
    """Make a request that is answered when the server has caught up with the leader."""
    return Request({"type": "sync"}, Kind.READ, lambda answer: OF_RESULTS.unpack_map(answer, "sync").zxid)


def diagnostic() -> Request[dict[str, Any]]:
    """Make a request for the server's view of itself."""
    return Request({"type": "diagnostic"}, Kind.READ, _bare)


def members() -> Request[tuple[Member, ...]]:
    """Make a request for the cluster's members."""
    return Request({"type": "members"}, Kind.READ, members_of)


def members_of(answer: Answer) -> tuple[Member, ...]:
    """Return the members of an answer to `members`.

    Raises:
        ProtocolError: the answer is not well-formed.
    """
    result: MembersResult = RESULTS["members"].unpack_map(answer, "members")
    return result.members


def addresses_of(answer: Answer) -> tuple[Address, ...]:
    """Return where the members listen; those without a known address are left out.

    Raises:
        ProtocolError: the answer is not well-formed.
    """
    found: list[Address] = []
    for member in members_of(answer):
        with suppress(ConfigError):
            found.append(parse_address(member.address, "members"))
    return tuple(found)


def owners(path: str) -> Request[Owners]:
    """Ask who owns the ephemeral children of a znode, and how long nothing was heard of the owners."""
    return Request({"type": "owners", "path": path}, Kind.READ, _owners)


def _owners(answer: Answer) -> Owners:
    result: OwnersResult = RESULTS["owners"].unpack_map(answer, "owners")
    return Owners(
        {
            name: Owner(session, None if silent_ms is None else silent_ms / 1000, timeout_ms / 1000)
            for name, session, silent_ms, timeout_ms in result.owners
        },
        result.leads,
    )


def _config(answer: Answer) -> Answer:
    RESULTS["config"].unpack_map(answer, "config")
    return answer


def config(action: str, address: str, port: int, server: int | None = None) -> Request[Answer]:
    """Ask for members to be changed. It has no sequence number: asking twice for the same members is harmless."""
    fields: dict[str, Any] = {"type": "config", "action": action, "address": address, "port": port}
    if server is not None:
        fields["server"] = server
    return Request(fields, Kind.READ, _config)


def zatt(message: Mapping[str, Any]) -> Request[Answer]:
    """Return a message in Zatt's form; an append is a write like any other."""
    kind = Kind.WRITE if message.get("type") == "append" else Kind.READ
    return Request(message, kind, _whole)


# -- subscriptions


def subscribe_dictionary(dictionary: str, credit: int) -> Request[None]:
    """Make a request for pushes of a dictionary's changes."""
    return Request({"type": "subscribe", "dictionary": dictionary, "credit": credit}, Kind.READ, _nothing)


def subscribe_log(directory: str, prefix: str, first: int, credit: int) -> Request[None]:
    """Make a request for pushes of a log's entries."""
    fields = {"type": "subscribe", "log": directory, "prefix": prefix, "first": first, "credit": credit}
    return Request(fields, Kind.READ, _nothing)


def subscribe_path(path: str, recursive: bool) -> Request[None]:
    """Make a request for events of a znode, or also of all below it."""
    return Request({"type": "subscribe", "path": path, "recursive": recursive}, Kind.READ, _nothing)


def unsubscribe(subscription: int) -> Request[None]:
    """Make a request that ends a subscription."""
    return Request({"type": "unsubscribe", "subscription": subscription}, Kind.READ, _nothing)


def credit(subscription: int, count: int) -> Mapping[str, Any]:
    """Grant credit, `count` in bytes; it has no answer."""
    return {"type": "credit", "id": subscription, "bytes": count}
