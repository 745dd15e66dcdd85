"""Random histories through the machine and through a plain model: results, events and trees stay equal."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.tree.model import Model
from tests.unit.tree.scenario import PASSWORD, Scenario
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.node import Znode
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import ATTACH, CHECK, CLOSE_SESSION, CREATE, DELETE, MULTI, SET_DATA, Command

NAMES = ("a", "b", "s-", "", ".", "\x01", "é", "zookeeper")
OPCODES = {"create": CREATE, "delete": DELETE, "set": SET_DATA, "check": CHECK}


def random_path(rng: random.Random, model: Model) -> str:
    """Mostly something near what exists."""
    base = rng.choice(sorted(model.znodes))
    if rng.random() < 0.4:
        return base
    weights = (9, 9, 6, 1, 1, 1, 2, 1)
    return (base if base != "/" else "") + "/" + rng.choices(NAMES, weights)[0]


def random_part(rng: random.Random, model: Model) -> tuple[Any, ...]:
    path = random_path(rng, model) if rng.random() < 0.98 else rng.choice(["", "x", "//", "//a", "/a/"])
    version = rng.choice((-1, -1, 0, 1, 2))
    data = rng.choice((None, b"", b"x", b"longer"))
    kind = rng.choices(("create", "delete", "set", "check"), (5, 3, 2, 1))[0]
    if kind == "create":
        return (kind, path, data, rng.choices((0, 1, 2, 3, 4, -1), (6, 3, 3, 3, 1, 1))[0])
    return (kind, path, data, version) if kind == "set" else (kind, path, version)


def command_of(op: tuple[Any, ...]) -> Command:
    match op:
        case ("create", path, data, flags):
            return (CREATE, path, data, None, flags, None)
        case ("multi", parts):
            return (MULTI, tuple(map(command_of, parts)))
        case (kind, *fields):
            return (OPCODES[kind], *fields)
    raise AssertionError(op)


def plain(result: Any) -> Any:
    """A result of the machine in the model's words."""
    match result:
        case MultiFailed():
            return ("failed", [int(code) for code in result.results])
        case Code():
            return int(result)
        case Znode():
            return tuple(result.stat())
        case Stat():
            return tuple(result)
        case (str() as path, node):
            return path, plain(node)
        case tuple():
            return [plain(part) for part in result]
    raise AssertionError(result)


def check_equal(scenario: Scenario, model: Model) -> None:
    machine = scenario.machine
    assert {path: (node.data, tuple(node.stat()), node.creates) for path, node in machine.nodes.items()} == {
        path: (z["data"], model.stat(path), z["creates"]) for path, z in model.znodes.items()
    }
    for path, node in machine.nodes.items():
        assert sorted(node.children or ()) == model.children(path)
        assert node.children is None or node.children
    for session in machine.sessions.values():
        owned = {path for path, z in model.znodes.items() if z["owner"] == session.id}
        assert session.ephemerals == owned


@pytest.mark.parametrize("seed", range(25))
def test_random_history_agrees_with_the_model(seed: int) -> None:
    rng = random.Random(seed)
    scenario, model = Scenario(), Model()
    machine = scenario.machine
    scenario.events()
    sessions: list[Session] = [scenario.session]
    failed_multis = 0
    for _ in range(150):
        if len(sessions) < 3 and rng.random() < 0.1:
            sessions.append(scenario.new_session())
        session = rng.choice(sessions)
        kind = rng.random()
        if kind < 0.03 and len(sessions) > 1:
            sessions.remove(session)
            result = scenario.run((CLOSE_SESSION,), session) if kind < 0.015 else scenario.expire(session)
            assert result is Code.OK
            expected: Any = model.apply(("end",), session.id, machine.last_zxid, scenario.wall_time)
        elif kind < 0.05:
            result = scenario.without_session((ATTACH, session.id, 10_000, PASSWORD))
            assert result is session
            continue
        elif kind < 0.3:
            # The parts must be drawn against what earlier parts leave; names repeat often enough for that.
            op: tuple[Any, ...] = ("multi", tuple(random_part(rng, model) for _ in range(rng.randint(0, 5))))
            result = scenario.run(command_of(op), session)
            expected = model.apply(op, session.id, machine.last_zxid, scenario.wall_time)
            failed_multis += isinstance(result, MultiFailed)
            assert plain(result) == expected
        else:
            op = random_part(rng, model)
            while op[0] == "check":
                op = random_part(rng, model)
            result = scenario.run(command_of(op), session)
            expected = model.apply(op, session.id, machine.last_zxid, scenario.wall_time)
            assert plain(result) == expected
        assert scenario.events() == model.events
        model.events.clear()
        if rng.random() < 0.2:
            assert machine.digest() == machine.full_digest()
    check_equal(scenario, model)
    assert machine.digest() == machine.full_digest()
    assert len(model.znodes) > 6, "the history did next to nothing"
    assert failed_multis > 3, "the history had hardly any failed multi"
