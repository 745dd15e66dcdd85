"""A replica hands every entry to its machine, and knows how far that is."""

from __future__ import annotations

import random

from zraft.groups.replica import Replica
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, HardState, Member, MemberRole
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import GroupId, Instance, ServerId

ME = ServerId(1)
INSTANCE = Instance(b"1" * 16)
MEMBERSHIP = Membership({ME: Member(INSTANCE, MemberRole.VOTER)})
MUCH = 1 << 20


class Notebook:
    """Takes every entry in as many parts as its payload says; notes what it took."""

    def __init__(self) -> None:
        self.stopped = False
        self.taken: list[tuple[int, EntryKind]] = []
        self.parts = 0

    def apply(self, entry: Entry) -> bool:
        if entry.payload == b"end":
            self.stopped = True
            return False
        if entry.payload.isdigit():
            self.parts += 1
            if self.parts < int(entry.payload):
                return False
        self.parts = 0
        self.taken.append((entry.index, entry.kind))
        return True


def _replica(*payloads: bytes, digests: bool = False) -> tuple[Replica, Notebook]:
    """The only member of its group, whose log holds these commands, committed, behind its first entry."""
    raft = Raft(
        group=GroupId(7),
        server=ME,
        instance=INSTANCE,
        settings=RaftSettings(),
        hard_state=HardState(),
        log=Log(),
        membership=MEMBERSHIP,
        rng=random.Random(1),
    )
    while raft.role is not Role.LEADER:
        raft.tick(100)
        _write(raft)
    for payload in payloads:
        assert raft.propose(payload, 1) is not None
        _write(raft)
    machine = Notebook()
    digest = (lambda: len(machine.taken)) if digests else None
    return Replica(GroupId(7), raft, machine, digest=digest, digest_interval=2), machine


def _write(raft: Raft) -> None:
    ready = raft.ready()
    if ready.write is not None:
        raft.persisted(ready.write.number)


def test_memberships_reach_the_machine_and_so_do_entries_without_commands() -> None:
    replica, machine = _replica(b"x")
    assert replica.apply(MUCH)
    assert machine.taken == [(1, EntryKind.MEMBERSHIP), (2, EntryKind.COMMANDS)]
    assert (replica.applied_index, replica.next_position) == (2, 2)
    assert not replica.apply(MUCH), "nothing is left"


def test_an_entry_that_is_taken_in_part_is_gone_on_with_and_ends_the_turn_in_which_it_is_whole() -> None:
    replica, machine = _replica(b"a", b"3", b"b")
    assert replica.apply(MUCH)
    assert replica.applied_index == 2
    assert replica.apply(MUCH)
    assert replica.applied_index == 2
    assert replica.has_more_to_apply
    assert replica.apply(MUCH)
    assert replica.applied_index == 3, "what waits for the end of an entry has its chance"
    assert replica.apply(MUCH)
    assert [index for index, _ in machine.taken] == [1, 2, 3, 4]


def test_a_machine_that_stopped_is_given_nothing_more() -> None:
    replica, machine = _replica(b"a", b"end", b"b")
    assert replica.apply(MUCH)
    assert not replica.apply(MUCH)
    assert not replica.has_more_to_apply
    assert [index for index, _ in machine.taken] == [1, 2]


def test_a_turn_applies_about_as_much_as_it_may() -> None:
    replica, _ = _replica(bytes(100), bytes(100), bytes(100))
    assert replica.apply(150)
    assert replica.applied_index == 3
    assert replica.apply(150)
    assert replica.applied_index == 4


def test_digests_are_of_the_state_after_the_entry() -> None:
    replica, _ = _replica(b"a", b"b", b"c", digests=True)
    replica.apply(MUCH)
    assert list(replica.digests) == [(2, 2), (4, 4)]
    silent, _ = _replica(b"a", b"b", b"c")
    silent.apply(MUCH)
    assert not silent.digests


def test_where_it_stands_is_told_with_the_newest_membership_before() -> None:
    replica, _ = _replica(b"a")
    replica.apply(MUCH)
    meta = replica.where_applied()
    assert meta == SnapshotMeta(2, replica.raft.term, 2, MEMBERSHIP.encode())
    other, _ = _replica(b"a", b"b")
    other.stands_at(meta)
    assert (other.applied_index, other.next_position) == (2, 2)
    other.apply(MUCH)
    assert other.applied_index == 3


def test_a_read_is_answered_when_its_index_is_applied() -> None:
    replica, _ = _replica(bytes(100), bytes(100))
    replica.reads += [(1, 2), (2, 3)]
    replica.apply(50)
    assert replica.applied_index == 2
    assert replica.take_reads() == [1]
    replica.apply(MUCH)
    assert replica.take_reads() == [2]
    assert replica.take_reads() == []
