"""Exactly once: a session's numbered commands are executed once, however often and wherever they are sent."""

from __future__ import annotations

import msgpack
import pytest

from tests.unit.tree.level3 import Level3, again, from_image, image_of
from tests.unit.tree.scenario import EPHEMERAL, ONE, SEQUENTIAL, TWO, Scenario, create
from zraft.tree.commands.once import KEPT_BYTES_MAX
from zraft.tree.commands.outcomes import outcome_of
from zraft.tree.image.layout import HEAD, SESSION
from zraft.tree.image.reader import ImageReader
from zraft.tree.sessions.kept import WINDOW
from zraft_core.errors import Code, ProtocolError
from zraft_core.znodes.txn import (
    ADD,
    CLOSE_SESSION,
    CREATE,
    DELETE,
    MEMBERS,
    MULTI,
    ONCE,
    PUT,
    SET_ACL,
    SET_DATA,
    Command,
)

BAD_ARGUMENTS, THROTTLED = int(Code.BAD_ARGUMENTS), int(Code.THROTTLED_OP)
COUNT = (ADD, "/n", b"", 1)


@pytest.fixture
def scenario() -> Level3:
    return Level3()


def test_repeat_executes_nothing_and_is_answered_as_the_first_time(scenario: Level3) -> None:
    first = scenario.once(1, 0, COUNT)
    scenario.once(2, 0, COUNT)
    scenario.events()
    assert (first[2], first[3][0]) == (0, 1)
    assert scenario.once(1, 0, COUNT) == first
    assert scenario.events() == []
    assert scenario.node("/n").data == msgpack.packb(2)


def test_repeat_takes_a_zxid_and_a_position_of_its_own_and_tells_the_first_ones(scenario: Level3) -> None:
    """D-15, D-16: the fencing token of a write is the one that it got when it happened."""
    machine = scenario.machine
    first = scenario.once(1, 0, COUNT)
    assert first[:2] == (machine.last_zxid, machine.position)
    assert scenario.once(1, 0, COUNT) == first
    assert (machine.last_zxid, machine.position) == (first[0] + 1, first[1] + 1)


def test_repeat_on_another_server_is_answered_there(scenario: Level3) -> None:
    """The client's connection broke; the session came to server 2."""
    first = scenario.once(7, 0, COUNT)
    scenario.attach(scenario.session.id, TWO)
    assert scenario.once(7, 0, COUNT, origin=TWO) == first
    assert scenario.run((ONCE, 8, 0, COUNT), origin=ONE) is Code.SESSION_MOVED
    assert scenario.once(8, 0, COUNT, origin=TWO)[3][0] == 2


def test_failure_is_kept_too(scenario: Level3) -> None:
    """What was decided stays decided, even if it could succeed by now."""
    failed = scenario.once(1, 0, (SET_DATA, "/x", b"", -1))
    assert failed[2:] == (int(Code.NO_NODE), None)
    scenario.create("/x")
    assert scenario.once(1, 0, (SET_DATA, "/x", b"", -1)) == failed


def test_another_command_under_a_used_number_is_not_executed(scenario: Level3) -> None:
    first = scenario.once(1, 0, COUNT)
    assert scenario.once(1, 0, (DELETE, "/n", -1)) == first
    assert "/n" in scenario.machine.nodes


def test_numbers_need_not_come_in_order(scenario: Level3) -> None:
    outcomes = {seq: scenario.once(seq, 0, COUNT) for seq in (3, 1, WINDOW, 2)}
    assert [outcomes[seq][3][0] for seq in (3, 1, WINDOW, 2)] == [1, 2, 3, 4]
    assert all(scenario.once(seq, 0, COUNT) == outcome for seq, outcome in outcomes.items())


def test_what_the_client_received_is_forgotten_and_not_executed_again(scenario: Level3) -> None:
    for seq in (1, 2, 3):
        scenario.once(seq, 0, COUNT)
    kept = scenario.session.kept
    assert kept is not None
    assert set(kept.outcomes) == {1, 2, 3}
    scenario.once(4, 2, COUNT)
    assert set(kept.outcomes) == {3, 4}
    assert scenario.once(2, 0, COUNT)[2:] == (BAD_ARGUMENTS, None)
    assert scenario.once(3, 0, COUNT)[3][0] == 3, (
        "an old floor, of a request that was slow, takes nothing back"
    )
    assert kept.floor == 2
    scenario.once(WINDOW * 3, WINDOW * 3 - 1, COUNT)
    assert set(kept.outcomes) == {WINDOW * 3}
    assert kept.size == sum(map(len, kept.outcomes.values()))
    assert scenario.node("/n").data == msgpack.packb(5)


@pytest.mark.parametrize(("seq", "floor"), [(0, 0), (-1, 0), (1, 1), (5, 9), (1, -1), (2**63, 0)])
def test_number_that_contradicts_the_floor_changes_nothing(scenario: Level3, seq: int, floor: int) -> None:
    assert scenario.once(seq, floor, COUNT)[2:] == (BAD_ARGUMENTS, None)
    assert scenario.session.kept is None
    assert "/n" not in scenario.machine.nodes


def test_window_bounds_how_many_are_kept(scenario: Level3) -> None:
    assert scenario.once(WINDOW + 1, 0, COUNT)[2:] == (THROTTLED, None)
    assert "/n" not in scenario.machine.nodes
    assert scenario.once(WINDOW + 1, 1, COUNT)[3][0] == 1
    assert scenario.once(WINDOW + 2, 1, COUNT)[2] == THROTTLED
    assert scenario.once(WINDOW + 2, 2, COUNT)[3][0] == 2, "what was refused was not kept"


def test_bytes_bound_what_is_kept(scenario: Level3) -> None:
    large = (MULTI, tuple(create(f"/{'x' * 900}{number}") for number in range(1200)))
    assert scenario.once(1, 0, large)[2] == 0
    kept = scenario.session.kept
    assert kept is not None
    assert kept.size > KEPT_BYTES_MAX
    assert scenario.once(2, 0, COUNT)[2:] == (THROTTLED, None)
    assert scenario.once(1, 0, large)[2] == 0, "what is kept is told"
    assert scenario.once(2, 1, COUNT)[2] == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ((CLOSE_SESSION,), Code.BAD_ARGUMENTS),
        ((MEMBERS, True, -1, ((1, 1, "a:1"),)), Code.BAD_ARGUMENTS),
        ((ONCE, 2, 0, COUNT), Code.BAD_ARGUMENTS),
        ((999,), Code.UNIMPLEMENTED),
        ((), Code.MARSHALLING_ERROR),
        (None, Code.MARSHALLING_ERROR),
        ((("a",), 1), Code.MARSHALLING_ERROR),
        ((True, "/x", b"", -1), Code.MARSHALLING_ERROR),
    ],
)
def test_what_cannot_be_numbered_is_refused(scenario: Level3, command: Command, code: Code) -> None:
    assert scenario.once(1, 0, command)[2:] == (int(code), None)
    assert scenario.session.id in scenario.machine.sessions


@pytest.mark.parametrize(
    "command", [(ONCE,), (ONCE, 1, 0), (ONCE, "1", 0, COUNT), (ONCE, 1, None, COUNT), (ONCE, True, 0, COUNT)]
)
def test_malformed_once_fails(scenario: Level3, command: Command) -> None:
    assert scenario.run(command) is Code.MARSHALLING_ERROR


def test_numbered_commands_need_a_session_and_level_3(scenario: Level3) -> None:
    """D-5."""
    assert scenario.without_session((ONCE, 1, 0, COUNT)) is Code.UNIMPLEMENTED
    assert scenario.multi((ONCE, 1, 0, COUNT)) is Code.MARSHALLING_ERROR
    assert Scenario().run((ONCE, 1, 0, COUNT)) is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    "command",
    [
        (CREATE, "/a", b"x", None, SEQUENTIAL, None),
        (CREATE, "/a", b"x", None, EPHEMERAL, None),
        (PUT, "/b/c", b"x", None),
        COUNT,
        (SET_DATA, "/", b"x", -1),
        (SET_ACL, "/", None, -1),
        (DELETE, "/absent", -1),
        (MULTI, (create("/a"), COUNT, (PUT, "/p", None, -1), (DELETE, "/p", -1))),
        (MULTI, (create("/a"), create("/a"))),
    ],
)
def test_outcome_is_that_of_the_command_alone(scenario: Level3, command: Command) -> None:
    """And it is plain enough for MessagePack to bring it back as it was."""
    outcome = scenario.once(1, 0, command)
    bare = Level3()
    expected = outcome_of(command, bare.run(command), bare.machine.last_zxid, bare.machine.position)
    assert outcome == expected == scenario.once(1, 0, command)
    assert bare.machine.nodes.data_bytes == scenario.machine.nodes.data_bytes


def test_what_is_kept_is_part_of_state_digest_and_image(scenario: Level3) -> None:
    machine = scenario.machine
    before = machine.digest(), machine.image()
    scenario.session.kept = None
    first = scenario.once(3, 1, COUNT)
    assert machine.digest() == machine.full_digest() != before[0]
    scenario.machine = again(machine)
    scenario.machine.set_members([ONE, TWO])
    assert scenario.once(3, 1, COUNT) == first
    assert scenario.once(1, 0, COUNT)[2] == BAD_ARGUMENTS


def test_state_in_which_only_the_floor_differs_has_another_digest(scenario: Level3) -> None:
    scenario.once(1, 0, COUNT)
    machine = scenario.machine
    before = machine.full_digest()
    kept = scenario.session.kept
    assert kept is not None
    kept.floor += 5
    assert machine.full_digest() != before


def test_session_without_numbered_commands_has_the_share_it_had_at_level_2() -> None:
    """Servers of two releases compare digests while a cluster rolls (D-26)."""
    plain = Scenario()
    assert plain.session.memory() == ()
    record = [
        r for r in msgpack.Unpacker(_Reader(image_of(plain.machine)), use_list=False) if r[0] == SESSION
    ]
    assert [len(fields) for fields in record] == [7]


class _Reader:
    def __init__(self, image: bytes) -> None:
        self.image = image

    def read(self, size: int) -> bytes:
        piece, self.image = self.image[:size], self.image[size:]
        return piece


def records_of(image: bytes) -> list[tuple[object, ...]]:
    return list(msgpack.Unpacker(_Reader(image), use_list=False))


@pytest.mark.parametrize(
    "memory",
    [
        (None, None),
        ((1, ()),),
        ((-1, ()), None),
        ((0, ((1, b"no outcome"),)), None),
        ((0, ((1, msgpack.packb((1, 1, 0))),)), None),
        ((0, ((WINDOW + 1, msgpack.packb((1, 1, 0, None))),)), None),
        ((5, ((5, msgpack.packb((1, 1, 0, None))),)), None),
        ((0, ((1, msgpack.packb((1, 1, 0, None))),) * 2), None),
        ((0, 7), None),
        ((0, (7,)), None),
        (None, ("/p", "x-", b"")),
        (None, ("p", "x-", b"", ())),
        (None, ("/p", "a/b", b"", ())),
        (None, ("/p", "x-", 5, ())),
        (None, ("/p", "x-", b"", (("ip",),))),
    ],
)
def test_image_with_a_memory_that_no_session_has_is_refused(
    scenario: Level3, memory: tuple[object, ...]
) -> None:
    reader = ImageReader()
    for record in records_of(image_of(scenario.machine)):
        fields = (*record, *memory) if record[0] == SESSION else record
        reader.feed(msgpack.packb(fields))
    with pytest.raises(ProtocolError, match="image: session 0x"):
        reader.step(1_000)


def test_image_of_level_2_holds_no_memory(scenario: Level3) -> None:
    scenario.once(1, 0, COUNT)
    reader = ImageReader()
    for record in records_of(image_of(scenario.machine)):
        fields = (*record[:2], 2, *record[3:]) if record[0] == HEAD else record
        reader.feed(msgpack.packb(fields))
    with pytest.raises(ProtocolError, match="unexpected fields"):
        reader.step(1_000)


def test_restored_session_keeps_within_the_same_bounds(scenario: Level3) -> None:
    for seq in range(1, 6):
        scenario.once(seq, 0, COUNT)
    restored = from_image(image_of(scenario.machine)).sessions[scenario.session.id]
    kept = scenario.session.kept
    assert kept is not None
    assert restored.kept is not None
    assert (restored.kept.floor, restored.kept.size, restored.kept.outcomes) == (
        kept.floor,
        kept.size,
        kept.outcomes,
    )


def test_outcome_of_a_multi_is_kept_also_where_nobody_waits_for_it() -> None:
    """It is a part of the state, and of each server's digest; the client may ask any of them again."""
    here, elsewhere = Level3(), Level3()
    elsewhere.machine.answered = False
    for scenario in (here, elsewhere):
        scenario.once(1, 0, (MULTI, (create("/m"), COUNT, (SET_DATA, "/m", b"1", 0))))
    assert here.machine.image() == elsewhere.machine.image()
    assert here.machine.digest() == elsewhere.machine.digest()
