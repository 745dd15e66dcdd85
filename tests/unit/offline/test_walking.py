"""A tree that is read through a client's requests is the same tree; what cannot be read is never left out silently."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.offline.zookeeper import Answering, Mute
from tests.unit.tree.scenario import Scenario
from zraft.offline.errors import OfflineError
from zraft.offline.source import Source
from zraft.offline.walking import Walk
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.address import Address
from zraft_core.errors import Code
from zraft_core.ids import zxid_anew
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import Exists, GetAcl, GetChildren, GetChildren2, GetData, Request, Sync
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import CREATE, DELETE, SET_ACL, SET_DATA

ALICE = (("digest", "alice:hash"),)
ONLY_ALICE = ((31, "digest", "alice:hash"),)
EVERYBODY_READS = ((1, "world", "anyone"), (31, "digest", "alice:hash"))
NOW_MS = 1_800_000_000_000


@pytest.fixture
def scenario() -> Scenario:
    made = Scenario()
    made.run((CREATE, "/a", b"data", None, 0, 0))
    for _ in range(3):
        made.run((CREATE, "/a/s-", None, None, 2, 0))
    made.run((DELETE, "/a/s-0000000001", -1))
    made.run((SET_DATA, "/a", b"more", -1))
    made.run((CREATE, "/open", b"o", EVERYBODY_READS, 0, 0))
    made.run((CREATE, "/e", b"", None, 1, 0))
    made.run((CREATE, "/a/e-", b"", None, 3, 0))
    made.run((SET_ACL, "/a/s-0000000000", EVERYBODY_READS, -1))
    made.run((CREATE, "/zookeeper/quota/a", b"", None, 0, 0))
    made.run((CREATE, "/zookeeper/quota/a/zookeeper_limits", b"count=50,bytes=-1", None, 0, 0))
    made.run((CREATE, "/zookeeper/quota/a/zookeeper_stats", b"", None, 0, 0))
    return made


def path_of(request: Request[Any]) -> str:
    """The znode that a walk asks about."""
    assert isinstance(request, GetData | GetAcl | GetChildren | GetChildren2 | Exists | Sync), request
    return request.path


def walked(server: Answering, **how: Any) -> Walk:
    walk = Walk(
        exclude=how.get("exclude", ()), skip_unreadable=how.get("skip_unreadable", False), wall_ms=NOW_MS
    )
    waiting: list[Any] = []
    while not walk.done:
        requests = walk.requests(12 - len(waiting))
        assert len(requests) + len(waiting) <= 12, "more than there is room for"
        waiting += requests
        walk.answered(server.answer(waiting.pop(0)))
    return walk


def plain(machine: Machine) -> dict[str, tuple[Any, ...]]:
    """What of a tree is to be the same after an import."""
    return {
        path: (
            node.data, node.acl, node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime, node.version,
            node.aversion, node.creates,
        )
        for path, node in machine.nodes.items()
        if not node.ephemeral_owner
    }  # fmt: skip


def test_znodes_are_the_same_with_acls_versions_zxids_times_and_sequences(scenario: Scenario) -> None:
    walk = walked(Answering(scenario.machine, ALICE))
    machine = walk.finish()
    expected, found = plain(scenario.machine), plain(machine)
    assert set(found) == set(expected)
    for path in expected:
        if not path.endswith("zookeeper_stats"):
            assert found[path] == expected[path], path
    assert (walk.counts.ephemerals, walk.counts.unreadable_total, walk.counts.vanished) == (2, 0, 0)
    assert walk.counts.znodes == len(expected)
    node = machine.nodes.get("/a/s-0000000002")
    assert node is not None
    assert node.data is None, "null stays null"
    assert machine.digest() == machine.full_digest()


def test_d15_last_zxid_is_the_highest_seen_and_a_cluster_begins_above_it(scenario: Scenario) -> None:
    machine = walked(Answering(scenario.machine, ALICE)).finish()
    assert machine.last_zxid == scenario.machine.last_zxid
    high = zxid_anew(machine.last_zxid)
    assert high is not None
    assert high > scenario.machine.last_zxid


def test_d5_settings_are_left_to_the_first_leader(scenario: Scenario) -> None:
    """It puts its own configuration into the log while no command was ever applied."""
    assert walked(Answering(scenario.machine, ALICE)).finish().position == 0


def test_usage_of_quotas_is_counted_without_what_was_left_out(scenario: Scenario) -> None:
    assert scenario.node("/zookeeper/quota/a/zookeeper_stats").data == b"count=4,bytes=4"
    machine = walked(Answering(scenario.machine, ALICE)).finish()
    stats = machine.nodes.get("/zookeeper/quota/a/zookeeper_stats")
    assert stats is not None
    assert stats.data == b"count=3,bytes=4"
    assert "/a" in machine.quotas.limited


def test_the_image_of_it_can_be_written_and_read(scenario: Scenario) -> None:
    machine = walked(Answering(scenario.machine, ALICE)).finish()
    writer, reader = ImageWriter(machine), ImageReader()
    while piece := writer.step(100, 1 << 20):
        reader.feed(piece)
    while reader.step(100):
        pass
    assert reader.finish().digest == machine.digest()


def test_a_masked_acl_is_no_acl(scenario: Scenario) -> None:
    """Without ADMIN a server shows `alice:x`: imported, that would lock out alice for ever."""
    with pytest.raises(OfflineError, match=r"2 znodes cannot be read.*(/open|/a/s-0000000000).*--auth-file"):
        walked(Answering(scenario.machine)).finish()


def test_what_cannot_be_read_is_left_out_on_demand_with_all_below_it(scenario: Scenario) -> None:
    scenario.run((CREATE, "/closed", b"", ONLY_ALICE, 0, 0))
    scenario.run((CREATE, "/closed/below", b"", None, 0, 0), ids=ALICE)
    with pytest.raises(OfflineError, match="/closed"):
        walked(Answering(scenario.machine)).finish()
    walk = walked(Answering(scenario.machine), skip_unreadable=True)
    machine = walk.finish()
    assert not {"/closed", "/closed/below", "/open", "/a/s-0000000000"} & set(plain(machine))
    assert walk.counts.unreadable_total == 3
    assert set(walk.counts.unreadable) == {"/closed", "/open", "/a/s-0000000000"}


def test_paths_are_excluded_with_all_below_them(scenario: Scenario) -> None:
    server = Answering(scenario.machine, ALICE)
    walk = walked(server, exclude=["/a", "/zookeeper/quota"])
    assert set(plain(walk.finish())) == {"/", "/open", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
    assert walk.counts.excluded == 1
    assert not [one for one in server.asked if path_of(one).startswith("/a")]


def test_a_root_that_may_not_be_read_is_refused_whatever_is_skipped(scenario: Scenario) -> None:
    scenario.run((SET_ACL, "/", ONLY_ALICE, -1))
    with pytest.raises(OfflineError, match="/: cannot be read"):
        walked(Answering(scenario.machine), skip_unreadable=True)


def test_a_tree_that_changes_is_noticed_and_stays_a_tree(scenario: Scenario) -> None:
    """A directory that goes while it is read takes its children along."""

    def remove() -> None:
        for path in ("/a/s-0000000000", "/a/s-0000000002"):
            scenario.run((DELETE, path, -1))

    machine = scenario.machine
    asked = Answering(machine, ALICE)
    walked(asked)
    at = 1 + next(n for n, one in enumerate(asked.asked) if path_of(one) == "/a/s-0000000002")
    walk = walked(Answering(machine, ALICE, {at: remove}))
    imported = walk.finish()
    assert walk.first_zxid is not None
    assert walk.last_zxid > walk.first_zxid
    assert walk.counts.vanished >= 1
    assert imported.digest() == imported.full_digest()
    assert "/a/s-0000000002" not in imported.nodes


def test_owners_of_old_servers_tell_containers_and_times_to_live() -> None:
    """ZooKeeper before 3.5.3 showed them; their times count on."""
    machine = Scenario().machine
    server = Answering(machine, ALICE)
    walk = Walk(exclude=(), skip_unreadable=False, wall_ms=NOW_MS)
    shown = {
        "/c": -(2**63),
        "/t": (0xFF << 56 | 5_000) - 2**64,
        "/e": 77,
    }
    while not walk.done:
        for request in walk.requests(3):
            path = path_of(request)
            reply = server.answer(request)
            if path == "/" and isinstance(reply.value, tuple) and reply.value == ("zookeeper",):
                reply = Reply(1, 1, Code.OK, tuple(path[1:] for path in shown))
            elif path in shown:
                stat = Stat(1, 1, NOW_MS - 9, NOW_MS - 3, 0, 0, 0, shown[path], 0, 0, 1)
                kind = type(request).__name__
                value = {"GetData": (b"", stat), "GetAcl": (((31, "world", "anyone"),), stat)}.get(kind, ())
                reply = Reply(1, 1, Code.OK, value)
            walk.answered(reply)
    imported = walk.finish()
    container, ttl = imported.nodes.get("/c"), imported.nodes.get("/t")
    assert container is not None
    assert container.lifetime == (0, NOW_MS - 9)
    assert ttl is not None
    assert ttl.lifetime == (5_000, NOW_MS - 3)
    assert set(imported.mortal) == {"/c", "/t"}
    assert imported.log_time == NOW_MS
    assert walk.counts.ephemerals == 1


def test_an_error_that_is_not_about_the_znode_ends_it() -> None:
    walk = Walk(exclude=(), skip_unreadable=True, wall_ms=NOW_MS)
    walk.requests(6)
    reply = Reply(1, 1, Code.SESSION_EXPIRED, None)
    walk.answered(reply)
    walk.answered(reply)
    with pytest.raises(OfflineError, match=r"SESSION_EXPIRED \(-112\)"):
        walk.answered(reply)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "it closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no server can be read"),
        (b"\x00\x00\x00\x25" + bytes(4) + bytes(33), "it refused a session"),
    ],
)
def test_a_server_that_is_no_zookeeper_is_refused(said: bytes, message: str) -> None:
    server = Mute(said)
    with pytest.raises(OfflineError, match=message):
        Source([server.address], (), timeout_s=5)
    server.close()


def test_a_server_that_cannot_be_reached_is_named_as_it_was_given() -> None:
    with pytest.raises(OfflineError, match=r"no server can be read: \[::1\]:1: "):
        Source([Address("::1", 1)], (), timeout_s=5)


def test_a_connection_that_breaks_makes_nothing() -> None:
    server = Mute(
        b"\x00\x00\x00\x25"
        + bytes(4)
        + b"\x00\x00\x75\x30"
        + bytes(7)
        + b"\x05"
        + b"\x00\x00\x00\x10"
        + bytes(17)
    )
    with (
        Source([server.address], (), timeout_s=5) as source,
        pytest.raises(OfflineError, match="nothing was made"),
    ):
        source.read(Walk(exclude=(), skip_unreadable=False, wall_ms=NOW_MS))
    server.close()
