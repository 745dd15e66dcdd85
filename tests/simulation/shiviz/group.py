"""A group that is begun, elects, replicates writes and loses its leader, event by event, with the consensus that ships.

Messages arrive in order and nothing is lost but with a server; the same arguments give the same trace. Heartbeats are
left out unless they are asked for: they would be most of the picture.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from attrs import field, frozen

from tests.simulation.core_disk import CoreDisk
from tests.simulation.shiviz.trace import Clock, Trace
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    Member,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
)
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

SETTINGS: Final = RaftSettings(election_timeout_ticks=100, heartbeat_ticks=20, resend_ticks=20)
TICKS_MAX: Final = 10_000


@frozen
class _Letter:
    sender: ServerId
    to: ServerId
    message: Message
    clock: Clock | None


@frozen
class _Seen:
    """Of a server, as the trace told it last."""

    role: Role
    term: int
    committed: int


@frozen
class Scene:
    """A group of `servers`, whose trace `play` makes."""

    servers: int = 3
    writes: int = 2
    heartbeats: bool = False
    seed: int = 1
    trace: Trace = field(factory=Trace, init=False)
    _rafts: dict[ServerId, Raft] = field(factory=dict, init=False)
    _disks: dict[ServerId, CoreDisk] = field(factory=dict, init=False)
    _letters: deque[_Letter] = field(factory=deque, init=False)
    _seen: dict[ServerId, _Seen] = field(factory=dict, init=False)
    _starts: dict[ServerId, int] = field(factory=dict, init=False)

    def play(self) -> Trace:
        """Begin, elect, write; the leader dies, another is elected, writes go on; the first comes back and catches up."""
        for number in range(1, self.servers + 1):
            self._start(ServerId(number))
        first = self._until_led()
        for number in range(self.writes):
            self._write(first, f"message {number + 1}")
        self._stop(first)
        second = self._until_led()
        for number in range(self.writes):
            self._write(second, f"message {self.writes + number + 1}")
        self._start(first)
        for _ in range(TICKS_MAX):
            if all(raft.commit_index == self._rafts[second].commit_index for raft in self._rafts.values()):
                return self.trace
            self._tick()
        raise AssertionError("the server that came back does not catch up")

    def _start(self, server: ServerId) -> None:
        disk = self._disks.setdefault(server, CoreDisk())
        starts = self._starts[server] = self._starts.get(server, 0) + 1
        members = {ServerId(n): Member(_instance(n)) for n in range(1, self.servers + 1)}
        self._rafts[server] = raft = Raft(
            group=COORDINATION_GROUP,
            server=server,
            instance=_instance(server),
            settings=SETTINGS,
            hard_state=disk.hard_state,
            log=disk.recover(),
            membership=Membership(members),
            rng=random.Random(f"{self.seed}/{server}/{starts}"),
        )
        self._seen[server] = _Seen(raft.role, raft.term, 0)
        text = f"initialised with {len(disk.entries)} entries, term {disk.hard_state.term}"
        self.trace.note(_host(server), text)

    def _stop(self, server: ServerId) -> None:
        self.trace.note(_host(server), "killed")
        del self._rafts[server]

    def _write(self, leader: ServerId, text: str) -> None:
        raft = self._rafts[leader]
        sent = self.trace.note("producer", f"sends {text} to {_host(leader)}")
        self.trace.hear(_host(leader), sent, f"takes {text}")
        index = raft.propose(text.encode(), 1)
        assert index is not None, "who leads takes writes"
        for _ in range(TICKS_MAX):
            self._settle()
            if raft.commit_index >= index:
                answered = self.trace.note(_host(leader), f"acknowledges {text}")
                self.trace.hear("producer", answered, f"{text} is committed")
                return
            self._tick()
        raise AssertionError(f"{text} is not committed")

    # -- time and messages

    def _until_led(self) -> ServerId:
        for _ in range(TICKS_MAX):
            for server, raft in self._rafts.items():
                if raft.role is Role.LEADER and raft.commit_index == raft.log.last_index > 0:
                    return server
            self._tick()
        raise AssertionError("nobody is elected")

    def _tick(self) -> None:
        for raft in self._rafts.values():
            raft.tick(1)
        self._settle()

    def _settle(self) -> None:
        """Everything durable, everything delivered, until there is nothing left to do."""
        self._take_all()
        while self._letters:
            letter = self._letters.popleft()
            raft = self._rafts.get(letter.to)
            if raft is None:
                continue
            if letter.clock is not None:
                text = f"receives {_name(letter.message)} from {_host(letter.sender)}"
                self.trace.hear(_host(letter.to), letter.clock, text)
            raft.step(letter.sender, _instance(letter.sender), letter.message)
            self._take_all()

    def _take_all(self) -> None:
        for server, raft in self._rafts.items():
            while True:
                ready = raft.ready()
                self._look(server, raft)
                if ready.write is not None:
                    # Every write is durable at once here.
                    self._disks[server].pending.append(ready.write)
                    self._disks[server].sync_first()
                    raft.persisted(ready.write.number)
                for to, message in ready.messages:
                    self._send(server, to, message)
                if ready.write is None and not ready.messages:
                    break

    def _send(self, server: ServerId, to: ServerId, message: Message) -> None:
        clock = None
        if self.heartbeats or not isinstance(message, Heartbeat | HeartbeatReply):
            clock = self.trace.note(_host(server), f"sends {_name(message)} to {_host(to)}")
        self._letters.append(_Letter(server, to, message, clock))

    def _look(self, server: ServerId, raft: Raft) -> None:
        """Tell what changed at a server."""
        before = self._seen[server]
        now = _Seen(raft.role, raft.term, raft.commit_index)
        if now == before:
            return
        self._seen[server] = now
        host = _host(server)
        if (now.role, now.term) != (before.role, before.term):
            self.trace.note(host, f"{_ROLES[now.role]} in term {now.term}")
        if now.committed > before.committed:
            self.trace.note(host, f"has committed entries up to {now.committed}")


_ROLES: Final = {
    Role.FOLLOWER: "follows",
    Role.PRE_CANDIDATE: "asks whether to stand for election",
    Role.CANDIDATE: "stands for election",
    Role.LEADER: "leads",
}


def _host(server: ServerId) -> str:
    return f"server-{server}"


def _instance(server: int) -> Instance:
    return Instance(bytes([server]) * 16)


def _name(message: Message) -> str:
    """A message in words."""
    kind = type(message).__name__
    match message:
        case AppendEntries(_, term, prev, _, commit, entries):
            what = f"{len(entries)} entries after {prev}, commit {commit}"
            return f"{kind}(term {term}, {what})"
        case AppendEntriesReply(_, term, accepted, match_index):
            return f"{kind}(term {term}, {'up to' if accepted else 'refused at'} {match_index})"
        case PreVoteReply(_, term, granted) | RequestVoteReply(_, term, granted):
            return f"{kind}(term {term}, {'granted' if granted else 'refused'})"
        case PreVote(_, term) | RequestVote(_, term):
            return f"{kind}(term {term})"
        case _:
            return kind
