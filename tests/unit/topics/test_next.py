"""Messages that are plainly next come to what the general path makes of them, whatever stands around them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from tests.unit.topics.groups import VIEW, A, B, C, P, Q, message, partition, remote, start
from zraft.topics.applied import Applied
from zraft.topics.chain import encoded_digest, message_digest
from zraft.topics.image import partition_image
from zraft.topics.leader import PartitionLeader
from zraft.topics.partition import Partition
from zraft_core.ids import ProducerId
from zraft_core.topics.codec import encode_message
from zraft_core.topics.commands import (
    Advance,
    Batch,
    PartitionCommand,
    Seek,
    Settled,
    Stage,
    Start,
    ViewChanged,
)
from zraft_core.topics.message import COORDINATOR, After, Condition, Message, Round
from zraft_core.topics.messages import StartRequest
from zraft_core.topics.stamps import FinalTime, MessageId
from zraft_core.topics.view import ViewDelta

UNLISTED, STRANGER = ProducerId(30), ProducerId(14)
PRODUCERS = (P, P, P, Q, Q, UNLISTED, STRANGER, COORDINATOR)
SEEDS = 60


class Commands:
    """Batches of commands as they may stand in a log, most of them messages to this partition alone."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seq = dict.fromkeys(PRODUCERS, 0)
        self._number = dict.fromkeys(PRODUCERS, 0)
        self._several: list[Message] = []
        self._position = VIEW.position
        self._closing = False

    def batches(self) -> Iterator[Batch]:
        for n in range(40):
            commands = [self._draw() for _ in range(self._rng.randint(1, 8))]
            yield Batch(n, tuple(one for one in commands if one is not None))

    def _draw(self) -> PartitionCommand | None:
        rng = self._rng
        producer = rng.choice(PRODUCERS)
        match rng.randrange(24):
            case 0 if self._several:
                found = rng.choice(self._several)
                return remote(
                    found, rng.choice([g for g in found.destinations if g != A]), rng.randint(1, 90)
                )
            case 1:
                return Advance(rng.randint(1, 60))
            case 2:
                return Settled(B, FinalTime(rng.randint(1, 60), B))
            case 3:
                return Seek(b"consumer", rng.randint(0, 3))
            case 4:
                return Stage(self._message(producer, 1), 0, 0)
            case 5:
                upto = self._seq[producer]
                self._seq[producer] += 1
                found = Message(
                    MessageId(producer, self._seq[producer]),
                    (A, B),
                    round=Round(max(1, upto - 2), max(1, upto)),
                )
                self._several.append(found)
                return start(found)
            case 6 if rng.random() < 0.3:
                self._position += 10
                closed = (Q,) if rng.random() < 0.5 else ()
                return ViewChanged(
                    ViewDelta(
                        0, self._position, rng.randint(0, 1), closed=closed, removed=(C,) if closed else ()
                    )
                )
            case 7:
                found = self._message(producer, rng.randint(1, 2))
                self._several += [found] if len(found.destinations) > 1 else []
                return start(found, rng.randint(0, self._seq[producer]), rng.randint(0, 1))
        found = self._message(producer, 1)
        fields: dict[str, Any] = {}
        match rng.randrange(24):
            case 0:
                fields["depends"] = rng.randint(1, 30)
            case 1:
                fields["condition"] = Condition(A, b"consumer", rng.randint(0, 3), rng.randint(0, 3))
            case 2:
                fields["after"] = After(MessageId(producer, max(1, found.mid.seq - 1)), (A,))
            case 3:
                fields["number"] = found.number + rng.choice((-1, 1, 2)) or 1
            case 4:
                fields["mid"] = MessageId(producer, max(1, found.mid.seq - rng.randint(1, 9)))
            case 5:
                fields["mid"] = MessageId(producer, found.mid.seq + rng.randint(1, 9))
            case 6:
                fields["destinations"] = (rng.choice((B, C)),)
            case 7 if producer == COORDINATOR:
                fields["partitions"] = (A,)
            case 8:
                fields["records"] = rng.randint(1, 5)
        return start(evolve(found, **fields), rng.choice((0, 0, found.mid.seq - 1)), rng.choice((1, 1, 1, 0)))

    def _message(self, producer: ProducerId, groups: int) -> Message:
        self._seq[producer] += 1
        if groups > 1:
            return message(self._seq[producer], A, self._rng.choice((B, C)), producer=producer)
        self._number[producer] += 1
        return message(self._seq[producer], A, producer=producer, number=self._number[producer])


def _comparable(applied: object) -> object:
    """The same without pending messages, which are no values; the state's image has them."""
    if not isinstance(applied, Applied):
        return applied
    return evolve(applied, begun=(), fixed=()), [
        [e.mid for e in applied.begun],
        [e.mid for e in applied.fixed],
    ]


def _applied(state: Partition, batch: Batch, position: int) -> object:
    try:
        return state.apply(batch, position)
    except Exception as error:
        return repr(error)


def test_a_partition_comes_to_the_same_with_and_without_the_short_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivered = taken = 0
    deliver_next = Partition._deliver_next

    def counted(self: Partition, *arguments: Any) -> None:
        nonlocal taken
        taken += 1
        deliver_next(self, *arguments)

    for seed in range(SEEDS):
        short, general = (partition(born=seed % 7 > 0) for _ in range(2))
        for position, batch in enumerate(Commands(seed).batches()):
            with monkeypatch.context() as patch:
                patch.setattr(Partition, "_deliver_next", counted)
                one = _applied(short, batch, 100 * position)
            with monkeypatch.context() as patch:
                patch.setattr(Partition, "next_row", lambda *_: None)
                other = _applied(general, batch, 100 * position)
            assert _comparable(one) == _comparable(other), f"seed {seed}"
            assert list(partition_image(short)) == list(partition_image(general)), f"seed {seed}"
            if not isinstance(one, Applied):
                break
            delivered += len(one.delivered)
    assert delivered / 4 < taken < delivered, "both ways are taken"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_leader_takes_the_same_with_and_without_the_short_way(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is asked for, some of it twice, and only then applied: what is in the log counts as well."""
    rng = random.Random(seed)
    state = partition()
    short, general = PartitionLeader(state), PartitionLeader(state)
    for position, batch in enumerate(Commands(seed).batches()):
        starts = [one for one in batch.commands if isinstance(one, Start | Stage)]
        for one in [*starts, *rng.sample(starts, len(starts) // 3)]:
            request = StartRequest(one.message, one.floor, one.epoch, staged=isinstance(one, Stage))
            short.on_start(request)
            with monkeypatch.context() as patch:
                patch.setattr(Partition, "next_row", lambda *_: None)
                general.on_start(request)
        output = short.take()
        assert output == general.take()
        applied = _applied(state, Batch(position, output.commands), 100 * position)
        if isinstance(applied, str):
            break
        short.on_applied(applied)  # type: ignore[arg-type]
        general.on_applied(applied)  # type: ignore[arg-type]
        assert short.take() == general.take()


def test_the_digest_of_a_message_is_that_of_its_bytes() -> None:
    for one in (message(1, A), message(2, A, B), message(3, A, records=3)):
        assert message_digest(one) == encoded_digest(encode_message(one))
