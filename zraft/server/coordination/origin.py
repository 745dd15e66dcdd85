"""The origin side of the write path: client commands become numbered batches that never change (D-2).

A server that has clients is an *origin*. All commands that arrive in one turn of its loop are one batch,
numbered (boot, seq), and sent to the leader. Whatever is not yet applied is sent again after a loss or a
change of leader, byte for byte, so that the state machine can take exactly the next one.

Pure: time is handed in. Source: rule D-2 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Any, Final

from attrs import define, frozen

from zraft.server.coordination.anticipation import Anticipation
from zraft.transport.messages import OriginBatch
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId
from zraft_core.znodes.txn import ATTACH, Command, Run, pack_batch

Ids = tuple[tuple[str, str], ...]
"""(scheme, id) of each identity under which a client is authenticated."""


@frozen
class OriginSettings:
    """The bounds of one origin stream.

    Only one batch is in flight on purpose (`batches_in_flight_max`): while a batch travels, the next one
    fills up, and fuller batches cost less per command on every server (docs/decisions/0005).
    """

    batches_in_flight_max: int = 1
    batch_bytes_max: int = 256 * 1024
    unapplied_bytes_max: int = 16 * 1024 * 1024
    resend_ms: int = 200
    asking_again_share_min: float = 0.75
    """The share of those who are answered that must usually ask again at once, for the others to wait for them."""


RUN_OVERHEAD_BYTES: Final = 16
"""How many bytes a batch has for each run beside its commands."""

COMMAND_OVERHEAD_BYTES: Final = 128
"""How many bytes are counted per command for its objects, so that a flood of tiny ones is bounded as well."""

SHARE_BYTES_MIN: Final = 4 * 1024
"""The least share of one session in a batch that cannot take all that was collected, however many sessions there are."""

SHARE_COMMANDS_MIN: Final = 32
"""How many commands of a session a batch takes in any case, as far as `TOLD_AT_WORST_MAX` allows it."""

BATCH_BYTES_MIN: Final = 512
"""The least size to which batches are limited, however many clients have to be told of them."""

SLOW_START_BYTES: Final = 16 * 1024
"""The size of the first batch after a client began to follow what is written: how much there is to tell is not known yet."""

TOLD_PER_BATCH_MAX: Final = 16_384
"""How many followers are told of the changes of one batch, in about 20 ms. If there are more, next batches are smaller."""

TOLD_AT_WORST_MAX: Final = 16 * TOLD_PER_BATCH_MAX
"""The same bound for the case that every follower follows all that is in the batch, as is only known when it is applied."""


class NumberedBatch:
    """One batch on its way.

    Attributes:
        message: what is sent to the leader.
        owners: the connections or errands that wait for the results, one per run; None if none waits.
        size: about its bytes.
        cut_at: when it was cut, in ms.
        arrivals: (ms, number of commands that arrived then), for statistics.
        sent_at: when it was sent last, in ms; None if it is to be sent now.
    """

    __slots__ = ("arrivals", "cut_at", "message", "owners", "sent_at", "size")

    def __init__(
        self,
        message: OriginBatch,
        owners: list[Any],
        size: int,
        cut_at: int,
        arrivals: list[tuple[float, int]],
    ) -> None:
        self.message = message
        self.owners = owners
        self.size = size
        self.cut_at = cut_at
        self.arrivals = arrivals
        self.sent_at: int | None = None


@define
class _Arrival:
    """The moment at which some runs in a row arrived, in ms, and how many of them are left."""

    at: float
    runs: int


_Collected = tuple[tuple[int, Ids, list[Command]], Any, int, float]
"""(run, its owner, its bytes, when it arrived) of a run that is in no batch yet."""


def _flow(run: Run, owner: object) -> Hashable:
    """Return a key of what a run must not overtake: other runs of its session, also over another connection (D-3)."""
    session, _, commands = run
    if session:
        return session
    if commands[0][0] == ATTACH:
        attached: int = commands[0][1]
        return attached
    return "no session", id(owner)


class OriginStream:
    """A stream of batches: it collects commands, cuts batches, and keeps the unapplied ones for repetition.

    Attributes:
        collected: how many commands were taken and are in no batch yet.
        unapplied: the batches that are not applied yet, by their numbers.
        due_at: until then, in ms, `due` returns nothing.
        anticipation: which clients were answered last, and may be waited for.
        count_followers: returns how many clients follow what is written here, by lasting watches and
            subscriptions. The object that knows them sets it.
        is_slowed: whether batches are smaller than they may be, because many clients have to be told of what
            is written.
    """

    def __init__(self, server: ServerId, instance: Instance, boot: int, settings: OriginSettings) -> None:
        self._server = server
        self._instance = instance
        self._boot = boot
        self._settings = settings
        self._last_seq = 0
        # These are parallel queues of runs not yet numbered; a run's commands all come from one owner in order.
        self._runs: deque[tuple[int, Ids, list[Command]]] = deque()
        self._owners: deque[Any] = deque()
        self._sizes: deque[int] = deque()
        self._arrivals: deque[_Arrival] = deque()
        """When the runs not yet numbered arrived, oldest first."""
        self._stamped = 0
        self._collected_bytes = 0
        self.collected = 0
        self._commands = 0
        """How many commands were taken and are not applied yet."""
        self.count_followers: Callable[[], int] = lambda: 0
        self._small_first = False
        self._batch_bytes_max = settings.batch_bytes_max
        """The present bound of a batch: that of the settings, or less while the stream is slowed."""
        self.is_slowed = False
        self.unapplied: dict[int, NumberedBatch] = {}
        self._unapplied_bytes = 0
        self.due_at: float = inf
        self.anticipation = Anticipation(settings.asking_again_share_min)

    @property
    def full(self) -> bool:
        """True if requests of clients must not be taken now (pings still are); the bound of D-2."""
        return (
            self._unapplied_bytes + self._collected_bytes + COMMAND_OVERHEAD_BYTES * self._commands
            >= self._settings.unapplied_bytes_max
        )

    def cuts_at(self, now: float) -> float:
        """Return when the next batch is cut, in ms: now, or at the end of a wait for clients that were just answered.

        It is `inf` if nothing was collected and nobody is waited for, and as long as the window of batches in flight has no
        room.
        """
        waits = now < self.anticipation.until and self.anticipation.waits(self._owners, now)
        if len(self.unapplied) >= self._settings.batches_in_flight_max:
            return inf
        if waits:
            return self.anticipation.until
        return now if self._runs else inf

    @property
    def outstanding(self) -> int:
        """The bytes of commands that were taken from clients and are not applied here yet."""
        return self._unapplied_bytes + self._collected_bytes

    @property
    def idle(self) -> bool:
        """True if nothing was collected that is not applied yet."""
        return not self.collected and not self.unapplied

    def add(self, owner: Any, session: int, ids: Ids, commands: list[Command], size: int) -> None:
        """Queue commands of one owner, in order; `size` is about their bytes.

        Runs are not cut apart, so one call gives at most `batch_bytes_max`, or a single command: what one
        client sends at once must never make a batch that no datagram and no entry can carry (D-2).
        """
        if (
            self._owners
            and self._sizes[-1] + size <= self._settings.batch_bytes_max
            and self._owners[-1] is owner
            and self._runs[-1][0] == session
            and self._runs[-1][1] is ids
        ):
            self._runs[-1][2].extend(commands)
            self._sizes[-1] += size
        else:
            self._runs.append((session, ids, commands))
            self._owners.append(owner)
            self._sizes.append(size + RUN_OVERHEAD_BYTES)
            size += RUN_OVERHEAD_BYTES
        self._collected_bytes += size
        count = len(commands)
        self.collected += count
        self._commands += count

    def cut(self, now: int, arrived: float | None = None) -> None:
        """Give numbers to what was collected, as far as the window of batches in flight allows, unless more is waited for.

        If that is more than a batch takes, each session has its share of it: a session that sends much waits,
        and others do not wait for it.

        Args:
            arrived: when what was added since the last call arrived, if that is known better than `now`; no later than
                that.
        """
        if not self._runs:
            return
        if now < self.anticipation.until and self.anticipation.waits(self._owners, now):
            self.stamp(now, arrived)
            return
        at = now if arrived is None or arrived > now else arrived
        if not (self._stamped or self.unapplied) and self._fit_in_a_batch():
            runs: list[Run] = [*self._runs]
            owners = [*self._owners]
            self._runs, self._owners, self._sizes = deque(), deque(), deque()
            self._number(now, runs, owners, self._collected_bytes, self.collected, [(at, self.collected)])
            return
        self.stamp(now, arrived)
        while self._runs and len(self.unapplied) < self._settings.batches_in_flight_max:
            self._cut_part(now)
        self._stamped = len(self._runs)

    def stamp(self, now: int, arrived: float | None = None) -> None:
        """Take note of when what was added since the last call arrived; see `cut`, which does it as well."""
        new = len(self._runs) - self._stamped
        if new:
            self._arrivals.append(_Arrival(now if arrived is None or arrived > now else arrived, new))
            self._stamped += new

    def _fit_in_a_batch(self) -> bool:
        """Return whether one batch may hold all that was collected, by its bytes and by how many are told of it."""
        if self._collected_bytes > self._batch_bytes_max:
            return False
        collected = self.collected
        return collected <= SHARE_COMMANDS_MIN or self.count_followers() * collected <= TOLD_PER_BATCH_MAX

    def _cut_part(self, now: int) -> None:
        """Make one batch of what was collected first, or of a share of each session if there is too much."""
        bytes_max = self._batch_bytes_max
        runs_max = len(self._runs)
        followers = self.count_followers() if self.collected > SHARE_COMMANDS_MIN else 0
        if followers * self.collected > TOLD_PER_BATCH_MAX or (
            self._collected_bytes > bytes_max and (runs_max > 1 or bytes_max < self._settings.batch_bytes_max)
        ):
            runs_max = self._bring_forward(followers)
        runs: list[Run] = []
        owners: list[Any] = []
        size = count = counted = 0
        arrivals: list[tuple[float, int]] = []
        oldest = self._arrivals[0]
        while len(runs) < runs_max and (not runs or size + self._sizes[0] <= bytes_max):
            run = self._runs.popleft()
            owners.append(self._owners.popleft())
            size += self._sizes.popleft()
            count += len(run[2])
            runs.append(run)
            oldest.runs -= 1
            if not oldest.runs:
                arrivals.append((oldest.at, count - counted))
                counted = count
                self._arrivals.popleft()
                if self._arrivals:
                    oldest = self._arrivals[0]
        if count > counted:
            arrivals.append((oldest.at, count - counted))
        self._number(now, runs, owners, size, count, arrivals)

    def _number(
        self,
        now: int,
        runs: list[Run],
        owners: list[Any],
        size: int,
        count: int,
        arrivals: list[tuple[float, int]],
    ) -> None:
        """Make the next batch of runs that are no longer collected."""
        self._last_seq += 1
        blob = pack_batch(self._server, self._instance, self._boot, self._last_seq, runs)
        message = OriginBatch(COORDINATION_GROUP, self._boot, self._last_seq, count, blob)
        self.unapplied[self._last_seq] = NumberedBatch(message, owners, size, now, arrivals)
        self._collected_bytes -= size
        self.collected -= count
        self._unapplied_bytes += size
        self.due_at = now

    def _bring_forward(self, followers: int) -> int:
        """Put a share of each session in front of the rest; return how many runs these shares are.

        The commands of one session keep their order. Every other time a command that is larger than a share
        stands behind those that are smaller.

        Args:
            followers: how many clients may have to be told of each command.
        """
        self._small_first = not self._small_first
        flows = list(map(_flow, self._runs, self._owners))
        commands_max = self.collected
        if followers:
            commands_max = min(
                max(SHARE_COMMANDS_MIN, TOLD_PER_BATCH_MAX // followers),
                max(1, TOLD_AT_WORST_MAX // followers // len(set(flows))),
            )
        # A batch that is kept small still has room for others beside the session that sends most.
        share_min = min(SHARE_BYTES_MIN, self._batch_bytes_max // 2)
        share = max(share_min, self._batch_bytes_max // len(set(flows)))
        taken: dict[Hashable, int] = {}
        commands_left: dict[Hashable, int] = {}
        first: list[_Collected] = []
        large: list[_Collected] = []
        rest: list[_Collected] = []
        arrived = [arrival.at for arrival in self._arrivals for _ in range(arrival.runs)]
        collected = zip(self._runs, self._owners, self._sizes, arrived, flows, strict=True)
        for run, owner, size, at, flow in collected:
            session, ids, commands = run
            left = max(0, share - taken.get(flow, 0))
            count = len(commands) if size <= left else left * len(commands) // size
            count = min(count, commands_left.get(flow, commands_max))
            if not count and flow not in taken:
                count = 1
            if not count:
                taken[flow] = share
                rest.append((run, owner, size, at))
                continue
            part = size * count // len(commands)
            taken[flow] = taken.get(flow, 0) + part
            commands_left[flow] = commands_left.get(flow, commands_max) - count
            into = large if part > share and self._small_first else first
            into.append(((session, ids, commands[:count]), owner, part, at))
            if count < len(commands):
                taken[flow] = share
                rest.append(((session, ids, commands[count:]), owner, size - part, at))
        for queue in (self._runs, self._owners, self._sizes, self._arrivals):
            queue.clear()
        for run, owner, size, at in (*first, *large, *rest):
            self._runs.append(run)
            self._owners.append(owner)
            self._sizes.append(size)
            if self._arrivals and self._arrivals[-1].at == at:
                self._arrivals[-1].runs += 1
            else:
                self._arrivals.append(_Arrival(at, 1))
        return len(first) + len(large)

    def on_follower(self) -> None:
        """Take note that a client follows what is written from now on, by a lasting watch or a subscription."""
        self._set_batch_bytes_max(min(self._batch_bytes_max, SLOW_START_BYTES))

    def on_told(self, batch: NumberedBatch, told: int) -> None:
        """Take note of how many followers were told of the changes of an applied batch."""
        if told > TOLD_PER_BATCH_MAX:
            self._set_batch_bytes_max(max(BATCH_BYTES_MIN, batch.size * TOLD_PER_BATCH_MAX // told))
        elif self.is_slowed:
            self._set_batch_bytes_max(2 * self._batch_bytes_max)

    def _set_batch_bytes_max(self, size: int) -> None:
        self._batch_bytes_max = min(self._settings.batch_bytes_max, size)
        self.is_slowed = self._batch_bytes_max < self._settings.batch_bytes_max

    def due(self, now: int) -> Sequence[OriginBatch]:
        """Return the batches to send to the leader now: new ones, and unapplied ones that were sent too long ago."""
        due = []
        resend_ms = self._settings.resend_ms
        self.due_at = inf
        for batch in self.unapplied.values():
            if batch.sent_at is None or now - batch.sent_at >= resend_ms:
                batch.sent_at = now
                due.append(batch.message)
            if batch.sent_at + resend_ms < self.due_at:
                self.due_at = batch.sent_at + resend_ms
        return due

    def on_leader_change(self) -> None:
        """Let all unapplied batches be sent again, because another leader may have none of them."""
        self._send_again()

    def _send_again(self) -> None:
        for batch in self.unapplied.values():
            batch.sent_at = None
        self.due_at = -inf

    def on_restore(self, boot: int, seq: int) -> list[Any]:
        """Take note that a snapshot in which this origin stands at (boot, seq) has replaced the state (D-4).

        The batches that it covers were applied elsewhere, and their results are not known here. The others
        are sent again, with the same bytes.

        Returns:
            The owners that wait for the covered batches in vain.
        """
        owners: list[Any] = []
        if boot == self._boot:
            for number in [number for number in self.unapplied if number <= seq]:
                batch = self.unapplied[number]
                self._take(number)
                owners += batch.owners
        self._send_again()
        return owners

    def owners(self) -> list[Any]:
        """Return the owners of everything that is not applied yet."""
        return [owner for batch in self.unapplied.values() for owner in batch.owners] + list(self._owners)

    def take_applied(self, seq: int, now: int) -> NumberedBatch | None:
        """Take note that batch `seq` is applied now, and return it; None if this process did not send it."""
        batch = self._take(seq)
        if batch is not None and (self._runs or len(batch.owners) > 1):
            # One client alone has nobody to wait for.
            self.anticipation.answered(batch.owners, now, now - batch.cut_at)
        return batch

    def _take(self, seq: int) -> NumberedBatch | None:
        batch = self.unapplied.pop(seq, None)
        if batch is not None:
            self._unapplied_bytes -= batch.size
            self._commands -= batch.message.count
        return batch
