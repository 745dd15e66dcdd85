"""What a write to one group costs a host: a bound on calls, not on time."""

from __future__ import annotations

import pytest

from tests.unit.groups.calls import EventDriven
from tests.unit.groups.hosts import DISKS, Hosts

WRITES = 50


@pytest.mark.parametrize(
    ("groups", "leader_calls_max", "follower_calls_max"),
    [
        pytest.param(1, 40, 35, id="alone"),
        pytest.param(30, 45, 40, id="beside 29 groups that rest, led by all three"),
    ],
)
def test_a_write_costs_few_calls_beside_those_of_consensus(
    groups: int, leader_calls_max: int, follower_calls_max: int
) -> None:
    """Shared heartbeats of the time that the writes take are counted with them."""
    hosts = Hosts(groups)
    hosts.rest()
    leader = hosts.leader(1)
    driven = EventDriven(hosts)
    driven.write(leader, 1, b"the first one wakes the group")
    driven.forget()
    for _ in range(WRITES):
        driven.write(leader, 1, bytes(100))
    for server in DISKS:
        calls, most = (
            driven.calls[server].of("zraft/groups"),
            leader_calls_max if server == leader else follower_calls_max,
        )
        assert calls.total() <= most * WRITES, calls.most_common()
