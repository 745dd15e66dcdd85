"""Membership as a value and as bytes, and how a server comes to its own."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.so_far import so_far
from tests.unit.raft.network import GROUP, hear, instance_of, make_raft, membership_of
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntries, Entry, EntryKind, Member, MemberRole
from zraft_core.errors import ProtocolError, ZraftError
from zraft_core.ids import Instance, ServerId

MEMBERS = st.dictionaries(
    st.integers(1, 254).map(ServerId),
    st.builds(
        Member,
        st.binary(min_size=16, max_size=16).map(Instance),
        st.sampled_from((MemberRole.VOTER, MemberRole.LEARNER, MemberRole.OBSERVER)),
        st.text(max_size=60),
    ),
    max_size=9,
)


@given(MEMBERS)
def test_membership_survives_its_bytes(members: dict[ServerId, Member]) -> None:
    membership = Membership(members)
    assert Membership.decode(membership.encode()) == membership
    assert membership.voters == tuple(sorted(server for server in members if members[server].voter))


@given(st.binary(max_size=60))
def test_decoding_arbitrary_bytes_raises_nothing_but_a_declared_error(payload: bytes) -> None:
    try:
        Membership.decode(payload)
    except ZraftError:
        pass


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        [3, []],
        [2, []],
        [2, [], [1]],
        [2, [[1, bytes(16), 1, ""]], [1, 1]],
        [2, [[1, bytes(16), 1, ""]], [True]],
        [2, [[1, b"", 1, ""]], []],
        [2, [[1, bytes(16), 0, ""]], []],
        [2, [[1, bytes(16), 5, ""]], []],
        [2, [[1, bytes(16), True, ""]], []],
        [2, [[1, bytes(16), 4, ""]], []],
        [2, [[1, bytes(16), 1, 5]], []],
        [2, [[1, bytes(16), 1, "x" * 301]], []],
        [2, [[1, bytes(16), 1, ""], [1, bytes(16), 2, ""]], []],
        [1, [[0, bytes(16), True]]],
        [1, [[255, bytes(16), True]]],
        [1, [[1, bytes(15), True]]],
        [1, [[1, bytes(16), 1]]],
        [1, [[1, bytes(16)]]],
        [1, [[1, bytes(16), True], [1, bytes(16), False]]],
    ],
)
def test_what_is_no_membership_is_refused(content: object) -> None:
    with pytest.raises(ProtocolError, match="MEMBERSHIP"):
        Membership.decode(msgpack.packb(content))


def test_equal_memberships_have_equal_bytes_whatever_the_order() -> None:
    assert membership_of((3, 1, 2)).encode() == membership_of((1, 2, 3)).encode()


def test_member_is_a_server_with_its_disk() -> None:
    """D-1."""
    membership = membership_of((1,), learners=(2,))
    assert membership.has(ServerId(2), instance_of(2))
    assert not membership.has(ServerId(1), instance_of(2))
    assert membership.has_voter(ServerId(1), instance_of(1))
    assert not membership.has_voter(ServerId(2), instance_of(2))
    assert not membership.has(ServerId(3), instance_of(3))


def membership_entry(index: int, servers: tuple[int, ...], term: int = 1) -> Entry:
    return Entry(index, term, EntryKind.MEMBERSHIP, 1, 0, membership_of(servers).encode())


def test_newest_membership_of_the_log_wins_over_the_roster() -> None:
    log = Log(entries=(membership_entry(1, (1, 2)), membership_entry(2, (1, 2, 4))))
    assert make_raft(1, log=log).membership == membership_of((1, 2, 4))


def test_follower_adopts_a_membership_when_it_is_in_the_log_and_drops_it_when_truncated() -> None:
    raft = make_raft(2)
    hear(raft, 1, AppendEntries(GROUP, 1, 0, 0, 0, (membership_entry(1, (1, 2, 3)),)))
    hear(raft, 1, AppendEntries(GROUP, 1, 1, 1, 0, (membership_entry(2, (1, 2, 3, 4)),)))
    assert so_far(raft.membership.voters) == (1, 2, 3, 4)
    noop = Entry(2, 2, EntryKind.NOOP, 1, 0, b"")
    hear(raft, 3, AppendEntries(GROUP, 2, 1, 1, 0, (noop,)))
    assert raft.membership.voters == (1, 2, 3)
