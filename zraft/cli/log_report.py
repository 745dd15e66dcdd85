"""Records and deliveries as `zraft log dump` prints them: as values for JSON, and as lines for people.

Pure.

Payloads of clients may be secret, so only their length is shown unless the user asks for the data. What
authenticates somebody (session passwords, digests of passwords) is never shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from attrs import asdict

from zraft.cli.group_log_report import group_entry_value
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.records import (
    BaseRecord,
    EntryRecord,
    ForgetRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
)
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.topics.codec import decode_registry
from zraft_core.topics.registry_values import Retention
from zraft_core.znodes import txn

_OPCODES: Final = {
    value: name.lower()
    for name, value in vars(txn).items()
    if name.isupper() and type(value) is int and name != "FORMAT" and not name.startswith("FLAG_")
}
_CREATE_FIELDS: Final = ("path", "data", "acl", "flags", "ttl")
_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    txn.CREATE: _CREATE_FIELDS,
    txn.CREATE2: _CREATE_FIELDS,
    txn.CREATE_CONTAINER: _CREATE_FIELDS,
    txn.CREATE_TTL: _CREATE_FIELDS,
    txn.DELETE_CONTAINER: ("path",),
    txn.DELETE: ("path", "version"),
    txn.SET_DATA: ("path", "data", "version"),
    txn.SET_ACL: ("path", "acl", "version"),
    txn.CHECK: ("path", "version"),
    txn.MULTI: ("commands",),
    txn.CREATE_SESSION: ("timeout_ms", "password"),
    txn.ATTACH: ("session", "timeout_ms", "password"),
    txn.REGISTER: ("boot_id",),
    txn.EXPIRE: (
        "session",
        "attach_position",
        "write_position",
        "last_touch_ms",
        "timeout_ms",
        "leadership_start_ms",
    ),
    txn.SETTINGS: ("settings",),
    txn.REAP: ("path", "czxid"),
    txn.MEMBERS: ("replace", "version", "members"),
    txn.FEATURE: ("level",),
    txn.ONCE: ("seq", "floor", "commands"),
    txn.PUT: ("path", "data", "version"),
    txn.ADD: ("path", "prefix", "amount"),
    txn.WILL: ("parent", "prefix", "data"),
    txn.TRUNCATE: ("directory", "first", "origin_path", "origin_data"),
    txn.TOPICS: ("registry",),
}
"""Names of a command's fields after its opcode; those of other opcodes are shown by their place."""
_SECRET: Final = ("password", "digest")
_HIDDEN: Final = "(hidden)"


def record_value(record: Record | BaseRecord, *, data: bool) -> dict[str, Any]:
    """Return the record as what JSON can hold; znode data only if `data`, as hexadecimal text."""
    match record:
        case EntryRecord(group, entry):
            return {"record": "entry", "group": group, **_entry_value(group, entry, data=data)}
        case HardStateRecord(group, hard_state):
            return {"record": "hard_state", "group": group, **_hard_state_value(hard_state)}
        case TruncateRecord(group, from_index):
            return {"record": "truncate", "group": group, "from_index": from_index}
        case RosterRecord(group, roster):
            return {"record": "roster", "group": group, "roster": _roster_value(roster)}
        case RestoreRecord(group, meta):
            return {"record": "restore", "group": group, **_meta_value(meta)}
        case ForgetRecord(group):
            return {"record": "forget", "group": group}
        case BaseRecord(group, hard_state, roster, log):
            return {
                "record": "base",
                "group": group,
                **_hard_state_value(hard_state),
                "roster": _roster_value(roster or ()),
                "log": _meta_value(log),
            }


def record_lines(value: dict[str, Any]) -> Iterator[str]:
    """Return a value of `record_value` as lines: the record's own, then one for each command, indented."""
    value = dict(value)
    batches = value.pop("batches", ())
    of_group = value.pop("commands", ())
    yield f"{value.pop('record'):<10} {_words(value)}"
    yield from (f"    {_command_line(command)}" for command in of_group)
    for batch in batches:
        origin = (
            f"server {batch['server']} boot {batch['boot']} seq {batch['seq']}"
            if batch["server"]
            else "leader"
        )
        for run in batch["runs"]:
            session = f" session {run['session']}" if run["session"] != "0x0" else ""
            for command in run["commands"]:
                yield f"    {origin}{session}: {_command_line(command)}"


def _entry_value(group: GroupId, entry: Entry, *, data: bool) -> dict[str, Any]:
    value: dict[str, Any] = {
        "index": entry.index,
        "term": entry.term,
        "position": entry.position,
        "count": entry.count,
        "kind": entry.kind.name.lower(),
        "bytes": len(entry.payload),
    }
    try:
        if entry.kind is EntryKind.COMMANDS and group:
            value |= group_entry_value(entry.payload, data=data)
        elif entry.kind is EntryKind.COMMANDS:
            log_time_ms, wall_time_ms, batches = txn.unpack_entry(entry.payload)
            value |= {"log_time_ms": log_time_ms, "wall_time_ms": wall_time_ms}
            value["batches"] = [_batch_value(batch, data=data) for batch in batches]
        elif entry.kind is EntryKind.MEMBERSHIP:
            value["members"] = membership_value(entry.payload)
    except ProtocolError as error:
        value["unreadable"] = str(error)
    return value


def membership_value(payload: bytes) -> list[dict[str, Any]]:
    """Return the members that a MEMBERSHIP entry's payload names.

    Raises:
        ProtocolError: it is no such payload.
    """
    if not payload:
        return []
    members = Membership.decode(payload).members
    return [
        {
            "server": server,
            "instance": member.instance.hex(),
            "voter": member.voter,
            "role": member.role.name.lower(),
            "address": member.address,
        }
        for server, member in members.items()
    ]


def _batch_value(batch: txn.Batch, *, data: bool) -> dict[str, Any]:
    server, _, boot, seq, runs = batch
    return {
        "server": server,
        "boot": boot,
        "seq": seq,
        "runs": [
            {
                "session": f"{run[0]:#x}",
                "commands": [_command_value(command, data=data) for command in run[2]],
            }
            for run in runs
        ],
    }


def _command_value(command: Any, *, data: bool) -> dict[str, Any]:
    if not isinstance(command, tuple) or not command or not isinstance(command[0], int):
        return {"command": "malformed"}
    opcode, *fields = command
    value: dict[str, Any] = {"command": _OPCODES.get(opcode, f"opcode {opcode}")}
    names = _FIELDS.get(opcode, ())
    for at, field in enumerate(fields):
        name = names[at] if at < len(names) else f"field{at + 1}"
        value[name] = _field_value(name, field, data=data)
    return value


def _field_value(name: str, field: Any, *, data: bool) -> Any:
    match name, field:
        case "commands", tuple():
            # A numbered command holds one, a multi several.
            commands = field if all(isinstance(one, tuple) for one in field) else (field,)
            return [_command_value(command, data=data) for command in commands]
        case "acl", tuple():
            return [_acl_value(row) for row in field]
        case "settings", dict():
            return {
                str(key): _HIDDEN if any(word in str(key) for word in _SECRET) else _plain(item, data=data)
                for key, item in field.items()
            }
        case "registry", bytes():
            return _registry_value(field)
        case "session" | "czxid", int():
            return f"{field:#x}"
    return _HIDDEN if name == "password" else _plain(field, data=data)


def _registry_value(packed: bytes) -> Any:
    """Return a command about topics; nothing in it is a client's data."""
    try:
        command = decode_registry(packed)
    except ProtocolError:
        return "malformed"
    fields = {name: _readable(value) for name, value in asdict(command, recurse=False).items()}
    return {"kind": type(command).__name__, **fields}


def _readable(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case tuple():
            return [_readable(item) for item in value]
        case Retention():
            return asdict(value)
    return value


def _acl_value(row: Any) -> Any:
    match row:
        case (int(permissions), str(scheme), str(id)):
            # The digest scheme's id is user:hash, and with the hash one can try passwords.
            user, colon, _ = id.partition(":")
            shown = f"{user}:{_HIDDEN}" if colon and "digest" in scheme else id
            return [permissions, scheme, shown]
    return "malformed"


def _plain(field: Any, *, data: bool) -> Any:
    match field:
        case bytes():
            return field.hex() if data else f"({len(field)} bytes)"
        case tuple() | list():
            return [_plain(item, data=data) for item in field]
        case dict():
            return {str(key): _plain(item, data=data) for key, item in field.items()}
    return field


def delivery_value(one: StoredDelivery, group: int, chain: bytes, *, data: bool) -> dict[str, Any]:
    """Return a delivery and the digest after it as what JSON can hold; its payload only if `data`, as hexadecimal text."""
    value: dict[str, Any] = {
        "record": "delivery",
        "group": group,
        "offset": one.offset,
        "stamp": list(one.stamp),
        "producer": one.producer,
        "number": one.number,
        "index": one.index,
        "time": one.time,
        "bytes": len(one.payload),
        "chain": chain.hex(),
    }
    if data:
        value["payload"] = one.payload.hex()
    return value


def delivery_line(value: dict[str, Any]) -> str:
    """Return the delivery as a line for people."""
    return _words({name: item for name, item in value.items() if name != "record"})


def _hard_state_value(hard_state: HardState) -> dict[str, Any]:
    return {"term": hard_state.term, "voted_for": hard_state.voted_for}


def _roster_value(roster: Any) -> list[dict[str, Any]]:
    return [{"server": server, "instance": instance.hex()} for server, instance in roster]


def _meta_value(meta: SnapshotMeta) -> dict[str, Any]:
    return {
        "index": meta.index,
        "term": meta.term,
        "next_position": meta.next_position,
        "membership_bytes": len(meta.membership),
    }


def _words(value: dict[str, Any]) -> str:
    return " ".join(f"{name}={_word(item)}" for name, item in value.items())


def _word(item: Any) -> str:
    if isinstance(item, dict):
        return "{" + _words(item) + "}"
    if isinstance(item, list):
        return "[" + ", ".join(map(_word, item)) + "]"
    return "-" if item is None else str(item)


def _command_line(command: dict[str, Any]) -> str:
    fields = dict(command)
    name = fields.pop("command")
    path = fields.pop("path", None)
    commands = fields.pop("commands", None)
    parts = [name, *([repr(path)] if path is not None else []), *([_words(fields)] if fields else [])]
    if commands is not None:
        parts.append("{" + "; ".join(map(_command_line, commands)) + "}")
    return " ".join(parts)
