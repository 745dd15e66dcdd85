"""Workers that run tests at the same time do not take each other's ports."""

from __future__ import annotations

import pytest

from tests.processes.cluster import OWN_PORTS, PORTS, free_ports, ports_of


@pytest.mark.parametrize("workers", [1, 2, 3, 64])
def test_no_port_is_of_two_workers_and_none_is_outside_of_the_range(workers: int) -> None:
    shares = [ports_of(f"gw{number}", workers) for number in range(workers)]
    taken = [port for share in shares for port in share]
    assert len(set(taken)) == len(taken)
    assert min(taken) >= PORTS[0]
    assert max(taken) < PORTS[1]
    assert all(len(share) > 300 for share in shares)


def test_without_other_workers_every_port_may_be_taken() -> None:
    assert ports_of("", 1) == range(*PORTS)


def test_ports_that_are_given_are_of_this_worker_and_different() -> None:
    found = free_ports(40)
    assert len(set(found)) == 40
    assert set(found) <= set(OWN_PORTS)
