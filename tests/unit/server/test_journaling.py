"""What a server notes for audits: each leadership, commit and digest once, of every group for itself."""

from __future__ import annotations

from random import Random

from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import HardState, Member
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.server.operators.journaling import GROUP_COMMIT_INTERVAL_MS, Journaling
from zraft.storage.journal import JournalNote, NoteKind
from zraft_core.ids import GroupId, Instance, ServerId

INSTANCE = Instance(b"i" * 16)


def alone(group: int = 0) -> Raft:
    """The only server of a group; it leads as soon as its vote is durable."""
    raft = Raft(
        group=GroupId(group),
        server=ServerId(1),
        instance=INSTANCE,
        settings=RaftSettings(),
        hard_state=HardState(),
        log=Log(),
        membership=Membership({ServerId(1): Member(INSTANCE)}),
        rng=Random(1),
    )
    raft.hasten_election()
    return raft


def run(raft: Raft) -> None:
    raft.tick(1)
    for _ in range(4):
        write = raft.ready().write
        if write is not None:
            raft.persisted(write.number)


def test_a_leadership_is_noted_with_its_votes_and_what_it_committed() -> None:
    raft, journaling = alone(), Journaling()
    assert list(journaling.look(raft, (), 0)) == []
    run(raft)
    assert list(journaling.look(raft, (), 5_000)) == [
        JournalNote(NoteKind.BECAME_LEADER, 0, 1, 1, 5_000, (1,)),
        JournalNote(NoteKind.COMMITTED, 0, 1, 1, 5_000),
    ]
    assert list(journaling.look(raft, (), 9_000)) == []


def test_a_commit_is_noted_at_most_so_often() -> None:
    for group, interval_ms in ((0, 1_000), (7, GROUP_COMMIT_INTERVAL_MS)):
        raft, journaling = alone(group), Journaling()
        run(raft)
        list(journaling.look(raft, (), 100_000))
        raft.propose(b"one", 1)
        run(raft)
        assert list(journaling.look(raft, (), 100_000 + interval_ms - 1)) == []
        (note,) = journaling.look(raft, (), 100_000 + interval_ms)
        assert (note.kind, note.group, note.index) == (NoteKind.COMMITTED, group, 2)


def test_each_digest_is_noted_once_and_of_each_group_for_itself() -> None:
    one, other, journaling = alone(), alone(7), Journaling()
    assert [note.index for note in journaling.look(one, [(1_024, 3), (2_048, 4)], 1)] == [1_024, 2_048]
    (note,) = journaling.look(one, [(1_024, 3), (2_048, 4), (3_072, 5)], 1)
    assert (note.index, note.digest) == (3_072, (5).to_bytes(16, "big"))
    assert [note.group for note in journaling.look(other, [(1_024, 3)], 1)] == [7]


def test_a_group_that_comes_again_is_noted_from_its_beginning() -> None:
    raft, journaling = alone(7), Journaling()
    run(raft)
    assert list(journaling.look(raft, (), 0))
    journaling.forget(GroupId(7))
    assert [note.kind for note in journaling.look(raft, (), 1 << 40)] == [
        NoteKind.BECAME_LEADER,
        NoteKind.COMMITTED,
    ]


def test_a_leader_that_steps_down_says_so() -> None:
    raft, journaling = alone(), Journaling()
    run(raft)
    list(journaling.look(raft, (), 0))
    raft._become_follower(5, None)
    assert [(note.kind, note.term) for note in journaling.look(raft, (), 0)] == [(NoteKind.STEPPED_DOWN, 1)]


def test_what_was_not_written_down_comes_again_before_what_is_newer() -> None:
    """A full disk once swallowed the end of a leadership: then the old leader seemed to commit its successor's entries."""
    raft, journaling = alone(), Journaling()
    run(raft)
    refused = journaling.look(raft, ((1, 7),), 5_000)
    assert next(refused).kind is NoteKind.BECAME_LEADER
    refused.close()
    taken = journaling.look(raft, ((1, 7),), 6_000)
    assert next(taken).kind is NoteKind.BECAME_LEADER
    assert next(taken).kind is NoteKind.COMMITTED
    taken.close()
    assert [note.kind for note in journaling.look(raft, ((1, 7),), 7_000)] == [
        NoteKind.COMMITTED,
        NoteKind.DIGEST,
    ]
    assert list(journaling.look(raft, ((1, 7),), 8_000)) == []
    raft.role = Role.FOLLOWER  # as after a message of a later term
    lost = journaling.look(raft, (), 9_000)
    assert next(lost).kind is NoteKind.STEPPED_DOWN
    lost.close()
    assert [note.kind for note in journaling.look(raft, (), 9_100)][:1] == [NoteKind.STEPPED_DOWN]
