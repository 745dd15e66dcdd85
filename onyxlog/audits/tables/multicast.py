"""Table `multicast`: the commands of partitions' logs that agree on the order of messages, one row each."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed, Standing
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class MulticastRow(Placed):
    """One command of a partition's entry (docs/explanation/topics.md, "Formats").

    Attributes:
        kind: `start`, `stage`, `remote`, `advance`, `settled`, `view_changed` or `seek`.
        producer, number: the message that `start`, `stage` and `remote` name.
        destinations: of a message that is carried.
        sender: of `remote` the group that proposes, of `settled` the one that has delivered.
        time: proposed by `remote`, asked by `advance`; of `settled` the floor's, whose group is `time_group`.
        digest: BLAKE2b-128 of the whole message.
        payload_digest: BLAKE2b-128 of the message as deliveries hold it, equal to theirs.
        single_number, after_producer, after_number: what a single waits for, if anything.
        round_first, round_upto: of a round, the first and the last number that it puts in order.
        consumer, offset: of `seek`.
        view_position, epoch: of `view_changed` (and `epoch` of `start` and `stage`).
    """

    group: int
    index: int
    term: int
    position: int
    standing: str = Standing.COMMITTED.value
    log_time_ms: int
    kind: str
    producer: int | None = None
    number: int | None = None
    destinations: tuple[int, ...] | None = None
    sender: int | None = None
    time: int | None = None
    time_group: int | None = None
    void: bool | None = None
    floor: int | None = None
    epoch: int | None = None
    digest: bytes | None = None
    payload_digest: bytes | None = None
    single_number: int | None = None
    after_producer: int | None = None
    after_number: int | None = None
    depends: int | None = None
    round_first: int | None = None
    round_upto: int | None = None
    consumer: str | None = None
    offset: int | None = None
    view_position: int | None = None


MULTICAST: Final = Table(
    "multicast",
    MulticastRow,
    "commands of partitions' logs that order messages",
    comes_from="servers with a topic that has messages",
)
