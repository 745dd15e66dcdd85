"""Owns the simulated datagrams between servers: loss, delay, duplication, reordering, late copies, cuts.

Messages travel as the bytes of `zraft.transport.codec`, so that the wire format is part of every run.
Who sent a datagram is handed over beside the bytes: authentication has its own tests, and an adversary
who forges senders is outside the promises of the product (D-6). Of what sealing does, one thing is kept: what was meant
for one disk of a server does not open at its successor, nor what an old disk said at who has met the new one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.profile import Profile
from tests.simulation.schedule import Schedule
from zraft.transport import codec
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.ids import Instance, ServerId

Deliver = Callable[[ServerId, Sender, bytes], None]
Gate = Callable[[Sender, ServerId, PeerMessage], bool]
"""Whether a message may leave now; a directed schedule keeps some back."""


def encode_datagram(messages: Sequence[PeerMessage]) -> bytes:
    return codec.encode_sequence([codec.encode(message) for message in messages])


def decode_datagram(data: bytes) -> Sequence[PeerMessage]:
    messages, errors = codec.decode_sequence(data)
    if errors:
        raise BrokenPromiseError("codec", f"a message of ours does not decode: {errors[0]}")
    return messages


class Network:
    """Datagrams between servers. `cut` holds ordered pairs (from, to) that lose everything."""

    __slots__ = (
        "_deliver",
        "_met",
        "_profile",
        "_rng",
        "_run_of",
        "_schedule",
        "calm",
        "cuts",
        "delivered",
        "disturbed_at_ms",
        "gate",
        "lost",
        "sent",
    )

    def __init__(
        self,
        schedule: Schedule,
        profile: Profile,
        rng: random.Random,
        deliver: Deliver,
        run_of: Callable[[ServerId], Sender],
    ) -> None:
        self._schedule = schedule
        self._profile = profile
        self._rng = rng
        self._deliver = deliver
        self._run_of = run_of
        self._met: dict[tuple[Sender, ServerId], Instance] = {}
        """Which disk of a peer a run has heard of last: it seals for that one."""
        self.cuts: dict[tuple[ServerId, ServerId], int] = {}
        self.disturbed_at_ms: dict[ServerId, int] = {}
        """When something to or from a server was last lost to a cut."""
        self.calm = False
        """After healing: short delays, nothing lost, nothing doubled."""
        self.gate: Gate | None = None
        self.sent = self.lost = self.delivered = 0

    def send(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        """One datagram. Its fate is rolled now, its cuts are looked at now and again on arrival."""
        if self.gate is not None:
            messages = [message for message in messages if self.gate(sender, to, message)]
            if not messages:
                return
        self.sent += 1
        rng, profile = self._rng, self._profile
        disk = self._met.get((sender, to)) or self._run_of(to).instance
        if self.calm:
            self._schedule.after(rng.randint(1, 3), self._arrive, sender, to, disk, encode_datagram(messages))
            return
        if rng.random() < profile.loss:
            self.lost += 1
            return
        data = encode_datagram(messages)
        delay = rng.randint(1, profile.delay_ms_max)
        if rng.random() < profile.reorder:
            delay += rng.randint(0, 40)
        self._schedule.after(delay, self._arrive, sender, to, disk, data)
        if rng.random() < profile.duplicate:
            self._schedule.after(delay + rng.randint(0, 20), self._arrive, sender, to, disk, data)
        if rng.random() < profile.late:
            delay += rng.randint(30, profile.late_ms_max)
            self._schedule.after(delay, self._arrive, sender, to, disk, data)

    def _arrive(self, sender: Sender, to: ServerId, disk: Instance, data: bytes) -> None:
        if (sender.server, to) in self.cuts:
            self.lost += 1
            self.disturbed_at_ms[sender.server] = self.disturbed_at_ms[to] = self._schedule.now_ms
            return
        if not self._opens(sender, self._run_of(to), disk):
            self.lost += 1
            return
        self.delivered += 1
        self._deliver(to, sender, data)

    def _opens(self, sender: Sender, receiver: Sender, disk: Instance) -> bool:
        """Whether a run of the receiver can open what was sealed for that disk of it, by that disk of the sender."""
        if disk and receiver.instance != disk:
            return False
        met = self._met.get((receiver, sender.server))
        if met != sender.instance:
            if met is not None and sender.instance != self._run_of(sender.server).instance:
                return False
            self._met[receiver, sender.server] = sender.instance
        return True

    def cut(self, pairs: Sequence[tuple[ServerId, ServerId]]) -> None:
        """Lose everything on these ordered pairs; cuts of overlapping faults are counted."""
        for pair in pairs:
            self.cuts[pair] = self.cuts.get(pair, 0) + 1

    def join(self, pairs: Sequence[tuple[ServerId, ServerId]]) -> None:
        """Undo one `cut` of the same pairs (nothing happens if `heal` has run since)."""
        for pair in pairs:
            left = self.cuts.get(pair, 0) - 1
            if left > 0:
                self.cuts[pair] = left
            else:
                self.cuts.pop(pair, None)

    def heal(self) -> None:
        self.cuts.clear()
        self.calm = True
