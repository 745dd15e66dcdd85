"""A log of group 0 with its payloads, as one server wrote it, and the states that it leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.offline.replay import apply_entry
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, Member, MemberRole
from zraft.tree.machine import Machine
from zraft.tree.sessions.session import session_id_for
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.znodes import txn

INSTANCE: Final = Instance(b"4" * 16)
SERVER: Final = ServerId(4)
GROUP: Final = GroupId(0)
ZXID: Final = 1 << 32
SESSION: Final = session_id_for(SERVER, ZXID + 2)
NOTED: Final = (5, 7)
"""Indices after which the server noted a digest."""
PLACE: Final[dict[str, Any]] = {"server": int(SERVER), "instance": "d4"}


def _batch(seq: int, session: int, *commands: Any) -> bytes:
    return txn.pack_batch(SERVER, INSTANCE, 1, seq, [(session, (), list(commands))])


def _leaders(*commands: Any) -> bytes:
    return txn.pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), list(commands))])


def _create(path: str, flags: int) -> list[Any]:
    return [txn.CREATE, path, b"x", None, flags, 0]


LOG: Final[Sequence[bytes]] = (
    _leaders([txn.FEATURE, FEATURE_LEVEL_MAX]),
    _batch(1, 0, [txn.REGISTER, b"boot"], [txn.CREATE_SESSION, 10_000, bytes(16)]),
    _batch(
        2,
        SESSION,
        _create("/q", 0),
        _create("/q/n-", txn.FLAG_SEQUENTIAL),
        _create("/q/n-", txn.FLAG_SEQUENTIAL),
    ),
    _batch(3, SESSION, [txn.ONCE, 1, 0, _create("/once", 0)], _create("/e", txn.FLAG_EPHEMERAL)),
    _batch(4, SESSION, [txn.ONCE, 1, 0, _create("/once", 0)], [txn.DELETE, "/q/n-0000000000", -1]),
    _batch(5, SESSION, [txn.CLOSE_SESSION]),
)
"""Entries from index 2 on; the first is the configuration."""


def entries() -> list[Entry]:
    membership = Membership({SERVER: Member(INSTANCE, MemberRole.VOTER)})
    found = [Entry(1, 1, EntryKind.MEMBERSHIP, 1, 0, membership.encode())]
    position = 1
    for index, batch in enumerate(LOG, 2):
        count = sum(txn.command_count(one[4]) for one in [txn.unpack_batch(batch)])
        found.append(
            Entry(index, 1, EntryKind.COMMANDS, position, count, txn.pack_entry(index, index, [batch]))
        )
        position += count
    return found


def rows() -> tuple[list[EntryRow], list[EventRow]]:
    """Table `entry_payloads`, and the server's notes of its digests."""
    machine = Machine()
    of_entries, of_events = [], []
    for entry in entries():
        apply_entry(machine, entry)
        of_entries.append(
            EntryRow(
                **PLACE, file="server-4/wal", file_offset=100 * entry.index, group=GROUP, index=entry.index, term=1,
                kind=entry.kind.name.lower(), previous_term=int(entry.index > 1), position=entry.position,
                count=entry.count, size=len(entry.payload), digest=b"", durable_term=1, frame=entry.index,
                payload=entry.payload,
            )
        )  # fmt: skip
        if entry.index in NOTED:
            of_events.append(
                EventRow(
                    **PLACE, file="server-4/journal", file_offset=entry.index, boot=1, seq=entry.index, kind="digest",
                    term=1, index=entry.index, digest=machine.digest().to_bytes(16, "big"),
                )
            )  # fmt: skip
    return of_entries, of_events
