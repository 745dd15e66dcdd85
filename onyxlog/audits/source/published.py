"""Rows of `replica_digests` from the log of the coordination group: what peers published of their replicas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from onyxlog.errors import EntryError
from onyxlog.peer.publishing import decode
from zraft.storage.records import EntryFields
from zraft_core.znodes import txn

PATH: Final = re.compile(r"/onyx/(?P<tenancy>[^/]+)/state/digests/[^/]+")
PREFIX: Final = b"/onyx/"
"""The beginning of all paths that matter, as they stand in an entry."""
_WRITES: Final = frozenset({txn.PUT, txn.SET_DATA, txn.CREATE, txn.CREATE2})


def published_values(head: tuple[Any, ...], fields: EntryFields) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one COMMANDS entry; `head`: server, instance, file and offset.

    A repeated write that was done before is shown again: it says the same.
    """
    # A handful of millions of entries matter: a search of bytes is a hundred times as fast as unpacking.
    if PREFIX not in fields[7]:
        return
    server, instance, path, offset = head
    _, wall_time, batches = txn.unpack_entry(fields[7])
    for _, _, _, _, runs in batches:
        for _, _, commands in runs:
            for command in commands:
                for tenancy, data in _writes(command):
                    try:
                        found = decode(data, "digest")
                    except EntryError:
                        continue  # it is of another release, whose peers complain about it
                    yield (
                        *(tenancy, found.group, found.position, "published", found.chain, None, wall_time),
                        *(server, instance, path, offset),
                    )


def _writes(command: Any) -> Iterator[tuple[str, bytes]]:
    """Yield (tenancy, data) of what the command writes where digests are published."""
    match command:
        case (txn.ONCE, _, _, inner):
            yield from _writes(inner)
        case (txn.MULTI, tuple(parts)):
            for part in parts:
                yield from _writes(part)
        case (int(opcode), str(path), bytes(data), *_) if opcode in _WRITES:
            named = PATH.fullmatch(path)
            if named is not None:
                yield named["tenancy"], data
