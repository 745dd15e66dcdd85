"""Random histories with every kind of command, as plain calls that can be played to any machine."""

from __future__ import annotations

import random
from typing import Any

import attrs

from tests.unit.tree.scenario import NOBODY, ONE, PASSWORD, TWO, Scenario, expire_command
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.machine import Machine
from zraft.tree.node import Znode
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    Placed,
    PlaceGroup,
    RegisterProducer,
    RegistryCommand,
    RetainTopic,
    TopicChanged,
)
from zraft_core.topics.registry_values import Result, Retention
from zraft_core.znodes.acl import ALL, READ
from zraft_core.znodes.txn import (
    ADD,
    ATTACH,
    CHECK,
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_SESSION,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    FEATURE,
    MEMBERS,
    MULTI,
    ONCE,
    PUT,
    REAP,
    REGISTER,
    SET_ACL,
    SET_DATA,
    SETTINGS,
    TOPICS,
    TRUNCATE,
    WILL,
    Command,
)

GUARDED = ((ALL, "ip", "10.0.0.0/8"), (READ, "world", "anyone"))
OTHERS_ONLY = ((ALL, "ip", "192.168.0.0/16"),)
LOG = "/log"
NAMES = ("a", "b", "c", "s-", "é", "x" * 40)


class History(Scenario):
    """Draws commands near what exists and plays each to `machine`, and to `twin` too, if there is one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.twin: Machine | None = None
        self.kinds: set[str] = set()
        self.calls: list[Any] = []
        self.calls_kept = False
        self.start_quota()
        if seed % 4:
            self.by_leader((FEATURE, 3 + seed % 3 % 2))

    def start_quota(self) -> None:
        for path in ("/q", "/zookeeper/quota/q"):
            self.create(path)
        self.create("/zookeeper/quota/q/zookeeper_limits", b"count=9,bytes=40")
        self.create("/zookeeper/quota/q/zookeeper_stats", b"")

    def step(self) -> Any:
        """One entry with one command; its result, in plain words, and its events."""
        rng = self.rng
        sessions = sorted(self.machine.sessions)
        origin, session, command = self.drawn(sessions)
        if rng.random() < 0.01:
            self.term += 1
        return self.play(origin, session, command)

    def play(self, origin: Any, session: int, command: Command) -> Any:
        self.index += 1
        self.wall_time += 1000
        if origin is None:
            head = (0, b"", 0, 0)
        else:
            head = (*origin, *self.next[origin])
            self.next[origin] = head[2], head[3] + 1
        machine = self.machine
        frame = (self.index, self.term, machine.position + 1, machine.log_time + 700, self.wall_time)
        told = run_on(machine, frame, head, session, command)
        if self.twin is not None:
            assert run_on(self.twin, frame, head, session, command) == told
        self.kinds.add(f"{command[0]} {told[0] if told[0].__class__ is int else 'done'}")
        return told

    def drawn(self, sessions: list[int]) -> tuple[Any, int, Command]:
        rng, machine = self.rng, self.machine
        kind = rng.random()
        if kind < 0.04 or not sessions:
            return rng.choice((ONE, TWO)), 0, (CREATE_SESSION, 10_000, PASSWORD)
        session = machine.sessions[rng.choice(sessions)]
        origin = session.owner[:2]
        if machine.feature_level >= 4 and rng.random() < 0.2:
            return self.of_topics(session)
        if kind < 0.055 and len(sessions) > 2:
            return origin, session.id, (CLOSE_SESSION,)
        if kind < 0.07:
            return None, 0, expire_command(session)
        if kind < 0.09:
            return rng.choice((ONE, TWO)), 0, (ATTACH, session.id, 9_000, PASSWORD)
        if kind < 0.1:
            return origin, 0, (REGISTER, rng.choice((b"boot", b"other")))
        if kind < 0.11:
            return None, 0, (SETTINGS, rng.choice(({"quota_enforced": 1}, {"tick_time_ms": 900}, {"no": 1})))
        if kind < 0.115:
            return None, 0, rng.choice(((FEATURE, 2), (FEATURE, 3), (FEATURE, 1), (FEATURE, "2")))
        if kind < 0.125:
            servers = rng.sample(range(1, 6), rng.randint(1, 3))
            changes = tuple(
                (server, rng.randint(0, 2), f"host{server}:{rng.randint(1, 3)}") for server in servers
            )
            return None, 0, (MEMBERS, rng.random() < 0.3, -1, changes)
        if kind < 0.2 and machine.mortal:
            path = rng.choice(sorted(machine.mortal))
            node = machine.nodes.get(path)
            assert node is not None
            return None, 0, (REAP, path, node.czxid)
        if kind < 0.5:
            return origin, *self.native(session)
        if kind < 0.65:
            return origin, session.id, (MULTI, tuple(self.part() for _ in range(rng.randint(0, 5))))
        return origin, session.id, self.single()

    def native(self, session: Session) -> tuple[int, Command]:
        """(session or 0, command) of what feature level 3 brings."""
        rng, machine = self.rng, self.machine
        kinds = ("once", "will", "truncate", "put", "add", "log", "nobody")
        match rng.choices(kinds, (5, 1, 4, 2, 2, 12, 1))[0]:
            case "once":
                floor = session.kept.floor if session.kept else 0
                inner = rng.choice((self.part, self.single, lambda: self.native(session)[1]))()
                return session.id, (
                    ONCE,
                    floor + rng.randint(0, 6),
                    floor + rng.choice((0, 0, 0, 1, 2)),
                    inner,
                )
            case "will":
                return session.id, (
                    WILL,
                    rng.choice((None, "/q", self.path())),
                    rng.choice(("w-", "s-")),
                    self.data(),
                )
            case "truncate":
                logs = [path for path, node in machine.nodes.items() if node.creates > 0]
                path = rng.choice(sorted(logs)) if logs and LOG not in logs else LOG
                node = machine.nodes.get(path)
                if node is None:
                    return session.id, (PUT, path, b"", None)
                first = rng.randint(
                    node.first + (rng.random() < 0.7 and node.first < node.creates) - (rng.random() < 0.1),
                    max(node.first, node.creates),
                )
                origin = rng.choice((None, None, self.path()))
                return session.id, (TRUNCATE, path, first, origin, self.data())
            case "put":
                return session.id, (PUT, self.path(), self.data(), rng.choice((None, None, -1, 0)))
            case "add":
                return session.id, (ADD, self.path(), b"", rng.choice((1, -3, 2**62)))
            case "log":
                return session.id, self.of_log()
        return 0, self.single()

    def of_log(self) -> Command:
        """What happens in a log: entries, with something below them now and then; and the end of all of it."""
        rng, node = self.rng, self.machine.nodes.get(LOG)
        creates = node.creates if node is not None else 5
        if rng.random() < 0.6:
            return (CREATE, f"{LOG}/s-", self.data(), None, rng.choice((2, 2, 2, 3)), None)
        entry = f"{LOG}/s-{rng.randint(0, max(0, creates)):010d}"
        below = f"{entry}/{rng.choice(('a', 'b', 'b/c', 's-0000000000'))}"
        return rng.choice(
            (
                (PUT, below, b"", None),
                (PUT, below, b"", None),
                (PUT, entry, b"", None),
                (TRUNCATE, entry, rng.randint(0, 1), None, None),
                (CREATE, f"{entry}/t-", b"", None, 2, None),
                (DELETE, entry, -1),
                (DELETE, LOG, -1),
                (CREATE, LOG, b"", None, 0, None),
            )
        )

    def of_topics(self, session: Session) -> tuple[Any, int, Command]:
        """What clients, servers and leaders say of topics, each also what is not theirs to say."""
        rng, registry = self.rng, self.machine.registry
        name = rng.choice(("t", "u", "v", "?"))
        group = GroupId(rng.choice((*registry.groups, 7)))
        disks = tuple(sorted((server, disk) for server, disk in (ONE, TWO) if rng.random() < 0.7))
        wanted = registry.groups[group].wanted if group in registry.groups else disks
        producer = ProducerId(rng.choice((*registry.producers, 9)))
        choices: tuple[RegistryCommand, ...] = (
            RegisterProducer(rng.choice((session.id, session.id, 5))),
            CloseProducer(producer),
            CreateTopic(name, rng.randint(0, 3)),
            AlterTopic(name, rng.randint(1, 5)),
            RetainTopic(name, Retention(rng.choice((None, 1_000)), None)),
            DeleteTopic(name),
            EndOwner(session.id),
            *[CreateGroup(rng.choice((*registry.topics, 7)), disks, disks[0][0] if disks else None)] * 5,
            PlaceGroup(group, disks, None),
            Placed(group, wanted),
            TopicChanged(rng.randint(0, registry.last_change)),
            *[Cleared(group, tuple(sorted(registry.closed)), tuple(sorted(registry.deleting)))] * 5,
        )
        command = rng.choice(choices)
        packed: Command = (TOPICS, encode_registry(command))
        origin = session.owner[:2]
        if rng.random() < 0.05:
            packed = (TOPICS, packed[1][:-1])
        if (
            isinstance(command, CreateGroup | PlaceGroup | Placed | TopicChanged | Cleared)
            and rng.random() < 0.9
        ):
            return None, 0, packed
        if rng.random() < 0.3:
            floor = session.kept.floor if session.kept else 0
            packed = (ONCE, floor + rng.randint(1, 4), floor, packed)
        return origin, session.id, packed

    def path(self) -> str:
        rng = self.rng
        base = rng.choice(sorted(path for path, _ in self.machine.nodes.items()))
        if rng.random() < 0.45:
            return base
        return f"{base if base != '/' else ''}/{rng.choice(NAMES)}"

    def data(self) -> bytes | None:
        return self.rng.choice((None, b"", b"x", b"some data", b"y" * 300))

    def part(self) -> Command:
        rng, path = self.rng, self.path()
        if self.machine.feature_level >= 3 and rng.random() < 0.1:
            return rng.choice(((PUT, path, self.data(), rng.choice((None, -1))), (ADD, path, b"", 1)))
        match rng.choices(("create", "lasting", "delete", "set", "check"), (6, 2, 3, 4, 1))[0]:
            case "create":
                acl = rng.choice((None, None, None, GUARDED, OTHERS_ONLY))
                return (rng.choice((CREATE, CREATE2)), path, self.data(), acl, rng.randint(0, 3), None)
            case "lasting":
                if rng.random() < 0.5:
                    return (CREATE_CONTAINER, path, self.data(), None, 4, None)
                return (CREATE_TTL, path, self.data(), None, rng.choice((5, 6)), rng.choice((1, 5_000)))
            case "delete":
                return (DELETE, path, rng.choice((-1, -1, 0, 1)))
            case "set":
                return (SET_DATA, path, self.data(), rng.choice((-1, -1, 0, 1)))
        return (CHECK, path, rng.choice((-1, 0)))

    def single(self) -> Command:
        if self.rng.random() < 0.1:
            return (SET_ACL, self.path(), self.rng.choice((None, GUARDED, OTHERS_ONLY)), -1)
        if self.rng.random() < 0.05:
            return (DELETE_CONTAINER, self.path())
        return self.part()


def run_on(
    machine: Machine, frame: tuple[int, ...], head: tuple[Any, ...], session: int, command: Command
) -> tuple[Any, ...]:
    """One entry with one command on one machine: (result, events) as plain values."""
    index, term, position, log_time, wall_time = frame
    machine.begin_entry(index, term, position, log_time, wall_time)
    assert machine.begin_batch(*head)
    code = machine.begin_run(session, NOBODY)
    told = (plain(machine.execute(command)), int(code), tuple(machine.events))
    machine.events.clear()
    return told


def plain(result: Any) -> Any:
    match result:
        case Code():
            return int(result)
        case Znode():
            return ("znode", result.data, result.acl, result.stat(), result.lifetime)
        case Session():
            return ("session", result.id, result.timeout_ms, result.owner, result.attach_position)
        case MultiFailed():
            return ("failed", result.index, result.results)
        case Result():
            return ("result", *attrs.astuple(result))
        case tuple():
            return ("list", *map(plain, result))
    return result


def whole(machine: Machine) -> tuple[Any, ...]:
    """Everything that a machine is, derived and internal parts included."""
    tree = machine._tree
    users: dict[Any, int] = {}
    for _, node in machine.nodes.items():
        users[node.acl] = users.get(node.acl, 0) + 1
    held = {acl: count for acl, (shared, count) in tree.acls._users.items() if shared == acl}
    assert held == {acl: count for acl, count in users.items() if acl != ((ALL, "world", "anyone"),)}
    known = {id(path) for path, _ in machine.nodes.items()}
    children = [child for _, node in machine.nodes.items() for child in node.children or ()]
    children += [child for many in machine.hidden.values() for child in many.hidden_paths(10**6)]
    assert known.issuperset(map(id, children)), "a child has a string of its own"
    return (
        machine.image(),
        machine.feature_level,
        sorted(machine.registry.names.items()),
        {owner: sorted(producers) for owner, producers in machine.registry.owned.items()},
        machine.registry.settings,
        machine.nodes.data_bytes,
        sorted(machine.mortal),
        sorted(machine.quotas.limited),
        sorted(held.items()),
        {path: type(node.children) for path, node in machine.nodes.items()},
        {path: (many.first, many.hidden_paths(10**6)) for path, many in machine.hidden.items()},
    )
