"""The state with which another cluster begins: everything of the old one's data, nothing of its servers (D-15)."""

from __future__ import annotations

import pytest

from tests.unit.tree.level3 import again
from tests.unit.tree.scenario import Scenario
from tests.unit.tree.test_topics import everything
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft.tree.members import WantedMember
from zraft_core.errors import Code
from zraft_core.ids import EPOCHS_SKIPPED, Instance, ServerId, zxid_anew
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.registry_commands import CreateTopic
from zraft_core.znodes.txn import CREATE, CREATE_TTL, SET_DATA, TOPICS

NEW = (ServerId(2), Instance(b"new disk of two!"))
MEMBERS = {ServerId(2): WantedMember(True, "b:2"), ServerId(1): WantedMember(True, "a:1")}


@pytest.fixture
def old() -> Scenario:
    scenario = Scenario()
    scenario.run((CREATE, "/a", b"data", None, 0, 0))
    scenario.run((CREATE, "/a/n-", b"", None, 2, 0))
    scenario.run((CREATE, "/e", b"", None, 1, 0))
    scenario.run((CREATE_TTL, "/t", b"", None, 5, 60_000))
    scenario.run((SET_DATA, "/a", b"more", -1))
    return scenario


def begin(machine: Machine) -> int:
    zxid = zxid_anew(machine.last_zxid)
    assert zxid is not None
    machine.begin_anew(zxid, NEW, MEMBERS)
    return zxid


def test_d15_zxid_is_a_million_epochs_above() -> None:
    assert zxid_anew(0x5_0000_0007) == (5 + EPOCHS_SKIPPED) << 32
    assert zxid_anew(0) == EPOCHS_SKIPPED << 32
    assert zxid_anew((2**31 - 1) << 32) is None, "beyond 63 bits"


def test_d15_znodes_and_sessions_stay_and_the_next_write_is_above_all(old: Scenario) -> None:
    machine = old.machine
    before = {path: (node.data, node.stat()) for path, node in machine.nodes.items()}
    sessions, times = set(machine.sessions), (machine.log_time, machine.wall_time)
    zxid = begin(machine)
    after = {path: (node.data, node.stat()) for path, node in machine.nodes.items()}
    config = before.pop("/zookeeper/config"), after.pop("/zookeeper/config")
    assert before == after
    assert config[0] != config[1]
    assert (set(machine.sessions), (machine.log_time, machine.wall_time)) == (sessions, times)
    assert set(machine.mortal) == {"/t"}
    assert machine.last_zxid == zxid
    old.next = {NEW: (1, 1)}
    session = old.new_session(NEW)
    path, node = old.run((CREATE, "/a/n-", b"", None, 2, 0), session, origin=NEW)
    assert path == "/a/n-0000000001", "sequences go on"
    assert node.czxid == zxid + 2


def test_d3_only_the_founder_has_a_row(old: Scenario) -> None:
    begin(old.machine)
    assert set(old.machine.rows) == {NEW}
    old.entry()
    assert not old.machine.begin_batch(ServerId(1), Instance(b"1" * 16), 1, 99), "a batch of an old server"
    assert old.machine.faults == 0


def test_members_and_configuration_are_the_new_ones(old: Scenario) -> None:
    zxid = begin(old.machine)
    config = old.node("/zookeeper/config")
    assert config.data == (
        b"server.1=a:1:1:participant;a:1\nserver.2=b:2:2:participant;b:2\nversion=%x" % zxid
    )
    assert config.mzxid == zxid
    assert list(old.machine.members) == [1, 2]
    assert old.machine.feature_level == 2, "the members are part of it"
    assert not old.machine.events


def test_a_session_of_the_old_cluster_attaches_to_the_new_one(old: Scenario) -> None:
    begin(old.machine)
    old.next = {NEW: (1, 1)}
    assert not isinstance(old.attach(old.session.id, NEW), Code)


def test_the_image_of_it_is_whole(old: Scenario) -> None:
    machine = old.machine
    begin(machine)
    writer, reader, read = ImageWriter(machine), ImageReader(), Machine()
    while piece := writer.step(100, 1 << 20):
        reader.feed(piece)
    while reader.step(100):
        pass
    read.adopt(reader.finish())
    assert read.image() == machine.image()
    assert read.digest() == read.full_digest() == machine.digest() == machine.full_digest()


def test_d18_topics_and_producers_are_left_behind() -> None:
    """Their groups have founders that the new cluster does not know, and their logs are not in the backup."""
    old = everything()
    limits = old.machine.registry.settings
    begin(old.machine)
    registry = old.machine.registry
    for table in ("topics", "names", "groups", "closed", "deleting", "changes", "owned"):
        assert not getattr(registry, table), table
    assert set(registry.producers) == {COORDINATOR}
    assert registry.settings == limits
    assert old.machine.digest() == old.machine.full_digest()
    old.next = {NEW: (1, 1)}
    session = old.new_session(NEW)
    created = old.run((TOPICS, encode_registry(CreateTopic("t", 1))), session, origin=NEW)
    assert created.refusal is None
    assert created.created == old.machine.last_zxid
    again(old.machine)
