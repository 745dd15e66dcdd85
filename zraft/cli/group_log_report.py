"""Entries of a partition's group as `zraft log dump` prints them: commands of topics and of claims.

Pure.

Payloads of messages may be secret: only their length is shown unless the user asks for them.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

from attrs import asdict

from zraft.topics.entries import BatchEntry, decode_entry
from zraft_core.claims.commands import ClaimCommand
from zraft_core.topics.commands import (
    Advance,
    Attest,
    PartitionCommand,
    Remote,
    Seek,
    Settled,
    Stage,
    Start,
    ViewChanged,
)
from zraft_core.topics.message import Message
from zraft_core.topics.view import AnyView, View

_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def group_entry_value(payload: bytes, *, data: bool) -> dict[str, Any]:
    """Return the fields of an entry's payload; `commands` is a list of maps with the command's name under `command`.

    Raises:
        ProtocolError: it is no entry of a partition's log, or a newer release's.
    """
    entry = decode_entry(payload)
    if not isinstance(entry, BatchEntry):
        birth = {
            "command": "birth",
            "view": _view_value(entry.view),
            "window": entry.settings.window,
            "consumers_max": entry.settings.consumers_max,
            "born": entry.born,
            "heartbeat_ms": entry.heartbeat_ms,
        }
        return {"log_time_ms": entry.log_time_ms, "wall_time_ms": entry.wall_ms, "commands": [birth]}
    commands = [_command_value(command, data=data) for command in entry.batch.commands]
    commands += [_claim_value(command) for command in entry.claims]
    return {"log_time_ms": entry.batch.log_time_ms, "wall_time_ms": entry.wall_ms, "commands": commands}


def _command_value(command: PartitionCommand, *, data: bool) -> dict[str, Any]:
    match command:
        case Start(message, floor, epoch) | Stage(message, floor, epoch):
            return {
                "command": "stage" if isinstance(command, Stage) else "start",
                **_message_value(message, data=data),
                "floor": floor,
                "epoch": epoch,
            }
        case Remote(mid, sender, time, void, floor, digest, message):
            found: dict[str, Any] = {"command": "remote", "id": list(mid), "sender": sender, "time": time}
            found |= {"void": void, "floor": floor, "digest": digest.hex()}
            return found | ({"message": _message_value(message, data=data)} if message is not None else {})
        case Advance(time):
            return {"command": "advance", "time": time}
        case Settled(group, final):
            return {"command": "settled", "group": group, "floor": list(final)}
        case ViewChanged(view):
            return {"command": "view", "view": _view_value(view)}
        case Seek(consumer, offset):
            return {"command": "seek", "consumer": _name(consumer), "offset": offset}
        case Attest(mid, sender, epoch, known, void):
            said = {"command": "testify", "id": list(mid), "sender": sender, "epoch": epoch}
            return said | {"known": [list(one) for one in known], "void": void}


def _message_value(message: Message, *, data: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": list(message.mid),
        "destinations": list(message.destinations),
        "payload": message.payload.hex() if data else f"<{len(message.payload)} bytes>",
    }
    if message.number:
        found["number"] = message.number
    if message.after is not None:
        found["after"] = list(message.after.mid)
    if message.condition is not None:
        condition = message.condition
        found["condition"] = {
            "home": condition.home,
            "consumer": _name(condition.consumer),
            "expected": condition.expected,
            "following": condition.following,
        }
    if message.depends:
        found["depends"] = message.depends
    if message.partitions is not None:
        found["partitions"] = list(message.partitions)
    if message.round is not None:
        found["round"] = [message.round.first, message.round.upto]
    return found


def _view_value(view: AnyView) -> dict[str, Any]:
    """Return whole views and changes of one in the same form: their position, and how many they name."""
    whole = isinstance(view, View)
    counts = {
        name: len(value) for name, value in asdict(view, recurse=False).items() if hasattr(value, "__len__")
    }
    return {"whole": whole, "position": view.position, "epoch": view.epoch, **counts}


def _claim_value(command: ClaimCommand) -> dict[str, Any]:
    name = _WORDS.sub("_", type(command).__name__).lower()
    return {"command": name, **{key: _plain(value) for key, value in asdict(command).items()}}


def _plain(value: Any) -> Any:
    return value.name.lower() if isinstance(value, Enum) else value


def _name(consumer: bytes) -> str:
    return consumer.decode("utf-8", "backslashreplace")
