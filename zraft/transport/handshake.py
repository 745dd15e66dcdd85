"""Handshake by which two servers learn each other's salt: the state of one server towards one peer.

Pure.

Each side proves its salt by echoing the other's fresh random challenge (D-6). Nothing is stored on disk and
no timer runs: whatever is lost is asked for again by the next datagram that cannot be sealed or opened.

Between A and B, where A speaks first::

    A -> B   hello(salt A, challenge a, no echo)       B does not believe it yet: it may be a recording
    B -> A   hello(salt B, challenge b, echo a)        A installs salt B: it can seal for B and open B's
    A -> B   hello(salt A, no challenge, echo b)       B installs salt A

A hello changes state only if it echoes the challenge that is outstanding, and uses it up. So a recorded hello
can at most cause one more question and its honest answer.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from zraft.transport.messages import Sender
from zraft.transport.sealing import CHALLENGE_BYTES, NO_CHALLENGE, HelloDatagram, Incoming

RUNS_MAX: Final = 8
"""Runs of a peer whose replay windows are kept: two live processes with one id (D-1) may take turns here, and
neither may have its old datagrams played again when its turn comes back."""

CHALLENGE_INTERVAL_MS: Final = 20
"""Shortest time between two questions caused by datagrams that do not open: anybody can send such ones."""

ANSWER_INTERVAL_MS: Final = 10
ANSWERS_BURST: Final = 16
"""Answers to hellos that prove nothing new, which may be recordings: a burst, then 100 per second."""


class Handshake:
    """Handshake of this run of this server with one peer."""

    __slots__ = (
        "_answers_left",
        "_answers_since_ms",
        "_challenge",
        "_challenge_after_ms",
        "_entropy",
        "_me",
        "_runs",
        "_salt",
        "incoming",
    )

    def __init__(self, *, me: Sender, salt: bytes, entropy: Callable[[int], bytes]) -> None:
        self._me = me
        self._salt = salt
        self._entropy = entropy
        self._challenge = NO_CHALLENGE
        self._challenge_after_ms: int | None = None
        self._answers_left = ANSWERS_BURST
        self._answers_since_ms: int | None = None
        self._runs: OrderedDict[tuple[bytes, Sender], Incoming] = OrderedDict()
        self.incoming: Incoming | None = None
        """The peer's current run, once proved; datagrams can be sealed for it and opened from it."""

    def ask(self) -> HelloDatagram:
        """Return a hello that asks the peer to prove its salt. The same question until it is answered."""
        if self._challenge == NO_CHALLENGE:
            self._challenge = self._draw()
        return HelloDatagram(self._me, self._salt, self._challenge, NO_CHALLENGE)

    def on_unopenable(self, now_ms: int) -> HelloDatagram | None:
        """Return a hello that asks the peer for its salt, since its datagram does not open.

        None if it was asked just now.
        """
        if self._challenge_after_ms is not None and now_ms < self._challenge_after_ms:
            return None
        self._challenge_after_ms = now_ms + CHALLENGE_INTERVAL_MS
        return self.ask()

    def on_hello(self, hello: HelloDatagram, key_id: bytes, now_ms: int) -> tuple[bool, HelloDatagram | None]:
        """Return the peer's hello with a right MAC: whether it proved its run, and the answer to send, if any."""
        proved = self._challenge != NO_CHALLENGE and hmac.compare_digest(self._challenge, hello.echo)
        if proved:
            self._challenge = NO_CHALLENGE
            self._install(hello, key_id)
        if hello.challenge == NO_CHALLENGE:
            return proved, None
        # A hello that proves itself is always answered: recordings must not use up the answers it needs.
        if not proved and not self._may_answer(now_ms):
            return proved, None
        known = self.incoming is not None and self.incoming.salt == hello.salt
        challenge = NO_CHALLENGE if known else self.ask().challenge
        return proved, HelloDatagram(self._me, self._salt, challenge, hello.challenge)

    def forget(self) -> None:
        """Let the peer prove itself again before anything is believed or sent. Replay windows are kept."""
        self.incoming = None
        self._challenge = NO_CHALLENGE

    def forget_keys(self, key_ids: Iterable[bytes]) -> bool:
        """Forget keys that are worth nothing any more; return True if the peer must prove its run again for that."""
        for key_id in key_ids:
            for run in self._runs.values():
                run.forget_key(key_id)
        if self.incoming is None or self.incoming.proved:
            return False
        self.forget()
        return True

    def _install(self, hello: HelloDatagram, key_id: bytes) -> None:
        run = (hello.salt, hello.me)
        incoming = self._runs.get(run)
        if incoming is None:
            incoming = Incoming(sender=hello.me, receiver=self._me.server, salt=hello.salt)
            self._runs[run] = incoming
        self._runs.move_to_end(run)
        if len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)
        incoming.proved.add(key_id)
        self.incoming = incoming

    def _may_answer(self, now_ms: int) -> bool:
        if self._answers_since_ms is None:
            self._answers_since_ms = now_ms
        earned = max(0, now_ms - self._answers_since_ms) // ANSWER_INTERVAL_MS
        if earned:
            self._answers_left = min(ANSWERS_BURST, self._answers_left + earned)
            self._answers_since_ms += earned * ANSWER_INTERVAL_MS
        if not self._answers_left:
            return False
        self._answers_left -= 1
        return True

    def _draw(self) -> bytes:
        while (challenge := self._entropy(CHALLENGE_BYTES)) == NO_CHALLENGE:
            continue  # one in 2**128; zeros mean "no challenge" on the wire
        assert len(challenge) == CHALLENGE_BYTES
        return challenge
