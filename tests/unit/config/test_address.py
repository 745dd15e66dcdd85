"""`HOST:PORT` as text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:2181", "127.0.0.1", 2181),
        ("localhost:1", "localhost", 1),
        ("zk1.example.org:65535", "zk1.example.org", 65535),
        ("zk_1:2181", "zk_1", 2181),
        ("[::1]:2181", "::1", 2181),
        ("[fe80::1]:2181", "fe80::1", 2181),
        (" 10.0.0.1:2181 ", "10.0.0.1", 2181),
    ],
)
def test_address_is_a_name_an_ipv4_or_a_bracketed_ipv6(text: str, host: str, port: int) -> None:
    address = parse_address(text, "address")
    assert address == Address(host, port)
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2181",
        ":2181",
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "localhost:-1",
        "localhost:2181x",
        "localhost:" + "9" * 5000,
        "localhost:٢١٨١",
        "::1:2181",
        "[::1]2181",
        "[::1]",
        "[localhost]:2181",
        "[127.0.0.1]:2181",
        "[fe80::1%eth0]:2181",
        "256.0.0.1:2181",
        "1.2.3:2181",
        "-zk:2181",
        "zk-:2181",
        "zk..example:2181",
        "zk 1:2181",
        "1=localhost:2181",
    ],
)
def test_a_wrong_address_is_refused_by_an_error_that_names_the_knob_and_what_was_found(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(text, "--connect")
    assert str(refused.value).startswith("--connect: found ")
    assert repr(text) in str(refused.value)
    assert "expected" in str(refused.value)


@given(st.text(max_size=40))
def test_any_text_is_an_address_that_survives_a_round_trip_or_a_config_error(text: str) -> None:
    try:
        address = parse_address(text, "address")
    except ConfigError:
        return
    assert parse_address(str(address), "address") == address


def test_equal_ipv6_addresses_are_equal_however_they_are_written() -> None:
    assert parse_address("[0:0::1]:2181", "address") == parse_address("[::1]:2181", "address")


def test_a_zone_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"the zone eth0 .* this machine only"):
        parse_address("[fe80::1%eth0]:2181", "--address")


def test_who_listens_everywhere_for_ipv6_listens_for_ipv4_too() -> None:
    assert parse_address("[::]:1", "address").listening_hosts == ("::", "0.0.0.0")
    for text in ("0.0.0.0:1", "[::1]:1", "zk1:1"):
        address = parse_address(text, "address")
        assert address.listening_hosts == (address.host,)


def test_loopback_and_wildcard_are_told_without_a_resolver() -> None:
    assert parse_address("127.8.9.1:1", "address").is_loopback
    assert parse_address("[::1]:1", "address").is_loopback
    assert parse_address("localhost:1", "address").is_loopback
    assert not parse_address("128.0.0.1:1", "address").is_loopback
    assert not parse_address("127.example.org:1", "address").is_loopback
    assert parse_address("0.0.0.0:1", "address").is_wildcard
    assert parse_address("[::]:1", "address").is_wildcard
