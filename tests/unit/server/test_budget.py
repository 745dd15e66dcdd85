"""What many connections hold together is bounded, and it is known who gives way."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from attrs import frozen

from tests.so_far import so_far
from zraft.server.clients.budget import PATIENCE_MS, Bound, Budget, address_of


@frozen(eq=False)
class One:
    address: str


def budget(per_address: int = 1_000, together: int = 2_000) -> Budget[One]:
    return Budget(
        "bytes of answers",
        per_address=Bound("client.output_bytes_per_address_max", per_address),
        together=Bound("client.output_bytes_sum_max", together),
    )


def ones(count: int, host: str = "10.0.0.1") -> list[One]:
    return [One(f"{host}:{port}") for port in range(count)]


def test_beyond_an_addresss_bound_its_largest_go_until_an_eighth_is_free() -> None:
    bounded = budget()
    many = ones(5)
    other = One("10.0.0.2:1")
    assert not bounded.hold(other, 900, 0)
    passed = [bounded.hold(one, size, 0) for one, size in zip(many, (100, 300, 200, 250, 240), strict=True)]
    assert passed == [False, False, False, False, True]
    gone = bounded.excess(0)
    assert [found.one for found in gone] == [many[1]], "the largest, of the address that holds too much"
    assert "client.output_bytes_per_address_max = 1000" in gone[0].why
    assert "300 bytes of answers" in gone[0].why
    assert bounded.held == 900 + 790
    assert bounded.evicted_total == 1


def test_beyond_the_bound_of_all_the_address_that_holds_most_gives_way() -> None:
    bounded = budget(per_address=2_000)
    small = ones(30, "10.0.0.2")
    large = ones(2, "10.0.0.1")
    for one in small:
        bounded.hold(one, 30, 0)
    assert not bounded.hold(large[0], 600, 0)
    assert bounded.hold(large[1], 550, 0)
    gone = bounded.excess(0)
    assert [found.one for found in gone] == [large[0]]
    assert "client.output_bytes_sum_max = 2000" in gone[0].why
    assert bounded.held <= 2_000 - 2_000 // 8
    assert bounded.excess(0) == []


def test_who_holds_less_than_before_passes_no_bound() -> None:
    bounded = budget()
    one, other = ones(2)
    assert bounded.hold(one, 1_200, 0)
    assert not bounded.hold(one, 1_100, 0)
    assert not bounded.hold(other, 0, 0)
    assert len(bounded) == 1


def test_there_is_room_up_to_half_of_a_bound_and_always_for_who_is_alone() -> None:
    bounded = budget()
    one, other = ones(2)
    stranger = One("10.0.0.2:1")
    assert bounded.has_room(one, 5_000), "or it would wait for ever"
    bounded.hold(one, 400, 0)
    assert bounded.has_room(other, 100)
    assert not bounded.has_room(other, 101)
    assert bounded.has_room(stranger, 600)
    assert not bounded.has_room(stranger, 601)


def test_pressure_is_of_an_address_or_of_all() -> None:
    bounded = budget()
    one, other, stranger = One("10.0.0.1:1"), One("10.0.0.1:2"), One("10.0.0.2:1")
    assert so_far(bounded.wide)
    bounded.hold(one, 251, 0)
    bounded.hold(other, 1, 0)
    bounded.hold(stranger, 1, 0)
    assert not so_far(bounded.wide)
    assert not so_far(bounded.pressed)
    bounded.hold(one, 500, 0)
    assert so_far(bounded.pressed)
    assert bounded.is_pressed(one)
    assert bounded.is_pressed(other)
    assert not bounded.is_pressed(stranger)
    bounded.hold(stranger, 600, 0)
    assert bounded.is_pressed(stranger)
    bounded.hold(stranger, 0, 0)
    bounded.hold(one, 0, 0)
    assert not bounded.pressed
    assert bounded.wide


def test_overdue_is_who_held_something_all_the_time() -> None:
    bounded = budget()
    stalled, taking, late = ones(3)
    bounded.hold(stalled, 10, 0)
    bounded.hold(taking, 10, 0)
    bounded.hold(late, 10, PATIENCE_MS - 1)
    bounded.hold(stalled, 5, PATIENCE_MS - 1)
    bounded.hold(taking, 0, PATIENCE_MS - 1)
    bounded.hold(taking, 10, PATIENCE_MS - 1)
    assert bounded.overdue(PATIENCE_MS - 1) == []
    gone = bounded.overdue(PATIENCE_MS)
    assert [found.one for found in gone] == [stalled]
    assert "5 bytes of answers for more than 5 s" in gone[0].why
    assert bounded.held == 20


@pytest.mark.parametrize(
    ("client", "address"),
    [
        ("10.0.0.1:2181", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:2181", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:2181", "2001:db8:1:2::"),
        ("[2001:db8:1:2::1]:2181", "2001:db8:1:2::"),
        ("[::1]:2181", "::"),
        ("[fe80::1%eth0]:2181", "fe80::"),
        ("unknown:0", "unknown"),
        ("[no::address::at:all]:1", "no::address::at:all"),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_address(client: str, address: str) -> None:
    assert address_of(client) == address


def test_the_books_balance_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    bounded = budget(per_address=3_000, together=8_000)
    everybody = [One(f"10.0.0.{n % 7}:{n}") for n in range(60)]
    held: Counter[One] = Counter()
    now = 0
    for _ in range(3_000):
        now += rng.randrange(200)
        one = rng.choice(everybody)
        held[one] = rng.choice((0, 1, 50, 400, 900))
        passed = bounded.hold(one, held[one], now)
        gone = bounded.excess(now) if passed else []
        if rng.random() < 0.01:
            gone += bounded.overdue(now)
        for found in gone:
            assert held[found.one] > 0
            held[found.one] = 0
        by_address = Counter[str]()
        for who, size in held.items():
            by_address[address_of(who.address)] += size
        assert bounded.held == held.total()
        assert len(bounded) == sum(size > 0 for size in held.values())
        assert held.total() <= 8_000
        assert max(by_address.values()) <= 3_000
        assert bounded.wide is (held.total() <= 2_000 and max(by_address.values()) <= 750)
        assert bounded.pressed is (held.total() > 4_000 or max(by_address.values()) > 1_500)
