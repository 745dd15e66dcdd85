"""What logs prove to be committed: Raft's own rule, by what servers held in which term, and nothing beyond it."""

from __future__ import annotations

from onyxlog.audits.source.commits import Committed, Evidence, committed
from onyxlog.audits.source.survey import Configuration, Spot, Standpoint, Survey, is_cut, with_committed
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, HardState, Member, MemberRole
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import (
    ENTRY_KIND,
    BaseRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    TruncateRecord,
)
from zraft_core.ids import GroupId, Instance, ServerId

GROUP = GroupId(0)


def members(*servers: int) -> Membership:
    return Membership({ServerId(server): Member(Instance(bytes([server]) * 16)) for server in servers})


class Server:
    """One server's log, record by record."""

    def __init__(self, server: int, *voters: int) -> None:
        self.survey = Survey(server, "")
        self._frame = 0
        self._voters = voters
        self.term(1)
        self.entry(1, 1, EntryKind.MEMBERSHIP, members(*voters).encode())

    def entry(self, index: int, term: int, kind: EntryKind = EntryKind.NOOP, payload: bytes = b"") -> Server:
        entry = Entry(index, term, kind, 1, 0, payload)
        self._frame += 1
        fields = (ENTRY_KIND, GROUP, entry.index, entry.term, int(kind), 1, 0, payload)
        self.survey.take_entry(fields, self._spot())
        return self

    def entries(self, term: int, first: int, last: int) -> Server:
        for index in range(first, last + 1):
            self.entry(index, term)
        return self

    def term(self, term: int, vote: int | None = None) -> Server:
        return self.put(HardStateRecord(GROUP, HardState(term, None if vote is None else ServerId(vote))))

    def put(self, record: Record | BaseRecord) -> Server:
        self._frame += 1
        self.survey.take(record, self._spot(), oldest=True)
        return self

    def _spot(self) -> Spot:
        return Spot("wal", 100 * self._frame, self._frame)

    def evidence(self, *known: tuple[int, int]) -> Evidence:
        survey = self.survey
        return Evidence(survey.server, survey.standpoints()[GROUP], survey.proven(GROUP), known)


def proven(*servers: Server) -> Committed:
    return committed([server.evidence() for server in servers])


def test_a_majority_in_the_leaders_term_commits_and_a_minority_does_not() -> None:
    one, two, three = (Server(server, 1, 2, 3) for server in (1, 2, 3))
    one.entries(1, 2, 9)
    two.entries(1, 2, 6)
    assert proven(one, two, three).index == 6
    assert proven(one, three).index == 1
    assert proven(one, two).index == 6, "two of three are enough"
    assert proven(one).index == 0


def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    """Figure 8 of the paper: (2, term 2) is on three of five servers, sent on by the leader of term 4, and may be lost."""
    s1, s2, s3, s4, s5 = (Server(server, 1, 2, 3, 4, 5) for server in (1, 2, 3, 4, 5))
    for server in (s1, s2):
        server.term(2).entry(2, 2)
    s5.term(3).entry(2, 3)
    for server in (s1, s2, s3):
        server.term(4)
    s3.entry(2, 2)
    assert proven(s1, s2, s3, s4, s5).index == 1
    for server in (s1, s2, s3):
        server.entry(3, 4)
    found = proven(s1, s2, s3, s4, s5)
    assert found.index == 3
    assert found.holds(2, 2)
    assert not found.holds(2, 3)


def test_while_joint_both_majorities_must_have_it() -> None:
    leaving = {
        ServerId(server): Member(Instance(bytes([server]) * 16), MemberRole.LEAVING) for server in (2, 3)
    }
    old = tuple(ServerId(server) for server in (1, 2, 3))
    joint = Membership({**members(1, 4, 5).members, **leaving}, old).encode()
    servers = {server: Server(server, 1, 2, 3) for server in (1, 2, 3, 4, 5)}
    for server in (1, 4, 5):
        servers[server].entry(2, 1, EntryKind.MEMBERSHIP, joint).entries(1, 3, 4)
    assert proven(*servers.values()).index == 1, "the new majority has it, the old one does not"
    servers[2].entry(2, 1, EntryKind.MEMBERSHIP, joint).entry(3, 1)
    assert proven(*servers.values()).index == 3


def test_learners_do_not_count() -> None:
    servers = {server: Server(server, 1, 2, 3) for server in (1, 2, 3, 4)}
    with_learner = Membership(
        {
            **members(1, 2, 3).members,
            ServerId(4): Member(Instance(b"4" * 16), MemberRole.LEARNER),
        }
    ).encode()
    for server in (1, 4):
        servers[server].entry(2, 1, EntryKind.MEMBERSHIP, with_learner).entries(1, 3, 5)
    assert proven(*servers.values()).index == 1


def test_what_was_truncated_later_still_proves_what_was_acknowledged_then() -> None:
    """A server that broke its word: it had (5, term 1), of which the majority was part, and took it back."""
    one, two = Server(1, 1, 2, 3), Server(2, 1, 2, 3)
    one.entries(1, 2, 5)
    two.entries(1, 2, 5)
    two.term(2).put(TruncateRecord(GROUP, 4)).entry(4, 2)
    found = proven(one, two, Server(3, 1, 2, 3))
    assert found.index == 5
    row, cut = two.survey.truncations[0]
    assert with_committed(row, cut, dict(found.by_term)).committed_index == 5
    assert row.from_index == 4


def test_a_truncation_of_what_nobody_else_had_breaks_nothing() -> None:
    one, two, three = (Server(server, 1, 2, 3) for server in (1, 2, 3))
    for server in (one, two, three):
        server.entries(1, 2, 3)
    one.entries(1, 4, 6)
    for server in (two, three):
        server.term(2).entry(4, 2)
    one.term(2).put(TruncateRecord(GROUP, 4)).entry(4, 2)
    found = proven(one, two, three)
    assert (found.index, found.holds(4, 2), found.holds(4, 1)) == (4, True, False)
    row, cut = one.survey.truncations[0]
    assert with_committed(row, cut, dict(found.by_term)).committed_index == 3
    assert is_cut(one.survey.cuts, 0, 5, one.survey.order_of(3))
    assert not is_cut(one.survey.cuts, 0, 4, one.survey.order)


def test_snapshots_and_journals_prove_what_one_server_knows() -> None:
    one = Server(1, 1, 2, 3).entries(1, 2, 9)
    assert committed([one.evidence((7, 1), (4, 1))]).index == 7


def test_runs_go_on_downwards_in_the_log_of_another_server_that_matches() -> None:
    whole = Server(1, 1, 2, 3).entries(1, 2, 4).term(2).entries(2, 5, 8)
    late = Server(2, 1, 2, 3)
    late.put(RestoreRecord(GROUP, SnapshotMeta(6, 2, 1, members(1, 2, 3).encode())))
    late.term(2).entries(2, 7, 9)
    third = Server(3, 1, 2, 3)
    third.put(RestoreRecord(GROUP, SnapshotMeta(8, 2, 1, members(1, 2, 3).encode()))).term(2).entry(9, 2)
    found = proven(whole, late, third)
    assert found.index == 9
    assert [found.holds(index, term) for index, term in ((9, 2), (6, 2), (5, 2), (4, 1), (4, 2))] == [
        *(True, True, True, True, False)
    ]


def test_of_what_lies_before_every_log_nothing_is_known() -> None:
    one, two = Server(1, 1, 2, 3), Server(2, 1, 2, 3)
    for server in (one, two):
        server.put(RestoreRecord(GROUP, SnapshotMeta(6, 2, 1, members(1, 2, 3).encode())))
        server.term(2).entry(7, 2)
    found = proven(one, two)
    assert found.holds(7, 2)
    assert found.holds(6, 2)
    assert not found.holds(5, 2)


def test_a_log_that_is_begun_by_a_base_goes_on_from_it() -> None:
    survey = Survey(1, "")
    base = BaseRecord(
        GROUP, HardState(3, ServerId(2)), None, SnapshotMeta(40, 2, 9, members(1, 2, 3).encode())
    )
    survey.take(base, Spot("wal", 0, 12), oldest=True)
    assert survey.before(0) == (2, 3)
    assert survey.standpoints()[0] == Standpoint(
        3, 2, 41, 40, 2, ((40, 2),), (), (Configuration(40, 2, members(1, 2, 3)),)
    )
    assert [row.restated for row in survey.hard_states] == [True]
