"""A consumer process in the simulation: the shipped core, a clock of its own, a program that takes its time.

It may be stopped (SIGSTOP: everything that arrives waits, its clock goes on) or killed (nothing of it is left).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulation.claims.checks import Checks
from tests.simulation.claims.profile import HEARTBEAT_MS, GroupProfile
from tests.simulation.schedule import Schedule
from zraft_client.claims.consumption import Consumption
from zraft_client.claims.core import ConsumerCore
from zraft_client.claims.messages import Message
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.requests import Effect, Reply, Submit
from zraft_core.claims.commands import ClaimMessages, ClaimPartition, Heartbeat
from zraft_core.claims.values import Owner

TOPIC = "t"
CLAIM_INTERVAL_MS = 1_000

Perform = Callable[["Process", Effect], None]


def options_of(group: GroupProfile) -> ConsumerOptions:
    return ConsumerOptions(
        mode=group.mode,
        heartbeat_ms=group.heartbeat_ms,
        claim_entire_topic=group.entire_topic,
        greedy_claims=group.greedy,
        maximum_claims=group.maximum_claims,
        range_messages=group.range_messages,
        queue_max=group.queue_max,
        batch_messages=group.batch_messages,
        request_timeout_ms=HEARTBEAT_MS // 8,
        request_retry_wait_ms=100,
        claim_interval_ms=CLAIM_INTERVAL_MS,
        poll_ms=300,
    )


class Process:
    """One process, from its start to its end. `local` is its own clock."""

    def __init__(
        self,
        group: GroupProfile,
        client: str,
        instance: str,
        partitions: int,
        process_ms: int,
        offset_ms: int,
        rate: float,
        schedule: Schedule,
        rng: random.Random,
        checks: Checks,
        perform: Perform,
    ) -> None:
        self.group = group
        self.client = client
        self.rate = rate
        self.alive = True
        self.is_ending = False
        """Its program was told to terminate: it lives a moment longer, or until it is no longer stopped."""
        self.stopped_until = 0
        self._offset_ms = offset_ms
        self._process_ms = process_ms
        self._schedule = schedule
        self._rng = rng
        self._checks = checks
        self._perform = perform
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._busy = 0
        self._awaited: list[tuple[Consumption, int]] = []
        """Commits of which the program wants to know when they are durable."""
        self._timer_ms: int | None = None
        identity = Owner(client, instance)
        self.core = ConsumerCore(
            identity, group.name, {TOPIC: partitions}, options_of(group), rng, self.local()
        )
        self._went_on()

    def local(self) -> int:
        return int(self._offset_ms + self.rate * self._schedule.now_ms)

    # Faults -----------------------------------------------------------------------------------------------------

    def stop(self, for_ms: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        self.stopped_until = max(self.stopped_until, self._schedule.now_ms + for_ms)
        self._schedule.at(self.stopped_until, self._continue)

    def go_on(self) -> None:
        """SIGCONT now."""
        self.stopped_until = 0
        self._continue()

    def kill(self) -> None:
        self.alive = False
        self._waiting.clear()

    def end(self, *, release: bool) -> None:
        """The program terminates its consumer; the process is gone a moment later."""
        self.is_ending = True
        self._when_running(self._terminate, release)

    def _terminate(self, release: bool) -> None:
        self.core.terminate(self.local(), release=release)
        self._went_on()
        self._schedule.after(HEARTBEAT_MS // 2, self.kill)

    def _continue(self) -> None:
        if not self.alive or self._schedule.now_ms < self.stopped_until:
            return
        waiting, self._waiting = self._waiting, []
        # Whether timers or sockets come first after a stop is anybody's guess.
        if self._rng.random() < 0.5:
            self._on_timer()
        for call, arguments in waiting:
            call(*arguments)
        self._on_timer()

    def _when_running(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self.alive:
            return
        if self._schedule.now_ms < self.stopped_until:
            self._waiting.append((call, arguments))
        else:
            call(*arguments)

    # What drives it ---------------------------------------------------------------------------------------------

    def on_reply(self, number: int, reply: Reply, effect: Effect) -> None:
        self._when_running(self._take_reply, number, reply, effect)

    def _take_reply(self, number: int, reply: Reply, effect: Effect) -> None:
        self.core.on_reply(number, reply, effect, self.local())
        self._went_on()

    def _on_due(self, when_ms: int) -> None:
        if when_ms == self._timer_ms:
            self._timer_ms = None
            self._when_running(self._on_timer)

    def _on_timer(self) -> None:
        self.core.on_time(self.local())
        self._went_on()

    def _went_on(self) -> None:
        """Give the program what there is, send what is to be sent, and wait for what is due."""
        while self._busy < self.group.workers:
            message = self.core.next_message(self.local())
            if message is None:
                break
            self._hand_out(message)
        self._note_durable()
        for effect in self.core.take_effects():
            self._note_sending(effect)
            self._perform(self, effect)
        due = self.core.next_due_ms
        if due is None:
            return
        now = self._schedule.now_ms
        when = max(now + 1, int((due - self._offset_ms) / self.rate) + 1)
        if self._timer_ms is None or when < self._timer_ms:
            self._timer_ms = when
            self._schedule.at(when, self._on_due, when)

    def _note_sending(self, effect: Effect) -> None:
        if not isinstance(effect, Submit):
            return
        now = self._schedule.now_ms
        match effect.command:
            case Heartbeat(_, epoch, beat, _):
                self._checks.sent[effect.partition, epoch, beat] = now
            case ClaimPartition() | ClaimMessages():
                command = effect.command
                key = (effect.partition, command.client, command.instance, command.attempt)
                self._checks.attempt_sent.setdefault(key, now)

    def _note_durable(self) -> None:
        left = []
        for under, offset in self._awaited:
            if under.is_durable(offset):
                self._checks.on_durable(self.group.name, under.partition, offset, under.epoch)
            elif under.ended is None:
                left.append((under, offset))
        self._awaited = left

    # The program ------------------------------------------------------------------------------------------------

    def _hand_out(self, message: Message) -> None:
        self._checks.on_handed_out(
            self.group.name,
            message.partition,
            message.offset,
            message.epoch,
            self._schedule.now_ms,
            self.rate,
        )
        self._busy += 1
        takes = int(self._rng.expovariate(1 / self._process_ms)) + 1
        if self._rng.random() < 0.02:
            # Some are much slower than others, so that those behind them are committed first.
            takes += self._rng.randint(0, 2 * HEARTBEAT_MS)
        self._schedule.after(takes, self._when_running, self._processed, message)

    def _processed(self, message: Message) -> None:
        self._busy -= 1
        known = self.core.commit(message.token, self.local())
        if known is not None:
            self._awaited.append((known, message.offset))
            if self._rng.random() < 0.3:
                known.flush(self.local())  # as by a program that awaits it
        current = 0
        for one in self.core.consumptions():
            if known is not None and (one.partition, one.epoch) == (message.partition, message.epoch):
                current = one._tracking.current
        self._checks.on_processed(
            self.group.name, message.partition, message.offset, message.epoch, self._schedule.now_ms, current
        )
        self._went_on()

    def statistics(self) -> Counter[str]:
        core = self.core.statistics()
        return Counter(lost=core.lost, late_commits=core.late_commits, late_grants=core.late_grants)
