"""Reads that came together, answered in one loop: what nearly every read is.

A loop ends at the first request that is of another kind, sets a watch, is malformed, or asks for what is not there, is
guarded by an ACL or is large. That one is for `answers.answer`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from zraft.server.clients.connection import ANSWERS_BYTES_MAX, LARGE_BYTES
from zraft.server.clients.zookeeper.answers import EXISTS, GET_DATA
from zraft.server.clients.zookeeper.services import ZooKeeperSpeaker
from zraft.tree.machine import Machine
from zraft.tree.node import SHARD_COUNT, SHARD_SHIFT, Znode
from zraft_core.wire.jute import INT
from zraft_core.wire.replies import (
    HEADER_BYTES,
    STAT_BYTES,
    pack_header_and_length,
    pack_header_and_stat,
)
from zraft_core.wire.stat import STAT
from zraft_core.znodes.acl import OPEN_ACL

_HEADER_AND_LENGTH: Final = struct.Struct(">iii").unpack_from
_SHARD_MASK: Final = SHARD_COUNT - 1
_ELSEWHERE: Final = (struct.error, UnicodeDecodeError, IndexError, KeyError)
"""What a request raises that is for `answer`: it is malformed, or there is no such znode."""

_pack_stat: Final = STAT.pack

COMMON: Final = frozenset({INT.pack(GET_DATA), INT.pack(EXISTS)})
"""The packed opcodes of these reads."""


def answer_reads(connection: ZooKeeperSpeaker, machine: Machine, frames: Sequence[bytes]) -> int:
    """Answer the reads that `frames` begin with, nothing standing before them; return how many were answered.

    It ends when there is as much to write as one turn should have.
    """
    if machine.hidden:
        return 0
    shards, wake = machine.nodes.shards, machine.nodes.wake
    zxid = machine.last_zxid
    out = connection.out
    room = ANSWERS_BYTES_MAX - connection.out_bytes
    left = room
    done = 0
    for frame in frames:
        try:
            xid, opcode, length = _HEADER_AND_LENGTH(frame)
            if (opcode != GET_DATA and opcode != EXISTS) or length < 0 or frame[12 + length] or left <= 0:
                break
            path = frame[12 : 12 + length].decode()
            placed: Any = shards[hash(path) >> SHARD_SHIFT & _SHARD_MASK][path]
        except _ELSEWHERE:
            break
        node: Znode = placed if placed.__class__ is Znode else wake(path, placed)
        data = node.data
        children = node.children
        if data is None or node.acl is not OPEN_ACL:
            break
        size = len(data)
        stat = (
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            node.creates * 2 if children is None else node.cversion,
            node.aversion,
            node.ephemeral_owner,
            size,
            0 if children is None else len(children),
            node.pzxid,
        )
        if opcode == EXISTS:
            out.append(pack_header_and_stat(HEADER_BYTES + STAT_BYTES, xid, zxid, 0, *stat))
            left -= 4 + HEADER_BYTES + STAT_BYTES
        elif size < LARGE_BYTES:
            answer_bytes = HEADER_BYTES + 4 + size + STAT_BYTES
            out.append(pack_header_and_length(answer_bytes, xid, zxid, 0, size) + data + _pack_stat(*stat))
            left -= 4 + answer_bytes
        else:
            break
        done += 1
    connection.out_bytes += room - left
    if done and not connection.dirty:
        connection.clients.mark_dirty(connection)
    return done
