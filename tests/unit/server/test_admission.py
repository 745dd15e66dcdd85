"""Who is attached when: portions, rates, and connections per address."""

from __future__ import annotations

from tests.so_far import so_far
from tests.unit.server.one_server import Client, OneServer, create
from zraft.server.clients.admission import ATTACHES_IN_FLIGHT_MAX, AddressCount, Admission
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft_core.wire.client import Pong


def test_only_so_many_are_on_the_way_and_the_rest_comes_in_order() -> None:
    admission: Admission[int] = Admission(in_flight_max=2)
    assert [admission.ask(n) for n in range(5)] == [True, True, False, False, False]
    assert admission.begin_turn(0) == []
    assert admission.due_in_ms() is None, "only the end of others can help"
    admission.finish(1)
    assert admission.due_in_ms() == 0
    assert not admission.ask(5), "nobody passes those who wait"
    assert admission.begin_turn(1) == [2]
    admission.finish(0)
    admission.finish(2)
    assert admission.begin_turn(2) == [3, 4]


def test_who_leaves_while_it_waits_is_forgotten() -> None:
    admission: Admission[int] = Admission(in_flight_max=1)
    assert [admission.ask(n) for n in range(3)] == [True, False, False]
    admission.finish(1)
    admission.finish(1)
    admission.finish(0)
    assert admission.begin_turn(0) == [2]
    assert len(admission) == 0


def test_a_rate_admits_a_seconds_worth_at_once_and_then_as_time_passes() -> None:
    admission: Admission[int] = Admission(in_flight_max=1_000, per_second_max=4)
    assert admission.begin_turn(1_000) == []
    assert [admission.ask(n) for n in range(7)] == [True] * 4 + [False] * 3
    assert admission.due_in_ms() == 250
    assert admission.begin_turn(1_249) == []
    assert admission.due_in_ms() == 1
    assert admission.begin_turn(1_250) == [4]
    assert admission.begin_turn(1_750) == [5, 6]
    assert admission.due_in_ms() is None
    assert admission.begin_turn(99_000) == []
    assert [admission.ask(n) for n in range(5)] == [True] * 4 + [False], (
        "tokens do not add up beyond a second's worth"
    )


def test_a_clock_that_goes_back_neither_gives_nor_takes() -> None:
    admission: Admission[int] = Admission(per_second_max=1)
    admission.begin_turn(5_000)
    assert admission.ask(0)
    assert not admission.ask(1)
    assert admission.begin_turn(1_000) == []
    assert admission.begin_turn(2_000) == [1]


def test_a_rate_of_thousands_loses_nothing_in_turns_of_a_millisecond() -> None:
    admission: Admission[int] = Admission(in_flight_max=100_000, per_second_max=1_500)
    admission.begin_turn(0)
    for n in range(4_500):
        admission.ask(n)
    assert sum(len(admission.begin_turn(now)) for now in range(1, 1_001)) == 1_500


def test_addresses_are_counted_only_with_a_bound() -> None:
    unbounded = AddressCount()
    assert all(unbounded.admit("10.0.0.1") for _ in range(1_000))
    assert len(unbounded) == 0
    two = AddressCount(2)
    assert [two.admit("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert two.admit("10.0.0.2")
    two.release("10.0.0.1")
    assert two.admit("10.0.0.1")
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        two.release(host)
    assert len(two) == 0


# -- in the server


def test_a_write_in_a_storm_waits_for_one_portion_of_it_only() -> None:
    server = OneServer()
    steady = server.attached()
    storm = [server.connect() for _ in range(4 * ATTACHES_IN_FLIGHT_MAX)]
    server.propose()
    steady.send(steady.codec.write(create("/steady")))
    server.apply()
    server.turn()
    server.propose()
    server.apply()
    server.flush()
    assert [reply.value for reply in steady.replies()] == ["/steady"]
    attached = sum(client.greeting is not None for client in storm)
    assert ATTACHES_IN_FLIGHT_MAX <= attached <= 2 * ATTACHES_IN_FLIGHT_MAX
    server.run()
    assert all(client.greeting is not None for client in storm)


def test_pings_are_answered_while_others_wait_to_be_attached() -> None:
    server = OneServer(clients=ClientSettings(connects_per_second_max=1))
    server.turn()
    steady = server.attached()
    waiting = server.connect()
    server.run()
    assert so_far(waiting.greeting) is None
    assert len(server.clients.sessions.waiting) == 1
    steady.send(steady.codec.ping())
    server.flush()
    assert [type(one) for one in steady.take()] == [Pong]
    server.advance(1_000)
    server.run()
    assert waiting.greeting is not None
    assert not waiting.closed, "delayed, not dropped"


def test_requests_behind_a_connect_that_waits_are_answered_after_it() -> None:
    server = OneServer(clients=ClientSettings(connects_per_second_max=1))
    server.turn()
    server.attached()
    client = server.connect()
    client.send(client.codec.write(create("/late")))
    server.run()
    assert "/late" not in server.machine.nodes
    server.advance(1_000)
    server.run()
    assert [reply.value for reply in client.replies()] == ["/late"]


def test_a_client_that_leaves_while_it_waits_is_never_attached() -> None:
    server = OneServer(clients=ClientSettings(connects_per_second_max=1))
    server.turn()
    server.attached()
    gone = server.connect()
    gone.connection.connection_lost()
    server.advance(5_000)
    server.run()
    assert len(server.machine.sessions) == 1
    assert server.clients.due_in_ms is None


def test_a_server_that_loses_contact_sends_those_who_wait_elsewhere() -> None:
    server = OneServer(clients=ClientSettings(connects_per_second_max=1))
    server.turn()
    server.attached()
    client = server.connect()
    server.clients.close_all()
    server.flush()
    assert client.closed
    assert server.clients.due_in_ms is None


def test_connections_of_one_address_are_bounded_only_if_the_operator_says_so() -> None:
    def connect(server: OneServer, address: str) -> bool:
        connection = server.clients.connect(address, ())
        if connection is not None:
            connections.append(connection)
        return connection is not None

    connections: list[object] = []
    assert all(connect(OneServer(), "10.0.0.1:1") for _ in range(200))
    bounded = OneServer(clients=ClientSettings(connections_per_address_max=1))
    connections.clear()
    assert connect(bounded, "[fd00::1]:1")
    assert not connect(bounded, "[fd00::1]:2")
    assert bounded.clients.full_knob == "client.connections_per_address_max"
    assert connect(bounded, "10.0.0.1:1")
    first = next(iter(bounded.clients.connections))
    assert isinstance(first, ZooKeeperConnection)
    Client(bounded, first)
    first.connection_lost()
    first.connection_lost()
    assert connect(bounded, "[fd00::1]:3")
