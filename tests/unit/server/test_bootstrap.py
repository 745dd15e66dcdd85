"""How empty directories become a cluster, once, and what a wiped disk may not do (D-1)."""

from __future__ import annotations

import itertools

from tests.so_far import so_far
from zraft.groups.roster import Roster
from zraft.server.coordination.bootstrap import Bootstrap, cluster_id
from zraft.transport.messages import Hello, Sender
from zraft_core.ids import Instance, ServerId

SERVERS = tuple(ServerId(n) for n in (1, 2, 3))


def _instance(server: int, generation: int = 0) -> Instance:
    return Instance(bytes([server, generation]) * 8)


class Place:
    """One server's place: its disk, and what its process knows."""

    def __init__(self, server: ServerId, generation: int = 0, *, founds: bool = True) -> None:
        self.server = server
        self.founds = founds
        self.instance = _instance(server, generation)
        self.durable: Roster | None = None
        self.has_log = False
        self.start()

    def start(self) -> None:
        self.bootstrap = Bootstrap(
            self.server, self.instance, SERVERS, self.durable, self.has_log, founds=self.founds
        )

    def write(self) -> None:
        roster = self.bootstrap.to_make_durable()
        if roster is not None:
            self.durable = roster
            self.bootstrap.roster_durable()

    @property
    def sender(self) -> Sender:
        return Sender(self.server, self.instance, 1)

    def hello(self) -> Hello:
        return self.bootstrap._hello(wants_reply=False)


def _talk(*places: Place) -> None:
    """Everybody hears everybody's newest hello, and writes what there is to write."""
    for sender, receiver in itertools.permutations(places, 2):
        receiver.bootstrap.on_hello(sender.sender, sender.hello())
    for place in places:
        place.write()


def test_roster_needs_all_listed_servers() -> None:
    """D-1: with a majority only, a third disk could be wiped and found a second cluster with one of these."""
    one, two, three = (Place(server) for server in SERVERS)
    for _ in range(5):
        _talk(one, two)
    assert one.bootstrap.roster is None
    assert two.bootstrap.roster is None
    for _ in range(3):
        _talk(one, two, three)
    assert {p.bootstrap.roster for p in (one, two, three)} == {tuple((s, _instance(s)) for s in SERVERS)}
    assert all(p.bootstrap.founded for p in (one, two, three))


def test_a_roster_is_not_said_before_it_is_durable() -> None:
    one, two, three = (Place(server) for server in SERVERS)
    for peer in (two, three):
        one.bootstrap.on_hello(peer.sender, peer.hello())
    assert one.bootstrap.roster is not None
    assert one.hello().roster is None
    one.write()
    assert one.hello().roster == one.bootstrap.roster


def test_a_durable_roster_is_told_at_once_and_once_also_by_the_server_that_makes_the_cluster_founded() -> (
    None
):
    """The others wait for it, and would not vote before. They would ask again only after an interval."""
    one, two, three = (Place(server) for server in SERVERS)
    for place, peer in itertools.permutations((one, two, three), 2):
        place.bootstrap.on_hello(peer.sender, peer.hello())
    for place in (one, two, three):
        assert all(hello.roster is None for _, hello in place.bootstrap.hellos(1_000))
        place.write()
        told = list(place.bootstrap.hellos(1_000))
        assert [(peer, hello.roster) for peer, hello in told] == [
            (peer, place.durable) for peer in SERVERS if peer != place.server
        ]
        assert list(place.bootstrap.hellos(1_000)) == []
        if place is not three:
            three.bootstrap.on_hello(place.sender, place.hello())
    assert three.bootstrap.founded
    assert list(three.bootstrap.hellos(2_000)) == []


def test_nobody_votes_before_all_listed_servers_have_the_roster_durable() -> None:
    """Two that agreed must not found a cluster while the third may still lose its disk."""
    one, two, three = (Place(server) for server in SERVERS)
    for place, peer in itertools.permutations((one, two, three), 2):
        place.bootstrap.on_hello(peer.sender, peer.hello())
    one.write()
    two.write()
    _talk(one, two)
    assert not one.bootstrap.founded
    assert not two.bootstrap.founded
    for _ in range(2):
        _talk(one, two, three)
    assert all(p.bootstrap.founded for p in (one, two, three))


def test_a_disk_replaced_while_founding_stops_everybody_and_is_named() -> None:
    one, two, three = (Place(server) for server in SERVERS)
    for place, peer in itertools.permutations((one, two, three), 2):
        place.bootstrap.on_hello(peer.sender, peer.hello())
    one.write()
    two.write()
    wiped = Place(ServerId(3), generation=1)
    for _ in range(3):
        _talk(one, two, wiped)
    assert not any(p.bootstrap.founded for p in (one, two, wiped))
    assert one.bootstrap.problem is not None
    assert wiped.instance.hex() in one.bootstrap.problem
    assert wiped.bootstrap.problem is not None
    assert wiped.durable is None


def test_a_wiped_server_of_a_running_cluster_founds_nothing_and_meets_the_cluster() -> None:
    one, two, three = (Place(server) for server in SERVERS)
    for _ in range(3):
        _talk(one, two, three)
    wiped = Place(ServerId(3), generation=1)
    for _ in range(3):
        _talk(one, two, wiped)
    assert not wiped.bootstrap.founded
    assert wiped.bootstrap.roster is None
    assert wiped.bootstrap.met == one.bootstrap.cluster
    assert not list(wiped.bootstrap.hellos(1_000_000)), "it asks to be let in instead (D-1)"
    assert one.bootstrap.founded, "the others go on"


def test_a_server_that_was_seen_empty_and_is_late_joins_the_roster_that_lists_it() -> None:
    """It has never voted, so nothing is forgotten."""
    one, two, three = (Place(server) for server in SERVERS)
    for place, peer in itertools.permutations((one, two, three), 2):
        if place is not three:
            place.bootstrap.on_hello(peer.sender, peer.hello())
    one.write()
    two.write()
    three.start()
    for _ in range(3):
        _talk(one, two, three)
    assert three.bootstrap.roster == one.bootstrap.roster
    assert all(p.bootstrap.founded for p in (one, two, three))


def test_restarts_at_any_point_of_founding_end_in_one_cluster() -> None:
    """Every server may restart before and after each of its writes."""
    for restarts in itertools.product((False, True), repeat=3):
        places = [Place(server) for server in SERVERS]
        for _ in range(4):
            for place, restart in zip(places, restarts, strict=True):
                if restart:
                    place.start()
            _talk(*places)
        assert len({p.durable for p in places}) == 1
        _talk(*places)
        assert all(p.bootstrap.founded for p in places)


def test_a_server_with_a_log_needs_nobody_to_confirm_the_roster() -> None:
    place = Place(ServerId(1))
    place.durable = tuple((s, _instance(s)) for s in SERVERS)
    place.has_log = True
    place.start()
    assert place.bootstrap.founded
    assert list(place.bootstrap.hellos(0)) == []


def test_a_late_server_is_founded_by_a_leader_of_its_roster() -> None:
    place = Place(ServerId(1))
    place.durable = tuple((s, _instance(s)) for s in SERVERS)
    place.start()
    assert not place.bootstrap.founded
    place.bootstrap.on_leader()
    assert place.bootstrap.founded


def test_a_disk_lost_right_after_the_founding_does_not_hold_up_who_had_not_heard_of_it() -> None:
    """Seed 1000731: the second knew the cluster to be founded, the third did not, and without it nobody could lead."""
    one, two, three = (Place(server) for server in SERVERS)
    for _ in range(2):
        for sender, receiver in itertools.permutations((one, two, three), 2):
            if receiver is not three or sender.durable is None:
                receiver.bootstrap.on_hello(sender.sender, sender.hello())
        for place in (one, two, three):
            place.write()
    assert one.bootstrap.founded
    assert two.bootstrap.founded
    assert three.durable is not None
    assert not so_far(three.bootstrap.founded)
    wiped = Place(ServerId(1), generation=1)
    three.bootstrap.on_hello(wiped.sender, wiped.hello())
    assert not so_far(three.bootstrap.founded)
    three.bootstrap.on_hello(two.sender, two.hello())
    assert three.bootstrap.founded
    assert three.bootstrap.problem is None
    assert three.bootstrap.cluster == two.bootstrap.cluster


def test_who_has_not_made_the_roster_durable_is_not_founded_by_hearsay() -> None:
    one, two, three = (Place(server) for server in SERVERS)
    for _ in range(3):
        _talk(one, two, three)
    late = Place(ServerId(3))
    late.bootstrap.on_hello(one.sender, one.hello())
    assert late.bootstrap.roster == one.bootstrap.roster
    assert not late.bootstrap.founded
    late.write()
    assert late.bootstrap.founded


def test_hellos_of_servers_that_are_not_listed_are_ignored() -> None:
    one, two = Place(ServerId(1)), Place(ServerId(2))
    stranger = Place(ServerId(9))
    one.bootstrap.on_hello(two.sender, two.hello())
    one.bootstrap.on_hello(stranger.sender, stranger.hello())
    assert one.bootstrap.roster is None


def test_a_single_server_founds_its_cluster_alone_once_its_roster_is_durable() -> None:
    bootstrap = Bootstrap(ServerId(1), _instance(1), [ServerId(1)], None, founded=False)
    assert bootstrap.to_make_durable() == ((1, _instance(1)),)
    assert not bootstrap.founded
    bootstrap.roster_durable()
    assert bootstrap.founded


def test_the_cluster_id_depends_on_who_founded_it_and_on_nothing_else() -> None:
    roster = tuple((s, _instance(s)) for s in SERVERS)
    assert cluster_id(roster) == cluster_id(tuple(reversed(roster)))
    assert cluster_id(roster) != cluster_id((*roster[:2], (ServerId(3), _instance(3, 1))))


def test_an_observer_founds_nothing_and_meets_the_cluster_that_the_others_found() -> None:
    """It is on nobody's roster, and is taken in afterwards like any empty disk."""
    one, two = (Place(server) for server in SERVERS[:2])
    for place in (one, two):
        place.bootstrap = Bootstrap(place.server, place.instance, SERVERS[:2], None, founded=False)
    observer = Place(SERVERS[2])
    observer.bootstrap = Bootstrap(
        observer.server, observer.instance, SERVERS[:2], None, founded=False, founds=False
    )
    assert observer.bootstrap.to_make_durable() is None
    for _ in range(2):
        _talk(one, two, observer)
        if one.bootstrap.roster is not None and not one.bootstrap.founded:
            assert observer.bootstrap.problem is None, "that the others are not done yet is no problem"
    for _ in range(3):
        _talk(one, two, observer)
    assert one.bootstrap.founded
    assert two.bootstrap.founded
    assert one.bootstrap.roster == tuple((s, _instance(s)) for s in SERVERS[:2])
    assert observer.bootstrap.roster is None
    assert not observer.bootstrap.founded
    assert observer.bootstrap.met == one.bootstrap.cluster


def test_it_names_those_who_have_not_answered() -> None:
    one, two, three = (Place(server) for server in SERVERS)
    assert one.bootstrap.unheard == SERVERS[1:]
    one.bootstrap.on_hello(two.sender, two.hello())
    assert one.bootstrap.unheard == SERVERS[2:]
    for _ in range(3):
        _talk(one, two, three)
    assert one.bootstrap.unheard == ()


def test_without_a_listed_server_that_founds_nothing_nobody_else_does_either() -> None:
    """It stands beside data that nobody has imported: an empty cluster must not begin around it."""
    one, two = Place(ServerId(1), founds=False), Place(ServerId(2))
    three = Place(ServerId(3))
    for _ in range(3):
        _talk(one, two, three)
    assert {place.bootstrap.roster for place in (one, two, three)} == {None}
    assert so_far(two.bootstrap.declined) == (ServerId(1),)
    assert not any(place.bootstrap.problem for place in (one, two, three)), "it waits, and nothing is wrong"
    one.founds = True
    one.start()
    for _ in range(3):
        _talk(one, two, three)
    assert all(place.bootstrap.founded for place in (one, two, three))
    assert two.bootstrap.declined == ()


def test_a_server_that_founds_nothing_agrees_to_no_roster_that_others_made_before() -> None:
    one, two, three = (Place(server) for server in SERVERS)
    for place, peer in itertools.permutations((one, two, three), 2):
        place.bootstrap.on_hello(peer.sender, peer.hello())
    two.write()
    three.write()
    one.founds = False
    one.start()
    for _ in range(3):
        _talk(one, two, three)
    assert one.bootstrap.roster is None
    assert not any(place.bootstrap.founded for place in (one, two, three))


def test_a_server_that_founds_nothing_joins_a_cluster_that_it_meets() -> None:
    one = Place(ServerId(1), founds=False)
    imported = Hello(b"an imported tree", None, False)
    one.bootstrap.on_hello(Sender(ServerId(2), _instance(2), 1), imported)
    assert one.bootstrap.met == b"an imported tree"


def test_alone_a_server_that_founds_nothing_writes_nothing() -> None:
    alone = Bootstrap(ServerId(1), _instance(1), [ServerId(1)], None, False, founds=False)
    assert alone.to_make_durable() is None
    assert not alone.founded
