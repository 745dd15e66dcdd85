"""Fuzzes what peers send: bytes that nobody sealed, and messages of a peer that has the key and is wrong.

In process: one server of three, its `PeerLinks` and its driver. The two others are voices: they found the
cluster, lead it or let it lead, and between right messages send spoiled ones: spoiled after sealing, before
sealing, as bodies, as fields of any depth, and commands that are none inside well-formed entries and batches.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any, Final

import msgpack

from tests.fuzz.mutation import mutate_bytes, mutate_value
from tests.fuzz.outcome import PROMISE, Outcome, Progress, Stopwatch
from tests.simulation.broken import BrokenPromiseError
from zraft.groups.identity import Identity
from zraft.groups.recovery import Stored
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Member,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    RequestVoteReply,
)
from zraft.raft.role import Role
from zraft.server.engine.driver import Driver
from zraft.server.engine.settings import DriverSettings
from zraft.transport import codec
from zraft.transport.handshake import Handshake
from zraft.transport.keys import KEY_BYTES, ClusterKey
from zraft.transport.link import PeerLinks, ReceivedDatagram, TransportSettings
from zraft.transport.messages import Hello, OriginBatch, PeerMessage, Sender, TouchAck, TouchReport
from zraft.transport.packing import Packer
from zraft.transport.sealing import (
    SALT_BYTES,
    Outgoing,
    RejectedError,
    decode_hello,
    encode_hello,
    mac_key_for,
)
from zraft_core.errors import ProtocolError, ZraftError
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId
from zraft_core.layout import from_bytes
from zraft_core.znodes import txn

ME: Final = ServerId(1)
OTHERS: Final = (ServerId(2), ServerId(3))
TURN_MS: Final = 5
TURNS_MAX: Final = 1_000
DATAGRAMS_PER_SERVER: Final = 400
"""Then a new server: by then terms, membership or disk are mostly what fuzzing made of them."""

BODY_BYTES_MAX: Final = 1_300
SETTINGS: Final = TransportSettings(
    message_bytes_max=64 * 1024,
    reassembly_bytes_per_peer_max=256 * 1024,
    reassembly_bytes_total_max=512 * 1024,
)


class Voice:
    """One peer: it has the key, keeps the rules of the handshake, and says what it is told to."""

    def __init__(self, server: ServerId, key: ClusterKey, rng: random.Random) -> None:
        self.sender = Sender(server, Instance(rng.randbytes(16)), 1)
        self._key = key
        self._mac_key = mac_key_for(key)
        self._salt = rng.randbytes(SALT_BYTES)
        self._handshake = Handshake(me=self.sender, salt=self._salt, entropy=rng.randbytes)
        self._outgoing = Outgoing(key, me=self.sender, receiver=ME, salt=self._salt)
        self._packer = Packer(body_bytes_max=BODY_BYTES_MAX, message_bytes_max=SETTINGS.message_bytes_max)

    def hello(self) -> bytes:
        """A datagram that asks the server to prove itself."""
        return self._encode(self._handshake.ask())

    def on_hello(self, datagram: bytes, now_ms: int) -> bytes | None:
        """What the server's hello is answered with."""
        try:
            hello = decode_hello(datagram, mac_key=self._mac_key)
        except RejectedError:
            return None  # it is no hello
        _, answer = self._handshake.on_hello(hello, self._key.key_id, now_ms)
        return None if answer is None else self._encode(answer)

    def bodies(self, message: bytes) -> list[bytes]:
        """An encoded message as bodies of datagrams."""
        return self._packer.pack([message])

    def seal(self, body: bytes) -> bytes:
        """A datagram that the server will open."""
        assert self._handshake.incoming is not None
        return self._outgoing.seal(body, self._handshake.incoming.salt)

    def _encode(self, hello: Any) -> bytes:
        return encode_hello(hello, receiver=ME, key_id=self._key.key_id, mac_key=self._mac_key)


class _Server:
    """The server under test, founded with two voices."""

    def __init__(self, rng: random.Random, *, leads: bool) -> None:
        self._rng = rng
        self.now_ms = 1_000_000
        key = ClusterKey(rng.randbytes(KEY_BYTES))
        self.me = Sender(ME, Instance(rng.randbytes(16)), 1)
        self.links = PeerLinks(
            me=self.me,
            peers=dict.fromkeys(OTHERS, 1_400),
            keys=[key],
            entropy=rng.randbytes,
            settings=SETTINGS,
        )
        self.voices = {server: Voice(server, key, rng) for server in OTHERS}
        self.driver = Driver(
            settings=DriverSettings(),
            identity=Identity(ME, self.me.instance, 1, rng.randbytes(8), None),
            peers=(ME, *OTHERS),
            stored=Stored(HardState(), None, Log()),
            rng=rng,
            entropy=rng.randbytes,
            four_letter_word=lambda word, argument: word.encode(),
            now_ms=self.now_ms,
        )
        self.last_batch: OriginBatch | None = None
        self.understood = 0
        self._writing = False
        self._found()
        if leads:
            self._be_elected()
        else:
            self.say(OTHERS[0], Heartbeat(COORDINATION_GROUP, 1, 1, 0))
            self.turn()

    # -- setting up

    def _found(self) -> None:
        for server, voice in self.voices.items():
            self.receive(voice.hello())
            if self.links.peer(server) != voice.sender:
                raise BrokenPromiseError(PROMISE, "the handshake with a right peer failed")
            self.say(server, Hello(None, None, False))
        for _ in range(TURNS_MAX):
            if self.driver.raft is not None:
                break
            self.turn()
        for server in OTHERS:
            self.say(server, Hello(None, self.roster, False))
        if self.driver.cluster is None:
            raise BrokenPromiseError(PROMISE, "no cluster was founded")

    def _be_elected(self) -> None:
        for _ in range(TURNS_MAX):
            if self.driver.role is Role.LEADER and self.driver.applied_index > 1:
                return
            self.turn(answering=True)
        raise BrokenPromiseError(PROMISE, "a server that has all votes does not lead")

    @property
    def roster(self) -> tuple[tuple[ServerId, Instance], ...]:
        return ((ME, self.me.instance), *((s, v.sender.instance) for s, v in self.voices.items()))

    # -- input and turns

    def say(self, server: ServerId, message: PeerMessage) -> None:
        """A right message."""
        voice = self.voices[server]
        for body in voice.bodies(codec.encode(message)):
            self.receive(voice.seal(body))

    def receive(self, datagram: bytes) -> ReceivedDatagram:
        """One datagram, as the shell handles it."""
        received = sender, messages, beside = self.links.receive(datagram, self.now_ms)
        for to, reply in beside.replies if beside is not None else ():
            answer = self.voices[to].on_hello(reply, self.now_ms)
            if answer is not None:
                again, more, _ = self.links.receive(answer, self.now_ms)
                self.driver.receive(again or self.me, more)
        if sender is not None and messages:
            self.understood += len(messages)
            self.driver.receive(sender, messages)
        return received

    def turn(self, *, answering: bool = False) -> None:
        """One turn; whatever the server says must be what its peers can read."""
        if self._writing:
            self._writing = False
            self.driver.persisted()
        self.now_ms += TURN_MS
        effects = self.driver.turn(self.now_ms, self.now_ms)
        self._writing = effects.write is not None
        for to, messages in effects.sends:
            self.links.send(to, messages)
            for message in messages:
                self._check_sent(message)
                if isinstance(message, OriginBatch):
                    self.last_batch = message
                answer = _right_answer(message) if answering else None
                if answer is not None:
                    self.say(to, answer)
        held = self.links.statistics().reassembly_held_bytes
        if held > SETTINGS.reassembly_bytes_total_max:
            raise BrokenPromiseError(PROMISE, f"{held} bytes of fragments are held")

    def _check_sent(self, message: PeerMessage) -> None:
        raft = self.driver.raft
        if raft is not None and raft.term >= codec.TERM_MAX:
            return  # the last term of all: nobody can be elected after it, and peers say so
        if codec.decode(codec.encode(message)) != message:
            raise BrokenPromiseError(PROMISE, f"peers read another message than was sent: {message}")

    # -- right messages, to be spoiled

    def right_messages(self, server: ServerId) -> tuple[PeerMessage, ...]:
        """One of every kind, as a peer in the right could say it now."""
        raft = self.driver.raft
        assert raft is not None
        log, term, group = raft.log, raft.term, COORDINATION_GROUP
        last, last_term = log.last_index, log.last_term
        rng = self._rng
        sender = self.voices[server].sender
        row = self.driver.machine.rows.get((server, sender.instance))
        seq = row.seq + 1 if row is not None and row.boot else 1
        batch = txn.pack_batch(server, sender.instance, 1, seq, [(0, (), [_command(rng)])])
        entries = [Entry(last + 1, term, EntryKind.NOOP, log.next_position, 0, b"")]
        entries += [
            Entry(last + 2, term, EntryKind.COMMANDS, log.next_position, 1, self._payload(server, rng)),
            Entry(last + 3, term, EntryKind.MEMBERSHIP, log.next_position + 1, 0, self._membership()),
        ]
        some = tuple(entries[: rng.randrange(1, 4)])
        sessions = tuple((session, 5) for session in self.driver.machine.sessions) or ((1 << 56, 5),)
        return (
            PreVote(group, term + 1, last, last_term),
            PreVoteReply(group, term + 1, True),
            RequestVote(group, term + 1, last, last_term),
            RequestVoteReply(group, term, True),
            AppendEntries(group, term, last, last_term, last + len(some), some),
            AppendEntries(group, term, last, last_term, last + len(some), some),
            AppendEntriesReply(group, term, True, last),
            AppendEntriesReply(group, term, False, 0, last, max(1, last), last_term),
            Heartbeat(group, term, raft.round + 1, last),
            HeartbeatReply(group, term, raft.round, last),
            ReadIndex(group, term, 7),
            ReadIndexReply(group, term, 1, last),
            Hello(self.driver.cluster, self.roster, True),
            OriginBatch(group, 1, seq, 1, batch),
            TouchReport(1, rng.randrange(1, 1_000), sessions),
            TouchAck(term, 1, rng.randrange(1, 100), ()),
        )

    def _payload(self, server: ServerId, rng: random.Random) -> bytes:
        """An entry's commands; sometimes this server's own batch, sometimes spoiled in a way that can be packed."""
        sender = self.voices[server].sender
        row = self.driver.machine.rows.get((server, sender.instance))
        seq = row.seq + 1 if row is not None and row.boot else 1
        runs: Any = ((0, (), (_command(rng),)),)
        batch: Any = (server, sender.instance, 1, seq, runs)
        if rng.random() < 0.1:
            batch = (ServerId(0), b"", 0, 0, runs)
        elif self.last_batch is not None and rng.random() < 0.3:
            batch = msgpack.unpackb(self.last_batch.blob, use_list=False)
        if rng.random() < 0.7:
            batch = mutate_value(batch, rng)
        return txn.pack_entry(self.now_ms, self.now_ms, [msgpack.packb(batch)])

    def _membership(self) -> bytes:
        return Membership({server: Member(instance) for server, instance in self.roster}).encode()


def _command(rng: random.Random) -> Any:
    session = 1 << 56
    command = rng.choice(
        (
            (txn.REGISTER, b"boot id!"),
            (txn.CREATE_SESSION, 30_000, bytes(16)),
            (txn.ATTACH, session, 30_000, bytes(16)),
            (txn.EXPIRE, session, 1, 1, 1, 30_000, 0),
            (txn.SETTINGS, {"tick_time_ms": 2_000}),
            (txn.CREATE, "/a", b"", None, 0, 0),
            (txn.CREATE2, "/a", None, ((31, "world", "anyone"),), 3, 0),
            (txn.DELETE, "/a", -1),
            (txn.SET_DATA, "/", b"x", -1),
            (txn.MULTI, ((txn.CHECK, "/", 0), (txn.SET_DATA, "/", b"", -1))),
            (txn.CLOSE_SESSION,),
        )
    )
    return mutate_value(command, rng) if rng.random() < 0.3 else command


def _right_answer(message: PeerMessage) -> PeerMessage | None:
    """What a follower in the right says."""
    match message:
        case PreVote(group, term):
            return PreVoteReply(group, term, True)
        case RequestVote(group, term):
            return RequestVoteReply(group, term, True)
        case AppendEntries(group, term):
            return AppendEntriesReply(group, term, True, message.entries[-1].index)
        case Heartbeat(group, term, round) if round:
            return HeartbeatReply(group, term, round, message.leader_commit)
    return None


class DatagramFuzz:
    """One run; the same seed and count give the same datagrams."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"zraft/fuzz/datagrams/{seed}")
        self._tally: Counter[str] = Counter()
        self._recorded: list[bytes] = []
        self._watch = Stopwatch()

    def run(self, count: int, progress: Progress) -> Outcome:
        """Send `count` datagrams.

        Raises:
            BrokenPromiseError: the server raised what it does not declare, or held more than its bound.
        """
        rng = self._rng
        done = 0
        peak = 0
        while done < count:
            leads = rng.random() < 0.5
            server = _Server(rng, leads=leads)
            self._recorded.clear()
            for _ in range(min(DATAGRAMS_PER_SERVER, count - done)):
                done += 1
                progress(1)
                if not self._one(server, leads):
                    break
                peak = max(peak, server.links.statistics().reassembly_held_bytes)
            self._tally["servers"] += 1
            self._tally["messages that no correct peer sends"] += server.driver.peer_mistakes
            self._tally["messages taken"] += server.understood
            for reason, rejected in server.links.statistics().rejected.items():
                self._tally[f"rejected: {reason}"] += rejected
            self._tally["not understood"] += server.links.statistics().messages_not_understood
        return Outcome(
            *("datagrams", self._seed, done, peak, self._tally, self._watch.slowest, self._watch.longest_s)
        )

    def _one(self, server: _Server, leads: bool) -> bool:
        """False if the server stopped itself with a declared error: what it applies is no longer known to it."""
        rng = self._rng
        datagrams = self._spoiled(server)
        try:
            for datagram in datagrams:
                self._watch.count(datagram, self._watch.step("a datagram", server.receive, datagram))
            if rng.random() < 0.3:
                self._watch.step("a turn", partial(server.turn, answering=leads))
        except BrokenPromiseError:
            raise
        except ZraftError as error:
            if isinstance(error, ProtocolError) and not str(error).startswith("log entry"):
                raise BrokenPromiseError(PROMISE, f"a peer stops this server: {error}") from error
            self._tally[f"stopped: {type(error).__name__}"] += 1
            return False
        except Exception as error:
            said = " ".join(datagram.hex() for datagram in datagrams)
            raise BrokenPromiseError(PROMISE, f"{error!r} is not declared; received {said}") from error
        return True

    def _spoiled(self, server: _Server) -> list[bytes]:
        rng = self._rng
        chance = rng.random()
        if chance < 0.03:
            return [rng.randbytes(rng.randrange(1_500))]
        peer = rng.choice(OTHERS)
        voice = server.voices[peer]
        if chance < 0.08:
            return [mutate_bytes(voice.hello(), rng) if rng.random() < 0.8 else voice.hello()]
        if chance < 0.12 and self._recorded:
            return [rng.choice(self._recorded)]
        message = codec.encode(rng.choice(server.right_messages(peer)))
        if chance < 0.2:
            sealed = [mutate_bytes(voice.seal(body), rng) for body in voice.bodies(message)]
        elif chance < 0.3:
            sealed = [voice.seal(mutate_bytes(body, rng)) for body in voice.bodies(message)]
        elif chance < 0.35:
            # In fragments, of which some are spoiled, lost or of a message that never ends.
            large = message + rng.randbytes(rng.randrange(3_000, 50_000))
            bodies = [mutate_bytes(b, rng) if rng.random() < 0.2 else b for b in voice.bodies(large)]
            sealed = [voice.seal(body) for body in bodies if rng.random() < 0.9]
        elif chance < 0.8:
            array = mutate_value(from_bytes(message), rng)
            sealed = [voice.seal(body) for body in voice.bodies(msgpack.packb(array))]
        else:
            sealed = [voice.seal(body) for body in voice.bodies(message)]
        self._recorded = [*self._recorded[-20:], *sealed[:2]]
        return sealed
