"""What a client's write costs the servers of a cluster: a bound on calls, not on time."""

from __future__ import annotations

from tests.unit.server.calls import ThreeDrivers

WRITES = 50
LEADER_CALLS_MAX = 445
FOLLOWER_CALLS_MAX = 165


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
