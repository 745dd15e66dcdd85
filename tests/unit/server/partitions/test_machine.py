"""What a partition's group replicates: its entries and image survive their bytes, and what it cannot carry out stops it."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from attrs import evolve

from zraft.groups.snapshots.delivery_tasks import AppendDeliveries, Task
from zraft.raft.messages import Entry, EntryKind
from zraft.server.partitions import machine
from zraft.server.partitions.hosted_partition import HostedPartition
from zraft.server.partitions.machine import PartitionMachine, mark_of_image
from zraft.storage.delivery.values import beginning, next_digest
from zraft.topics.entries import (
    BatchEntry,
    BirthEntry,
    PartitionEntry,
    decode_entry,
    encode_entry,
)
from zraft_core.claims.answers import Granted
from zraft_core.claims.commands import ClaimPartition, Configure
from zraft_core.claims.values import Mode
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.layout import from_bytes, to_bytes
from zraft_core.topics.commands import Advance, Batch, PartitionCommand, Remote, Seek, Start, ViewChanged
from zraft_core.topics.message import Message
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import View, ViewDelta

GROUP, OTHER = GroupId(7), GroupId(9)
PRODUCER = ProducerId(3)
VIEW = View(10, 0, frozenset((ProducerId(0), PRODUCER)), frozenset(), frozenset((GROUP, OTHER)))
BIRTH = BirthEntry(1_000, 5, VIEW, PartitionSettings(64, 32), born=True, heartbeat_ms=60_000)


def single(number: int) -> Start:
    return Start(Message(MessageId(PRODUCER, number), (GROUP,), b"p%d" % number, number), 0, 0)


def shared(seq: int) -> Start:
    return Start(Message(MessageId(PRODUCER, seq), (GROUP, OTHER), b"shared"), 0, 0)


class Log:
    """Entries one after the other, as a group's log has them."""

    def __init__(self, machine: PartitionMachine) -> None:
        self.machine = machine
        self._index = self._position = 1

    def put(self, entry: PartitionEntry) -> Entry:
        made = Entry(self._index, 1, EntryKind.COMMANDS, self._position, entry.count, encode_entry(entry))
        self._index += 1
        self._position = made.next_position
        self.machine.apply(made)
        return made

    def batch(
        self, *commands: PartitionCommand, claims: tuple[Configure | ClaimPartition, ...] = ()
    ) -> Entry:
        return self.put(BatchEntry(2_000, Batch(50 * self._index, commands), claims))


@pytest.mark.parametrize(
    "entry",
    [
        BIRTH,
        BatchEntry(1, Batch(2, ())),
        BatchEntry(1, Batch(2, (single(1), Advance(4), Seek(b"c", None)))),
        BatchEntry(1, Batch(2, (single(1),)), (Configure(500), Configure(600))),
    ],
)
def test_an_entry_survives_its_bytes(entry: PartitionEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "expected MessagePack"),
        (to_bytes(()), "format 1"),
        (to_bytes((2, 1, 5, b"x", ())), "upgrade this server"),
        (to_bytes((1, 3, 5)), "a newer release may know it"),
        (to_bytes((1, 1, 5, b"x")), "an array of 5"),
        (
            to_bytes((1, 1, -5, b"x", ())),
            r"entry of a partition's log\.wall_ms: expected an integer from 0 to \d+, found int -5",
        ),
        (to_bytes((1, 1, 5, to_bytes((1, 1, ())), (b"\xff",))), "a command of claims"),
        (
            to_bytes((1, 2, 5, 5, [1, 2], (1, 1), True, 100)),
            r"birth of a partition\.view: expected an array of 6 to 7 fields of View",
        ),
        (
            to_bytes((1, 2, 5, 5, [0, 1, 0, *[()] * 6], (1, 1), True, 100)),
            r"birth of a partition\.view: expected an array of 6 to 7 fields of View: .*, found tuple of length 9",
        ),
    ],
)
def test_bytes_that_are_no_entry_are_refused_by_what_was_found(payload: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_entry(payload)


def test_only_the_first_birth_counts() -> None:
    machine = PartitionMachine(GROUP)
    log = Log(machine)
    log.put(BIRTH)
    log.batch(single(1))
    other = BirthEntry(1, 9, View(), PartitionSettings(1, 1), born=False, heartbeat_ms=100)
    log.put(other)
    log.batch(single(2))
    partition = machine.partition
    assert partition is not None
    assert partition.next_offset == 2
    assert partition.settings == BIRTH.settings
    assert partition.view.whole() == VIEW


def test_deliveries_are_what_the_disk_chains_to_the_digest_of_the_partition() -> None:
    machine = PartitionMachine(GROUP)
    log = Log(machine)
    log.put(BIRTH)
    entries = [log.batch(single(1), single(2)), log.batch(single(3))]
    fresh = machine.take_fresh()
    deliveries = [one for entry in fresh for one in entry.deliveries]
    assert [one.offset for one in deliveries] == [0, 1, 2]
    assert [one.index for one in deliveries] == [entries[0].index, entries[0].index, entries[1].index]
    assert {one.time for one in deliveries} == {2_000}
    chain = beginning(GROUP).chain
    for one in deliveries:
        chain = next_digest(chain, one)
    assert machine.partition is not None
    assert machine.partition.chain == chain
    assert machine.take_fresh() == []


def test_what_a_leader_proposed_is_applied_as_it_was_meant_and_everything_else_as_its_bytes_say() -> None:
    """The bytes at the index of what was proposed may be those of another leader's entry by then."""
    here, there, other = (Log(PartitionMachine(GROUP)) for _ in range(3))
    for log in (here, there, other):
        log.put(BIRTH)
    meant = BatchEntry(2_000, Batch(6, (single(1), single(2))))
    entry = there.put(meant)
    here.machine.proposed(entry.index, entry.payload, meant)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "decode_entry", lambda _: pytest.fail("decoded again"))
        here.machine.apply(entry)
    other.machine.proposed(entry.index, encode_entry(meant), BatchEntry(0, Batch(6, (single(9),))))
    other.machine.apply(entry)
    assert here.machine.digest() == there.machine.digest() == other.machine.digest()
    results = [
        [one.applied and evolve(one.applied, begun=()) for one in log.machine.take_fresh()]
        for log in (here, there, other)
    ]
    assert results[0] == results[1] == results[2]
    here.machine.proposed(entry.index + 1, b"", meant)
    here.machine.forget_proposed()
    here.machine.apply(there.put(BatchEntry(3_000, Batch(7, (single(3),)))))
    assert here.machine.next_offset == 3


def test_a_delivery_has_the_digest_of_its_payload_so_that_the_disk_need_not_compute_it() -> None:
    log = Log(PartitionMachine(GROUP))
    log.put(BIRTH)
    log.batch(single(1), single(2))
    _, applied = log.machine.take_fresh()
    _, one = applied.deliveries
    assert one.digest == blake2b(one.payload, digest_size=16).digest()
    chain = beginning(GROUP).chain
    assert next_digest(chain, one) == next_digest(chain, evolve(one, digest=None))


def test_commands_of_claims_come_after_those_of_topics_and_see_what_these_delivered() -> None:
    machine = PartitionMachine(GROUP)
    log = Log(machine)
    log.put(BIRTH)
    claim = ClaimPartition("g", "a", "i", 1, 0, Mode.AT_LEAST_ONCE, start=2)
    entry = log.batch(single(1), single(2), claims=(Configure(500), claim))
    assert machine.claims is not None
    (group,) = machine.claims.groups()
    (held,) = group.claims
    assert held.epoch == entry.position + 3
    assert held.first == 2
    assert held.heartbeat_ms == 500


def filled() -> tuple[PartitionMachine, Log]:
    machine = PartitionMachine(GROUP)
    log = Log(machine)
    log.put(BIRTH)
    claim = ClaimPartition("g", "a", "i", 1, 0, Mode.AT_LEAST_ONCE)
    log.batch(single(1), single(2), shared(3), Seek(b"c", 4), claims=(claim,))
    return machine, log


def test_a_machine_that_restarts_from_its_image_goes_on_as_the_other_does() -> None:
    machine, log = filled()
    image = machine.snapshot()
    other = PartitionMachine(GROUP)
    other.prepare_restore(image)()
    assert (other.digest(), other.snapshot()) == (machine.digest(), image)
    assert other.restored_total == 1
    assert other.next_offset == 2
    mid = MessageId(PRODUCER, 3)
    assert machine.partition is not None
    digest = machine.partition.pending.entries[mid].digest
    entry = log.batch(Remote(mid, OTHER, 8, None, 0, digest), Advance(30))
    other.apply(entry)
    assert other.digest() == machine.digest()
    assert other.take_fresh()[-1].deliveries == machine.take_fresh()[-1].deliveries != ()


def test_an_image_tells_where_the_deliveries_stand_without_its_state_being_built() -> None:
    machine, _ = filled()
    mark = mark_of_image(GROUP, machine.snapshot(), 77)
    assert machine.partition is not None
    assert (mark.offset, mark.chain, mark.index) == (2, machine.partition.chain, 77)
    assert mark.stamp == machine.take_fresh()[-1].deliveries[-1].stamp
    assert mark_of_image(GROUP, PartitionMachine(GROUP).snapshot(), 5) == beginning(GROUP)


def test_an_image_before_the_birth_is_none_of_a_partition() -> None:
    machine = PartitionMachine(GROUP)
    other, _ = filled()
    other.prepare_restore(machine.snapshot())()
    assert other.partition is None
    assert other.digest() == machine.digest()


def test_an_image_that_was_read_changes_nothing_before_it_is_adopted() -> None:
    machine, _ = filled()
    before = machine.digest()
    empty = PartitionMachine(GROUP)
    adopt = machine.prepare_restore(empty.snapshot())
    assert (machine.digest(), machine.restored_total) == (before, 0)
    adopt()
    assert (machine.digest(), machine.restored_total) == (empty.digest(), 1)


def test_an_image_that_is_another_groups_or_damaged_changes_nothing() -> None:
    machine, _ = filled()
    before = machine.digest()
    image = machine.snapshot()
    _, _, place, claims, pieces = from_bytes(image)
    for wrong, complaint in (
        (PartitionMachine(OTHER).snapshot(), "group 9"),
        (image[:-1], "expected MessagePack"),
        (to_bytes((9, GROUP, None, None, ())), "format 9"),
        (to_bytes((1, GROUP, (1, None, bytes(16)), b"x", (b"y",))), "expected"),
        (to_bytes((1, GROUP, place, claims, (*pieces[:-1], b"y"))), "piece of a group's snapshot"),
        (to_bytes((1, GROUP, place, b"x", pieces)), "a snapshot of claims"),
    ):
        with pytest.raises(ProtocolError, match=complaint):
            machine.prepare_restore(wrong)
        assert machine.digest() == before


@pytest.mark.parametrize(
    ("payload", "count", "complaint"),
    [
        (b"\xc1", 1, "expected MessagePack"),
        (encode_entry(BatchEntry(1, Batch(2, (Advance(1),)))), 2, "1 commands where the log counts 2"),
    ],
)
def test_an_entry_that_cannot_be_carried_out_stops_the_group_and_names_it(
    payload: bytes, count: int, complaint: str
) -> None:
    machine, _ = filled()
    machine.apply(Entry(3, 1, EntryKind.COMMANDS, 7, count, payload))
    assert machine.stopped
    assert "group 7, entry 3" in machine.error
    assert complaint in machine.error


def test_commands_before_the_birth_stop_the_group() -> None:
    machine = PartitionMachine(GROUP)
    Log(machine).batch(single(1))
    assert "lost its beginning" in machine.error


def test_a_view_of_a_later_position_may_be_the_first_one() -> None:
    """The birth is proposed from whatever state of group 0 its leader has by then."""
    machine = PartitionMachine(GROUP)
    log = Log(machine)
    log.put(BIRTH)
    log.batch(ViewChanged(ViewDelta(7, 12, 0, opened=(ProducerId(11),))))
    assert machine.partition is not None
    assert machine.partition.view.position == 12


def test_a_claim_is_granted_with_the_log_time_of_its_entry() -> None:
    machine, _ = filled()
    (answer,) = machine.take_fresh()[-1].answers
    assert isinstance(answer, Granted)
    assert answer.log_time_ms == machine.log_time_ms == 100


def test_deliveries_after_a_restore_are_in_the_tail_though_they_were_applied_in_the_same_turn() -> None:
    machine, log = filled()
    hosted = HostedPartition(GROUP)
    hosted.machine.prepare_restore(machine.snapshot())()
    mid = MessageId(PRODUCER, 3)
    assert machine.partition is not None
    digest = machine.partition.pending.entries[mid].digest
    hosted.machine.apply(log.batch(Remote(mid, OTHER, 8, None, 0, digest)))
    tasks: list[Task] = []
    hosted.take_applied(tasks)
    assert (hosted.tail.first, hosted.tail.end, hosted.end) == (2, 3, 3)
    assert [one.offset for one in hosted.tail.read(2, 1)] == [2]
    (append,) = tasks
    assert isinstance(append, AppendDeliveries)
    assert [one.offset for one in append.deliveries] == [2]


def test_what_the_log_was_once_not_needed_for_it_is_not_needed_for_later() -> None:
    """Else new deliveries on their way to the disk would take back what an image had let go of, until the next image."""
    hosted = HostedPartition(GROUP)
    assert hosted.cut_index(2) == 2
    machine, log = filled()
    hosted.machine.prepare_restore(machine.snapshot())()
    mid = MessageId(PRODUCER, 3)
    assert machine.partition is not None
    digest = machine.partition.pending.entries[mid].digest
    hosted.machine.apply(log.batch(Remote(mid, OTHER, 8, None, 0, digest)))
    tasks: list[Task] = []
    hosted.take_applied(tasks)
    assert tasks, "it is on its way to the disk"
    assert hosted.cut_index(3) == 2
