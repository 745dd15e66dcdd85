"""The checker of Raft's promises tells what the paper promises from what only looks like it."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.configurations import Configuration
from tests.simulation.raft_checks import RaftChecks
from tests.unit.raft.network import GROUP, entries_of, instance_of, make_raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntries, Entry, EntryKind, HardState, Member, RequestVoteReply
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import EntryRecord, HardStateRecord, Record, RosterRecord
from zraft.transport.messages import Sender
from zraft_core.ids import ServerId

S1, S2, S3 = (ServerId(number) for number in (1, 2, 3))
DISKS = tuple((server, instance_of(server)) for server in (S1, S2, S3))
FOUNDERS = Configuration.of_founders(DISKS)
OLD, NEW = entries_of([1, 3])


def write(checks: RaftChecks, server: ServerId, *records: Record) -> None:
    checks.writing(server, records)
    checks.durable(server, records)


@pytest.fixture
def checks() -> RaftChecks:
    """Entry 1 of term 1 is on disks 2 and 3. Disk 2 has voted for server 1 in term 2, and for server 3 in term 3."""
    checks = RaftChecks()
    for server, instance in DISKS:
        checks.formatted(server, instance)
        write(checks, server, RosterRecord(GROUP, DISKS))
    write(checks, S1, HardStateRecord(GROUP, HardState(2, S1)))
    write(checks, S2, HardStateRecord(GROUP, HardState(2, S1)))
    checks.sent(Sender(S2, instance_of(S2), 1), S1, [RequestVoteReply(GROUP, 2, True)])
    for server in (S2, S3):
        write(checks, server, HardStateRecord(GROUP, HardState(3, S3)), EntryRecord(GROUP, OLD))
    return checks


def test_a_leader_whose_votes_came_late_need_not_have_an_old_entry_that_a_later_leader_committed(
    checks: RaftChecks,
) -> None:
    for server in (S2, S3):
        write(checks, server, EntryRecord(GROUP, NEW))
    checks.commits(S3, [OLD, NEW], 3, 3, lambda _: [FOUNDERS])
    checks.leads(DISKS[0], 2, Log(), FOUNDERS)


def test_a_leader_has_what_was_committed_in_an_earlier_term(checks: RaftChecks) -> None:
    checks.commits(S3, [OLD], 1, 1, lambda _: [FOUNDERS])
    with pytest.raises(BrokenPromiseError, match="without committed entry 1 of term 1"):
        checks.leads(DISKS[0], 2, Log(), FOUNDERS)


def test_a_configuration_that_a_snapshot_puts_at_the_same_index_is_not_taken_for_the_one_before_it() -> None:
    """Seed 3911058393: a server held an entry that nobody had committed, and took a snapshot of that very index over."""
    of_three = Membership({server: Member(instance) for server, instance in DISKS})
    of_two = Membership({server: Member(instance) for server, instance in DISKS[:2]})
    raft = make_raft(2, membership=of_three)
    checks = RaftChecks()
    checks.formatted(S2, instance_of(S2))
    checks.begins(S2, raft.log)
    uncommitted = Entry(2, 1, EntryKind.MEMBERSHIP, 2, 0, of_two.encode())
    raft.step(S1, instance_of(S1), AppendEntries(GROUP, 1, 0, 0, 0, (OLD, uncommitted)))
    assert checks.turned(DISKS[1], raft) == (2, Configuration.read(of_two.encode()))
    assert raft.restore(SnapshotMeta(2, 2, 3, of_three.encode()))
    assert checks.turned(DISKS[1], raft) == (2, Configuration.read(of_three.encode()))
