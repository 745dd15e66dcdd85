"""Requests of the core to its driver: persist this, send that, apply up to there (the idea is etcd's)."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.raft.messages import Entry, HardState, Message
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import ServerId


@frozen
class LogWrite:
    """Write that must become durable, in the order of the numbers.

    Several may be under way and share one frame.

    Within one write: the hard state replaces the old one; then, with `restore`, the group's whole log is dropped
    and begins anew after `restore.index`; then entries from `truncate_from` on are dropped; then `entries` are
    appended. All of it becomes durable together or not at all. A write restores or truncates, never both.
    """

    number: int
    hard_state: HardState | None
    truncate_from: int | None
    entries: tuple[Entry, ...]
    restore: SnapshotMeta | None = None


@frozen
class Ready:
    """Work that accumulated since the last one.

    `messages` may leave at once, before `write` is durable: whatever depends on a write is held back by the
    core until `Raft.persisted` (D-7). `read_states` are (context, index): that read may be answered once index
    is applied. What to apply is no part of it: the driver applies up to `Raft.applicable_index`.
    """

    messages: tuple[tuple[ServerId, Message], ...]
    write: LogWrite | None
    read_states: tuple[tuple[int, int], ...]


NOTHING: Final = Ready((), None, ())
