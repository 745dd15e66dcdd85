"""What groups of hosted partitions and the programs that used them leave behind, as the checks of multicast look at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from attrs import define

from tests.simulation.multicast.checks import History
from tests.simulation.multicast.hosted import begun_in
from tests.simulation.partitions.programs import Merging, Producing
from zraft.server.partitions.machine import AppliedEntry
from zraft.topics.partition import Partition
from zraft_core.ids import GroupId
from zraft_core.topics.message import Delivery, Message
from zraft_core.topics.producer import Ending
from zraft_core.topics.stamps import MessageId


@define
class Recorded:
    """A group: what its entries came to, and two replicas of it."""

    partition: Partition
    other: Partition
    delivered: list[Delivery]
    begun: list[Message]
    voids: list[MessageId]
    rounds: list[MessageId]

    @classmethod
    def of(cls, entries: Mapping[int, AppliedEntry], partition: Partition, other: Partition) -> Self:
        """`entries`: by index, what each came to on every server."""
        applied = [found for index in sorted(entries) if (found := entries[index].applied) is not None]
        return cls(
            partition,
            other,
            [delivery for batch in applied for delivery in batch.delivered],
            [message for batch in applied for message in begun_in(batch)],
            [mid for batch in applied for mid in batch.failed],
            [mid for batch in applied for mid, _ in batch.released],
        )

    @property
    def first_offset(self) -> int:
        return 0

    def replica(self) -> tuple[Partition, list[Delivery]]:
        return self.other, self.delivered


def history_of(
    groups: Mapping[GroupId, Recorded],
    programs: Iterable[Producing],
    merging: Sequence[Merging],
    *,
    window: int,
    gone: Iterable[GroupId] = (),
) -> History:
    """All that a run leaves behind; `gone` are groups that were removed."""
    programs = list(programs)
    messages = {mid: message for one in programs for mid, message in one.messages.items()}
    ended = {mid: ended for one in programs for mid, ended in one.ended.items()}
    return History(
        groups=groups,
        gone=frozenset(gone),
        messages=messages,
        invoked={mid: at for one in programs for mid, at in one.sent_ms.items()},
        ended=ended,
        delivered_at={
            mid: at
            for one in programs
            for mid, at in one.ended_ms.items()
            if ended[mid].ending is Ending.DELIVERED
        },
        promised=frozenset(mid for mid in ended if messages[mid].round is None),
        merged=[one.out for one in merging],
        window=window,
        ordered=frozenset(one.producer.producer for one in programs if one.ordered),
        ascending=frozenset(one.producer.producer for one in programs if one.causal),
    )
