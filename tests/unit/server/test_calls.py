"""What a client's write costs the servers of a cluster: a bound on calls, not on time."""

from __future__ import annotations

from tests.unit.server.calls import DISKS, ThreeDrivers
from zraft_core.znodes.txn import SET_DATA

WRITES = 50
WRITE_MS = 8
"""What a write takes whose batch leaves at once, in hops of a ms, on the way to the leader and back as well."""
LEADER_CALLS_MAX = 270
FOLLOWER_CALLS_MAX = 115


def test_a_write_costs_few_calls_on_each_server() -> None:
    """All rooms together, without the transport: everything between a datagram or a client's bytes and the effects."""
    servers = ThreeDrivers()
    servers.write(bytes(100))
    servers.forget()
    for _ in range(WRITES):
        servers.write(bytes(100))
    for server, calls in servers.calls.items():
        most = LEADER_CALLS_MAX if server == servers.leader else FOLLOWER_CALLS_MAX
        found = calls.of("zraft")
        assert found.total() <= most * WRITES, found.most_common(40)


def test_a_write_that_came_while_another_was_under_way_leaves_when_that_is_done() -> None:
    """Nothing else has to happen: no other client asks, and no heartbeat comes."""
    servers = ThreeDrivers()
    for server in DISKS:
        first, second = servers.client(server), servers.client(server)
        alone = servers.ask(server, second, (SET_DATA, "/a", b"", -1))
        assert alone <= WRITE_MS
        assert servers.ask(server, second, (SET_DATA, "/a", b"", -1), behind=first) <= 2 * alone


def test_what_can_only_wait_for_the_batch_under_way_makes_no_turn() -> None:
    servers = ThreeDrivers()
    driver = servers.drivers[servers.leader]
    first, second = servers.client(servers.leader), servers.client(servers.leader)
    for client in (first, second):
        client.will_write((SET_DATA, "/a", b"", -1))
    first.send()
    assert driver.on_clients(), "a batch can be made"
    driver.turn(driver.clock.now, 0)
    second.send()
    assert not driver.on_clients()
    second.will_ping()
    second.send()
    assert driver.on_clients(), "an answer is to leave"
