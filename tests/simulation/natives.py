"""Owns simulated clients of what feature level 3 brings: numbered commands, upserts, wills, truncations, log reads.

They speak no protocol: their commands are handed to a server's origin, as its front end would, and they look at its
state as its front end would. What they are promised is checked here: a numbered command has one answer, the first one's,
whichever server is asked however often (`exactly once`); what a server shows is the history's state at its zxid, so
wills are done and what was truncated is gone (`native read`); a session of theirs that falls silent ends (`progress`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.model import History, Outcome
from tests.simulation.native_model import LEVEL, Answer, named_by
from tests.simulation.process import Process
from tests.simulation.schedule import Schedule
from zraft.server.clients.connection import Phase
from zraft.server.clients.errands import Errand
from zraft.tree import reads
from zraft.tree.children import names_of
from zraft.tree.commands.outcomes import outcome_of
from zraft.tree.log_reads import LogPage, read_log
from zraft_core.errors import Code
from zraft_core.ids import ProducerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CloseProducer,
    CreateTopic,
    DeleteTopic,
    RegisterProducer,
    RegistryCommand,
    RetainTopic,
)
from zraft_core.topics.registry_values import Retention
from zraft_core.znodes import txn

CLIENTS: Final = 3
IN_FLIGHT_MAX: Final = 8
TIMEOUT_MS: Final = 1_000
GIVE_UP_MS: Final = 250
"""After so long without an answer a client turns to another server."""

LOG: Final = "/n/log"
ORIGIN: Final = "/n/origin"
KEYS: Final = ("/n/d/a", "/n/d/b")
COUNTERS: Final = ("/n/d/x", "/n/d/y")
ENTRY: Final = "e-"
LEFT: Final = "left-"
LOOKED_AT: Final = ("/n", LOG, ORIGIN, "/n/d", *KEYS, *COUNTERS)
IDS: Final = (("ip", "10.0.0.9"),)
TOPICS: Final = ("t", "u", "v")
SIZE: Final = 100

KINDS: Final = (
    "native answer",
    "native repeat",
    "native repeat elsewhere",
    "native read",
    "native read over hidden",
    "will done",
    "truncation",
)
"""What a long range of seeds must have seen, each at least once."""


class _Waiting(Errand):
    """Waits for the results of a run of a session: what a connection is to the apply loop, as far as it looks."""

    __slots__ = ("closing", "counted", "dirty", "due_bytes", "out", "out_bytes", "pieces", "request")

    def __init__(self, done: Callable[[object], None]) -> None:
        super().__init__(done)
        self.phase = Phase.ATTACHING
        self.request = None
        self.out: list[bytes] = []
        self.out_bytes = self.pieces = self.due_bytes = 0
        self.dirty = self.closing = True
        self.counted = False

    def on_release(self) -> None:
        """There is nothing here that it keeps."""


class NativeClient:
    """One application. It repeats every command under its number until it is answered, here or there."""

    def __init__(self, number: int, natives: Natives, rng: random.Random) -> None:
        self._number = number
        self._natives = natives
        self._rng = rng
        self._sessions = 0
        self._token = 0
        self.password = b""
        self.session = 0
        self.attached: Process | None = None
        self._boots = 0
        self._wanted: tuple[Process, int] | None = None
        """The server that was asked to take the session, and its boot."""
        self._asked_ms = self._heard_ms = 0
        self._seq = self._floor = 0
        self._flight: dict[int, txn.Command] = {}
        self._sent_at: dict[int, int] = {}
        self._answered: dict[int, tuple[txn.Command, Any]] = {}
        """Above the floor."""
        self.silent = False
        natives.schedule.after(rng.randint(0, 100), self._step)

    def _step(self) -> None:
        natives, rng = self._natives, self._rng
        if not natives.active:
            return
        natives.schedule.after(rng.randint(5, 40), self._step)
        if natives.history.feature_level < LEVEL:
            return
        if self.session in natives.history.ended:
            self._forget()
        now = natives.schedule.now_ms
        if self.session and self.silent:
            return  # until it is expired
        if not self._is_attached():
            if self._wanted is None or now - self._asked_ms > GIVE_UP_MS:
                self._attach()
            return
        if self._flight and now - self._heard_ms > GIVE_UP_MS:
            self._attach()
            return
        roll = rng.random()
        if roll < 0.02:
            self._attach()
        elif roll < 0.03:
            self.silent = True
        elif roll < 0.035:
            self._submit((txn.CLOSE_SESSION,), None)
        elif roll < 0.2 and self._answered:
            self._repeat(rng.choice(sorted(self._answered)))
        elif roll < 0.3 and self._flight:
            self._repeat(rng.choice(sorted(self._flight)))
        elif len(self._flight) < IN_FLIGHT_MAX:
            self._write()

    # -- sessions
    def _forget(self) -> None:
        self.session = 0
        self.password = b""
        self.attached = self._wanted = None
        self._seq = self._floor = 0
        self._flight.clear()
        self._answered.clear()
        self.silent = False

    def _is_attached(self) -> bool:
        return self.attached is not None and self.attached.up and self.attached.boots == self._boots

    def _attach(self) -> None:
        """Make a session, or bring it to a server, perhaps the same one; the history tells when that has happened."""
        process = self._natives.serving(self._rng)
        if process is None:
            return
        if not self.session and not self.password:
            self._sessions += 1
            self.password = b"native %2d %6d" % (self._number, self._sessions)
            self._natives.of_password[self.password] = self
        self.attached = None
        self._wanted = process, process.boots
        self._asked_ms = self._natives.schedule.now_ms
        command: txn.Command = (txn.ATTACH, self.session, TIMEOUT_MS, self.password)
        if not self.session:
            command = (txn.CREATE_SESSION, TIMEOUT_MS, self.password)
        self._natives.add(process, None, 0, (), command)

    def moved(self, outcome: Outcome) -> None:
        """The session is there now."""
        if outcome.command[0] == txn.CREATE_SESSION and self.session:
            return  # a request that was slow, of a client that asked another server meanwhile: nobody has this one
        self.session = outcome.session
        if self._wanted is None:
            return
        process, boots = self._wanted
        if (
            process.server,
            process.sender.instance,
            process.sender.boot,
        ) != outcome.owner or process.boots != boots:
            return
        self.attached, self._boots, self._wanted = process, boots, None
        self._heard_ms = self._natives.schedule.now_ms
        self._natives.schedule.after(0, self._resend)

    def _resend(self) -> None:
        for seq in sorted(self._flight):
            if self._is_attached():
                self._repeat(seq)

    # -- commands
    def _write(self) -> None:
        rng = self._rng
        if self._natives.with_topics and rng.random() < 0.25:
            self._seq += 1
            self._flight[self._seq] = (txn.TOPICS, encode_registry(self._of_topics()))
            self._repeat(self._seq)
            return
        self._token += 1
        data = b"n%d.%d" % (self._number, self._token)
        roll = rng.random()
        if roll < 0.1:
            # What needs no session, and is not numbered: nobody waits for it.
            assert self.attached is not None
            command: txn.Command = rng.choice(
                ((txn.PUT, rng.choice(KEYS), data, None), (txn.ADD, COUNTERS[1], b"", 5))
            )
            self._natives.add(self.attached, None, 0, IDS, command)
            return
        if roll < 0.35:
            command = (txn.ADD, rng.choice(COUNTERS), b"", rng.choice((1, 1, -1, 100)))
        elif roll < 0.5:
            command = (txn.PUT, rng.choice(KEYS), data, rng.choice((None, None, -1, rng.randint(0, 20))))
        elif roll < 0.75:
            command = (txn.CREATE, f"{LOG}/{ENTRY}", data, None, rng.choice((2, 2, 2, 3)), 0)
        elif roll < 0.85:
            node = self._natives.history.nodes.get(LOG)
            end = node.creates if node is not None else 0
            command = (txn.TRUNCATE, LOG, max(0, end - rng.randint(0, 8)), rng.choice((None, ORIGIN)), data)
        elif roll < 0.92:
            command = (txn.WILL, LOG, LEFT, data) if rng.random() < 0.9 else (txn.WILL, None, "", None)
        elif roll < 0.95:
            command = (txn.PUT, LOG, data, None)
        else:
            command = (
                txn.MULTI,
                ((txn.ADD, COUNTERS[0], b"", 1), (txn.PUT, KEYS[0], data, rng.choice((None, -1)))),
            )
        self._seq += 1
        self._flight[self._seq] = command
        self._repeat(self._seq)

    def _of_topics(self) -> RegistryCommand:
        """Also what is refused: another's producer, a topic that is there or is not, too many partitions."""
        rng, now = self._rng, self._natives.history.topics.now
        name = rng.choice(TOPICS)
        producers = [*now.producers, 1]
        commands: list[tuple[int, RegistryCommand]] = [
            (4, RegisterProducer(self.session)),
            (1, RegisterProducer(self.session + 1)),
            (2, CloseProducer(ProducerId(rng.choice(producers)))),
            (4, CreateTopic(name, rng.choice((1, 2, 3, 0)), Retention(rng.choice((None, 10**6))))),
            (2, AlterTopic(name, rng.randint(2, 5))),
            (1, RetainTopic(name, Retention(None, rng.randint(1, 10**6)))),
            (1, DeleteTopic(name)),
        ]
        return rng.choices([command for _, command in commands], [weight for weight, _ in commands])[0]

    def _repeat(self, seq: int) -> None:
        if seq in self._flight:
            command = self._flight[seq]
        else:
            command = self._answered[seq][0]
        # The floor may rise to below the first that is not answered, and need not.
        floor = min(self._flight, default=self._seq + 1) - 1
        if seq <= floor or self._rng.random() < 0.5:
            floor = self._floor
        else:
            for old in [old for old in self._answered if old <= floor]:
                del self._answered[old]
            self._floor = floor
        self._submit((txn.ONCE, seq, floor, command), seq)

    def _submit(self, command: txn.Command, seq: int | None) -> None:
        process, session = self.attached, self.session
        assert process is not None

        def done(result: object) -> None:
            self._done(session, seq, command, result, process)

        self._natives.add(process, _Waiting(done), session, IDS, command)

    def _done(
        self, session: int, seq: int | None, command: txn.Command, result: object, process: Process
    ) -> None:
        natives = self._natives
        if seq is None or session != self.session:
            return
        if isinstance(result, Code):
            # Refused as a whole, or its fate is not known here: it is repeated.
            natives.kinds["native moved"] += result is Code.SESSION_MOVED
            return
        assert process.driver is not None
        machine = process.driver.machine
        outcome = outcome_of(command, result, machine.last_zxid, machine.position)
        self._heard_ms = natives.schedule.now_ms
        if outcome[2] == Code.BAD_ARGUMENTS and outcome[0] == machine.last_zxid and seq <= self._floor:
            natives.kinds["native refused"] += 1
            return
        inner = command[3]
        natives.answered(machine.last_zxid, session, seq, inner, outcome)
        if seq in self._flight:
            self._answered[seq] = (self._flight.pop(seq), process.server)
            natives.kinds["native answer"] += 1
        elif seq in self._answered:
            elsewhere = self._answered[seq][1] != process.server
            natives.kinds["native repeat elsewhere" if elsewhere else "native repeat"] += 1


class Natives:
    """All of them, and what they were promised."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        processes: Sequence[Process],
        history: History,
        *,
        clients: int,
        begin_ms: int,
        with_topics: bool = False,
    ) -> None:
        self.schedule = schedule
        self.with_topics = with_topics
        self.history = history
        self.kinds: Counter[str] = Counter()
        self.active = clients > 0
        self.of_password: dict[bytes, NativeClient] = {}
        self._sessions: set[int] = set()
        self._answers: dict[tuple[int, int], Answer] = {}
        self._told: list[tuple[int, int, int, txn.Command, Any]] = []
        self._processes = processes
        self._rng = rng
        self._clients: list[NativeClient] = []
        if clients:
            schedule.at(begin_ms, self._begin, clients)

    def _begin(self, clients: int) -> None:
        self._clients = [
            NativeClient(number, self, random.Random(self._rng.random())) for number in range(clients)
        ]
        self._look()

    def serving(self, rng: random.Random) -> Process | None:
        running = [
            p for p in self._processes if p.driver is not None and p.driver.raft is not None and p.in_service
        ]
        return rng.choice(running) if running else None

    def add(
        self, process: Process, owner: _Waiting | None, session: int, ids: Any, command: txn.Command
    ) -> None:
        """As the front end of `process` does with what a client sent."""
        driver = process.driver
        if driver is None or driver.origin.full:
            return
        driver.origin.add(owner, session, ids, [command], SIZE)
        process.wake()

    # -- the history grows
    def owns(self, outcome: Outcome) -> bool:
        """Is it of one of these clients?"""
        command = outcome.command
        if command[0] == txn.CREATE_SESSION:
            return command[2] in self.of_password
        if command[0] == txn.ATTACH:
            return command[3] in self.of_password
        return outcome.session in self._sessions or (
            outcome.session == 0 and command[0] in (txn.PUT, txn.ADD)
        )

    def applied(self, outcome: Outcome) -> None:
        command, code = outcome.command, outcome.code
        opcode = command[0]
        if code is Code.OK and opcode in (txn.CREATE_SESSION, txn.ATTACH):
            self._sessions.add(outcome.session)
            self.of_password[command[2 if opcode == txn.CREATE_SESSION else 3]].moved(outcome)
        elif code is Code.OK and opcode == txn.ONCE:
            answer: Answer = outcome.result
            first = self._answers.setdefault((outcome.session, command[1]), answer)
            if answer[2] == 0 and answer != first:
                self._fail("exactly once", f"the model itself executes {command} twice: {first}, {answer}")
            self.kinds["truncation"] += (
                answer[0] == outcome.zxid and command[3][0] == txn.TRUNCATE and answer[2] == 0
            )

    def answered(self, now: int, session: int, seq: int, command: txn.Command, outcome: Any) -> None:
        """A server, which is at zxid `now`, says what became of a numbered command: what it came to the first time."""
        self._told.append((now, session, seq, command, outcome))

    def check_answers(self) -> None:
        """Those that the history has reached: it is extended after the turn in which a server answers."""
        told, self._told = self._told, []
        for answer in told:
            if answer[0] > self.history.zxid:
                self._told.append(answer)
            else:
                self._check_answer(*answer[1:])

    def _check_answer(self, session: int, seq: int, command: txn.Command, outcome: Any) -> None:
        zxid, position, code, body = outcome
        named = named_by(command, body) if code == 0 else None
        expected = self._answers.get((session, seq))
        if (zxid, position, code, named) != expected:
            self._fail(
                "exactly once",
                f"session {session:x}: {seq}, {command}, is answered {(zxid, position, code, named)}; it was done "
                f"as {expected}",
            )

    # -- looking at servers
    def _look(self) -> None:
        if not self.active:
            return
        self.schedule.after(self._rng.randint(5, 60), self._look)
        self.check_answers()
        process = self.serving(self._rng)
        if process is not None:
            self.look_at(process, self._rng.choice(LOOKED_AT))

    def look_at(self, process: Process, path: str) -> None:
        """What this server shows is the history's state at its zxid."""
        assert process.driver is not None
        machine = process.driver.machine
        zxid = machine.last_zxid
        if zxid > self.history.zxid:
            return  # it is in the middle of a turn: what it applied is not told yet
        self.kinds["native read"] += 1
        self.kinds["native read over hidden"] += bool(machine.hidden)
        expected = self.history.at(path, zxid)
        node = reads.get_children(machine, path, IDS)
        who = f"S{process.server}: {path} at {zxid:x}"
        if isinstance(node, Code):
            if expected is not None or node is not Code.NO_NODE:
                self._fail("native read", f"{who} is answered {node!r}, the history has {expected}")
            return
        if expected is None:
            self._fail("native read", f"{who} is there, the history has none")
            return
        stat, names = node.stat(), sorted(names_of(path, node.children))
        seen = node.data, stat.version, stat.mzxid, stat.pzxid, stat.cversion, names
        has = (
            expected.data, expected.version, expected.mzxid, expected.pzxid, expected.cversion, sorted(expected.children),
        )  # fmt: skip
        if seen != has:
            self._fail("native read", f"{who} is {seen}, the history has {has}")
        if path == LOG:
            self._read_log(machine, zxid, who, expected.children)

    def _read_log(self, machine: Any, zxid: int, who: str, names: frozenset[str]) -> None:
        page = read_log(machine, LOG, ENTRY, 0, 10_000, 10**6, IDS)
        found = (
            [] if not isinstance(page, LogPage) else [(nr, data, czxid) for nr, data, czxid in page.entries]
        )
        has = []
        for name in sorted(names):
            entry = self.history.at(f"{LOG}/{name}", zxid)
            if name.startswith(ENTRY) and entry is not None:
                has.append((int(name[-10:]), entry.data, entry.czxid))
        if found != has:
            self._fail("native read", f"{who}, read as a log, is {found}, the history has {has}")
        hidden = machine.hidden.get(LOG)
        for entry_path in hidden.hidden_paths(3) if hidden is not None else ():
            if reads.exists(machine, entry_path, IDS) is not Code.NO_NODE:
                self._fail("native read", f"{who}: {entry_path} is found, which was truncated")

    def final(self, process: Process) -> None:
        """After all: every server that caught up shows what the history has."""
        self.check_answers()
        self.kinds["will done"] = self.history.wills_done
        for path in LOOKED_AT:
            self.look_at(process, path)

    def _fail(self, checker: str, found: str) -> None:
        raise BrokenPromiseError(checker, found)
