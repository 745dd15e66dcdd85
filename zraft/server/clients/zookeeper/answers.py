"""Answers to requests that need no log entry: from applied state, each by itself.

The common ones are answered here, the rarer ones in `queries`. Order of checks: ZooKeeper's `FinalRequestProcessor`.
"""

from __future__ import annotations

from typing import Final

from zraft.server.clients.connection import LARGE_BYTES, UNCOUNTED_BYTES
from zraft.server.clients.zookeeper.queries import QUERIES, too_long
from zraft.server.clients.zookeeper.services import ZooKeeperSpeaker
from zraft.tree import reads
from zraft.tree.children import names_of
from zraft.tree.node import SHARD_COUNT
from zraft.tree.reads import DescendantCount
from zraft_core.errors import Code
from zraft_core.wire import replies, requests
from zraft_core.wire.opcodes import Opcode

# Plain ints: comparing an int with an IntEnum member costs several times as much, and this is the hot path.
GET_DATA: Final = int(Opcode.GET_DATA)
EXISTS: Final = int(Opcode.EXISTS)
GET_CHILDREN: Final = int(Opcode.GET_CHILDREN)
GET_CHILDREN2: Final = int(Opcode.GET_CHILDREN2)

RESTORES: Final = frozenset(map(int, (Opcode.SET_WATCHES, Opcode.SET_WATCHES2)))

LISTINGS: Final = frozenset(
    {GET_CHILDREN, GET_CHILDREN2, *map(int, (Opcode.GET_EPHEMERALS, Opcode.MULTI_READ)), *RESTORES}
)
"""Requests whose answers may take milliseconds and a megabyte. They never stand between two writes."""

ANSWERED: Final = frozenset({GET_DATA, EXISTS, GET_CHILDREN, GET_CHILDREN2, *QUERIES})
"""Requests that are answered from applied state, each by itself."""

ENOUGH: Final = -1
"""Result of `answer`: it is answered, and that took about as long as a turn should."""

LATER: Final = -2
"""Result of `answer`: it takes about as long as a turn should, and this turn has done enough."""

IN_STEPS: Final = -3
"""Of `answer`: it names so many watches that they are looked at over several turns."""

LISTING_SHIFT: Final = 8
"""A list of children costs about as much per 256 bytes as another request."""

QUERY_SHIFT: Final = 6
"""A request that names many znodes counts as a query per 64 bytes."""


def answer(connection: ZooKeeperSpeaker, opcode: int, xid: int, frame: bytes, *, now: bool = False) -> int:
    """Answer a request that needs no log entry, from applied state; nothing stands before it.

    Returns:
        0 if it is answered; `ENOUGH` if that took so long that others have their turn first; else nothing is answered:
        `LATER` if it has to wait for the next turn, `IN_STEPS` if it is to be answered over several, or how many bytes of
        room it has to wait for. With `now` it never waits.
    """
    clients = connection.clients
    machine = clients.machine
    zxid = machine.last_zxid
    if opcode == GET_DATA:
        path, watch = requests.decode_read(frame)
        node = reads.get_data(machine, path, connection.ids)
        if isinstance(node, int):
            connection.emit(replies.encode_error_reply(xid, zxid, node))
            return 0
        data = node.data
        if data is None or len(data) < LARGE_BYTES:
            if watch:
                _watch_data(connection, path)
            connection.emit(replies.encode_get_data_reply(xid, zxid, node))
            return 0
        if not now and not clients.sums.output.has_room(connection, len(data)):
            return len(data)
        if watch:
            _watch_data(connection, path)
        connection.emit_parts(replies.encode_get_data_parts(xid, zxid, node))
    elif opcode == EXISTS:
        path, watch = requests.decode_read(frame)
        node = reads.exists(machine, path, connection.ids)
        if isinstance(node, int):
            if watch and node == Code.NO_NODE:
                _watch_data(connection, path)
            connection.emit(replies.encode_error_reply(xid, zxid, node))
            return 0
        if watch:
            _watch_data(connection, path)
        connection.emit(replies.encode_exists_reply(xid, zxid, node))
    elif opcode in (GET_CHILDREN, GET_CHILDREN2):
        path, watch = requests.decode_read(frame)
        node = reads.get_children(machine, path, connection.ids)
        if isinstance(node, int):
            connection.emit(replies.encode_error_reply(xid, zxid, node))
            return 0
        size = reads.listing_bytes(path, node)
        if size > clients.settings.reply_bytes_max:
            connection.failed(
                xid, too_long(clients, connection, f"getChildren of {path!r}", node.num_children, size)
            )
            return 0
        if size >= LARGE_BYTES:
            if not now:
                if clients.turn.busy:
                    return LATER
                if not clients.sums.output.has_room(connection, size):
                    return size
            clients.turn.taken += size >> LISTING_SHIFT
        if watch:
            clients.watches.add_child(path, connection)
            clients.bound_watches(connection)
        names = names_of(path, node.children)
        if opcode == GET_CHILDREN:
            connection.emit(replies.encode_children_reply(xid, zxid, names))
        else:
            connection.emit(replies.encode_children2_reply(xid, zxid, names, node))
        if size >= LARGE_BYTES:
            return ENOUGH
    elif opcode in QUERIES:
        if not now:
            if clients.turn.busy and (opcode in LISTINGS or len(frame) >= UNCOUNTED_BYTES):
                return LATER
            if opcode in LISTINGS and not clients.sums.output.has_room(connection, LARGE_BYTES):
                return LARGE_BYTES
            if opcode in RESTORES and len(frame) >= UNCOUNTED_BYTES:
                # To decode it takes as long as to look at what it names.
                clients.turn.taken += len(frame) >> QUERY_SHIFT
                return IN_STEPS
        clients.turn.taken += len(frame) >> QUERY_SHIFT
        found = QUERIES[opcode](clients, connection, xid, frame)
        if isinstance(found, Code):
            connection.failed(xid, found)
        else:
            connection.emit(found)
        if len(frame) >= LARGE_BYTES:
            return ENOUGH
    else:
        answer_unknown(connection, xid)
    return 0


def answer_unknown(connection: ZooKeeperSpeaker, xid: int) -> None:
    """Answer as ZooKeeper does to an operation that it does not know, and close.

    Nothing after it is looked at. No zxid is known.
    """
    connection.emit(replies.encode_error_reply(xid, -1, Code.UNIMPLEMENTED))
    connection.ending = connection.closing = True


def _watch_data(connection: ZooKeeperSpeaker, path: str) -> None:
    """Add a data watch of getData or exists."""
    connection.clients.watches.add_data(path, connection)
    connection.clients.bound_watches(connection)


def answer_count(connection: ZooKeeperSpeaker, xid: int, frame: bytes) -> None:
    """Answer a count in one step: without a quorum this server has nobody to keep waiting."""
    machine = connection.clients.machine
    path = requests.decode_path(frame)
    code = reads.countable(machine, path, connection.ids)
    if code is not Code.OK:
        connection.failed(xid, code)
        return
    count = DescendantCount(machine, path)
    while not count.step(SHARD_COUNT):
        pass
    connection.emit(replies.encode_int_reply(xid, machine.last_zxid, count.number))
