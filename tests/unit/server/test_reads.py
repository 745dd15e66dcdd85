"""Linearizable reads: which question an answer belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.coordination.linearizable_reads import LinearizableReads, Waiter


class _Syncs:
    """Stands for the clients: a sync is asked for at every moment."""

    syncs: Sequence[Waiter] = (object(),)  # type: ignore[assignment]

    def take_syncs(self) -> list[ZooKeeperConnection]:
        return [object()]  # type: ignore[list-item]


def _contexts(boot: int, count: int) -> list[int | None]:
    reads = LinearizableReads(_Syncs(), boot, 80)
    return [reads.ask(now) for now in range(count)]


def test_numbers_of_questions_differ_between_boots() -> None:
    """A late answer to a question of an earlier boot must not pass for that to a new one (dissertation 6.4)."""
    asked = [context for boot in (1, 2, 3) for context in _contexts(boot, 1_000)]
    assert None not in asked
    assert len(set(asked)) == 3_000
