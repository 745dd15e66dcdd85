"""The rarer requests that need no log entry: what each is answered with, from applied state and the watches here.

The common ones (exists, getData, getChildren) are answered in `zraft.server.clients.zookeeper.connection` itself.
Order of checks: ZooKeeper's `FinalRequestProcessor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zraft.server.clients.zookeeper.services import ZooKeeperServices, ZooKeeperSpeaker
from zraft.tree import reads
from zraft.tree.children import names_of
from zraft.tree.node import Znode
from zraft.tree.watches import reregister
from zraft_core.errors import Code
from zraft_core.wire import replies, requests
from zraft_core.wire.events import NO_ZXID, encode_watch_event
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.acl import user_of
from zraft_core.znodes.events import AddWatchMode, WatcherType

WATCHES_PER_STEP: Final = 1_000
"""Of those that a client restores: about 4 ms."""

Query = Callable[[ZooKeeperServices, ZooKeeperSpeaker, int, bytes], bytes | Code]
"""(clients, connection, xid, frame) -> the framed reply, or the code to answer. Raises MarshallingError."""


def too_long(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, what: str, count: int, size: int
) -> Code:
    """Return the code for an answer longer than clients accept, which they would meet with an endless reconnect."""
    clients.notice(
        connection,
        f"{what}: {count} entries in {size} bytes or more, expected at most client.reply_bytes_max = "
        f"{clients.settings.reply_bytes_max}; raise it, and jute.maxbuffer in the clients, or spread the znodes",
    )
    return Code.MARSHALLING_ERROR


def _get_acl(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    found = reads.get_acl(clients.machine, requests.decode_path(frame), connection.ids)
    if isinstance(found, Code):
        return found
    return replies.encode_acl_reply(xid, clients.machine.last_zxid, *found)


def _get_ephemerals(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    prefix = requests.decode_prefix(frame)
    if not prefix.strip():
        prefix = "/"  # null and blank ask for all, as in ZooKeeper
    paths = reads.get_ephemerals(clients.machine, connection.session, prefix)
    size = sum(map(len, paths)) + 4 * len(paths)
    if size > clients.settings.reply_bytes_max:
        return too_long(clients, connection, f"getEphemerals below {prefix!r}", len(paths), size)
    return replies.encode_children_reply(xid, clients.machine.last_zxid, paths)


def _who_am_i(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    users = [(scheme, user_of(scheme, who)) for scheme, who in connection.ids]
    shown = tuple((scheme, user) for scheme, user in users if user is not None)
    return replies.encode_who_am_i_reply(xid, clients.machine.last_zxid, shown)


def _multi_read(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    """Answer a multi read. A part that fails says so in its place; the others are answered."""
    machine, ids = clients.machine, connection.ids
    results: list[Znode | list[str] | int] = []
    size = 0
    for opcode, path in requests.decode_multi_read(frame):
        read = reads.get_data if opcode == Opcode.GET_DATA else reads.get_children
        node = read(machine, path, ids)
        if isinstance(node, Code):
            results.append(node)
            continue
        size += node.data_length if opcode == Opcode.GET_DATA else reads.listing_bytes(path, node)
        if size > clients.settings.reply_bytes_max:
            return too_long(clients, connection, f"multiRead up to {path!r}", len(results) + 1, size)
        results.append(node if opcode == Opcode.GET_DATA else names_of(path, node.children))
    return replies.encode_multi_read_reply(xid, machine.last_zxid, results)


def _add_watch(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    """Neither the znode nor a right on it is needed; events are filtered when they happen."""
    path, number = requests.decode_path_and_number(frame)
    try:
        mode = AddWatchMode(number)
    except ValueError:
        return Code.MARSHALLING_ERROR
    clients.watches.add_lasting(path, connection, mode)
    clients.on_follower()
    clients.bound_watches(connection)
    return replies.encode_int_reply(xid, clients.machine.last_zxid, 0)


def _check_watches(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    return _on_watches(clients, connection, xid, frame, clients.watches.has)


def _remove_watches(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    return _on_watches(clients, connection, xid, frame, clients.watches.remove)


def _on_watches(
    clients: ZooKeeperServices,
    connection: ZooKeeperSpeaker,
    xid: int,
    frame: bytes,
    act: Callable[[str, ZooKeeperSpeaker, WatcherType], bool],
) -> bytes | Code:
    path, number = requests.decode_path_and_number(frame)
    try:
        kind = WatcherType(number)
    except ValueError:
        return Code.MARSHALLING_ERROR
    if not act(path, connection, kind):
        return Code.NO_WATCHER
    return replies.encode_empty_reply(xid, clients.machine.last_zxid)


def _set_watches(
    clients: ZooKeeperServices, connection: ZooKeeperSpeaker, xid: int, frame: bytes
) -> bytes | Code:
    watches = RestoredWatches(clients, connection, frame)
    while not watches.step():
        pass
    return replies.encode_empty_reply(xid, clients.machine.last_zxid)


class RestoredWatches:
    """Watches of a client that reconnected, registered step by step; the reply is due after the last step.

    What was missed is told before the reply (trap 8); watches that last are told nothing (trap 9). What happens between two
    steps is missed by the watches that follow, and an event for those before: either way it is told once.
    """

    __slots__ = ("_again", "_at", "_clients", "_connection")

    def __init__(self, clients: ZooKeeperServices, connection: ZooKeeperSpeaker, frame: bytes) -> None:
        """Decode the request.

        Raises:
            MarshallingError: it is malformed; nothing is registered.
        """
        _, opcode = requests.decode_header(frame)
        decode = requests.decode_set_watches if opcode == Opcode.SET_WATCHES else requests.decode_set_watches2
        self._again = decode(frame)
        self._clients = clients
        self._connection = connection
        self._at = 0

    def step(self) -> bool:
        """Register some of them, and tell what they missed; True if these were the last."""
        clients, connection, again = self._clients, self._connection, self._again
        watches = clients.watches
        left, start = WATCHES_PER_STEP, self._at
        parts: list[Sequence[str]] = []
        for paths in (again.data, again.exist, again.child, again.persistent, again.recursive):
            part = paths[start : start + left]
            parts.append(part)
            left -= len(part)
            start = max(0, start - len(paths))
        data, exist, child, persistent, recursive = parts
        self._at += WATCHES_PER_STEP - left
        missed = reregister(
            clients.machine, watches, connection, connection.ids, again.relative_zxid, data, exist, child
        )
        for path in persistent:
            watches.add_lasting(path, connection, AddWatchMode.PERSISTENT)
        for path in recursive:
            watches.add_lasting(path, connection, AddWatchMode.PERSISTENT_RECURSIVE)
        if persistent or recursive:
            clients.on_follower()
        if missed:
            connection.emit(b"".join([encode_watch_event(NO_ZXID, kind, path) for kind, path in missed]))
        clients.bound_watches(connection)
        return left > 0


QUERIES: Final[Mapping[int, Query]] = {
    int(opcode): query
    for opcode, query in {
        Opcode.GET_ACL: _get_acl,
        Opcode.GET_EPHEMERALS: _get_ephemerals,
        Opcode.WHO_AM_I: _who_am_i,
        Opcode.MULTI_READ: _multi_read,
        Opcode.ADD_WATCH: _add_watch,
        Opcode.CHECK_WATCHES: _check_watches,
        Opcode.REMOVE_WATCHES: _remove_watches,
        Opcode.SET_WATCHES: _set_watches,
        Opcode.SET_WATCHES2: _set_watches,
    }.items()
}
