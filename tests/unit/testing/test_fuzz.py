"""Bad input gets the documented answer: brief runs of the fuzzer, and the faults that it found, each on its own."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from click.testing import CliRunner

from tests.fuzz.__main__ import main
from tests.fuzz.batches import BatchFuzz
from tests.fuzz.costly import costly_message
from tests.fuzz.datagrams import ME, OTHERS, DatagramFuzz, _Server
from tests.fuzz.documented import Answer, expected_answer
from tests.fuzz.frames import FrameFuzz, check_beginning, held_bytes, judge
from tests.fuzz.live import require_loopback
from tests.fuzz.mutation import mutate_bytes, mutate_value
from tests.fuzz.native import NativeFuzz
from tests.fuzz.native_answers import PUSHED, RESULTS, compare, fields_of
from tests.fuzz.native_messages import KINDS, drawn
from tests.fuzz.one_server import FRAME_BYTES_MAX, Client, OneServer
from tests.fuzz.outcome import Outcome, Stopwatch
from tests.fuzz.requests import UNKNOWN, names_below, valid_request
from tests.fuzz.segments import SegmentFuzz
from tests.simulation import jute
from tests.simulation.broken import BrokenPromiseError
from zraft.raft.messages import AppendEntries, Entry, EntryKind, Heartbeat
from zraft.server.clients.connection import BACKLOG_BYTES_MAX
from zraft.server.clients.native import topics as native_topics
from zraft.server.clients.native.connection import NativeConnection
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft_core.address import Address
from zraft_core.errors import Code, ConfigError, MarshallingError, ProtocolError
from zraft_core.ids import COORDINATION_GROUP, Instance
from zraft_core.layout import Fields
from zraft_core.wire.connect import ConnectResponse, encode_connect_response
from zraft_core.wire.native.framing import NativeReader
from zraft_core.wire.native.requests import REQUESTS, decode_request
from zraft_core.wire.opcodes import SUPPORTED, Opcode
from zraft_core.znodes import txn

Run = Callable[[int], Outcome]


def ignore(more: int) -> None:
    """Nobody looks at the progress."""


RUNS: dict[str, tuple[Run, int]] = {
    "frames": (lambda seed: FrameFuzz(seed, 8).run(2_000, ignore), 2_000),
    "native": (lambda seed: NativeFuzz(seed, 8).run(800, ignore), 800),
    "datagrams": (lambda seed: DatagramFuzz(seed).run(2_000, ignore), 2_000),
    "segments": (lambda seed: SegmentFuzz(seed).run(300, ignore), 300),
    "batches": (lambda seed: BatchFuzz(seed).run(500, ignore), 500),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("target", RUNS)
def test_bad_input_gets_the_documented_answer(target: str, seed: int) -> None:
    run, count = RUNS[target]
    outcome = run(seed)
    assert outcome.inputs >= count
    assert sum(outcome.answers.values()) > count // 2, "the fuzzer saw too little to prove anything"


def test_every_operation_of_the_protocol_is_among_the_requests() -> None:
    rng = random.Random(1)
    seen = {int.from_bytes(valid_request(1, rng)[8:12], signed=True) for _ in range(60_000)}
    assert seen >= {int(opcode) for opcode in SUPPORTED}
    assert seen >= set(UNKNOWN)


@pytest.mark.parametrize(
    "fields", KINDS, ids=lambda fields: f"{fields.called} {'-'.join(name for name in fields.fields)}"
)
def test_every_field_of_a_native_request_is_among_those_that_are_understood(fields: Fields[Any]) -> None:
    rng = random.Random(1)
    seen = {"id"}
    for _ in range(60):
        message = msgpack.unpackb(msgpack.packb({"id": 1, **drawn(fields, rng)}), use_list=False)
        with suppress(MarshallingError):
            decode_request(message)
            seen |= message.keys() - {"type"}
    assert seen == fields.fields.keys()


def test_what_a_native_client_is_told_is_compared_with_its_declaration() -> None:
    put = {"id": 1, "type": "put", "key": 1, "value": 1}
    result = {"id": 1, "type": "result", "success": True, "zxid": 5, "position": 6, "version": 0, "mzxid": 5}
    compare(result, put)
    for wrong in ({**result, "mzxid": None}, {**result, "more": 1}, {**result, "version": "0"}):
        with pytest.raises(ProtocolError, match=r"put"):
            compare(wrong, put)
    del result["position"]
    with pytest.raises(ProtocolError, match=r"put: expected a field 'position'"):
        compare(result, put)
    assert fields_of({"id": 1, "type": "nonsense"}, put) is None
    assert {*RESULTS} == {*REQUESTS, "subscribe"} - {"credit", "produce"}


def test_every_kind_of_push_reaches_a_fuzzed_native_client() -> None:
    seen = NativeFuzz(1, 8).run(800, ignore).answers
    assert [kind for kind in PUSHED if not seen[kind]] == []


def test_requests_below_a_root_leave_the_root_of_all_its_acl() -> None:
    """A setACL of "/" is obeyed: from then on a run against a live server would show nothing but NOAUTH."""
    rng = random.Random(1)
    names = names_below("/fuzz7")
    requests = [valid_request(1, rng, names) for _ in range(60_000)]
    paths = {
        request[16 : 16 + int.from_bytes(request[12:16])]
        for request in requests
        if int.from_bytes(request[8:12], signed=True) == Opcode.SET_ACL
    }
    assert b"/fuzz7/a" in paths
    assert b"/" not in paths


def test_what_was_read_of_a_socket_is_judged_as_far_as_it_goes() -> None:
    connect = jute.connect_request(0, 4_000, 0, bytes(16))
    stream = connect + jute.request(1, 99) + jute.request(2, jute.SYNC, jute.text("/"))
    greeting = jute.frame(struct.pack(">iiq", 0, 4_000, 7) + jute.blob(bytes(16)) + b"\0")
    unknown = jute.frame(struct.pack(">iqi", 1, 1, -6))
    tally: Counter[str] = Counter()
    for end in range(len(greeting + unknown) + 1):
        check_beginning((greeting + unknown)[:end], stream, 4_096, tally)
    assert tally[Answer.UNKNOWN.value] == 1
    for wrong in (
        greeting + jute.frame(struct.pack(">iqi", 1, 1, 0)),
        greeting + unknown + jute.frame(struct.pack(">iqi", 2, 1, 0)),
        greeting + jute.frame(struct.pack(">iqi", 2, 1, -6)),
        greeting + jute.frame(struct.pack(">iqi", 1, 1, -12345)),
    ):
        with pytest.raises(BrokenPromiseError):
            check_beginning(wrong, stream, 4_096, tally)
    with pytest.raises(BrokenPromiseError):
        check_beginning(greeting, b"\0\0\0\1x", 4_096, tally)


def test_runs_of_one_seed_are_equal_and_of_two_are_not() -> None:
    assert DatagramFuzz(5).run(500, ignore) == DatagramFuzz(5).run(500, ignore)
    assert FrameFuzz(5, 4).stream() == FrameFuzz(5, 4).stream()
    assert FrameFuzz(5, 4).stream() != FrameFuzz(6, 4).stream()
    assert SegmentFuzz(5).run(100, ignore) != SegmentFuzz(6).run(100, ignore)


def test_the_fuzzer_notices_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that cannot fail proves nothing: here the server confuses two error codes."""
    right = ZooKeeperConnection._fail

    def wrong(connection: ZooKeeperConnection, xid: int, code: Code) -> None:
        right(connection, xid, Code.BAD_ARGUMENTS if code is Code.MARSHALLING_ERROR else code)

    monkeypatch.setattr(ZooKeeperConnection, "_fail", wrong)
    with pytest.raises(BrokenPromiseError, match=r"to be answered with -5, got -8"):
        FrameFuzz(2, 4).run(500, ignore)


def test_the_fuzzer_of_the_native_protocol_notices_a_request_that_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = NativeConnection._refuse

    def wrong(connection: NativeConnection, number: int | None, code: Code, why: str, **more: bool) -> None:
        if code is not Code.NO_WATCHER:
            right(connection, number, code, why, **more)

    monkeypatch.setattr(NativeConnection, "_refuse", wrong)
    with pytest.raises(BrokenPromiseError, match="expected"):
        NativeFuzz(2, 4).run(1_500, ignore)


def test_the_fuzzer_of_the_native_protocol_notices_a_push_that_is_not_as_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        native_topics, "reply_rows", lambda replies, times: [(one.mid.seq, one.sender) for one in replies]
    )
    with pytest.raises(BrokenPromiseError, match=r"replies\.replies\[0\]"):
        NativeFuzz(3, 8).run(800, ignore)


def test_the_judge_of_time_names_the_worst_input_and_fails_beyond_all_reason() -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    for size, seconds in ((1_000, 0.001), (10_000, 0.05), (100_000, 0.1), (1, 0.001)):
        watch.count(bytes([seconds > 0.04]) * size, watch.step("an input", spend, seconds))
    assert watch.slowest is not None
    assert str(watch.slowest).startswith("5.00 us per byte (10,000 bytes that begin with 0101")
    assert watch.longest_s == pytest.approx(0.1)
    with pytest.raises(BrokenPromiseError, match=r"a turn took 5\.5 s"):
        watch.step("a turn", spend, 5.5)


def test_a_run_prints_what_its_worst_input_cost() -> None:
    ran = CliRunner().invoke(main, ["--target", "native", "--count", "200", "--seed", "1"])
    assert ran.exit_code == 0, ran.output
    assert "us per byte" in ran.output
    assert "longest step" in ran.output


def test_messages_that_are_made_to_cost_much_are_each_one_message() -> None:
    rng = random.Random(1)
    kinds = set()
    for number in range(300):
        message = costly_message(number, rng)
        complete = NativeReader(10**7).feed(message)
        assert complete == message
        kinds.add(bytes(message[:40]))
    assert len(kinds) > 100


def test_mutations_change_bytes_and_values() -> None:
    rng = random.Random(1)
    data = bytes(range(60))
    assert sum(mutate_bytes(data, rng) != data for _ in range(100)) > 90
    value = (5, 1, b"payload", (True, (2, b"")))
    assert sum(mutate_value(value, rng) != value for _ in range(100)) > 90


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        (b"", Answer.DROPPED),
        (struct.pack(">ii", 1, 77), Answer.UNKNOWN),
        (struct.pack(">ii", 1, jute.GET_DATA), Answer.MALFORMED),
        (struct.pack(">ii", 1, jute.GET_DATA) + jute.watch_body("/", False), Answer.VALUE),
        (struct.pack(">ii", 1, jute.CREATE) + jute.create_body("/a", None, 5), Answer.BAD_ARGUMENTS),
        (struct.pack(">ii", 1, jute.CREATE) + jute.create_body("/a", None, 7), Answer.BAD_ARGUMENTS),
        (struct.pack(">ii", 1, jute.MULTI) + jute.multi_body([(19, b"")]), Answer.MALFORMED),
        (struct.pack(">ii", 1, 21) + jute.create_body("/a", None, 5) + struct.pack(">q", 1), Answer.VALUE),
        (struct.pack(">ii", 1, 106) + jute.text("/a") + struct.pack(">i", 2), Answer.MALFORMED),
        (struct.pack(">ii", 1, 100) + bytes(4) + jute.text("no") + jute.blob(b""), Answer.AUTH_FAILED),
        (struct.pack(">ii", 1, jute.CLOSE), Answer.END),
    ],
)
def test_the_judge_knows_the_tables_of_the_protocol_page(frame: bytes, answer: Answer) -> None:
    assert expected_answer(frame).answer is answer


def test_an_impossible_length_is_judged_as_closed_without_an_answer() -> None:
    stream = jute.connect_request(0, 4_000, 0, bytes(16)) + b"\x7f\xff\xff\xff"
    judged = judge(stream)
    assert (judged.closes, judged.prefix) == (True, True)


# -- what it found


def attached(server: OneServer) -> Client:
    client = server.connect(1)
    client.connection.data_received(jute.connect_request(0, 30_000, 0, bytes(16)))
    turns(server)
    client.received.clear()
    return client


def turns(server: OneServer, count: int = 10) -> None:
    for _ in range(count):
        server.turn()


def errors(client: Client) -> list[tuple[int, int]]:
    """(xid, err) of the replies so far."""
    found = []
    data = bytes(client.received)
    while data:
        length = int.from_bytes(data[:4])
        xid, _, err = jute.Reader(data[4 : 4 + length]).header()
        found.append((xid, err))
        data = data[4 + length :]
    return found


SET_ROOT = jute.set_body("/", b"", -1)
READ_ROOT = jute.watch_body("/", False)


def test_nothing_is_answered_after_an_unknown_operation_that_waited_for_a_write() -> None:
    """The write behind it took the read between them for its own request, and an assertion ended the turn."""
    server = OneServer(random.Random(1))
    client = attached(server)
    client.connection.data_received(
        jute.request(1, jute.SET_DATA, SET_ROOT)
        + jute.request(2, 77)
        + jute.request(3, jute.GET_DATA, READ_ROOT)
        + jute.request(4, jute.SET_DATA, SET_ROOT)
    )
    turns(server)
    assert errors(client) == [(1, 0), (2, Code.UNIMPLEMENTED)]
    assert client.closed


@pytest.mark.parametrize(
    "before", [b"", jute.request(1, jute.SET_DATA, SET_ROOT)], ids=["alone", "behind a write"]
)
def test_requests_behind_a_malformed_sync_are_answered(before: bytes) -> None:
    """It left its connection waiting for ever."""
    server = OneServer(random.Random(1))
    client = attached(server)
    client.connection.data_received(before + jute.request(2, jute.SYNC, jute.blob(None)))
    turns(server)
    client.connection.data_received(jute.request(3, jute.GET_DATA, READ_ROOT))
    turns(server)
    assert errors(client)[-2:] == [(2, Code.MARSHALLING_ERROR), (3, 0)]


@pytest.mark.parametrize(
    "flood",
    [struct.pack(">i", 0), jute.request(2, jute.GET_DATA, READ_ROOT), jute.request(2, jute.GET_DATA)],
    ids=["empty frames", "reads", "malformed reads"],
)
def test_requests_that_wait_for_a_stalled_disk_stop_the_reading(flood: bytes) -> None:
    server = OneServer(random.Random(1))
    client = attached(server)
    connection = client.connection
    server.stalled = True
    connection.data_received(jute.request(1, jute.SET_DATA, SET_ROOT))
    if len(flood) == 4:
        connection.data_received(jute.request(1, jute.SYNC, jute.text("/")))
    chunk = flood * (65_536 // len(flood))
    for _ in range(2 * BACKLOG_BYTES_MAX // len(chunk)):
        if not connection.wants_read:
            break
        connection.data_received(chunk)
    assert not connection.wants_read
    assert held_bytes(connection) < 3 * BACKLOG_BYTES_MAX


def test_pipelined_reads_of_a_large_znode_are_answered_a_bounded_part_at_a_time() -> None:
    server = OneServer(random.Random(1))
    client = attached(server)
    data = bytes(FRAME_BYTES_MAX - 100)
    client.connection.data_received(jute.request(1, jute.SET_DATA, jute.set_body("/", data, -1)))
    turns(server)
    count = 200
    client.connection.data_received(jute.request(2, jute.GET_DATA, READ_ROOT) * count)
    largest = max(server.turn() for _ in range(100))
    assert largest < BACKLOG_BYTES_MAX + FRAME_BYTES_MAX
    assert errors(client).count((2, 0)) == count


def follower() -> tuple[_Server, int]:
    server = _Server(random.Random(3), leads=False)
    raft = server.driver.raft
    assert raft is not None
    return server, raft.term


def append(server: _Server, term: int, payload: bytes) -> None:
    raft = server.driver.raft
    assert raft is not None
    index = raft.log.last_index
    entry = Entry(index + 1, term, EntryKind.COMMANDS, raft.log.next_position, 1, payload)
    if index == 0:
        roster = Entry(1, term, EntryKind.MEMBERSHIP, 1, 0, server._membership())
        server.say(OTHERS[0], AppendEntries(COORDINATION_GROUP, term, 0, 0, 1, (roster,)))
        entry = Entry(2, term, EntryKind.COMMANDS, 1, 1, payload)
        index = 1
    message = AppendEntries(COORDINATION_GROUP, term, index, raft.log.term_at(index), index + 1, (entry,))
    server.say(OTHERS[0], message)
    for _ in range(4):
        server.turn()
    assert server.driver.applied_index == index + 1


def test_a_message_that_no_correct_peer_sends_is_dropped_and_counted() -> None:
    server, term = follower()
    server.say(OTHERS[1], Heartbeat(COORDINATION_GROUP, term, 1, 0))
    assert server.driver.peer_mistakes == 1
    sender, why = server.driver.mistakes.popleft()
    assert sender == OTHERS[1]
    assert "claims to lead" in why
    server.say(OTHERS[0], Heartbeat(COORDINATION_GROUP, term, 2, 0))
    assert server.driver.peer_mistakes == 1


@pytest.mark.parametrize(
    "command", [7, None, (), ((),), ({},), (txn.EXPIRE,), (txn.EXPIRE, {}), (txn.REGISTER,), (txn.CREATE,)]
)
@pytest.mark.parametrize("session", [0, 5])
def test_what_is_no_command_is_passed_by_every_server(command: object, session: int) -> None:
    """It raised in the apply loop of all of them, at every start again."""
    server, term = follower()
    instance = server.voices[OTHERS[0]].sender.instance
    batch = msgpack.packb((OTHERS[0], instance, 1, 1, ((session, (), (command,)),)))
    append(server, term, txn.pack_entry(1, 1, [batch]))


def test_a_batch_that_comes_back_changed_answers_nobody() -> None:
    """D-2: a batch's bytes never change; its owners must not take other results for theirs."""
    server, term = follower()
    server.turn()
    assert server.last_batch is not None
    runs = ((0, (), ((txn.REGISTER, server.driver.identity.boot_id),)),) * 2
    blob = txn.pack_batch(ME, Instance(server.me.instance), 1, server.last_batch.seq, runs)
    append(server, term, txn.pack_entry(1, 1, [blob]))
    assert server.driver.origin.idle


# -- the command


def test_the_command_prints_its_seed_and_figures() -> None:
    result = CliRunner().invoke(main, ["--target", "segments", "--count", "50", "--seed", "9"])
    assert result.exit_code == 0, result.output
    assert "seed 9" in result.output
    assert "segments: 50 inputs" in result.output


def test_other_machines_are_fuzzed_only_when_told_so_in_words() -> None:
    with pytest.raises(ConfigError, match="I may break this server"):
        require_loopback(Address("192.0.2.1", 2181))
    require_loopback(Address("127.0.0.1", 2181))


def test_the_answer_to_a_client_before_3_4_has_no_read_only_flag() -> None:
    """It is one byte shorter; the fuzzer meets it wherever the last byte of a connect request is lost."""
    answer = encode_connect_response(ConnectResponse(0, 4_000, 7, bytes(16), None))
    assert jute.Reader(answer[4:]).connect_response() == (4_000, 7, bytes(16), False)
