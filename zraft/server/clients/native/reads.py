"""Answers to native reads, from applied state; nothing here waits.

Answers are bounded by client.reply_bytes_max; what can be longer names the request that gives it in parts.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from zraft.server.clients.connection import LARGE_BYTES
from zraft.server.clients.native.feeds import entries_of
from zraft.server.clients.native.services import NativeSpeaker
from zraft.server.clients.native.topics import read_topics
from zraft.tree import reads
from zraft.tree.children import names_of
from zraft.tree.log_reads import read_log
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.wire.dictionary import split_entry
from zraft_core.wire.native import answers
from zraft_core.wire.native.dictionary_requests import GetEntry, GetItems, GetSize, GetState
from zraft_core.wire.native.failures import encode_error, text_of
from zraft_core.wire.native.log_requests import ReadLog
from zraft_core.wire.native.member_requests import ReadDiagnostic, ReadMembers
from zraft_core.wire.native.requests import Query, Read
from zraft_core.wire.native.results import (
    ChildrenResult,
    ExistsResult,
    LogResult,
    MembersResult,
    OwnersResult,
    ReadResult,
    SizeResult,
)
from zraft_core.wire.native.topic_requests import ReadTopics
from zraft_core.wire.native.znode_requests import ReadChildren, ReadExists, ReadOwners, ReadSync, ReadZnode
from zraft_core.znodes.acl import READ, permits

NAMES_PER_STEP: Final = 256
OWNERS_MAX: Final = 10_000
"""Children of a znode whose owners are told: one turn looks at them all."""


class Failure(Exception):  # never leaves this package: it is how a query says no
    """A query is answered with an error."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def size_of(connection: NativeSpeaker, query: Query) -> int:
    """Return about how long the answer will be; 0 if it is short."""
    machine = connection.machine
    match query:
        case GetEntry(directory=directory, name=name):
            node = machine.find(f"{directory}/{name}")
            return 0 if node is None else node.data_length
        case ReadZnode(path=path):
            node = machine.find(path)
            return 0 if node is None else node.data_length
        case ReadChildren(path=path) | ReadOwners(path=path):
            node = machine.find(path)
            return 0 if node is None else reads.listing_bytes(path, node)
        case GetState() | GetItems() | ReadLog() | ReadTopics():
            return LARGE_BYTES
        case ReadExists() | GetSize() | ReadSync() | ReadDiagnostic() | ReadMembers():
            return 0


def answer(connection: NativeSpeaker, read: Read) -> bytes | tuple[bytes, bytes]:
    """Return the answer to a read whose turn it is; in two parts if the second is too large to be copied."""
    number = read.id
    assert number is not None, "Zatt's messages are answered in their own form"
    try:
        return _answer(connection, number, read.query)
    except Failure as failure:
        return encode_error(number, failure.code, failure.text)


def _answer(connection: NativeSpeaker, number: int, query: Query) -> bytes | tuple[bytes, bytes]:
    machine = connection.machine
    zxid = machine.last_zxid
    match query:
        case GetEntry(directory=directory, name=name):
            path = f"{directory}/{name}"
            node = machine.find(path)
            if node is None:
                return answers.encode_missing(number, zxid)
            if not permits(node.acl, READ, connection.ids):
                raise _refused(Code.NO_AUTH, path)
            entry = split_entry(node.data)
            if entry is None:
                raise _refused(Code.DATA_INCONSISTENCY, path)
            return answers.encode_entry(number, zxid, entry[1], node)
        case GetState(directory=directory):
            return answers.encode_state(number, zxid, state_of(connection, directory))
        case GetItems():
            return _items(connection, number, query)
        case GetSize(directory=directory):
            directory_node = _directory(connection, directory)
            count = 0 if directory_node is None else directory_node.num_children
            return answers.encode_result(number, zxid, SizeResult(count))
        case ReadZnode(path=path):
            node = _found(path, reads.get_data(machine, path, connection.ids))
            if node.data is not None and len(node.data) >= LARGE_BYTES:
                return answers.encode_large_data(number, zxid, node.data, node.stat())
            return answers.encode_result(number, zxid, ReadResult(node.data, node.stat()))
        case ReadExists(path=path):
            there = reads.exists(machine, path, connection.ids)
            if isinstance(there, Code) and there is not Code.NO_NODE:
                raise _refused(there, path)
            stat = None if isinstance(there, Code) else there.stat()
            return answers.encode_result(number, zxid, ExistsResult(stat))
        case ReadChildren(path=path):
            node = _found(path, reads.get_children(machine, path, connection.ids))
            size = reads.listing_bytes(path, node)
            if size > connection.clients.settings.reply_bytes_max:
                raise _too_long(connection, path, "spread the znodes")
            names = tuple(names_of(path, node.children))
            return answers.encode_result(number, zxid, ChildrenResult(names, node.stat()))
        case ReadOwners(path=path):
            return _owners(connection, number, path)
        case ReadLog():
            return _log(connection, number, query)
        case ReadSync():
            return answers.encode_result(number, zxid)
        case ReadDiagnostic():
            return answers.encode_diagnostic(number, zxid, connection.view.diagnostic())
        case ReadMembers():
            return answers.encode_result(number, zxid, MembersResult(connection.view.members()))
        case ReadTopics(digest=digest):
            return read_topics(connection, number, digest)


def _owners(connection: NativeSpeaker, number: int, path: str) -> bytes:
    machine, view = connection.machine, connection.view
    names = names_of(path, _found(path, reads.get_children(machine, path, connection.ids)).children)
    if len(names) > OWNERS_MAX:
        raise Failure(
            Code.BAD_ARGUMENTS,
            f"{path}: has {len(names)} children, expected at most {OWNERS_MAX} to tell owners of",
        )
    # Each costs about a quarter of a small request, whatever is told of it.
    connection.clients.turn.taken += len(names) >> 2
    rows = []
    for name in names:
        child = machine.find(f"{path}/{name}" if path != "/" else f"/{name}")
        record = machine.sessions.get(child.ephemeral_owner) if child is not None else None
        if record is not None:
            rows.append((name, record.id, view.silent_ms(record.id), record.timeout_ms))
    return answers.encode_result(number, machine.last_zxid, OwnersResult(tuple(rows), view.leads))


def state_of(connection: NativeSpeaker, directory: str) -> list[bytes]:
    """Return all entries of a dictionary, packed.

    Raises:
        Failure: the dictionary cannot be read, or is too large for one answer.
    """
    node = _directory(connection, directory)
    if node is None:
        return []
    machine, ids, limit = connection.machine, connection.ids, connection.clients.settings.reply_bytes_max
    names = names_of(directory, node.children)
    found: list[bytes] = []
    size = 0
    for start in range(0, len(names), NAMES_PER_STEP):
        some = [
            data for _, _, data in entries_of(machine, directory, names[start : start + NAMES_PER_STEP], ids)
        ]
        found += some
        size += sum(map(len, some))
        if size > limit:
            raise _too_long(connection, directory, "ask for `items`, which come in parts")
    return found


def _items(connection: NativeSpeaker, number: int, query: GetItems) -> bytes:
    machine = connection.machine
    zxid = machine.last_zxid
    node = _directory(connection, query.directory)
    if node is None:
        return answers.encode_items(number, zxid, (), None)
    names = connection.clients.listings.names(query.directory, node, begins=not query.after)
    place = bisect_right(names, query.after) if query.after else 0
    items: list[bytes] = []
    size = 0
    last = query.after
    while (
        place < len(names)
        and len(items) < query.limit
        and size < connection.clients.settings.reply_bytes_max // 2
    ):
        some = names[place : place + min(NAMES_PER_STEP, query.limit - len(items))]
        place += len(some)
        last = some[-1]
        for name, found, data in entries_of(machine, query.directory, some, connection.ids):
            if size and size + len(data) > connection.clients.settings.reply_bytes_max:
                return answers.encode_items(number, zxid, items, last)
            item = answers.item_of(data, found.version, found.mzxid)
            items.append(item)
            size += len(item)
            last = name
        last = some[-1]
    if place >= len(names):
        connection.clients.listings.finished(query.directory)
    return answers.encode_items(number, zxid, items, last if place < len(names) else None)


def _log(connection: NativeSpeaker, number: int, query: ReadLog) -> bytes:
    bytes_max = min(query.bytes_max, connection.clients.settings.reply_bytes_max)
    page = read_log(
        connection.machine,
        query.directory,
        query.prefix,
        query.first,
        query.limit,
        bytes_max,
        connection.ids,
    )
    if isinstance(page, Code):
        raise _refused(page, query.directory)
    result = LogResult(page.entries, page.next, page.first_visible, page.end)
    return answers.encode_result(number, connection.machine.last_zxid, result)


def _directory(connection: NativeSpeaker, directory: str) -> Znode | None:
    """Return the znode of a dictionary; None if it has none yet: then the dictionary is empty.

    Raises:
        Failure: the client may not read it.
    """
    found = reads.get_children(connection.machine, directory, connection.ids)
    if found is Code.NO_NODE:
        return None
    return _found(directory, found)


def _found(path: str, node: Znode | Code) -> Znode:
    if isinstance(node, Code):
        raise _refused(node, path)
    return node


def _refused(code: Code, path: str) -> Failure:
    return Failure(code, text_of(code, path))


def _too_long(connection: NativeSpeaker, path: str, instead: str) -> Failure:
    return Failure(
        Code.MARSHALLING_ERROR,
        f"{path}: the answer is longer than client.reply_bytes_max = {connection.clients.settings.reply_bytes_max}; "
        f"{instead}, or raise it",
    )
