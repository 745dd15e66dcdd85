"""How an empty disk gets into a running cluster (D-1)."""

from __future__ import annotations

from tests.so_far import so_far
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member, MemberRole
from zraft.server.coordination.joining import JOIN_INTERVAL_MS, Joining, introduction
from zraft.transport.messages import Join, NotMember, Welcome
from zraft_core.ids import Instance, ServerId

ME, INSTANCE = ServerId(4), Instance(b"i" * 16)
PEERS = tuple(map(ServerId, (1, 2, 3, 4)))
CLUSTER = b"c" * 16


def joining(cluster: bytes | None = None) -> Joining:
    return Joining(ME, INSTANCE, PEERS, "10.0.0.4:2181", 2, cluster)


def membership(role: MemberRole, instance: Instance = INSTANCE) -> bytes:
    one = Member(Instance(b"1" * 16))
    return Membership({ServerId(1): one, ME: Member(instance, role)}).encode()


def test_nothing_is_said_before_a_cluster_was_met() -> None:
    place = joining()
    assert place.joins(0) == []
    assert place.waiting is None


def test_it_asks_every_server_it_knows_until_it_is_welcome() -> None:
    place = joining()
    place.met(CLUSTER)
    assert "waiting until the leader" in str(so_far(place.waiting))
    asked = place.joins(0)
    assert asked == [(server, Join(CLUSTER, "10.0.0.4:2181", 2)) for server in PEERS[:3]]
    assert place.joins(JOIN_INTERVAL_MS - 1) == []
    assert len(place.joins(JOIN_INTERVAL_MS)) == 3
    assert place.on_welcome(Welcome(CLUSTER, 9, membership(MemberRole.LEARNER))) is not None
    assert place.waiting is None
    assert place.joins(10 * JOIN_INTERVAL_MS) == []


def test_a_welcome_of_another_cluster_or_for_another_disk_is_none() -> None:
    place = joining(CLUSTER)
    assert place.on_welcome(Welcome(b"d" * 16, 9, membership(MemberRole.LEARNER))) is None
    other = membership(MemberRole.LEARNER, Instance(b"j" * 16))
    assert place.on_welcome(Welcome(CLUSTER, 9, other)) is None
    assert place.membership is None


def test_d1_an_empty_disk_that_is_counted_on_as_a_voter_stays_out() -> None:
    """Its log was removed, and with it what it promised."""
    place = joining(CLUSTER)
    assert place.on_welcome(Welcome(CLUSTER, 9, membership(MemberRole.VOTER))) is None
    assert place.problem is not None
    assert "write-ahead log was removed" in place.problem


def test_a_stranger_is_told_which_command_lets_it_in() -> None:
    place = joining(CLUSTER)
    place.on_refusal(NotMember(CLUSTER, 9))
    assert place.waiting is not None
    assert "zraft member add 4 10.0.0.4:2181" in place.waiting
    assert len(place.joins(0)) == 3, "and goes on asking"


def test_it_asks_members_too_that_its_own_list_does_not_name() -> None:
    """The leader may be one that was added since: any member that is asked says who the others are."""
    members = {ServerId(n): Member(Instance(bytes([n]) * 16), address=f"10.0.0.{n}:2181") for n in (2, 3, 7)}
    place = joining(CLUSTER)
    place.joins(0)
    told = introduction(CLUSTER, 9, Membership(members), ME)
    assert told is not None
    assert place.on_welcome(told) is None, "nobody took it in yet"
    assert place.members == Membership(members)
    assert [server for server, _ in place.joins(JOIN_INTERVAL_MS)] == [1, 2, 3, 7]


def test_d1_only_the_leader_says_that_the_joiner_is_a_member() -> None:
    """A member that lags behind may know the disk as a learner that has become a voter since, and lost its log."""
    members = {
        ServerId(1): Member(Instance(b"1" * 16)),
        ME: Member(INSTANCE, MemberRole.LEARNER),
    }
    told = introduction(CLUSTER, 9, Membership(members), ME)
    assert told is not None
    assert joining(CLUSTER).on_welcome(told) is None
    assert ME not in Membership.decode(told.membership).members
    changing = Membership({**members, ServerId(2): Member(Instance(b"2" * 16))}, (ServerId(1),))
    assert introduction(CLUSTER, 9, changing, ME) is None
