"""Whole drivers in memory: one that leads alone, and one that is told what others say."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from math import ceil

import pytest
from attrs import asdict

from tests.so_far import so_far
from zraft.groups.identity import CopiedDirectoryError, Identity
from zraft.groups.recovery import Stored
from zraft.groups.snapshots.tasks import ReadSnapshot, Receive
from zraft.raft.log import Log
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    ReadIndex,
    ReadIndexReply,
)
from zraft.raft.role import Role
from zraft.server.clients.connection import UNCOUNTED_BYTES
from zraft.server.coordination.group import IDLE_TURN_MS, SEEK_TURN_MS, WATCHING_TURN_MS
from zraft.server.coordination.leadership import LEADER_COMMANDS_PER_ENTRY_MAX
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.engine.leaving import DEAF_AFTER_MS
from zraft.server.engine.settings import DriverSettings
from zraft.storage.records import EntryRecord
from zraft.transport.messages import (
    Hello,
    NotMember,
    PeerMessage,
    Sender,
    SharedHeartbeat,
    SharedHeartbeatReply,
    SnapshotOffer,
    TouchAck,
    TouchReport,
)
from zraft.tree.members import WantedMember
from zraft.tree.settings import Settings
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId
from zraft_core.topics.registry_commands import CreateGroup, CreateTopic
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.connect import ConnectResponse
from zraft_core.znodes.txn import (
    CREATE,
    FEATURE,
    MEMBERS,
    REGISTER,
    SET_DATA,
    SETTINGS,
    pack_batch,
    pack_entry,
    unpack_entry,
)

INSTANCES = {ServerId(n): Instance(bytes([n]) * 16) for n in (1, 2, 3)}
BOOT = 2


class Place:
    """A driver with a disk that is always done at once."""

    def __init__(self, *peers: int, boot: int = BOOT, settings: DriverSettings | None = None) -> None:
        self.now = 0
        server = ServerId(1)
        self.driver = Driver(
            settings=settings or DriverSettings(),
            identity=Identity(server, INSTANCES[server], boot, b"boot id!", None),
            peers=[ServerId(p) for p in peers],
            stored=Stored(
                HardState(1, None),
                tuple((ServerId(p), INSTANCES[ServerId(p)]) for p in peers) if len(peers) > 1 else None,
                Log(entries=[Entry(1, 1, EntryKind.NOOP, 1, 0, b"")]) if len(peers) > 1 else Log(),
            ),
            rng=random.Random(1),
            entropy=lambda size: b"e" * size,
            four_letter_word=lambda word, argument: word.encode(),
            now_ms=0,
        )
        self.sent: list[tuple[ServerId, PeerMessage]] = []
        self.written: list[EntryRecord] = []

    def turn(self, ms: int = 0) -> Effects:
        self.now += ms
        effects = self.driver.turn(self.now, 1_000_000 + self.now)
        self.sent += [(to, message) for to, messages in effects.sends for message in messages]
        for connection, data, close in effects.outputs:
            connection.handle(data, close)
        if effects.write is not None:
            self.written += [record for record in effects.write if isinstance(record, EntryRecord)]
            self.driver.persisted()
        return effects

    def turns(self, ms: int) -> None:
        for _ in range(0, ms, 10):
            self.turn(10)

    def hear(self, server: int, *messages: PeerMessage, boot: int = 1) -> None:
        self.driver.receive(Sender(ServerId(server), INSTANCES[ServerId(server)], boot), messages)

    def take_sent(self, kind: type) -> list[PeerMessage]:
        taken = [message for _, message in self.sent if isinstance(message, kind)]
        self.sent.clear()
        return taken


def _alone() -> Place:
    place = Place(1)
    place.turns(2_000)
    assert place.driver.role is Role.LEADER
    assert place.driver.serving
    return place


class Client:
    """A client of a place; `received` holds what it was told."""

    def __init__(self, place: Place) -> None:
        self.codec = ZkClientCodec()
        self.received: list[object] = []
        self.closed = False
        connection = place.driver.connect("127.0.0.1:1", ())
        assert connection is not None
        self.connection = connection
        connection.handle = self._on_output
        connection.data_received(self.codec.connect(timeout_ms=6_000))
        place.turns(100)
        assert isinstance(self.received.pop(0), ConnectResponse)

    def _on_output(self, data: bytes, close: bool) -> None:
        self.received += self.codec.receive(data)
        self.closed = self.closed or close

    def send(self, parts: Iterable[tuple[int, bytes]]) -> None:
        self.connection.data_received(b"".join(data for _, data in parts))


def test_d1_d5_a_single_server_serves_and_its_first_commands_are_settings_register_level_and_members() -> (
    None
):
    """D-1, D-5: and the leader of a new cluster writes the settings down."""
    place = _alone()
    entries = [record.entry for record in place.written if record.entry.kind is EntryKind.COMMANDS]
    commands = [
        c for entry in entries for batch in unpack_entry(entry.payload)[2] for run in batch[4] for c in run[2]
    ]
    # What is newer than the level in force would make the others unknown, too.
    assert commands[:2] == [(SETTINGS, Settings().known_at(1)), (REGISTER, b"boot id!")]
    # All members can do more than the cluster does, and nobody wrote down who belongs to it.
    assert [command[0] for command in commands[2:]] == [FEATURE, SETTINGS, MEMBERS]
    assert commands[3][1] | Settings().known_at(1) == asdict(Settings())
    assert place.driver.machine.rows[ServerId(1), INSTANCES[ServerId(1)]].boot == BOOT


def test_what_a_client_sends_at_once_never_makes_an_entry_that_no_message_can_carry() -> None:
    """D-2: 8 sets of 1 MB in one go became one batch of 8 MB, which no peer could be sent, ever."""
    place = _alone()
    client = Client(place)
    client.send([client.codec.write((CREATE, "/big", b"", None, 0, 0))])
    place.turns(50)
    client.send([client.codec.write((SET_DATA, "/big", bytes(900_000), -1)) for _ in range(8)])
    place.turns(500)
    assert len(client.received) == 9
    assert max(len(record.entry.payload) for record in place.written) < 2 * 1024 * 1024


def _writes(client: Client, *numbers: int) -> list[tuple[int, bytes]]:
    return [client.codec.write((SET_DATA, "/a", b"%d" % number, -1)) for number in numbers]


def _data(place: Place) -> bytes | None:
    node = place.driver.machine.nodes.get("/a")
    assert node is not None
    return node.data


def test_a_server_that_stops_answers_what_a_pipelining_client_has_sent_and_looks_at_no_more() -> None:
    """It waited for a moment at which nothing was asked, which such a client never has, and cut it off at last."""
    place = _alone()
    client = Client(place)
    client.send([client.codec.write((CREATE, "/a", b"", None, 0, 0))])
    place.turns(50)
    place.driver.leave()
    sent = 1
    for _ in range(200):
        client.send(_writes(client, sent, sent + 1, sent + 2))
        sent += 3
        place.turn(1)
        if client.closed:
            break
    assert client.closed, f"{sent} requests were sent, {len(client.received)} answered"
    answered = len(client.received)
    assert 4 <= answered < sent
    assert _data(place) == b"%d" % (answered - 1), "what was not answered was not carried out"


def test_a_server_that_stops_finds_a_moment_at_which_a_client_waits_for_nothing() -> None:
    """A batch that has begun to arrive is read to its end."""
    place = _alone()
    client = Client(place)
    client.send([client.codec.write((CREATE, "/a", b"", None, 0, 0))])
    place.driver.leave()
    for number in range(3):
        client.send(_writes(client, number))
        place.turn(1)
    place.turns(50)
    assert client.closed
    assert len(client.received) == 4


def test_a_server_that_stops_answers_requests_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were read, and nothing of them was in the log yet: such a client counted as one that waits for nothing."""
    place = _alone()
    client = Client(place)
    client.send([client.codec.write((CREATE, "/a", b"", None, 0, 0))])
    place.turns(50)
    with monkeypatch.context() as patch:
        patch.setattr(type(place.driver.origin), "full", property(lambda _: True))
        large = bytes(UNCOUNTED_BYTES)  # small ones of who waits for nothing pass
        client.send([client.codec.write((SET_DATA, "/a", large, -1)) for _ in range(2)])
        place.driver.leave()
        place.turns(30)
        assert not so_far(client.closed)
    place.turns(100)
    assert client.closed
    assert len(client.received) == 3


def test_a_server_that_was_to_leave_and_stays_answers_nothing_behind_what_it_did_not_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulation, seed 300004 among other schedules: the client got reply 33, and replies 30 to 32 never."""
    place = _alone()
    client = Client(place)
    client.send([client.codec.write((CREATE, "/a", b"", None, 0, 0))])
    place.turns(50)
    with monkeypatch.context() as patch:
        patch.setattr(type(place.driver.coordination.belonging), "leaves", lambda *_: True)
        # The disk takes its time, so this client goes on waiting, and is not let go.
        patch.setattr(place.driver, "persisted", lambda: None)
        client.send(_writes(client, 1))
        place.turns(DEAF_AFTER_MS + 100)
        client.send(_writes(client, 2))
    place.driver.persisted()
    place.turns(100)
    client.send(_writes(client, 3))
    place.turns(100)
    assert client.closed
    assert len(client.received) <= 2
    assert _data(place) == b"1", "what it did not look at, and all behind that, was not carried out"


def test_a_server_that_stops_ends_connections_that_wait_for_nothing_at_once() -> None:
    place = _alone()
    client = Client(place)
    silent = place.driver.connect("127.0.0.1:2", ())
    assert silent is not None
    place.driver.leave()
    place.turn()
    assert client.closed
    assert place.driver.left, "who has said nothing yet is promised nothing"


def test_a_removed_server_answers_what_was_applied_before_its_removal() -> None:
    """Answers that were not written yet went with the connection, and the client did not know what became of it."""
    place = _alone()
    client = Client(place)
    client.send([client.codec.write((CREATE, "/a", b"1", None, 0, 0))])
    apply = place.driver.applier.apply

    def removing(entry: Entry) -> bool:
        done = apply(entry)
        if place.driver.machine.nodes.get("/a") is not None:
            place.driver.coordination._remove(99)
        return done

    place.driver.applier.apply = removing  # type: ignore[method-assign]
    place.turns(100)
    assert client.closed
    assert len(client.received) == 1


def test_a_server_that_is_to_be_removed_lets_its_clients_go_first_and_takes_no_new_ones() -> None:
    place = _alone()
    client = Client(place)
    machine = place.driver.machine
    client.send([client.codec.write((CREATE, "/a", b"", None, 0, 0)), *_writes(client, 1)])
    before, machine.members = machine.members, {ServerId(2): WantedMember(True, "h:2")}
    place.turns(100)
    assert client.closed
    assert len(client.received) == 2
    assert place.driver.serving, "it belongs to the cluster as yet"
    late = place.driver.connect("127.0.0.1:2", ())
    assert late is not None
    closed: list[bool] = []
    late.handle = lambda _, close: closed.append(close)
    late.data_received(ZkClientCodec().connect(timeout_ms=6_000))
    place.turns(50)
    assert closed == [True], "it is sent elsewhere"
    machine.members = before
    place.turns(100)
    Client(place)


def test_a_server_whose_partitions_move_first_serves_its_clients_meanwhile() -> None:
    place = _alone()
    client = Client(place)
    machine = place.driver.machine
    disk = (ServerId(1), INSTANCES[ServerId(1)])
    machine.registry.apply(CreateTopic("t", 1), 9_001)
    machine.registry.apply(CreateGroup(9_001, (disk,)), 9_002)
    machine.members = {ServerId(2): WantedMember(True, "h:2")}
    place.turns(500)
    assert not client.closed


def test_all_sessions_expiring_at_once_are_spread_over_entries() -> None:
    """A site that went dark: each entry must still fit a message."""
    place = _alone()
    count = LEADER_COMMANDS_PER_ENTRY_MAX + 100
    leadership = place.driver.leadership
    assert leadership is not None
    leadership.commands += [(202, n, 0, 0, 0, 6_000, 0) for n in range(1, count + 1)]
    before = len(place.written)
    place.turns(100)
    assert [record.entry.count for record in place.written[before:]] == [LEADER_COMMANDS_PER_ENTRY_MAX, 100]


def _follower() -> Place:
    """Server 1 of three, following server 2 in term 1; of server 3 it knows that boot 5 is registered."""
    place = Place(1, 2, 3)
    three = ServerId(3)
    payload = pack_entry(0, 0, [pack_batch(three, INSTANCES[three], 5, 1, [(0, (), [(REGISTER, b"three")])])])
    roster_entry = place.driver.raft
    assert roster_entry is not None
    membership = Entry(2, 1, EntryKind.MEMBERSHIP, 1, 0, roster_entry.membership.encode())
    commands = Entry(3, 1, EntryKind.COMMANDS, 1, 1, payload)
    place.hear(2, AppendEntries(COORDINATION_GROUP, 1, 1, 1, 3, (membership, commands)))
    for _ in range(5):
        place.turn(1)
    assert place.driver.leader == 2
    assert place.driver.applied_index == 3
    place.sent.clear()
    return place


def _after_an_append(place: Place, leader_commit: int = 3) -> Effects:
    """A follower has given the leader's entry 4 to its disk."""
    entry = Entry(4, 1, EntryKind.COMMANDS, 2, 0, pack_entry(2, 3, []))
    place.hear(2, AppendEntries(COORDINATION_GROUP, 1, 3, 1, leader_commit, (entry,)))
    place.now += 1
    effects = place.driver.turn(place.now, 1_000_000 + place.now)
    assert effects.write is not None
    assert not [one for _, sent in effects.sends for one in sent if isinstance(one, AppendEntriesReply)]
    return effects


def test_a_follower_acknowledges_without_a_turn_what_it_would_in_one() -> None:
    place, other = _follower(), _follower()
    for one in (place, other):
        _after_an_append(one)
        one.driver.persisted()
    sends, wants_turn = place.driver.acknowledge()
    assert sends == [(ServerId(2), [AppendEntriesReply(COORDINATION_GROUP, 1, True, 4)])]
    assert sends == other.driver.turn(other.now, 1_000_000 + other.now).sends
    assert not wants_turn
    assert not place.driver.wants_turn
    assert place.driver.acknowledge() == ([], False), "once"


def _resting_follower() -> Place:
    place = _follower()
    one = ServerId(1)
    payload = pack_entry(
        1, 1, [pack_batch(one, INSTANCES[one], BOOT, 1, [(0, (), [(REGISTER, b"boot id!")])])]
    )
    registered = Entry(4, 1, EntryKind.COMMANDS, 2, 1, payload)
    place.hear(2, AppendEntries(COORDINATION_GROUP, 1, 3, 1, 4, (registered,)), TouchAck(1, BOOT, 1, ()))
    for _ in range(3):
        place.turn(10)
    assert place.driver.serving
    place.sent.clear()
    return place


def test_a_follower_for_which_nothing_is_under_way_answers_a_heartbeat_without_a_turn() -> None:
    place, other = _resting_follower(), _resting_follower()
    for one in (place, other):
        one.now += 1
        one.driver.pass_time(one.now)
        one.hear(2, Heartbeat(COORDINATION_GROUP, 1, 7, 4))
        assert one.driver.wants_turn
    said = place.driver.answer()
    assert said == [(ServerId(2), [HeartbeatReply(COORDINATION_GROUP, 1, 7, 4)])]
    assert said == other.turn().sends
    assert not place.driver.wants_turn
    assert list(place.driver.answer() or ()) == [], "once"
    assert place.now + 290 < place.driver.put_off() <= place.now + 600, "the leader has its usual time"


def test_a_heartbeat_from_which_more_follows_has_a_turn() -> None:
    commits, asked, led, late = (_resting_follower() for _ in range(4))
    entry = Entry(5, 1, EntryKind.COMMANDS, 3, 0, pack_entry(2, 3, []))
    commits.hear(2, AppendEntries(COORDINATION_GROUP, 1, 4, 1, 4, (entry,)))
    commits.turn(1)
    commits.hear(2, Heartbeat(COORDINATION_GROUP, 1, 7, 5))
    asked.driver.submit((CREATE, "/a", b"", None, 0, 0), lambda _: None)
    asked.hear(2, Heartbeat(COORDINATION_GROUP, 1, 7, 4))
    led.hear(3, Heartbeat(COORDINATION_GROUP, 2, 1, 4), boot=5)
    late.now += 1_000
    late.driver.pass_time(late.now)
    late.hear(2, Heartbeat(COORDINATION_GROUP, 1, 7, 4))
    for one in (commits, asked, led, late):
        assert one.driver.answer() is None
        assert one.turn().sends, "and the answer leaves with it"
    assert late.take_sent(TouchReport), "the report was due before the next heartbeat"


def test_a_leader_for_which_nothing_is_under_way_beats_without_a_turn() -> None:
    place = _alone()
    raft = place.driver.raft
    assert raft is not None
    wake_at = place.turn(10).wake_at
    beats, before = 0, raft.round
    while (beat := place.driver.beat(wake_at)) is not None:
        place.now, (sends, wake_at) = wake_at, beat
        beats += 1
        assert not sends, "there is nobody else"
        assert place.driver.clock.now == place.now
        assert place.driver.coordination.contact.has_quorum
    assert raft.round == before + beats
    assert 3 <= beats <= 10, "a report is due every second, and has a turn"
    assert place.driver.clock.run == place.now, "no time is lost"
    run = place.driver.clock.run
    place.turn(wake_at - place.now)
    assert place.driver.clock.run == run + raft.settings.idle_heartbeat_ticks


def test_a_leader_with_sessions_looks_at_them_at_every_other_heartbeat() -> None:
    place = _alone()
    Client(place)
    place.turns(100)
    assert place.driver.machine.sessions
    wake_at, whole = place.turn(10).wake_at, []
    for _ in range(20):
        beat = place.driver.beat(wake_at)
        if beat is not None:
            place.now, wake_at = wake_at, beat[1]
        else:
            wake_at = place.turn(wake_at - place.now).wake_at
            whole.append(place.now)
    assert max(later - earlier for earlier, later in pairwise(whole)) <= WATCHING_TURN_MS


def test_what_is_under_way_gives_every_heartbeat_of_a_leader_a_turn() -> None:
    place = _alone()
    wake_at = place.turn(10).wake_at
    place.driver.submit((CREATE, "/a", b"", None, 0, 0), lambda _: None)
    assert place.driver.beat(wake_at) is None
    wake_at = place.turn(wake_at - place.now).wake_at
    assert place.driver.beat(wake_at) is None, "an entry was written a moment ago"


def test_a_write_from_which_more_follows_has_a_turn() -> None:
    """An entry is to be applied, a client waits, another leader was heard: everything is said in its order then."""
    committed, asked, led = _follower(), _follower(), _follower()
    for one in (committed, asked, led):
        _after_an_append(one)
    committed.hear(2, Heartbeat(COORDINATION_GROUP, 1, 0, 4))
    asked.driver.submit((CREATE, "/a", b"", None, 0, 0), lambda _: None)
    led.hear(3, Heartbeat(COORDINATION_GROUP, 2, 1, 3), boot=5)
    for one in (committed, asked, led):
        one.driver.persisted()
        assert one.driver.acknowledge() == ((), True)
        assert one.driver.wants_turn
    assert committed.turn().sends
    assert committed.driver.applied_index == 4


def test_messages_of_a_boot_older_than_the_registered_one_count_for_nothing() -> None:
    """D-1: server 3 was copied as boot 4; the copy has forgotten votes and entries, and is told so."""
    place = _follower()
    term = place.driver.raft.term  # type: ignore[union-attr]
    place.hear(3, Heartbeat(COORDINATION_GROUP, term + 1, 3, 1), boot=4)
    place.turn(1)
    assert place.driver.raft.term == term  # type: ignore[union-attr]
    answers = [(to, message) for to, message in place.sent if isinstance(message, TouchAck)]
    assert answers == [(3, TouchAck(term, 5, 0, ()))]
    place.hear(3, Heartbeat(COORDINATION_GROUP, term + 1, 3, 1), boot=5)
    place.turn(1)
    assert place.driver.raft.term == term + 1  # type: ignore[union-attr]


def test_a_server_told_by_the_leader_of_a_later_boot_of_its_own_ends() -> None:
    """D-1: the leader knows that another process runs, or ran, with this directory."""
    place = _follower()
    with pytest.raises(CopiedDirectoryError, match=f"registered boot {BOOT + 1}"):
        place.hear(2, TouchAck(1, BOOT + 1, 0, ()))


def test_a_server_that_does_not_lead_cannot_end_another_by_a_claim() -> None:
    place = _follower()
    place.hear(3, TouchAck(1, BOOT + 1, 0, ()), boot=5)
    place.hear(2, TouchAck(1, BOOT, 0, ()))
    place.turn(1)
    assert place.driver.leader == 2


def test_a_sync_whose_answer_was_lost_is_answered_with_a_later_one() -> None:
    """With a new sync every few milliseconds nobody would ask for the old one again."""
    place = _follower()

    class Asking:
        answered = 0

        def complete_sync(self) -> None:
            self.answered += 1

    lost, later = Asking(), Asking()
    place.driver.clients.request_sync(lost)
    place.turn(1)
    place.driver.clients.request_sync(later)
    place.turn(1)
    asked = place.take_sent(ReadIndex)
    contexts = [message.context for message in asked if isinstance(message, ReadIndex)]
    assert len(contexts) == 2
    place.hear(2, ReadIndexReply(COORDINATION_GROUP, 1, contexts[1], 3))
    place.turn(1)
    assert (lost.answered, later.answered) == (1, 1)
    place.hear(2, ReadIndexReply(COORDINATION_GROUP, 1, contexts[0], 3))
    place.turn(1)
    assert (lost.answered, later.answered) == (1, 1)


def test_a_server_that_was_left_behind_by_a_recovered_cluster_says_so_while_nobody_leads_it() -> None:
    """And nothing else follows from what a stranger says (D-1)."""
    place = Place(1, 2, 3)
    driver = place.driver
    driver.coordination.bootstrap.welcomed(b"the old cluster!")
    place.turns(500)
    assert so_far(driver.coordination.problem) is None
    place.hear(2, NotMember(b"the new cluster!", 10**6))
    assert driver.coordination.removed is None
    assert driver.coordination.problem is not None
    assert b"the new cluster!".hex() in driver.coordination.problem
    assert "recovered without this disk" in driver.coordination.problem
    driver.coordination.leader = ServerId(3)
    assert driver.coordination.problem is None, "it has a leader, so it belongs somewhere"


def test_a_removed_server_hears_it_from_its_own_cluster() -> None:
    place = Place(1, 2, 3)
    place.driver.coordination.bootstrap.welcomed(b"the old cluster!")
    place.hear(2, NotMember(b"the old cluster!", 10**6))
    assert place.driver.coordination.removed is not None


def test_a_voter_that_nobody_leads_asks_all_members_whether_it_still_is_one() -> None:
    """Simulator, seed 560101: of {1, 2, 3, 4} 1 was removed, and so was 2; 4 led, who as far as 1 knew only learned."""
    place = Place(1, 2, 3)
    place.driver.coordination.bootstrap.welcomed(b"the cluster is 1")
    place.turns(2_000)
    asked = [to for to, message in place.sent if isinstance(message, Hello) and message.wants_reply]
    assert set(asked) == {2, 3}
    assert 6 <= len(asked) <= 10, "twice a second each"
    place.hear(2, NotMember(b"the cluster is 1", 7))
    assert place.driver.coordination.removed is not None


def test_a_server_takes_the_snapshot_of_a_leader_that_its_configuration_does_not_know() -> None:
    """The simulator found it: members changed while it was away, and the log that says so is no longer there."""
    place = Place(1, 2, 3)
    place.turns(100)
    raft = place.driver.raft
    assert raft is not None
    fourth = Sender(ServerId(4), Instance(b"\4" * 16), 1)
    offer = SnapshotOffer(COORDINATION_GROUP, 7, 50, 6, b"s" * 16, 1_000)
    messages: list[PeerMessage] = [Heartbeat(COORDINATION_GROUP, 7, 1, 1), offer]
    place.driver.receive(fourth, messages)
    assert [type(task) for task in place.turn(1).tasks] == [], (
        "nobody says that this disk belongs to the cluster"
    )
    raft.vouch(fourth.server, fourth.instance)
    place.driver.receive(fourth, messages)
    assert [type(task) for task in place.turn(1).tasks] == [Receive]
    other = Sender(ServerId(4), Instance(b"\5" * 16), 1)
    place.driver.receive(other, [SnapshotOffer(COORDINATION_GROUP, 7, 60, 6, b"t" * 16, 1_000)])
    assert place.turn(1).tasks == []


def test_touches_are_reported_as_configured_until_the_log_says_how_often() -> None:
    """D-14; the simulator found it: a second without contact for all but the leader of a cluster just founded."""
    place = Place(1, 2, 3, settings=DriverSettings(tree=Settings(tick_time_ms=200)))
    place.turns(100)
    place.hear(2, Heartbeat(COORDINATION_GROUP, 2, 1, 1))
    place.turn(1)
    assert place.driver.machine.settings.tick_time_ms == 2_000, "nothing of the log is applied"
    (report,) = place.take_sent(TouchReport)
    assert isinstance(report, TouchReport)
    place.hear(2, TouchAck(2, BOOT, report.number, ()))
    place.turns(110)
    assert len(place.take_sent(TouchReport)) == 1


def test_a_server_without_a_leader_is_not_woken_for_a_report_that_nobody_could_take() -> None:
    """A turn in every millisecond of every election, and of every wait for the other founders, came to nothing."""
    place = Place(1, 2, 3)
    place.turns(50)
    assert place.driver.leader is None
    wake_at = place.turn(10).wake_at
    assert place.driver.raft is not None
    assert wake_at == place.now + min(IDLE_TURN_MS, ceil(place.driver.raft.alarm_in))
    outside = Place(1, 2)
    outside.driver = Driver(
        settings=DriverSettings(),
        identity=Identity(ServerId(1), INSTANCES[ServerId(1)], BOOT, b"boot id!", None),
        peers=[ServerId(1), ServerId(2)],
        stored=Stored(HardState(), None, Log()),
        rng=random.Random(1),
        entropy=lambda size: b"e" * size,
        four_letter_word=lambda word, argument: word.encode(),
        now_ms=0,
    )
    assert outside.driver.raft is None
    outside.turns(50)
    assert outside.turn(10).wake_at == outside.now + SEEK_TURN_MS


def test_what_the_snapshot_disk_is_to_do_wakes_nobody() -> None:
    """The tasks leave with the turn; that they are done is what brings the next one."""
    place = _alone()
    place.turns(100)
    place.driver.read_snapshot(
        ReadSnapshot(ServerId(0), COORDINATION_GROUP, b"i" * 16, 0, 10), lambda result: None
    )
    effects = place.turn(1)
    assert [type(task) for task in effects.tasks] == [ReadSnapshot]
    assert effects.wake_at > place.now + 1


def test_what_hosts_of_other_groups_say_to_each_other_is_ignored() -> None:
    """A release that hosts groups may speak first (D-5)."""
    place = Place(1, 2, 3)
    sender = Sender(ServerId(2), INSTANCES[ServerId(2)], 1)
    place.turn()
    place.sent.clear()
    group = GroupId(7)
    place.driver.receive(
        sender, [SharedHeartbeat(1, 1, 0, ((group, 1, 1),)), SharedHeartbeatReply(1, 1, (group,))]
    )
    place.turn()
    assert place.sent == []
    assert place.driver.peer_mistakes == 0
