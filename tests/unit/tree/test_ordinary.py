"""Runs of ordinary commands in loops come to what the same commands come to one by one, whoever watches what."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.tree.scenario import ONE, Scenario
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.tree.commands import ordinary
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import MORE_ORDINARY, Machine
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.znodes.acl import ALL, READ
from zraft_core.znodes.events import NODE_CHILDREN_CHANGED, Event
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN
from zraft_core.znodes.txn import (
    CHECK,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    PUT,
    SET_ACL,
    SET_DATA,
    TRUNCATE,
    Command,
)

GUARDED = ((ALL, "ip", "192.168.0.0/16"), (READ, "world", "anyone"))
OPEN = ((ALL, "world", "anyone"),)
NAMES = ("a", "b", "c", "q-", "é", "\x01", ".", "zookeeper_limits")
SPLIT_AT = 12
ODD: tuple[Any, ...] = (
    None,
    7,
    "abcd",
    (),
    (SET_DATA,),
    (SET_DATA, "/a", b"x", True),
    (SET_DATA, "/a", b"x", -1.0),
    (SET_DATA, "/a", None, -1),
    (SET_DATA, "/a", bytes(1 << 21), -1),
    (SET_DATA, 1, b"x", -1),
    {SET_DATA: 0, "/a": 0, b"x": 0, -1: 0},
    (PUT, "/a", b"x", -1),
    (PUT, "/a", b"x", 0.0),
    ((), "/a", b"x", -1),
    (CREATE, "/a/b", b"", None, True, 0),
    (CREATE, "//a", b"", None, 0, 0),
    (CREATE, "a", b"", None, 0, 0),
    (CREATE, "/", b"", None, 0, 0),
    (CREATE, "/zookeeper/quota/a", b"", None, 0, 0),
    (CREATE, "/zookeeper/topics", b"", None, 0, 0),
    (CREATE, "/zookeeper/topics/a", b"", None, 0, 0),
    (CREATE, "/a\0/b", b"", None, 0, 0),
    (CREATE, "/a/b", b"", None, 4, 0),
    (CREATE, "/a/b", "", None, 0, 0),
    (CREATE, "/a/l", b"", GUARDED, 0, 0),
    (CREATE, "/a/m", b"", OPEN, 0, 0),
    (CREATE_TTL, "/a/t", b"", None, 5, 1_000),
    (CREATE_CONTAINER, "/a/c", b"", None, 0, 0),
    (CHECK, "/a", -1),
)
CREATES = (CREATE, CREATE2)


class Twins:
    """Two machines: one executes each command by itself, the other one in loops where it can."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.alone, self.looping = Scenario(), Scenario()
        for scenario in (self.alone, self.looping):
            scenario.machine.feature_level = FEATURE_LEVEL_MAX
        # A server knows its own watches only; the other one makes all events.
        self.watched: tuple[set[str], set[str]] = (set(), set())
        self.looping.machine.watched = self.watched
        self.in_loops = 0

    def path(self) -> str:
        paths = sorted(path for path, _ in self.alone.machine.nodes.items() if "zookeeper" not in path)
        base = self.rng.choice(paths)
        return base if self.rng.random() < 0.5 else f"{base if base != '/' else ''}/{self.rng.choice(NAMES)}"

    def draw(self) -> list[Command]:
        rng = self.rng
        kind = rng.random()
        if kind < 0.35:
            opcode = rng.choice((SET_DATA, SET_DATA, PUT))
            versions = (-1, -1, -1, 0, 1, INT32_MAX) if opcode == SET_DATA else (None, None, None, -1, 0, 1)
            return [(opcode, self.path(), rng.randbytes(3), rng.choice(versions)) for _ in range(6)]
        if kind < 0.75:
            opcode, above = rng.choice(CREATES), self.path()
            if rng.random() < 0.3:
                path = f"{above if above != '/' else ''}/{rng.choice(NAMES)}"
                flags = rng.choices((2, 0), (9, 1), k=6)
                return [(rng.choice((opcode,) * 9 + CREATES), path, b"", None, flag, 0) for flag in flags]
            return [
                (
                    opcode,
                    f"{above if above != '/' else ''}/{rng.choice(NAMES)}"
                    if rng.random() < 0.8
                    else self.path(),
                    rng.choice((b"", b"xy", None)),
                    None,
                    rng.choices((0, 2, 1, 3), (4, 8, 1, 1))[0],
                    0,
                )
                for _ in range(6)
            ]
        if kind < 0.85:
            return [(DELETE, self.path(), -1) for _ in range(2)]
        if kind < 0.9:
            path = self.path()
            return [(SET_ACL, path, OPEN if path == "/" else rng.choice((GUARDED, OPEN)), -1)]
        return [rng.choice(ODD) for _ in range(2)]

    def run(self) -> None:
        """One entry with one run of commands, of several kinds."""
        rng = self.rng
        commands = [command for _ in range(rng.randint(1, 4)) for command in self.draw()]
        if rng.random() < 0.05:
            commands.append((TRUNCATE, self.path(), rng.randint(0, 3), None, None))
        for paths in self.watched:
            paths.clear()
            paths.update(self.path() for _ in range(rng.choice((0, 0, 3))))
        answered = rng.random() < 0.7
        one = self.begin(self.alone)
        other = self.begin(self.looping)
        alone = [_told(one.execute(command)) for command in commands]
        looping: list[Any] = []
        at = 0
        while at < len(commands):
            results: list[Any] | None = [] if answered else None
            done = other.execute_ordinary(commands, at, results)
            assert results is None or len(results) == done
            looping += map(_told, results) if results is not None else alone[at : at + done]
            at += done
            self.in_loops += done
            if at < len(commands):
                looping.append(_told(other.execute(commands[at])))
                at += 1
        assert looping == alone
        self.compare(one, other)

    def begin(self, scenario: Scenario) -> Machine:
        scenario.batch(ONE)
        assert scenario.machine.begin_run(scenario.session.id, (("ip", "10.0.0.1"),)) is Code.OK
        return scenario.machine

    def compare(self, one: Machine, other: Machine) -> None:
        assert (one.last_zxid, one.position) == (other.last_zxid, other.position)
        assert self.to_tell(one.events) == self.to_tell(other.events)
        one.events.clear()
        other.events.clear()
        assert one.nodes.data_bytes == other.nodes.data_bytes

    def to_tell(self, events: list[Event]) -> list[Event]:
        return [one for one in events if one[1] in self.watched[one[0] == NODE_CHILDREN_CHANGED]]


def _told(result: Any) -> Any:
    """What a client is told of a result at this moment."""
    if isinstance(result, Znode):
        return tuple(result.stat())
    if isinstance(result, tuple) and len(result) == 2:
        return result[0], tuple(result[1].stat())
    return result


@pytest.mark.parametrize("seed", range(12))
def test_loops_come_to_what_single_commands_come_to(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zraft.tree.children.SPLIT_AT", SPLIT_AT)
    monkeypatch.setattr(ordinary, "SPLIT_AT", SPLIT_AT)
    if seed % 2:
        monkeypatch.setattr("zraft.tree.digest.PENDING_AT_POINT", 0)  # new znodes are hashed at once
    twins = Twins(seed)
    for number in range(60):
        twins.run()
        if number % 20 == 10:
            # What they write down while it changes is what was there when they began.
            writer = ImageWriter(twins.looping.machine)
            twins.run()
            writer.close()
        if number % 10 == 9:
            assert twins.alone.machine.digest() == twins.looping.machine.digest()
    for scenario in (twins.alone, twins.looping):
        assert scenario.machine.digest() == scenario.machine.full_digest()
    assert twins.alone.machine.image() == twins.looping.machine.image()
    assert twins.in_loops > 100, "hardly any command was an ordinary one"


@pytest.mark.parametrize("seed", range(6))
def test_loops_go_on_while_an_image_is_written_and_the_image_is_that_of_its_beginning(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr("zraft.tree.digest.PENDING_AT_POINT", 0)  # new znodes are hashed at once
    twins = Twins(seed)
    for _ in range(30):
        twins.run()
    machine = twins.looping.machine
    at_the_beginning = machine.digest(), len(machine.nodes), machine.nodes.data_bytes
    twins.in_loops = 0
    writer = ImageWriter(machine)
    image = bytearray()
    while piece := writer.step(1 + twins.rng.randrange(4), 1 << 16):
        image += piece
        twins.run()
    assert twins.in_loops > 100, "the loops were hardly used meanwhile"
    reader = ImageReader()
    reader.feed(bytes(image))
    while reader.step(1_000):
        pass
    restored = Machine([ONE])
    restored.adopt(reader.finish())
    assert (restored.full_digest(), len(restored.nodes), restored.nodes.data_bytes) == at_the_beginning
    assert machine.digest() == machine.full_digest() == twins.alone.machine.digest()


def _looping() -> tuple[Scenario, Machine]:
    scenario = Scenario()
    machine = scenario.machine
    machine.watched = ((), ())
    return scenario, machine


def _begun(scenario: Scenario) -> Machine:
    scenario.batch()
    assert scenario.machine.begin_run(scenario.session.id, ()) is Code.OK
    return scenario.machine


def test_versions_and_numbers_that_wrap_are_left_to_single_commands() -> None:
    scenario, machine = _looping()
    scenario.run((CREATE, "/a", b"", None, 0, 0))
    node = machine.find("/a")
    assert node is not None
    for version in (INT32_MAX, -2, INT32_MIN):
        node.version = version
        done = _begun(scenario).execute_ordinary([(SET_DATA, "/a", b"", -1)] * 2, 0, None)
        assert (done, node.version) == ((0, version) if version != INT32_MIN else (0, INT32_MIN))
    node.creates = INT32_MAX
    assert _begun(scenario).execute_ordinary([(CREATE, "/a/b-", b"", None, 2, 0)], 0, None) == 0


def test_what_a_level_does_not_know_is_in_no_loop() -> None:
    scenario, machine = _looping()
    scenario.run((CREATE, "/a", b"", None, 0, 0))
    assert _begun(scenario).execute_ordinary([(PUT, "/a", b"x", None)], 0, None) == 0
    machine.feature_level = FEATURE_LEVEL_MAX
    assert _begun(scenario).execute_ordinary([(PUT, "/a", b"x", None)], 0, None) == 1


def test_a_run_of_a_session_that_is_gone_is_in_no_loop() -> None:
    scenario, machine = _looping()
    scenario.batch()
    assert machine.begin_run(scenario.session.id + 1, ()) is Code.SESSION_EXPIRED
    assert machine.execute_ordinary([(CREATE, "/a", b"", None, 0, 0)], 0, None) == 0


def test_nothing_is_in_a_loop_while_quotas_are_counted() -> None:
    scenario, machine = _looping()
    for path, data in (
        ("/a", b""),
        ("/zookeeper/quota/a", b""),
        ("/zookeeper/quota/a/zookeeper_limits", b"count=1,bytes=-1"),
    ):
        scenario.run((CREATE, path, data, None, 0, 0))
    assert machine.quotas.limited
    assert _begun(scenario).execute_ordinary([(CREATE, "/b", b"", None, 0, 0)], 0, None) == 0


def test_nothing_is_in_a_loop_while_somebody_may_follow_everything() -> None:
    scenario, machine = _looping()
    machine.watched = None
    assert _begun(scenario).execute_ordinary([(CREATE, "/a", b"", None, 0, 0)], 0, None) == 0


class _CountedSlices(list[Any]):
    """A list that counts the items of all slices of it that were taken."""

    sliced: int = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            self.sliced += len(found)
        return found


def test_commands_that_end_every_loop_do_not_copy_the_rest_of_the_run_each_time() -> None:
    scenario, _ = _looping()
    scenario.run((CREATE, "/a", b"", None, 0, 0))
    machine = _begun(scenario)
    count = 1_000
    commands = _CountedSlices([(SET_DATA, "/a", b"x", -1), (DELETE, "/b", -1)] * count)
    at = in_loops = 0
    while at < len(commands):
        done = machine.execute_ordinary(commands, at, None)
        in_loops += done
        at += done
        if at < len(commands):
            machine.execute(commands[at])
            at += 1
    assert in_loops == count
    assert commands.sliced <= MORE_ORDINARY * count
