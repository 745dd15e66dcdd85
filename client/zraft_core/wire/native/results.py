"""Results of native requests by the type of the request: servers pack them, and clients read them, by these declarations.

What most answers are is packed by hand (`answers`) and read by hand (`zraft_client.requests`), since that takes
fewer calls. Then these declarations say what is wrong with an answer that is not well-formed.

Source: docs/reference/protocol-native.md; its tables of results come from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from zraft_core.ids import SERVER_ID_MAX
from zraft_core.layout import (
    NUMBER_MAX,
    Field,
    Fields,
    Form,
    Record,
    any_binary,
    any_string,
    anything,
    binary,
    boolean,
    called,
    integer,
    listed,
    number,
    of_type,
    optional,
    or_absent,
    row,
)
from zraft_core.wire.native.fields import ID_MAX, INT64_MIN, PASSWORD_BYTES, int64
from zraft_core.znodes.stat import INT32_MAX, Stat

MANY: Final = NUMBER_MAX
"""The number of items of one answer has no bound of its own: the answer's length has."""

STAT_NAMES: Final = (
    "czxid", "mzxid", "ctime", "mtime", "version", "cversion",
    "aversion", "ephemeralOwner", "dataLength", "numChildren", "pzxid",
)  # fmt: skip

id_of_request: Final = integer(0, ID_MAX)
version: Final = integer(-1, INT32_MAX)
server: Final = integer(0, SERVER_ID_MAX)


# -- a stat


def stat_map(stat: Sequence[int]) -> dict[str, int]:
    """Return a stat under ZooKeeper's names."""
    return dict(zip(STAT_NAMES, stat, strict=True))


_STAT: Final = Fields("stat", Stat, {name: Field(int64) for name in STAT_NAMES}, ignores=True)


def _stat(value: Any, name: str) -> Stat:
    """Read a stat at once; its fields are read one by one only to say what is wrong."""
    try:
        found = Stat(*[value[each] for each in STAT_NAMES])
    except (KeyError, TypeError):
        return _STAT.unpack(value, name)
    for each in found:
        if type(each) is not int or not INT64_MIN <= each <= NUMBER_MAX:
            return _STAT.unpack(value, name)
    return found


stat: Final = Form(_stat, stat_map, expected="a map of ZooKeeper's eleven names")


# -- what every result has


@frozen
class AnyResult:
    """The fields of every result, beside its type; `zxid` is the moment that it shows."""

    id: int
    success: bool
    zxid: int


@frozen
class AnyWriteResult:
    """The place of a write among all commands, for the result of every write."""

    position: int


OF_RESULTS: Final = Record(AnyResult, id_of_request, boolean, number)
OF_WRITES: Final = Record(AnyWriteResult, number)


# -- sessions


@frozen
class EmptyResult:
    """Result of a request that has nothing more to say."""


@frozen
class HelloResult:
    """Session of a client, new or resumed, and the server that it is connected to."""

    session: int
    password: bytes = field(repr=False)
    timeout_ms: int
    server: int
    cluster: bytes | None


@frozen
class AuthResult:
    """Answer to one step of a login; other schemes have no token."""

    token: bytes | None = field(default=None, repr=False)


# -- members


@frozen
class ConfigResult:
    """The id of the server that was added or deleted."""

    server: int


@frozen
class Member:
    """A server of the cluster: `address` is "HOST:PORT", `part` voter, learner, observer or leaving."""

    server: int
    address: str
    part: str
    leader: bool


@frozen
class MembersResult:
    """The members of the cluster, by id."""

    members: tuple[Member, ...]


# -- dictionaries


@frozen
class PutResult:
    """Version of an entry after a write."""

    version: int
    mzxid: int


@frozen
class IncrementResult:
    """A number after it was incremented."""

    value: int
    version: int
    mzxid: int


@frozen
class AppendResult:
    """Version of an entry after a change; None after a deletion."""

    version: int | None = None
    mzxid: int | None = None


@frozen
class GetResult:
    """An entry, or that there is none; then its fields are None."""

    found: bool
    value: Any
    version: int | None
    mzxid: int | None


@frozen
class StateResult:
    """All entries of a dictionary."""

    state: dict[Any, Any]


@frozen
class ItemsResult:
    """Some entries, each (key, value, version, mzxid), and the cursor of the next page; None after the last."""

    next: str | None
    items: tuple[tuple[Any, Any, int, int], ...]


@frozen
class SizeResult:
    """The number of entries."""

    size: int


# -- znodes


@frozen
class CreateResult:
    """A znode that was created, under its whole path."""

    path: str
    stat: Stat


@frozen
class SetResult:
    """A znode after its data were set."""

    stat: Stat


@frozen
class MultiResult:
    """A map for each operation, of what the operation has as a write."""

    results: tuple[dict[str, Any], ...]


@frozen
class ReadResult:
    """Data and stat of a znode."""

    data: bytes | None
    stat: Stat


@frozen
class ExistsResult:
    """Stat of a znode, None if there is none."""

    stat: Stat | None


@frozen
class ChildrenResult:
    """Names of a znode's children, and its own stat."""

    names: tuple[str, ...]
    stat: Stat


@frozen
class OwnersResult:
    """Ephemeral children, each (name, session, silent_ms or None, timeout_ms).

    `leads`: the server that answered knows of all sessions how long they are silent.
    """

    owners: tuple[tuple[str, int, int | None, int], ...]
    leads: bool


@frozen
class LogResult:
    """Entries of a log, each (number, data, zxid); continue at `next`.

    `first` is where the log begins, `end` the number that the next entry gets.
    """

    entries: tuple[tuple[int, bytes | None, int], ...]
    next: int
    first: int
    end: int


_LOG_ENTRY: Final = row(number=number, data=optional(any_binary), zxid=number)


def _log_entry(value: Any, name: str) -> tuple[Any, ...]:
    """Read a row at once, since there are many; its fields are read one by one only to say what is wrong."""
    if type(value) is tuple and len(value) == 3:
        at, data, zxid = value
        if (
            type(at) is type(zxid) is int
            and 0 <= at <= NUMBER_MAX
            and 0 <= zxid <= NUMBER_MAX
            and (data is None or type(data) is bytes)
        ):
            return value
    return _LOG_ENTRY.unpack(value, name)  # type: ignore[no-any-return]


log_entries: Final = listed(Form(_log_entry, same=True, expected=_LOG_ENTRY.expected), MANY)
_names: Final = listed(any_string, MANY)

RESULTS: Final[Mapping[str, Record[Any]]] = {
    "hello": Record(
        HelloResult,
        int64,
        binary(PASSWORD_BYTES, PASSWORD_BYTES),
        number,
        server,
        optional(any_binary),
    ),
    "ping": (_empty := Record(EmptyResult)),
    "close": _empty,
    "auth": Record(AuthResult, or_absent(any_binary)),
    "will": _empty,
    "put": Record(PutResult, version, number),
    "delete": _empty,
    "increment": Record(IncrementResult, int64, version, number),
    "create": Record(CreateResult, any_string, stat),
    "set": Record(SetResult, stat),
    "remove": _empty,
    "multi": Record(
        MultiResult,
        listed(called(of_type(dict, "a map"), "a map of what the operation has as a write"), MANY),
    ),
    "truncate": _empty,
    "append": Record(AppendResult, or_absent(version), or_absent(number)),
    "config": Record(ConfigResult, server),
    "get": Record(GetResult, boolean, anything("the value"), optional(version), optional(number)),
    "items": Record(
        ItemsResult,
        optional(any_string),
        listed(
            row(key=anything("the key"), value=anything("the value"), version=version, mzxid=number), MANY
        ),
    ),
    "size": Record(SizeResult, number),
    "read": Record(ReadResult, optional(any_binary), stat),
    "exists": Record(ExistsResult, optional(stat)),
    "children": Record(ChildrenResult, _names, stat),
    "owners": Record(
        OwnersResult,
        listed(row(name=any_string, session=int64, silent_ms=optional(number), timeout_ms=number), MANY),
        boolean,
    ),
    "log": Record(LogResult, log_entries, number, number, number),
    "sync": _empty,
    "diagnostic": _empty,
    "members": Record(
        MembersResult, listed(Record(Member, server, any_string, any_string, boolean).map_form, MANY)
    ),
    "subscribe": _empty,
    "unsubscribe": _empty,
}
"""The own fields of results, beside those of every result and of every write, without those of topics.

A diagnostic has further fields, which are Zatt's.
"""
STATE: Final = Record(StateResult, of_type(dict, "a map"))
"""The result of a get without a key."""
