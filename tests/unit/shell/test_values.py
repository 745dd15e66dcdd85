"""Connection strings, times, data and quotas: text to values and back."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from zraft.shell.acls import parse_acl, show_acl
from zraft.shell.quota import Quota, limits_path, parse_quota, quota_path, stats_path
from zraft.shell.render import show_time, visible
from zraft.shell.target import Target, parse_target, rooted, unrooted, unrooted_value
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.wire.client_requests import Create, Exists, GetEphemerals, WhoAmI


def test_a_connection_string_names_servers_and_a_root() -> None:
    two = (Address("a", 2181), Address("10.0.0.1", 2182))
    assert parse_target("a:2181, 10.0.0.1:2182", "x") == Target(two)
    assert parse_target("a,10.0.0.1:2182,a:2181/app/x", "x") == Target(two, "/app/x")
    assert parse_target("[::1]:99,[::1]", "x") == Target((Address("::1", 99), Address("::1", 2181)))
    assert parse_target("a/", "x") == Target((Address("a", 2181),))
    assert str(Target(two, "/app")) == "a:2181,10.0.0.1:2182/app"


@pytest.mark.parametrize("text", ["", "/a", "a:0", "a:x", "a,,b", "::1", "a b:1"])
def test_a_connection_string_that_is_none_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--connect"):
        parse_target(text, "--connect")


def test_a_root_stands_before_every_path_and_in_no_answer() -> None:
    assert rooted(Exists("/a", watch=True), "/app") == Exists("/app/a", watch=True)
    assert rooted(Exists("/"), "/app") == Exists("/app")
    assert rooted(Exists("/a"), "") == Exists("/a")
    assert rooted(WhoAmI(), "/app") == WhoAmI()
    assert unrooted("/app", "/app") == "/"
    assert unrooted("/app/a", "/app") == "/a"
    assert unrooted("/apple", "/app") == "/apple"
    assert unrooted_value(Create("/a"), "/app/a0", "/app") == "/a0"
    assert unrooted_value(GetEphemerals("/"), ("/app/a", "/app"), "/app") == ("/a", "/")


def test_times_are_written_as_java_writes_them() -> None:
    zone = timezone(timedelta(hours=1), "CET")
    assert show_time(1_700_000_000_999, zone) == "Tue Nov 14 23:13:20 CET 2023"
    assert show_time(0, zone) == "Thu Jan 01 01:00:00 CET 1970"
    assert show_time(2**63 - 1, zone) == "9223372036854775807 ms"
    assert show_time(-(2**63), zone) == "-9223372036854775808 ms"


def test_what_would_steer_a_terminal_is_shown_and_not_done() -> None:
    assert visible("plain ä 😀\n\tx") == "plain ä 😀\n\tx"
    assert visible("\x1b[2J\r\x00\x9b") == r"\x1b[2J\r\x00\x9b"
    assert visible(b"a\xff".decode(errors="surrogateescape")) == r"a\xff"
    assert visible("\u202e") == r"\u202e"


def test_acls_are_read_and_shown() -> None:
    acl = parse_acl("world:anyone:r,digest:bob:ha=:cdrwa,ip:::1/64:,auth::w")
    assert acl == ((1, "world", "anyone"), (31, "digest", "bob:ha="), (0, "ip", "::1/64"), (2, "auth", ""))
    assert show_acl(acl[:2]) == "'world,'anyone\n: r\n'digest,'bob:ha=\n: cdrwa"


def test_quotas_are_read_as_they_are_written() -> None:
    quota = Quota(1, 2, 3, 4)
    assert str(quota) == "count=1,bytes=2=;byteHardLimit=3;countHardLimit=4"
    assert parse_quota(str(quota).encode(), "x") == quota
    assert parse_quota(b"count=1,bytes=2", "x") == Quota(1, 2)
    assert (quota_path("/"), quota_path("/a")) == ("/zookeeper/quota", "/zookeeper/quota/a")
    assert limits_path("/a/b") == "/zookeeper/quota/a/b/zookeeper_limits"
    assert stats_path("/a/b") == "/zookeeper/quota/a/b/zookeeper_stats"
