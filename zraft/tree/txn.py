"""Commands of the coordination group, as they stand in the log.

The hot path carries commands as plain tuples, because building an object per command would cost more
than applying it; this module is the one place that gives those tuples their meaning. Their numbers are
ZooKeeper's opcodes where ZooKeeper has one.

Layout of a COMMANDS entry's payload, all MessagePack, packed once and unpacked once per server::

    entry   = [FORMAT, log_time_ms, wall_time_ms, batch, batch, ...]
    batch   = [server, instance, boot, seq, [run, run, ...]]
    run     = [session, ids, [command, command, ...]]
    command = [opcode, field, ...]

A *batch* is one origin's numbered batch (D-2); its bytes are made by the origin and embedded unchanged.
The leader's own commands (EXPIRE, SETTINGS) form a batch with server 0, instance b"", boot 0, seq 0,
which is not deduplicated. A *run* is a sequence of consecutive commands of one session on one connection:
the session's existence and owner are checked once per run, and `ids` are that connection's authenticated
ids (D-5): a list of (scheme, id). Session 0 marks a run of commands that belong to no session yet.

Commands of a session's run::

    [CREATE, path, data|nil, acl|nil, flags, ttl]     acl nil = [(31, "world", "anyone")]; also for CREATE2 etc.
    [DELETE, path, version]
    [SET_DATA, path, data|nil, version]
    [CHECK, path, version]                            inside MULTI only
    [MULTI, [command, ...]]
    [CLOSE_SESSION]

Commands of a run with session 0::

    [CREATE_SESSION, timeout_ms, password]            password: 16 random bytes drawn by the origin
    [ATTACH, session, timeout_ms, password]           every resume, also on the same server (D-3)
    [REGISTER, boot_id]                               first command of a boot (D-1)

Commands of the leader's batch::

    [EXPIRE, session, attach_position, write_position, last_touch_ms, timeout_ms, leadership_start_ms]   (D-11)
    [SETTINGS, {name: value}]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack

from zraft.ids import Instance, ServerId

FORMAT: Final = 1

CREATE: Final = 1
DELETE: Final = 2
SET_DATA: Final = 5
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
CREATE_SESSION: Final = -10
CLOSE_SESSION: Final = -11
ATTACH: Final = 200
REGISTER: Final = 201
EXPIRE: Final = 202
SETTINGS: Final = 203

FLAG_EPHEMERAL: Final = 1
FLAG_SEQUENTIAL: Final = 2

Command = tuple[Any, ...]
Run = tuple[int, tuple[tuple[str, str], ...], list[Command]]
Batch = tuple[ServerId, Instance, int, int, list[Run]]


def pack_batch(server: ServerId, instance: Instance, boot: int, seq: int, runs: Iterable[Run]) -> bytes:
    """The immutable bytes of one batch."""
    return msgpack.packb((server, instance, boot, seq, runs), use_bin_type=True)  # type: ignore[no-any-return]


def pack_entry(log_time_ms: int, wall_time_ms: int, batches: Iterable[bytes]) -> bytes:
    """An entry's payload: a header followed by batches that are already packed (MessagePack concatenates)."""
    blobs = list(batches)
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(3 + len(blobs))
    packer.pack(FORMAT)
    packer.pack(log_time_ms)
    packer.pack(wall_time_ms)
    return packer.bytes() + b"".join(blobs)


def unpack_entry(payload: bytes) -> tuple[int, int, tuple[Batch, ...]]:
    """(log_time_ms, wall_time_ms, batches).

    Raises:
        ValueError: the payload is not of a format this release knows; the caller stops rather than guess (D-5).
    """
    fields = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
    if fields[0] != FORMAT:
        raise ValueError(f"log entry of format {fields[0]!r}, this release knows format {FORMAT}: upgrade this server")
    return fields[1], fields[2], fields[3:]
