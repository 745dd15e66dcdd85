"""What ZooKeeper's reconfig strings come to: one port per server, and nothing half understood."""

from __future__ import annotations

import pytest

from tests.unit.wire.test_requests import raw
from zraft.config.features import FEATURE_LEVEL_MAX, LEVEL_OF_MEMBERS
from zraft.tree.members import WantedMember, changed_members, config_text
from zraft_core.ids import ServerId
from zraft_core.wire.client_requests import Reconfig
from zraft_core.wire.reconfig import UNREADABLE, decode_reconfig_command, server_change
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE
from zraft_core.znodes.txn import MEMBERS, Command


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server.4=10.0.0.4:2888:3888;2181", (4, PARTICIPANT, "10.0.0.4:2181")),
        ("server.4=10.0.0.4:2888:3888:observer;2181", (4, OBSERVER, "10.0.0.4:2181")),
        ("server.4=10.0.0.4:2888:3888:PARTICIPANT;0.0.0.0:2181", (4, PARTICIPANT, "10.0.0.4:2181")),
        ("server.4=zk4.example.org:2888:3888", (4, PARTICIPANT, "zk4.example.org:2888")),
        (" server.4 = zk4:2888:3888;10.1.1.1:2181 ", (4, PARTICIPANT, "zk4:2181")),
        ("server.4=[::1]:2888:3888;[::]:2181", (4, PARTICIPANT, "[::1]:2181")),
        ("server.4=a:2888:3888|b:2888:3888;2181", (4, PARTICIPANT, "a:2181")),
        ("server.300=h:1:2;3", (300, PARTICIPANT, "h:3")),
        # -- as /zookeeper/config shows it, now and below feature level 5
        ("server.4=10.0.0.4:2181:0:participant;10.0.0.4:2181", (4, PARTICIPANT, "10.0.0.4:2181")),
        ("server.4=10.0.0.4:2181:2181:observer;10.0.0.4:2181", (4, OBSERVER, "10.0.0.4:2181")),
        ("server.4=[fd00::4]:65535:0:observer;[fd00::4]:65535", (4, OBSERVER, "[fd00::4]:65535")),
        # -- none of these is one
        ("some thing", UNREADABLE),
        ("server.4", UNREADABLE),
        ("server.x=h:1:2", UNREADABLE),
        ("server.4=h:1", UNREADABLE),
        ("server.4=h:1:2:voter;3", UNREADABLE),
        ("server.4=h:1:2;99999", UNREADABLE),
        ("server.4=h:1:2;x", UNREADABLE),
        ("server.4=:1:2;3", UNREADABLE),
        ("group.1=1:2:3", UNREADABLE),
        ("weight.1=1", UNREADABLE),
    ],
)
def test_a_server_is_reached_at_its_host_and_client_port(text: str, expected: object) -> None:
    assert server_change(text) == expected


@pytest.mark.parametrize("level", [LEVEL_OF_MEMBERS, FEATURE_LEVEL_MAX])
def test_what_the_configuration_shows_is_what_a_reconfig_takes(level: int) -> None:
    """Of each release: a client may read it, change a line, and send it back."""
    members = {
        ServerId(1): WantedMember(True, "10.0.0.1:1"),
        ServerId(2): WantedMember(False, "[1:2181:0:3:4:5:6:7]:2181"),
        ServerId(254): WantedMember(True, "zk-1.example.org:65535"),
    }
    text = config_text(members, 42, level).decode()
    _, replace, _, changes = command(None, None, text)
    assert (replace, changed_members({}, replace, changes)) == (True, members)
    lines = ",".join(text.splitlines()[:-1])
    _, replace, _, changes = command(lines, None, None)
    assert (replace, changed_members(members, replace, changes)) == (False, members)


def command(joining: str | None, leaving: str | None, members: str | None, version: int = -1) -> Command:
    request = Reconfig(joining, leaving, members, version)
    return decode_reconfig_command(raw(16, request.body().hex()))


def test_those_who_leave_and_join_are_one_change() -> None:
    asked = command("server.5=h:1:2;3,server.6=i:1:2;3", "2, 3", None, 17)
    assert asked == (
        MEMBERS,
        False,
        17,
        ((2, REMOVE, ""), (3, REMOVE, ""), (5, PARTICIPANT, "h:3"), (6, PARTICIPANT, "i:3")),
    )


def test_a_whole_configuration_may_be_lines_of_a_file() -> None:
    text = "# ours\nserver.1=a:1:2:participant;3\nserver.2=b:1:2:observer;3\nversion=100000000\n"
    assert command(None, None, text) == (MEMBERS, True, -1, ((1, PARTICIPANT, "a:3"), (2, OBSERVER, "b:3")))
    assert command(None, None, "server.1=a:1:2;3,server.2=b:1:2;3") == (
        MEMBERS,
        True,
        -1,
        ((1, PARTICIPANT, "a:3"), (2, PARTICIPANT, "b:3")),
    )


@pytest.mark.parametrize(
    ("joining", "leaving"), [("some thing", None), (None, "two"), (None, None), ("", ""), (None, "-1")]
)
def test_what_cannot_be_read_is_refused_as_a_whole(joining: str | None, leaving: str | None) -> None:
    """In its turn, by the state machine: BAD_ARGUMENTS."""
    _, _, _, changes = command(joining, leaving, None)
    assert UNREADABLE in changes
