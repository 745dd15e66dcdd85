"""`zraft member`, `zraft settings` and `zraft topic`, from the command line to a fake server's channel and back."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from tests.unit.operator.fake_cluster import KEY, OTHER_KEY, FakeServer
from zraft.cli.dev_clusters import DevCluster, announced
from zraft.cli.main import main
from zraft.operator.requests import (
    AclDefaults,
    AclLine,
    AclList,
    AclListing,
    AclRemove,
    AclSet,
    AclShow,
    AclShown,
    Done,
    FeatureRaise,
    FollowerLine,
    MemberAdd,
    MemberLine,
    MemberList,
    MemberListing,
    MemberMove,
    MemberPromote,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    PartitionLine,
    Refused,
    ReplicaLine,
    ReplicaListing,
    SettingLine,
    SettingsListing,
    SettingsSet,
    SettingsShow,
    TopicAlter,
    TopicCreate,
    TopicDelete,
    TopicDescribe,
    TopicDescription,
    TopicLine,
    TopicList,
    TopicListing,
    TopicReplicas,
    TopicRetain,
    Transfer,
)
from zraft.transport.keys import replace_keys
from zraft_core.address import Address, parse_address
from zraft_core.ids import Instance, ServerId
from zraft_core.topics.access import Guarded
from zraft_core.znodes.acl import ALL, OPEN_ACL, READ, WRITE, Acl

LISTING = MemberListing(
    b"\xc1" * 4,
    12,
    500,
    True,
    (
        MemberLine(ServerId(1), "10.0.0.1:2181", "voter", Instance(b"\xaa" * 16), True, 500, None, 2),
        MemberLine(ServerId(4), "[fd00::4]:2181", "learner", Instance(b"\xbb" * 16), False, 380, 30, 1),
        MemberLine(ServerId(5), "", "observer", Instance(b""), False, None, None, None),
    ),
)
SETTINGS = SettingsListing(
    (SettingLine("tick_time_ms", 2000, 2000), SettingLine("session_timeout_ms_max", 40_000, 60_000)), 1, 2
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The fake server logs in this very process, where the output of commands is looked at."""
    with capture_logs():
        yield


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.key"
    path.touch(0o600)
    replace_keys(path, [KEY])
    return path


class Asked:
    """A fake server and the command line's end of it."""

    def __init__(self, server: FakeServer, key: Path) -> None:
        self.server = server
        self.key = key
        self.answer: OperatorReply = Done("done")
        self.answers: list[OperatorReply] = []

    def script(self, *answers: OperatorReply) -> None:
        """These in turn, the last one for all that follows."""
        self.answers = list(answers)

    def next_answer(self) -> OperatorReply:
        if self.answers:
            self.answer = self.answers.pop(0)
        return self.answer

    def run(self, *arguments: str, key: Path | None = None, timeout_s: float = 3.0) -> Result:
        options = ["--connect", self.server.address, "--key", str(key or self.key)]
        options += ["--timeout", str(timeout_s)]
        return CliRunner().invoke(main, [*arguments, *options])


@pytest.fixture
def asked(key: Path) -> Iterator[Asked]:
    def answer(request: OperatorRequest) -> OperatorReply:
        return found.next_answer()

    with FakeServer(answer) as server:
        found = Asked(server, key)
        yield found


@pytest.mark.parametrize(
    ("command", "request_"),
    [
        ("member add 4 10.0.0.4:2181", MemberAdd(ServerId(4), "10.0.0.4:2181", False)),
        ("member add 5 [::1]:2181 --observer", MemberAdd(ServerId(5), "[::1]:2181", True)),
        ("member move 2 10.0.0.9:2181", MemberMove(ServerId(2), "10.0.0.9:2181")),
        ("member remove 2 --no-wait", MemberRemove(ServerId(2))),
        ("member promote 4", MemberPromote(ServerId(4))),
        ("member transfer 3", Transfer(ServerId(3))),
        ("member transfer", Transfer(None)),
        ("settings set session_timeout_ms_max 60000", SettingsSet("session_timeout_ms_max", 60_000)),
        ("settings raise-features", FeatureRaise(None)),
        ("settings raise-features 2", FeatureRaise(2)),
        ("topic create orders --no-wait", TopicCreate("orders", 1, None, None)),
        (
            "topic create orders --partitions 8 --retain-size 10GiB --retain-age 7d --no-wait",
            TopicCreate("orders", 8, 10 * 2**30, 7 * 86_400_000),
        ),
        ("topic create x --retain-size 500 --retain-age none --no-wait", TopicCreate("x", 1, 500, None)),
        ("topic alter orders --partitions 16 --no-wait", TopicAlter("orders", 16)),
        ("topic delete orders", TopicDelete("orders")),
        ("topic acl close", AclDefaults(((0, "world", "anyone"),))),
        ("topic acl open", AclDefaults(OPEN_ACL)),
        ("topic acl remove orders", AclRemove(Guarded.TOPICS, b"orders")),
        ("topic acl remove --consumer billing", AclRemove(Guarded.CONSUMERS, b"billing")),
    ],
)
def test_each_command_asks_for_what_it_says_and_prints_what_was_done(
    asked: Asked, command: str, request_: OperatorRequest
) -> None:
    asked.answer = Done("server 4 was taken in")
    result = asked.run(*command.split())
    assert result.exit_code == 0, result.output
    assert result.output == "server 4 was taken in\n"
    assert asked.server.asked == [request_]


def test_a_removal_is_waited_for_until_the_server_belongs_to_no_configuration(asked: Asked) -> None:
    """Who empties its disk before takes partitions' last copies away."""
    leaving = evolve(LISTING.members[1], role="leaving")
    asked.script(
        Done("server 4 leaves when the partitions of topics on its disk have moved: 7 of them"),
        evolve(LISTING, changing=False, members=(LISTING.members[0], leaving)),
        Refused("no server leads at the moment", retriable=True),
        evolve(LISTING, changing=True, members=LISTING.members[:1]),
        evolve(LISTING, changing=False, members=LISTING.members[:1]),
    )
    result = asked.run("member", "remove", "4")
    assert result.exit_code == 0, result.output
    first, last = result.output.splitlines()
    assert "7 of them" in first
    assert last == "server 4 has left; stop it"
    assert asked.server.asked == [MemberRemove(ServerId(4)), *[MemberList()] * 4]


def test_a_removal_that_takes_longer_goes_on_without_the_command_which_says_so(asked: Asked) -> None:
    asked.script(Done("server 4 leaves"), evolve(LISTING, changing=False))
    result = asked.run("member", "remove", "4", timeout_s=0.5)
    assert result.exit_code == 3
    assert "was not seen to have left after 0.5 s; it goes on without this command" in result.output
    assert "Keep its disk until `zraft member list` does not show it any more" in result.output


def test_member_list_shows_who_is_behind_and_who_never_came(asked: Asked) -> None:
    asked.answer = LISTING
    result = asked.run("member", "list")
    assert result.exit_code == 0, result.output
    assert asked.server.asked == [MemberList()]
    rows = [" ".join(line.replace("│", " ").split()) for line in result.output.splitlines()]
    assert "1 10.0.0.1:2181 voter yes 0 - 2 aaaaaaaa" in rows
    assert "4 [fd00::4]:2181 learner 120 30 1 bbbbbbbb" in rows
    assert "5 ? observer - - -" in rows
    assert "a change is under way" in result.output
    assert "cluster c1c1c1c1, configuration of entry 12" in result.output


def test_member_list_as_json(asked: Asked) -> None:
    asked.answer = LISTING
    found = json.loads(asked.run("member", "list", "--json").output)
    assert found["changing"] is True
    assert [member["role"] for member in found["members"]] == ["voter", "learner", "observer"]
    assert found["members"][0]["disk"] == "aa" * 16


def test_settings_show_tells_what_differs_and_what_can_be_raised(asked: Asked) -> None:
    asked.answer = SETTINGS
    result = asked.run("settings", "show")
    assert result.exit_code == 0, result.output
    assert asked.server.asked == [SettingsShow()]
    rows = [" ".join(line.replace("│", " ").split()) for line in result.output.splitlines()]
    assert "tick_time_ms 2000" in rows
    assert "session_timeout_ms_max 40000 60000" in rows
    assert "feature level 1; all members can do 2: `zraft settings raise-features`" in result.output
    as_json = json.loads(asked.run("settings", "show", "--json").output)
    assert as_json["settings"]["session_timeout_ms_max"] == {"value": 40_000, "configured": 60_000}


def test_a_refusal_ends_with_1_and_its_reason(asked: Asked) -> None:
    asked.answer = Refused("server 1 is the last voter")
    result = asked.run("member", "remove", "1")
    assert result.exit_code == 1
    assert result.output == f"Error: {asked.server.address}: server 1 is the last voter\n"


def test_what_may_have_happened_ends_with_3(key: Path) -> None:
    with FakeServer(lambda _: None) as server:
        result = Asked(server, key).run("member", "remove", "1")
    assert result.exit_code == 3
    assert "may have been carried out or not" in result.output


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("member add 4 nonsense", "HOST:PORT"),
        ("member add 255 10.0.0.4:2181", "255"),
        ("member move 4 nonsense", "HOST:PORT"),
        ("member remove x", "x"),
        ("settings set tick_time_ms fast", "fast"),
    ],
)
def test_a_wrong_command_ends_with_2_and_asks_nobody(asked: Asked, command: str, complaint: str) -> None:
    result = asked.run(*command.split())
    assert result.exit_code == 2
    assert complaint in result.output
    assert asked.server.asked == []


def test_a_wrong_key_and_a_key_file_that_others_can_read_are_told(asked: Asked, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    other.touch(0o600)
    replace_keys(other, [OTHER_KEY])
    result = asked.run("member", "list", key=other)
    assert result.exit_code == 1
    assert f"does not take cluster key {OTHER_KEY.key_id.hex()}" in result.output
    other.chmod(0o644)
    result = asked.run("member", "list", key=other)
    assert result.exit_code == 2
    assert "mode 0644" in result.output
    assert OTHER_KEY.secret.hex() not in result.output


def test_the_key_may_come_from_the_environment_by_the_name_of_a_file(asked: Asked) -> None:
    """ZRAFT_KEY is what a server's setting is called; while the key is changed it may name two files."""
    asked.answer = LISTING
    result = CliRunner().invoke(
        main,
        ["member", "list", "--json", "--connect", asked.server.address],
        env={"ZRAFT_KEY": str(asked.key)},
    )
    assert result.exit_code == 0, result.output


class Noted:
    """A running `zraft dev` at the fake server's address, as its note has it."""

    def __init__(self, asked: Asked, directory: Path, key: Path) -> None:
        self.environ = {"XDG_STATE_HOME": str(directory)}
        self.address = asked.server.address
        self.cluster = DevCluster((parse_address(self.address, "--connect"),), directory, key)

    def run(self, *options: str, connect: str = "", zraft_key: Path | None = None) -> Result:
        environ = {**self.environ, "ZRAFT_KEY": None if zraft_key is None else str(zraft_key)}
        arguments = ["member", "list", "--json", "--connect", connect or self.address, *options]
        return CliRunner(env=environ).invoke(main, arguments)


def test_the_key_is_the_one_given_then_that_of_the_environment_then_that_of_the_cluster_that_runs_there(
    asked: Asked, tmp_path: Path
) -> None:
    asked.answer = LISTING
    other = tmp_path / "other.key"
    other.touch(0o600)
    replace_keys(other, [OTHER_KEY])
    refused = f"does not take cluster key {OTHER_KEY.key_id.hex()}"
    right = Noted(asked, tmp_path / "right", asked.key)
    wrong = Noted(asked, tmp_path / "wrong", other)
    with announced(right.cluster, right.environ, pytest.fail), announced(wrong.cluster, wrong.environ, print):
        assert right.run().exit_code == 0
        for found in (right.run("--key", str(other)), right.run(zraft_key=other)):
            assert found.exit_code == 1
            assert refused in found.output
            assert (
                f"The key is that of {other} (--key, ZRAFT_KEY); it is probably {asked.key}" in found.output
            )
        for found in (wrong.run("--key", str(asked.key)), wrong.run(zraft_key=asked.key)):
            assert found.exit_code == 0, found.output
        assert right.run("--key", str(asked.key), zraft_key=other).exit_code == 0
        found = wrong.run()
        assert found.exit_code == 1
        assert f"The key is that of {other}, which `zraft dev` made" in found.output
        other.unlink()
        found = wrong.run()
        assert found.exit_code == 2
        assert f"{other}: cannot open the key file" in found.output
        assert "`zraft dev` made it" in found.output


def test_the_key_of_a_running_cluster_is_not_tried_on_other_addresses(asked: Asked, tmp_path: Path) -> None:
    asked.answer = LISTING
    noted = Noted(asked, tmp_path, asked.key)
    elsewhere = evolve(noted.cluster, servers=(Address("127.0.0.1", 1),))
    with announced(elsewhere, noted.environ, pytest.fail):
        found = noted.run()
    assert found.exit_code == 1
    assert found.output.endswith(
        "Give the file of the key with --key or ZRAFT_KEY: a copy of the one that the servers were started with "
        "(their --key).\n"
    )
    with announced(noted.cluster, noted.environ, pytest.fail):
        both = noted.run(connect=f"{noted.address},127.0.0.1:1")
    assert both.exit_code == 1
    assert both.output.count(str(asked.key)) == 1
    assert f"with --key or ZRAFT_KEY; it is probably {asked.key}, which `zraft dev` made" in both.output
    assert asked.server.asked == []


@pytest.mark.parametrize(
    "command",
    [
        "member",
        "member list",
        "member add",
        "member move",
        "member transfer",
        "settings",
        "settings set",
        "topic acl",
        "topic acl add",
        "topic acl close",
        "key",
        "key add",
    ],
)
def test_help_teaches(command: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert len(result.output) > 200


def _partition(number: int, state: str = "ready") -> PartitionLine:
    return PartitionLine(number, 4_294_967_300 + number, ServerId(2), (1, 2, 3), state)


def _description(*rows: PartitionLine, wanted: int = 2, more: bool = False) -> TopicDescription:
    return TopicDescription("orders", 99, wanted, 10 * 2**30, None, rows, more)


def test_topic_create_waits_until_the_partitions_take_messages(asked: Asked) -> None:
    asked.script(
        Done("topic orders is created"),
        _description(),
        _description(_partition(0), _partition(1, "adding")),
        _description(_partition(0), _partition(1)),
    )
    result = asked.run("topic", "create", "orders", "--partitions", "2")
    assert result.exit_code == 0, result.output
    assert result.output == "topic orders is created\n2 partitions take messages\n"
    assert asked.server.asked == [TopicCreate("orders", 2), *[TopicDescribe("orders", 0)] * 3]


def test_topic_create_speaks_of_one_partition_as_of_one(asked: Asked) -> None:
    asked.script(Done("topic orders is created"), _description(_partition(0), wanted=1))
    assert asked.run("topic", "create", "orders").output.endswith("\n1 partition takes messages\n")


def test_topic_create_says_how_far_it_got_when_the_time_is_over(asked: Asked) -> None:
    asked.script(Done("topic orders is created"), _description(_partition(0)))
    result = asked.run("topic", "create", "orders", "--partitions", "2", "--timeout", "0.3")
    assert result.exit_code == 3
    assert "1 of 2 partitions take messages so far" in result.output


def test_topic_list_asks_for_all_pages(asked: Asked) -> None:
    first = TopicLine("audit", 5, 4, 4, 0, None, 86_400_000)
    second = TopicLine("orders", 9, 2, 8, 1, 3 * 2**20, None)
    asked.script(TopicListing((first,), True, 7, 0), TopicListing((second,), False, 7, 0))
    result = asked.run("topic", "list")
    assert result.exit_code == 0, result.output
    assert asked.server.asked == [TopicList(""), TopicList("audit")]
    rows = [" ".join(line.replace("│", " ").split()) for line in result.output.splitlines()]
    assert "audit 4 1d" in rows
    assert "orders 2 of 8 1 3MiB" in rows
    asked.script(TopicListing((first, second), False, 7, 0))
    found = [json.loads(line) for line in asked.run("topic", "list", "--json").output.splitlines()]
    assert [(one["name"], one["partitions"], one["wanted"]) for one in found] == [
        ("audit", 4, 4),
        ("orders", 2, 8),
    ]


GROUP = 4_294_967_300


class Holders:
    """Three fake servers that hold two partitions of a topic. Server 1 leads the first one, and answers what leaders do."""

    def __init__(self, key: Path) -> None:
        self.key = key
        self.pages = [_description(_partition(0), _partition(1, "moving"), wanted=3)]
        self.held: dict[int, list[ReplicaLine]] = {1: [], 2: [], 3: []}
        self.servers: dict[int, FakeServer] = {}
        self.away: dict[int, str] = {}

    def answer(self, server: int, request: OperatorRequest) -> OperatorReply:
        match request:
            case TopicDescribe(_, first):
                return next(page for page in self.pages if page.partitions[0].number == first)
            case MemberList():
                addresses = {number: one.address for number, one in self.servers.items()} | self.away
                lines = [
                    MemberLine(ServerId(number), address, "voter", Instance(b""), False, None, None, None)
                    for number, address in sorted(addresses.items())
                ]
                return MemberListing(b"", 1, 1, False, tuple(lines))
            case TopicReplicas(groups):
                return ReplicaListing(
                    ServerId(server), tuple(one for one in self.held[server] if one.group in groups)
                )
        return Refused("it is not known what that is")

    def describe(self, *options: str) -> Result:
        with ExitStack() as stack:
            for number in self.held.keys() - self.away.keys():
                server = FakeServer(partial(self.answer, number), server=number)
                self.servers[number] = stack.enter_context(server)
            command = ["topic", "describe", "orders", *options, "--key", str(self.key)]
            return CliRunner().invoke(
                main, [*command, "--connect", self.servers[1].address, "--timeout", "5"]
            )


def _replica(number: int, leads: bool = False, **changes: Any) -> ReplicaLine:
    one = ReplicaLine(GROUP + number, 7, ServerId(1), leads, 10, 1_000, 3_565_158, 7_200_000, "", ())
    return evolve(one, **changes)


@pytest.fixture
def holders(key: Path) -> Holders:
    made = Holders(key)
    followers = (FollowerLine(ServerId(2), 0, 20, True), FollowerLine(ServerId(3), 40, 12_000, False))
    made.held[1] = [_replica(0, True, followers=followers), _replica(1, leader=None)]
    made.held[2] = [_replica(0, end=998), _replica(1, leader=None, end=1_002)]
    return made


def _rows(output: str) -> list[str]:
    return [" ".join(line.replace("│", " ").split()) for line in output.splitlines()]


def test_topic_describe_shows_who_leads_who_is_in_sync_and_what_is_kept(holders: Holders) -> None:
    holders.held[3] = [_replica(1, leader=None, end=5)]
    result = holders.describe()
    assert result.exit_code == 0, result.output
    rows = _rows(result.output)
    expected = "0 4294967300 1 2 1, 2 3 (40 entries behind, silent 12.0s) 10 to 1000 3.4MiB 2.0h ready"
    assert expected in rows, result.output
    # Where nobody leads, the replica that has come the furthest is shown, and nobody knows who is in sync.
    assert "1 4294967301 none 2 unknown: 1, 2, 3 10 to 1002 3.4MiB 2.0h moving" in rows
    assert "retained: 10GiB; 1 more are not created yet" in rows


def test_topic_describe_names_a_server_that_does_not_answer_and_what_others_know_of_it(
    holders: Holders,
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        holders.away[3] = f"127.0.0.1:{bound.getsockname()[1]}"
        holders.held[1][1] = _replica(1, leader=ServerId(3))
        result = holders.describe("--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.output)
        table = holders.describe()
    first, second = found["partitions"]
    assert (first["leader"], first["preferred"], first["servers"]) == (1, 2, [1, 2, 3])
    assert (first["first"], first["end"], first["stored_bytes"], first["oldest_age_ms"]) == (
        *(10, 1_000, 3_565_158),
        7_200_000,
    )
    shown = [(one["server"], one["leads"], one["in_sync"], one["behind"]) for one in first["replicas"]]
    assert shown == [(1, True, True, None), (2, False, True, 0), (3, False, False, 40)]
    assert [one["end"] for one in first["replicas"]] == [1_000, 998, None]
    assert (second["leader"], second["state"]) == (3, "moving"), (
        "it cannot be asked, and its followers hear it"
    )
    (unanswered,) = found["unanswered"]
    assert (unanswered["server"], unanswered["address"]) == (3, holders.away[3])
    assert "cannot connect" in unanswered["problem"]
    assert any(row.startswith("server 3 did not tell what it holds: ") for row in _rows(table.output))


def test_of_two_servers_that_believe_to_lead_the_one_of_the_newer_term_counts(holders: Holders) -> None:
    holders.held[2][0] = _replica(0, True, term=8, followers=(FollowerLine(ServerId(1), None, None, False),))
    found = json.loads(holders.describe("--json").output)
    assert found["partitions"][0]["leader"] == 2
    assert [one["in_sync"] for one in found["partitions"][0]["replicas"]] == [False, True, None]


def test_topic_describe_tells_why_a_partition_does_not_work_and_reads_all_pages(holders: Holders) -> None:
    holders.pages = [
        _description(_partition(0), more=True),
        _description(_partition(1)),
    ]
    holders.held[2][0] = _replica(0, problem="its deliveries are damaged")
    result = holders.describe()
    assert "partition 0 on server 2: its deliveries are damaged" in _rows(result.output)
    asked = holders.servers[1].asked
    assert asked[:2] == [TopicDescribe("orders", 0), TopicDescribe("orders", 1)]
    assert asked[2:] == [MemberList(), TopicReplicas((GROUP, GROUP + 1))]


def test_a_server_of_an_earlier_release_is_named_and_the_rest_is_shown(key: Path) -> None:
    class Earlier(Holders):
        def answer(self, server: int, request: OperatorRequest) -> OperatorReply:
            if isinstance(request, TopicReplicas):
                return Refused("op: expected one of the kinds [member.list], found str 'topic.replicas'")
            return super().answer(server, request)

    result = Earlier(key).describe()
    assert result.exit_code == 0, result.output
    assert sum("did not tell what it holds" in row for row in _rows(result.output)) == 3
    assert any(row.startswith("0 4294967300 none 2 unknown: 1, 2, 3") for row in _rows(result.output))


def test_topic_alter_changes_one_bound_and_leaves_the_other(asked: Asked) -> None:
    asked.script(_description(_partition(0)), Done("changed"))
    assert asked.run("topic", "alter", "orders", "--retain-age", "90s").exit_code == 0
    assert asked.server.asked[1:] == [TopicRetain("orders", 10 * 2**30, 90_000)]
    asked.script(_description(_partition(0)), Done("changed"))
    assert asked.run("topic", "alter", "orders", "--retain-size", "none").exit_code == 0
    assert asked.server.asked[3:] == [TopicRetain("orders", None, None)]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topic alter orders", "nothing to change"),
        ("topic create orders --retain-size 5parsecs", "expected a size such as 500MiB"),
        ("topic create orders --retain-age 7GiB", "expected a time such as 12h"),
        ("topic create orders --retain-size 9999999999999TiB", "expected a size"),
        ("topic create orders --partitions 0", "0 is not in the range"),
        ("topic acl set orders", "found no ACL"),
        ("topic acl set orders alice:rw", "scheme:id:perm"),
        ("topic acl add orders sasl:alice:rwx", "Unknown perm type: x"),
        ("topic acl remove orders alice", "expected SCHEME:ID"),
    ],
)
def test_a_wrong_topic_command_is_told_before_anybody_is_asked(asked: Asked, command: str, said: str) -> None:
    result = asked.run(*command.split())
    assert result.exit_code == 2
    assert said in result.output
    assert asked.server.asked == []


CLOSED: Acl = ((0, "world", "anyone"),)
ALICE: Acl = ((READ, "sasl", "alice"),)


@pytest.mark.parametrize(
    ("shown", "command", "written"),
    [
        (AclShown(None, None, None), "set orders sasl:alice:r", ALICE),
        (AclShown(OPEN_ACL, 3, None), "set orders sasl:alice:r", ALICE),
        (AclShown(None, None, CLOSED), "add orders sasl:alice:r", ALICE),
        (AclShown(None, None, None), "add orders sasl:alice:r", (*OPEN_ACL, *ALICE)),
        (AclShown(ALICE, 5, CLOSED), "add orders sasl:alice:w", ((READ | WRITE, "sasl", "alice"),)),
        (
            AclShown(ALICE, 5, None),
            "add orders ip:10.0.0.0/8:r x509:CN=bob,OU=x:w",
            (*ALICE, (READ, "ip", "10.0.0.0/8"), (WRITE, "x509", "CN=bob,OU=x")),
        ),
        (AclShown((*ALICE, *OPEN_ACL), 2, None), "remove orders world:anyone", ALICE),
        (AclShown(ALICE, 2, None), "remove orders sasl:alice", CLOSED),
    ],
)
def test_an_acl_is_changed_as_it_was_found(asked: Asked, shown: AclShown, command: str, written: Acl) -> None:
    asked.script(shown, Done("done"))
    result = asked.run("topic", "acl", *command.split())
    assert result.exit_code == 0, result.output
    assert asked.server.asked == [
        AclShow(Guarded.TOPICS, b"orders"),
        AclSet(Guarded.TOPICS, b"orders", written, shown.version),
    ]


def test_nobody_is_removed_who_is_not_there(asked: Asked) -> None:
    asked.script(AclShown(None, None, CLOSED))
    result = asked.run("topic", "acl", "remove", "orders", "sasl:alice")
    assert result.exit_code != 0
    assert "no ACL of its own" in result.output
    assert asked.server.asked == [AclShow(Guarded.TOPICS, b"orders")]


def test_acls_are_shown_in_the_form_in_which_they_are_given(asked: Asked) -> None:
    asked.script(AclShown(((ALL, "digest", "bob:hash="), (READ, "sasl", "alice")), 1, CLOSED))
    assert asked.run("topic", "acl", "get", "orders").output == "digest:bob:hash=:cdrwa\nsasl:alice:r\n"
    asked.script(AclShown(None, None, CLOSED))
    shown = json.loads(asked.run("topic", "acl", "get", "orders", "--json").output)
    assert shown == {"name": "orders", "own": False, "acl": ["world:anyone:"]}


def test_all_names_with_acls_are_listed_page_by_page(asked: Asked) -> None:
    asked.script(
        AclListing(CLOSED, (AclLine("a", b"a", ALICE),), True),
        AclListing(CLOSED, (AclLine("%00", b"\0", OPEN_ACL),), False),
    )
    result = asked.run("topic", "acl", "list", "--consumer", "--json")
    assert [json.loads(line)["acl"] for line in result.output.splitlines()] == [
        ["world:anyone:"],
        ["sasl:alice:r"],
        ["world:anyone:cdrwa"],
    ]
    assert asked.server.asked == [AclList(Guarded.CONSUMERS), AclList(Guarded.CONSUMERS, "a")]
