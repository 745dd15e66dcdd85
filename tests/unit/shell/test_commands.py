"""Each command asks what it should and says what ZooKeeper's client would say; texts were compared with zkCli 3.8's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.shell.talk import STAT, STAT_TEXT, Exchange, Talk
from zraft.shell.catalogue import SPECS
from zraft.shell.commands import COMMANDS, client_config
from zraft.shell.conversation import ForgetWatches
from zraft.shell.errors import (
    EXIT_FAILED,
    EXIT_USAGE,
    NotConnectedError,
    RefusedError,
    ShellError,
    UsageError,
)
from zraft_core.errors import Code
from zraft_core.wire.client_requests import (
    AddWatch,
    Auth,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Reconfig,
    RemoveWatches,
    Request,
    SetAcl,
    SetData,
    Sync,
    WhoAmI,
)
from zraft_core.znodes.events import AddWatchMode, WatcherType

LIMITS = "/zookeeper/quota/q/zookeeper_limits"
STATS = "/zookeeper/quota/q/zookeeper_stats"
ALL = ((31, "world", "anyone"),)
STAT_JSON = {
    "czxid": 2,
    "mzxid": 3,
    "ctime": 0,
    "mtime": 1_700_000_000_000,
    "version": 4,
    "cversion": 5,
    "aversion": 6,
    "ephemeralOwner": -1,
    "dataLength": 7,
    "numChildren": 8,
    "pzxid": 9,
}

SIMPLE = [
    ("ls /", [(GetChildren("/"), ("b", "a"))], "[a, b]", [["a", "b"]]),
    ("ls -w /a", [(GetChildren("/a", watch=True), ())], "[]", [[]]),
    (
        "ls -s /a",
        [(GetChildren2("/a"), (("b",), STAT))],
        f"[b]\n{STAT_TEXT}",
        [{"children": ["b"], "stat": STAT_JSON}],
    ),
    ("get /a", [(GetData("/a"), (b"x y", STAT))], "x y", [{"path": "/a", "data": "x y"}]),
    ("get /a", [(GetData("/a"), (None, STAT))], "null", [{"path": "/a", "data": None}]),
    ("get /a", [(GetData("/a"), (b"", STAT))], "", [{"path": "/a", "data": ""}]),
    (
        "get /a",
        [(GetData("/a"), (b"\xff", STAT))],
        "\udcff",
        [{"path": "/a", "data_base64": "/w=="}],
    ),
    (
        "get -b /a",
        [(GetData("/a"), (b"hello", STAT))],
        "aGVsbG8=",
        [{"path": "/a", "data_base64": "aGVsbG8="}],
    ),
    (
        "get /a -sw",
        [(GetData("/a", watch=True), (b"x", STAT))],
        f"x\n{STAT_TEXT}",
        [{"path": "/a", "data": "x", "stat": STAT_JSON}],
    ),
    ("stat -w /a", [(Exists("/a", watch=True), STAT)], STAT_TEXT, [STAT_JSON]),
    ("create /a", [(Create("/a"), "/a")], "Created /a", [{"created": "/a"}]),
    ('create /a ""', [(Create("/a", b""), "/a")], "Created /a", [{"created": "/a"}]),
    (
        "create -s -e /a/n- x",
        [(Create("/a/n-", b"x", ephemeral=True, sequential=True), "/a/n-0000000003")],
        "Created /a/n-0000000003",
        [{"created": "/a/n-0000000003"}],
    ),
    ("create -s /", [(Create("/", sequential=True), "/0000000000")], "Created /0000000000", None),
    ("create -c /c", [(Create("/c", container=True), "/c")], "Created /c", None),
    ("create -s -t 5 /t x", [(Create("/t", b"x", sequential=True, ttl_ms=5), "/t0")], "Created /t0", None),
    (
        "create /a x world:anyone:r,ip:::1:cdrwa",
        [(Create("/a", b"x", ((1, "world", "anyone"), (31, "ip", "::1"))), "/a")],
        "Created /a",
        None,
    ),
    ("set /a x", [(SetData("/a", b"x"), STAT)], "", []),
    ("set -s -v 3 /a -5", [(SetData("/a", b"-5", 3), STAT)], STAT_TEXT, [STAT_JSON]),
    ("set /a -- -x", [(SetData("/a", b"-x"), STAT)], "", []),
    ("delete /a", [(Delete("/a"), Code.OK)], "", []),
    ("delete -v 7 /a", [(Delete("/a", 7), Code.OK)], "", []),
    (
        "getAcl /a",
        [(GetAcl("/a"), (((31, "world", "anyone"), (1, "ip", "10.0.0.1")), STAT))],
        "'world,'anyone\n: cdrwa\n'ip,'10.0.0.1\n: r",
        [
            {
                "acl": [
                    {"scheme": "world", "id": "anyone", "perms": "cdrwa"},
                    {"scheme": "ip", "id": "10.0.0.1", "perms": "r"},
                ]
            }
        ],
    ),
    ("getAcl -s /a", [(GetAcl("/a"), (ALL, STAT))], f"'world,'anyone\n: cdrwa\n{STAT_TEXT}", None),
    ("setAcl /a world:anyone:cdrwa", [(SetAcl("/a", ALL), STAT)], "", []),
    ("setAcl -s -v 6 /a world:anyone:cdrwa", [(SetAcl("/a", ALL, 6), STAT)], STAT_TEXT, None),
    ("addauth digest bob:secret", [(Auth("digest", b"bob:secret"), Code.OK)], "", []),
    (
        "whoami",
        [(WhoAmI(), (("digest", "bob"), ("ip", "127.0.0.1")))],
        "Auth scheme: User\ndigest: bob\nip: 127.0.0.1",
        [[{"scheme": "digest", "user": "bob"}, {"scheme": "ip", "user": "127.0.0.1"}]],
    ),
    ("getEphemerals", [(GetEphemerals("/"), ("/b", "/a"))], "[/a, /b]", [["/a", "/b"]]),
    ("getEphemerals /x", [(GetEphemerals("/x"), ())], "[]", [[]]),
    ("getAllChildrenNumber /a", [(GetAllChildrenNumber("/a"), 6)], "6", [6]),
    ("sync /a", [(Sync("/a"), "/a")], "Sync is OK", [{"synced": "/a"}]),
    ("addWatch /a", [(AddWatch("/a", AddWatchMode.PERSISTENT_RECURSIVE), Code.OK)], "", []),
    ("addWatch -m PERSISTENT /a", [(AddWatch("/a", AddWatchMode.PERSISTENT), Code.OK)], "", []),
    ("removewatches /a", [(RemoveWatches("/a", WatcherType.ANY), Code.OK)], "", []),
    ("removewatches /a -c", [(RemoveWatches("/a", WatcherType.CHILDREN), Code.OK)], "", []),
    ("removewatches -d /a", [(RemoveWatches("/a", WatcherType.DATA), Code.OK)], "", []),
    ("config", [(GetData("/zookeeper/config"), (b"", STAT))], "", [{"config": ""}]),
    ("config -w -s", [(GetData("/zookeeper/config", watch=True), (b"x", STAT))], f"x\n{STAT_TEXT}", None),
    (
        "reconfig -remove 3 -add server.5=h:1:2;3",
        [(Reconfig("server.5=h:1:2;3", "3", None, -1), (b"new", STAT))],
        "Committed new configuration:\nnew",
        [{"config": "new"}],
    ),
    (
        "reconfig -s -v 1f -members server.1=h:1:2;3",
        [(Reconfig(None, None, "server.1=h:1:2;3", 31), (b"new", STAT))],
        f"Committed new configuration:\nnew\n{STAT_TEXT}",
        None,
    ),
]


@pytest.mark.parametrize(("line", "exchanges", "text", "values"), SIMPLE, ids=[case[0] for case in SIMPLE])
def test_a_command_asks_and_shows(
    line: str, exchanges: list[Exchange], text: str, values: list[Any] | None
) -> None:
    talk = Talk(line, *exchanges)
    assert talk.error is None
    assert talk.text == text
    if values is not None:
        assert talk.values == values


def test_every_command_of_the_catalogue_that_asks_a_server_is_tried_above_or_below() -> None:
    tried = {case[0].split()[0] for case in SIMPLE} | {
        *("deleteall", "setquota", "listquota", "delquota", "tree", "version")
    }
    assert tried == set(COMMANDS)
    assert set(COMMANDS) < set(SPECS)


REFUSED = [
    ("get /a", GetData("/a"), Code.NO_NODE, "Node does not exist: /a"),
    ("create /a/b", Create("/a/b"), Code.NODE_EXISTS, "Node already exists: /a/b"),
    ("create /e/b", Create("/e/b"), Code.NO_CHILDREN_FOR_EPHEMERALS, "Ephemerals cannot have children: /e/b"),
    ("delete /a", Delete("/a"), Code.NOT_EMPTY, "Node not empty: /a"),
    ("delete /", Delete("/"), Code.BAD_ARGUMENTS, "Arguments are not valid : /"),
    ("set /a x", SetData("/a", b"x"), Code.QUOTA_EXCEEDED, "Quota has exceeded : /a"),
    ("set /a x", SetData("/a", b"x"), Code.NOT_READ_ONLY, "Not a read-only call: /a"),
    ("setAcl /a auth::r", SetAcl("/a", ((1, "auth", ""),)), Code.INVALID_ACL, "Acl is not valid : /a"),
    ("getAcl /a", GetAcl("/a"), Code.NO_AUTH, "Insufficient permission : /a ("),
    (
        "removewatches /a",
        RemoveWatches("/a", WatcherType.ANY),
        Code.NO_WATCHER,
        "KeeperErrorCode = No such watcher for /a",
    ),
    (
        "reconfig -remove 1",
        Reconfig(None, "1", None, -1),
        Code.RECONFIG_DISABLED,
        "KeeperErrorCode = Reconfig is disabled",
    ),
    ("whoami", WhoAmI(), Code.UNIMPLEMENTED, "KeeperErrorCode = Unimplemented (this server does not know"),
    (
        "addauth foo x",
        Auth("foo", b"x"),
        Code.AUTH_FAILED,
        "Authentication failed: the server does not accept",
    ),
]


@pytest.mark.parametrize(("line", "request_", "code", "message"), REFUSED)
def test_an_error_is_said_in_zookeepers_words(
    line: str, request_: Request[Any], code: Code, message: str
) -> None:
    talk = Talk(line, (request_, code))
    assert str(talk.error).startswith(message)
    assert isinstance(talk.error, ShellError)
    assert talk.error.exit_code == EXIT_FAILED
    assert talk.outputs == []


def test_a_wrong_version_is_answered_with_the_right_one() -> None:
    talk = Talk("set -v 3 /a x", (SetData("/a", b"x", 3), Code.BAD_VERSION), (Exists("/a"), STAT))
    assert str(talk.error) == "version No is not valid : /a (expected version 3, znode is at 4)"
    talk = Talk(
        "setAcl -v 3 /a world:anyone:cdrwa", (SetAcl("/a", ALL, 3), Code.BAD_VERSION), (Exists("/a"), STAT)
    )
    assert str(talk.error).endswith("(expected version 3, znode is at 6)")


def test_a_wrong_version_is_an_error_even_if_the_right_one_cannot_be_had() -> None:
    talk = Talk("delete -v 3 /a", (Delete("/a", 3), Code.BAD_VERSION), (Exists("/a"), Code.NO_NODE))
    assert str(talk.error) == "version No is not valid : /a"
    assert isinstance(talk.error, RefusedError)


MISUSES = [
    ("create -c -s /a", "-c cannot be combined with -s or -e."),
    ("create -t 5 -e /a", "-t cannot be combined with -c or -e."),
    ("create -t 0 /a", "create -t: found '0', expected a whole number from 1 to 1099511627775"),
    ("create a", "Path must start with / character"),
    ("create /a/", "Path must not end with / character"),
    ("create /a/../b", "Invalid path string '/a/../b': it has the relative name '..'"),
    ("create /a//b", "Invalid path string '/a//b': it has an empty name"),
    ("create /a x bogus", "bogus does not have the form scheme:id:perm"),
    ("create /a x world:anyone:rx", "Unknown perm type: x in 'world:anyone:rx'"),
    ("set -v x /a y", "set -v: found 'x', expected a whole number from -1 to 2147483647"),
    ("deleteall /", "Arguments are not valid : / ("),
    ("deleteall /zookeeper/quota", "Arguments are not valid : /zookeeper/quota ("),
    ("deleteall -b 0 /a", "deleteall -b: found '0', expected a whole number from 1 to 10000"),
    ("addWatch -m foo /a", "addWatch -m: found 'foo', expected PERSISTENT or PERSISTENT_RECURSIVE"),
    ("removewatches -c -d /a", "removewatches: found more than one of -c, -d and -a"),
    ("setquota /a", "setquota: expected one of -n, -b, -N, -B"),
    ("setquota -n 0 /a", "setquota -n: found '0', expected a whole number from 1 to"),
    ("setquota -n 1 /zookeeper/quota/a", "cannot set a quota under the path: /zookeeper/quota"),
    ("setquota -n 1 /", "setquota: / has no quota"),
    ("reconfig", "reconfig: expected either -file or -members, or -add and/or -remove"),
    ("reconfig -members x -add y", "reconfig: expected either -file or -members, or -add and/or -remove"),
    ("reconfig -v xyz -add y", "reconfig -v: found 'xyz', expected a hexadecimal number"),
]


@pytest.mark.parametrize(("line", "message"), MISUSES, ids=[line for line, _ in MISUSES])
def test_a_misuse_is_told_before_any_server_is_asked(line: str, message: str) -> None:
    talk = Talk(line)
    assert isinstance(talk.error, UsageError)
    assert str(talk.error).startswith(message)
    assert talk.error.exit_code == EXIT_USAGE


def test_reconfig_takes_the_members_from_a_file() -> None:
    text = "# ours\nserver.1=a:1:2;3\n  server.2=b:1:2;3\nversion=5\n"
    asked = Reconfig(None, None, "server.1=a:1:2;3,server.2=b:1:2;3", -1)
    talk = Talk("reconfig -file members.cfg", (asked, (b"", STAT)), files={"members.cfg": text})
    assert talk.error is None


def test_config_c_names_the_servers_as_clients_do() -> None:
    text = "server.1=a:1:2:participant;0.0.0.0:2181\nserver.2=b:1:2;2182\nserver.3=c:1:2\nversion=1f\n"
    assert client_config(text) == "1f 0.0.0.0:2181,b:2182"
    text = "server.1=[fd00::1]:2181:0:participant;[fd00::1]:2181\nserver.2=[fd00::2]:2888:3888;2182\nversion=20\n"
    assert client_config(text) == "20 [fd00::1]:2181,[fd00::2]:2182"
    assert client_config("") == " "


def test_version_asks_nobody() -> None:
    assert Talk("version").text.startswith("ZooKeeper CLI version: zraft ")


def test_ls_r_lists_the_children_of_a_znode_before_what_is_below_them() -> None:
    talk = Talk(
        "ls -R /",
        (GetChildren("/"), ("b", "a")),
        (GetChildren("/b"), ("z",)),
        (GetChildren("/a"), ("y", "x")),
        # one round trip per level of siblings, the nearest last
        (GetChildren("/a/y"), ()),
        (GetChildren("/a/x"), ()),
        (GetChildren("/b/z"), ()),
    )
    assert talk.text == "/\n/a\n/b\n/a/x\n/a/y\n/b/z"
    assert talk.values == ["/", "/a", "/b", "/a/x", "/a/y", "/b/z"]
    assert talk.batches == [1, 2, 2, 1]


def test_ls_r_leaves_out_what_others_delete_meanwhile_and_goes_past_what_it_may_not_list() -> None:
    talk = Talk(
        "ls -R /",
        (GetChildren("/"), ("a", "b", "c")),
        (GetChildren("/c"), ("d",)),
        (GetChildren("/b"), Code.NO_AUTH),
        (GetChildren("/a"), Code.NO_NODE),
        (GetChildren("/c/d"), ()),
    )
    assert talk.text == "/\n/a\n/b\n/c\n/c/d"
    assert str(talk.error).startswith("Insufficient permission : /b")


def test_ls_r_of_nothing_is_an_error() -> None:
    assert str(Talk("ls -R /a", (GetChildren("/a"), Code.NO_NODE)).error) == "Node does not exist: /a"


def test_tree_draws_down_to_a_depth() -> None:
    exchanges = [
        (GetChildren("/"), ("b", "a")),
        (GetChildren("/b"), ("y",)),
        (GetChildren("/a"), ("x",)),
    ]
    below = [(GetChildren("/a/x"), ()), (GetChildren("/b/y"), ())]
    assert Talk("tree", *exchanges, *below).text == "/\n├── a\n│   └── x\n└── b\n    └── y"
    assert Talk("tree -d 1 /", *exchanges).text == "/\n├── a\n└── b"
    assert Talk("tree -d 0 /a", (GetChildren("/a"), ("x",))).values == [{"path": "/a", "depth": 0}]


def test_set_acl_r_sets_it_on_everything_below() -> None:
    talk = Talk(
        "setAcl -R /a world:anyone:cdrwa",
        (GetChildren("/a"), ("b", "c")),
        (SetAcl("/a", ALL), STAT),
        (GetChildren("/a/c"), ()),
        (GetChildren("/a/b"), ()),
        (SetAcl("/a/b", ALL), STAT),
        (SetAcl("/a/c", ALL), STAT),
    )
    assert talk.error is None


def test_deleteall_deletes_the_deepest_first_in_batches() -> None:
    talk = Talk(
        "deleteall -b 2 /a",
        (GetChildren("/a"), ("b", "c", "d")),
        (GetChildren("/a"), ("b", "c", "d")),
        (GetChildren("/a/c"), ()),
        (GetChildren("/a/d"), ("e",)),
        (Delete("/a/c"), Code.OK),
        (GetChildren("/a/d/e"), Code.NO_NODE),  # somebody else was faster
        (GetChildren("/a/b"), ()),
        (Delete("/a/d"), Code.OK),
        (Delete("/a/b"), Code.NO_NODE),
        (Delete("/a"), Code.OK),
    )
    assert talk.error is None
    assert talk.text == ""
    assert talk.values == [{"deleted": 3}]
    assert max(talk.batches) == 2


def test_deleteall_of_nothing_is_an_error_and_one_that_fails_says_that_it_is_half_done() -> None:
    talk = Talk("deleteall /a", (GetChildren("/a"), Code.NO_NODE))
    assert str(talk.error) == "Node does not exist: /a"
    talk = Talk(
        "deleteall /a",
        (GetChildren("/a"), ("b",)),
        (GetChildren("/a"), ("b",)),
        (GetChildren("/a/b"), ()),
        (Delete("/a/b"), Code.NO_AUTH),
    )
    assert str(talk.error).startswith("Insufficient permission : /a/b")
    assert str(talk.error).endswith("Failed to delete some node(s) in the subtree!")


def test_deleteall_holds_one_batch_of_children_at_a_time_however_wide_and_deep() -> None:
    """A chain of 3000 znodes: no recursion. Each is asked about once and deleted once."""
    names = ["/a" + "/b" * depth for depth in range(3000)]
    exchanges: list[Exchange] = [(GetChildren("/a"), ("b",))]
    exchanges += [(GetChildren(name), ("b",) if name is not names[-1] else ()) for name in names]
    exchanges += [(Delete(name), Code.OK) for name in reversed(names)]
    assert Talk("deleteall /a", *exchanges).values == [{"deleted": 3000}]


def test_removewatches_l_forgets_here_what_no_server_can_be_told() -> None:
    lost = NotConnectedError("away")
    talk = Talk("removewatches -l /a", (RemoveWatches("/a", WatcherType.ANY), lost))
    assert talk.forgotten == [ForgetWatches("/a", WatcherType.ANY)]
    assert talk.error is None
    assert Talk("removewatches /a", (RemoveWatches("/a", WatcherType.ANY), lost)).error is lost


def test_setquota_makes_the_znodes_that_zookeepers_client_makes() -> None:
    talk = Talk(
        "setquota -n 5 /q/r",
        (Exists("/q/r"), STAT),
        (GetChildren("/zookeeper/quota/q/r"), Code.NO_NODE),
        (Exists("/zookeeper/quota/q/zookeeper_limits"), Code.NO_NODE),
        (GetData("/zookeeper/quota/q/r/zookeeper_limits"), Code.NO_NODE),
        (Create("/zookeeper/quota/q"), Code.NODE_EXISTS),
        (Create("/zookeeper/quota/q/r"), "/zookeeper/quota/q/r"),
        (
            Create(
                "/zookeeper/quota/q/r/zookeeper_limits",
                b"count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1",
            ),
            "",
        ),
        (Create("/zookeeper/quota/q/r/zookeeper_stats", b"count=0,bytes=0"), ""),
        (GetData("/zookeeper/quota/q/r/zookeeper_stats"), (b"count=8,bytes=7", STAT)),
    )
    assert talk.error is None
    assert talk.text == "[Warning]: the count quota you create is less than the existing count:8"


def test_setquota_keeps_the_limits_that_it_was_not_asked_about() -> None:
    old = b"count=5,bytes=500=;byteHardLimit=-1;countHardLimit=9"
    new = b"count=5,bytes=500=;byteHardLimit=1;countHardLimit=9"
    talk = Talk(
        "setquota -B 1 /q",
        (Exists("/q"), STAT),
        (GetChildren("/zookeeper/quota/q"), ("zookeeper_limits", "zookeeper_stats")),
        (GetChildren("/zookeeper/quota/q/zookeeper_stats"), ()),
        (GetChildren("/zookeeper/quota/q/zookeeper_limits"), ()),
        (GetData(LIMITS), (old, STAT)),
        (SetData(LIMITS, new, STAT.version), STAT),
        (GetData(STATS), (b"count=1,bytes=7", STAT)),
    )
    assert talk.text == "[Warning]: the bytes quota you create is less than the existing bytes:7"


def test_setquota_refuses_a_second_quota_on_one_way_from_the_root() -> None:
    talk = Talk(
        "setquota -n 5 /q",
        (Exists("/q"), STAT),
        (GetChildren("/zookeeper/quota/q"), ("r",)),
        (GetChildren("/zookeeper/quota/q/r"), ("zookeeper_limits", "zookeeper_stats")),
    )
    assert str(talk.error) == "/q has a child /q/r which has a quota"
    talk = Talk(
        "setquota -n 5 /q/r/s",
        (Exists("/q/r/s"), STAT),
        (GetChildren("/zookeeper/quota/q/r/s"), Code.NO_NODE),
        (Exists("/zookeeper/quota/q/r/zookeeper_limits"), Code.NO_NODE),
        (Exists("/zookeeper/quota/q/zookeeper_limits"), STAT),
    )
    assert str(talk.error) == "/q/r/s has a parent /q which has a quota"
    assert str(Talk("setquota -n 5 /q", (Exists("/q"), Code.NO_NODE)).error) == "/q does not exist."


def test_listquota_shows_limits_and_what_is_used() -> None:
    talk = Talk(
        "listquota /q",
        (GetData(LIMITS), (b"count=5,bytes=-1", STAT)),  # as releases before 3.6 wrote it
        (GetData(STATS), (b"count=8,bytes=7", STAT)),
    )
    assert talk.text == (
        "absolute path is /zookeeper/quota/q/zookeeper_limits\n"
        "Output quota for /q count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1\n"
        "Output stat for /q count=8,bytes=7"
    )
    assert talk.values == [
        {
            "path": "/q",
            "limits": {"count": 5, "bytes": -1, "byte_hard_limit": -1, "count_hard_limit": -1},
            "used": {"count": 8, "bytes": 7},
        }
    ]


def test_listquota_without_a_quota_or_with_nonsense_in_it_is_an_error() -> None:
    talk = Talk("listquota /q", (GetData(LIMITS), Code.NO_NODE))
    assert talk.text == f"absolute path is {LIMITS}"
    assert str(talk.error) == "quota for /q does not exist."
    talk = Talk("listquota /q", (GetData(LIMITS), (b"what", STAT)))
    assert str(talk.error).startswith(f"{LIMITS}: found b'what', expected count=N,bytes=N")


def test_delquota_takes_away_limits_or_the_quota_with_the_znodes_that_led_to_it() -> None:
    old = b"count=5,bytes=6=;byteHardLimit=7;countHardLimit=8"
    new = b"count=-1,bytes=6=;byteHardLimit=7;countHardLimit=-1"
    talk = Talk(
        "delquota -n -N /q", (GetData(LIMITS), (old, STAT)), (SetData(LIMITS, new, STAT.version), STAT)
    )
    assert talk.error is None
    root = "/zookeeper/quota"
    talk = Talk(
        "delquota /q/r",
        (GetData(f"{root}/q/r/zookeeper_limits"), (old, STAT)),
        (Delete(f"{root}/q/r/zookeeper_limits"), Code.OK),
        (Delete(f"{root}/q/r/zookeeper_stats"), Code.NO_NODE),
        (GetChildren(f"{root}/q/r"), ()),
        (Delete(f"{root}/q/r"), Code.OK),
        (GetChildren(f"{root}/q"), ("other",)),
    )
    assert talk.error is None
    assert str(Talk("delquota /q", (GetData(LIMITS), Code.NO_NODE)).error) == "Quota does not exist for /q"


@pytest.mark.parametrize(
    ("looked", "missing"),
    [
        ([("/a", True), ("/a/b", False)], "/a/b"),
        ([("/a", False), ("/", True)], "/a"),
    ],
)
def test_a_create_without_a_parent_names_the_first_that_is_missing(
    looked: list[tuple[str, bool]], missing: str
) -> None:
    answers = [(Exists(path), STAT if there else Code.NO_NODE) for path, there in looked]
    talk = Talk("create /a/b/c x", (Create("/a/b/c", b"x"), Code.NO_NODE), *answers)
    assert str(talk.error) == f"Node does not exist: /a/b/c ({missing} is missing, create that first)"
    assert isinstance(talk.error, RefusedError)
    assert talk.error.code == Code.NO_NODE


def test_a_create_below_a_chroot_that_is_missing_says_so() -> None:
    talk = Talk("create /a", (Create("/a", None), Code.NO_NODE), (Exists("/"), Code.NO_NODE))
    assert "the path at the end of --connect is missing" in str(talk.error)


def test_a_create_whose_parents_came_meanwhile_says_what_the_server_said() -> None:
    looked = [(Exists("/"), STAT), (Exists("/a"), STAT)]
    talk = Talk("create /a/b", (Create("/a/b", None), Code.NO_NODE), *looked)
    assert str(talk.error) == "Node does not exist: /a/b"


def test_a_create_below_an_ephemeral_names_it() -> None:
    talk = Talk("create /a/b", (Create("/a/b", None), Code.NO_CHILDREN_FOR_EPHEMERALS))
    assert str(talk.error) == "Ephemerals cannot have children: /a/b (/a is ephemeral)"
