"""ACLs: what a create may ask for, and who passes."""

from __future__ import annotations

import pytest

from zraft_core.errors import Code
from zraft_core.znodes.acl import (
    ADMIN,
    ALL,
    CREATE,
    OPEN_ACL,
    READ,
    WRITE,
    AclTable,
    checked_acl,
    permits,
    user_of,
)


def test_world_grants_exactly_its_bits_to_everybody() -> None:
    acl = ((READ | CREATE, "world", "anyone"),)
    assert [permits(acl, bit, ()) for bit in (1, 2, 4, 8, 16)] == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("network", "address", "expected"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3/8", "10.255.0.1", True),
        ("10.1.2.0/24", "10.1.3.1", False),
        ("0.0.0.0/0", "1.2.3.4", True),
        ("0.0.0.0/0", "::1", False),
        ("10.1.2.3/32", "10.1.2.3", True),
        ("2001:db8::/32", "2001:db8:1::5", True),
        ("2001:db8::/33", "2001:db8:8000::5", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
    ],
)
def test_ip_scheme_matches_networks_of_both_versions(network: str, address: str, expected: bool) -> None:
    acl = checked_acl(((READ, "ip", network),), ())
    assert not isinstance(acl, Code)
    assert permits(acl, READ, (("ip", address),)) is expected
    assert not permits(acl, READ, (("digest", address),))
    assert not permits(acl, WRITE, (("ip", address),))


@pytest.mark.parametrize(
    "who",
    [
        "",
        "10.1.2",
        "10.1.2.3/33",
        "10.1.2.3/-1",
        "10.1.2.3/",
        "10.0.0.0/255.0.0.0",
        "::/129",
        "fe80::1%eth0",
        "10.1.2.3/8/8",
        "10.0.0.0/٨",
    ],
)
def test_bad_ip_id_is_an_invalid_acl(who: str) -> None:
    assert checked_acl(((ALL, "ip", who),), ()) is Code.INVALID_ACL


@pytest.mark.parametrize(
    "acl",
    [
        (),
        ((ALL, "world", "someone"),),
        ((ALL, "auth", ""),),
        ((ALL, "digest", "user"),),
        ((ALL, "digest", "user:"),),
        ((ALL, "digest", "user:hash:more"),),
        ((ALL, "sasl", ""),),
        ((ALL, "x509", ""),),
        ((ALL, "nosuch", "x"),),
        ((ALL, "world", "anyone"), (ALL, "super", "")),
    ],
)
def test_empty_list_and_unknown_schemes_are_invalid(acl: object) -> None:
    assert checked_acl(acl, ()) is Code.INVALID_ACL


@pytest.mark.parametrize(
    "acl",
    [
        5,
        "acl",
        [(ALL, "world", "anyone")],
        (5,),
        ((ALL, "world"),),
        (("r", "world", "anyone"),),
        ((1, b"world", "anyone"),),
        ((True, "world", "anyone"),),
        ((2**31, "world", "anyone"),),
        ((1, "world", None),),
    ],
)
def test_what_is_no_acl_at_all_is_a_marshalling_error(acl: object) -> None:
    assert checked_acl(acl, ()) is Code.MARSHALLING_ERROR


def test_duplicates_are_removed_and_order_is_kept() -> None:
    one, two = (READ, "ip", "10.0.0.1"), (ADMIN, "world", "anyone")
    assert checked_acl((two, one, two, one), ()) == (two, one)


def test_table_shares_equal_acls_and_forgets_unused_ones() -> None:
    table = AclTable()
    first = table.hold(((READ, "ip", "10.0.0.1"),))
    assert table.hold((*first,)) is first
    assert len(table) == 1
    table.release(first)
    assert len(table) == 1
    table.release(first)
    assert len(table) == 0


def test_open_acl_is_always_the_same_object() -> None:
    """The hot path compares it with `is`."""
    table = AclTable()
    assert table.hold((*OPEN_ACL,)) is OPEN_ACL
    assert len(table) == 0
    table.release(OPEN_ACL)


BOB = ("digest", "bob:Ph9bKcbVuT4Ua1TCgL1oWYGP4mw=")


@pytest.mark.parametrize("proved", [BOB, ("sasl", "bob"), ("x509", "CN=bob,O=z")])
def test_auth_stands_for_every_id_that_the_caller_has_proved(proved: tuple[str, str]) -> None:
    ids = (("ip", "10.0.0.1"), proved, ("digest", "eve:hash"))
    acl = checked_acl(((READ, "ip", "10.0.0.1"), (ALL, "auth", "ignored")), ids)
    assert acl == ((READ, "ip", "10.0.0.1"), (ALL, *proved), (ALL, "digest", "eve:hash"))


def test_auth_is_invalid_for_a_caller_who_has_only_an_address() -> None:
    assert checked_acl(((ALL, "auth", ""),), (("ip", "10.0.0.1"),)) is Code.INVALID_ACL


@pytest.mark.parametrize("pair", [BOB, ("sasl", "bob"), ("x509", "CN=bob")])
def test_proved_ids_match_exactly_and_only_in_their_scheme(pair: tuple[str, str]) -> None:
    acl = checked_acl(((READ, *pair),), ())
    assert not isinstance(acl, Code)
    assert permits(acl, READ, (("ip", "1.1.1.1"), pair))
    assert not permits(acl, WRITE, (pair,))
    assert not permits(acl, READ, ((pair[0], pair[1] + "x"),))
    assert not permits(acl, READ, (("world", pair[1]),))


def test_super_may_do_everything_and_cannot_be_granted() -> None:
    acl = ((READ, *BOB),)
    assert permits(acl, ADMIN, (("super", ""),))
    assert checked_acl(((ALL, "super", ""),), (("super", ""),)) is Code.INVALID_ACL
    assert checked_acl(((ALL, "auth", ""),), (("super", ""),)) is Code.INVALID_ACL


def test_whoami_never_shows_a_hash() -> None:
    assert [user_of(*pair) for pair in (BOB, ("ip", "10.0.0.1"), ("sasl", "s"), ("super", ""))] == [
        "bob",
        "10.0.0.1",
        "s",
        None,
    ]
