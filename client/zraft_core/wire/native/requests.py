"""All native requests: MessagePack maps in, typed values out; writes carry the log's command.

What a request is about has a module: `session_requests`, `dictionary_requests`, `znode_requests`, `log_requests`,
`multi_request`, `member_requests`, `subscription_requests`, `topic_requests` and `partition_requests`; messages without
an id are in `zatt`. Here is what all writes and all reads have.

Every field is checked, for what stands in a command goes to all servers. A field that a request does not know is
refused: a misspelt `version` must not become an unconditional write. The tables of fields in the document come from
these declarations.

Source: docs/reference/protocol-native.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import NOTHING

from zraft_core.errors import MarshallingError, ProtocolError
from zraft_core.frozen import statically_frozen
from zraft_core.layout import (
    Field,
    FieldError,
    Fields,
    any_string,
    boolean,
    choice,
    from_one,
    integer,
    number,
    optional,
    wrong,
)
from zraft_core.messagepack import SHOWN_CHARACTERS_MAX, shown
from zraft_core.wire.native import (
    dictionary_requests,
    log_requests,
    member_requests,
    multi_request,
    partition_requests,
    session_requests,
    subscription_requests,
    topic_requests,
    znode_requests,
)
from zraft_core.wire.native.fields import ID, ID_MAX, request
from zraft_core.znodes.txn import Command

FLOOR_TIMEOUT_MS: Final = 10_000
FLOOR_TIMEOUT_MS_MAX: Final = 60_000


# -- what a request can be


@statically_frozen
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


Query = (
    dictionary_requests.DictionaryQuery
    | znode_requests.ZnodeQuery
    | log_requests.ReadLog
    | member_requests.ReadDiagnostic
    | member_requests.ReadMembers
    | topic_requests.ReadTopics
)


@statically_frozen
class Read:
    """A query, answered once this server has applied `floor`; `linearizable`: and all that was committed before it came."""

    id: int | None
    kind: str
    query: Query
    linearizable: bool
    floor: int = 0
    timeout_ms: int = FLOOR_TIMEOUT_MS


Request = (
    session_requests.SessionRequest
    | Write
    | Read
    | member_requests.Config
    | subscription_requests.Subscribe
    | subscription_requests.Credit
    | subscription_requests.Unsubscribe
    | partition_requests.PartitionRequest
)


# -- writes


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


# -- all of them


_WRITES: Final[tuple[Fields[Command], ...]] = (
    *dictionary_requests.WRITES,
    *znode_requests.WRITES,
    *multi_request.WRITES,
    *log_requests.WRITES,
    *session_requests.WRITES,
    *topic_requests.WRITES,
)
_READS: Final[tuple[Fields[Query], ...]] = (
    *dictionary_requests.READS,
    *znode_requests.READS,
    *log_requests.READS,
    *topic_requests.READS,
)
_ALL: Final[tuple[Fields[Request], ...]] = (
    *map(_write, _WRITES),
    *map(_read, _READS),
    # Any server answers these at once from what it knows, so they have no fields.
    request("diagnostic", lambda id: Read(id, "diagnostic", member_requests.ReadDiagnostic(), False)),
    request("members", lambda id: Read(id, "members", member_requests.ReadMembers(), False)),
    *session_requests.REQUESTS,
    *member_requests.REQUESTS,
    *subscription_requests.REQUESTS,
    *partition_requests.REQUESTS,
)
REQUESTS: Final[dict[str, Fields[Request]]] = {fields.called: fields for fields in _ALL}
"""All requests but subscribe, by their types."""

SUBSCRIBE: Final[dict[str, Fields[Request]]] = {
    **subscription_requests.SUBSCRIBE,
    "producer": partition_requests.SUBSCRIBE,
}
"""By the field that says what is subscribed to."""


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
    """Return the id of a message, None if it carries none. For errors, too, so it is looked for in anything.

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
    """Return the type of a message, for errors."""
    kind = message.get("type")
    return kind[:SHOWN_CHARACTERS_MAX] if isinstance(kind, str) else "message"


def decode_request(message: Any) -> Request:
    """Return the request of a message that carries an id.

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
        raise refusal(error) from error


def refusal(error: ProtocolError) -> MarshallingError:
    """Return the error that a client is told, in words of MessagePack and not of Python."""
    if isinstance(error, FieldError):
        found = "nothing" if error.value is NOTHING else shown(error.value)
        return MarshallingError(f"{error.field}: found {found}, expected {error.expected}")
    return MarshallingError(str(error))
