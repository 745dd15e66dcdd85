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

    [CREATE, path, data|nil, acl|nil, flags, ttl]     acl nil = [(31, "world", "anyone")]; also CREATE2,
                                                      CREATE_CONTAINER, and CREATE_TTL, which alone uses ttl (ms)
    [DELETE_CONTAINER, path]                          an empty znode, as clients may ask for
    [DELETE, path, version]
    [SET_DATA, path, data|nil, version]
    [SET_ACL, path, acl|nil, version]                 version of the ACL; inside MULTI from feature level 6 on
    [CHECK, path, version]                            inside MULTI only
    [MULTI, [command, ...]]
    [CLOSE_SESSION]
    [ONCE, seq, floor, command]                       `command` once per seq of this session (zraft.tree.commands.once)
    [WILL, parent|nil, prefix, data]                  done at the session's end (D-19; zraft.tree.commands.wills)
    [PUT, path, data|nil, version|nil]                create or replace, also inside MULTI (zraft.tree.commands.upsert)
    [ADD, path, prefix, amount]                       grow a number, also inside MULTI (zraft.tree.commands.upsert)
    [TRUNCATE, directory, first, path|nil, data|nil]  the log below `first` goes (D-20; zraft.tree.commands.truncation)

    [TOPICS, encoded registry command]                producers, topics and groups (zraft.tree.commands.topics)

ONCE to TRUNCATE since feature level 3, from which on those that write to the tree, and need no session, may also stand
in runs with session 0: of clients without a session, with the ids that these have proved. TOPICS since feature level 4,
also with session 0, and in the leader's batch.

Commands of a run with session 0::

    [CREATE_SESSION, timeout_ms, password]            password: 16 random bytes drawn by the origin
    [ATTACH, session, timeout_ms, password]           every resume, also on the same server (D-3)
    [REGISTER, boot_id]                               first command of a boot (D-1)

Commands of the leader's batch::

    [EXPIRE, session, attach_position, write_position, last_touch_ms, timeout_ms, leadership_start_ms]  (D-11)
    [SETTINGS, {name: value}]
    [REAP, path, czxid]                               a container or TTL znode that is due, if it still is
    [MEMBERS, replace, version, [[server, part, address], ...]]    who is to belong to the cluster; also in runs of
                                                      sessions and with session 0; feature level 2
    [FEATURE, level]                                  raises the feature level in force (zraft.config.features); of a
                                                      leader alone: an unknown level stops every server
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgpack

from zraft_core.errors import ProtocolError
from zraft_core.ids import Instance, ServerId

FORMAT: Final = 1

CREATE: Final = 1
DELETE: Final = 2
SET_DATA: Final = 5
SET_ACL: Final = 7
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
CREATE_CONTAINER: Final = 19
DELETE_CONTAINER: Final = 20
CREATE_TTL: Final = 21
CREATE_SESSION: Final = -10
CLOSE_SESSION: Final = -11
ATTACH: Final = 200
REGISTER: Final = 201
EXPIRE: Final = 202
SETTINGS: Final = 203
REAP: Final = 204
MEMBERS: Final = 205
FEATURE: Final = 206
ONCE: Final = 207
PUT: Final = 208
ADD: Final = 209
WILL: Final = 210
TRUNCATE: Final = 211
TOPICS: Final = 212

FLAG_EPHEMERAL: Final = 1
FLAG_SEQUENTIAL: Final = 2

Command = tuple[Any, ...]
Run = tuple[int, tuple[tuple[str, str], ...], Sequence[Command]]
Batch = tuple[ServerId, Instance, int, int, Sequence[Run]]


def pack_batch(server: ServerId, instance: Instance, boot: int, seq: int, runs: Iterable[Run]) -> bytes:
    """Return the immutable bytes of one batch."""
    return msgpack.packb((server, instance, boot, seq, runs), use_bin_type=True)  # type: ignore[no-any-return]


def pack_entry(log_time_ms: int, wall_time_ms: int, batches: Iterable[bytes]) -> bytes:
    """Return an entry's payload: a header followed by batches that are already packed (MessagePack concatenates)."""
    blobs = list(batches)
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(3 + len(blobs))
    packer.pack(FORMAT)
    packer.pack(log_time_ms)
    packer.pack(wall_time_ms)
    header: bytes = packer.bytes()
    return header + b"".join(blobs)


def unpack_batch(blob: bytes) -> Batch:
    """Return one batch from an origin's datagram, so that a leader can refuse to append what is not one.

    Raises:
        ProtocolError: `blob` is not exactly one well-formed batch.
    """
    try:
        batch = msgpack.unpackb(blob, use_list=False, strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"batch of {len(blob)} bytes is not one MessagePack value: {error}") from error
    if not _is_batch(batch):
        raise ProtocolError(
            "a batch must be [server, instance, boot, seq, [[session, ids, [command, ...]], ...]]"
        )
    return batch  # type: ignore[no-any-return]


def command_count(runs: Iterable[Run]) -> int:
    """Return how many commands, and therefore positions, a batch's runs take."""
    count = 0
    for _, _, commands in runs:
        count += len(commands)
    return count


def unpack_entry(payload: bytes) -> tuple[int, int, tuple[Batch, ...]]:
    """Return (log_time_ms, wall_time_ms, batches).

    A batch of the wrong shape is left out: it is in the log of every server, and all must get past it. What
    is inside its commands is judged by `Machine.execute`.

    Raises:
        ProtocolError: the payload is not of a format this release knows; the caller must stop, not guess (D-5).
    """
    try:
        fields = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
    except (ValueError, TypeError) as error:  # a TypeError: a map whose key is a map
        raise ProtocolError(f"log entry of {len(payload)} bytes cannot be decoded: {error}") from error
    try:
        entry_format, log_time_ms, wall_time_ms, *batches = fields if fields.__class__ is tuple else ()
    except ValueError:
        raise ProtocolError(
            f"log entry of {len(payload)} bytes is not [format, log_time_ms, wall_time_ms, batch, ...]"
        ) from None
    if entry_format != FORMAT:
        raise ProtocolError(
            f"log entry of format {entry_format!r}, this release knows {FORMAT}: upgrade this server"
        )
    return log_time_ms, wall_time_ms, tuple(filter(_is_batch, batches))


_NO_RUNS: Final = ((),)
"""Stands for what should be runs, and passes for none."""


def _is_batch(batch: Any) -> bool:
    """Return whether the frame of this batch can be walked. It costs nothing per command."""
    try:
        _, _, _, _, runs = batch if batch.__class__ is tuple else ()
        for run in runs if runs.__class__ is tuple else _NO_RUNS:
            _, ids, commands = run if run.__class__ is tuple else ()
            if ids.__class__ is not tuple or commands.__class__ is not tuple:
                return False
    except ValueError:
        return False  # of another length, or no tuple
    return True
