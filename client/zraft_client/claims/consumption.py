"""Consuming under one claim: heartbeats, prefetch, batches claimed ahead, commits, release. Pure.

Nothing is handed out unless the lease holds at that moment. Commits are sent a moment later, or at once if
somebody waits for them, all in one command; heartbeats carry them, too. At most once, a message is handed out
only after the batch that it is in was accepted; until the answer is known the same command is repeated, which
is harmless because only this owner can send that epoch.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum, unique
from typing import Final

from zraft_client.claims.health import Health
from zraft_client.claims.lease import Lease
from zraft_client.claims.messages import Message
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.port import Fetched, Record
from zraft_client.claims.requests import NEVER, Requests, Then
from zraft_client.claims.tracking import Tracking
from zraft_core.claims.answers import Accepted, ClaimAnswer, Granted, Reason, Refused
from zraft_core.claims.commands import Commit, CommitBatch, CommitRanges, Heartbeat, Release
from zraft_core.claims.progress import Range
from zraft_core.claims.values import RANGES_MAX, Mode

COMMIT_WAIT_MS: Final = 100
"""The time that a commit which nobody waits for may wait for others to be sent along with it."""


Told = tuple[int, tuple[Range, ...]]
"""Processed messages: everything below an offset, and ranges above it."""


@unique
class Ended(Enum):
    """Reasons for the end of a claim."""

    RELEASED = "released"
    COMPLETE = "complete"
    """All messages of the claim's range are processed."""
    LOST = "lost"
    """The claim expired, another process of this client took it over, or the service refused its owner otherwise."""


class Consumption:
    """One claim of this process, from its grant to its end."""

    def __init__(
        self,
        group: str,
        topic: str,
        partition: int,
        granted: Granted,
        end: int,
        sent_ms: int,
        now_ms: int,
        options: ConsumerOptions,
        rng: random.Random,
        requests: Requests,
        *,
        plain: bool = False,
    ) -> None:
        """Begin with a granted claim; `plain` is as in `Seen`."""
        claim = granted.claim
        self.group = group
        self.topic = topic
        self.partition = partition
        self.claim = claim
        self.committed = claim.committed
        """The offset below which the service knows everything to be processed."""
        self.end = end
        """The partition's end, as last seen."""
        self.ended: Ended | None = None
        self.due_ms = now_ms
        """When `on_time` has something to do next; 0, at once, after every answer."""
        self.lease = Lease(claim.heartbeat_ms, sent_ms)
        self.health = Health(claim.heartbeat_ms)
        self._tracking = Tracking(claim.position)
        self._options = options
        self._rng = rng
        self._requests = requests
        self._skips = granted.skips
        self._ready: deque[Record] = deque()
        self._staged: deque[Record] = deque()
        self._batch: tuple[Record, ...] | None = None
        self._batch_upto = claim.position
        self._fetch_from = claim.position
        self._beat = claim.beat
        self._beating = self._fetching = self._batching = self._release_sent = False
        self._urgent = False
        self._next_beat_ms = now_ms
        self._next_fetch_ms = now_ms
        self._next_batch_ms = now_ms
        self._next_release_ms = now_ms
        self._plain = plain
        self._committing = False
        self._next_commit_ms = NEVER
        self._durable: tuple[Range, ...] = ()
        """Ranges above `committed` that the service knows to be processed."""
        self.is_scattered = False
        """True if the service keeps no more ranges: commits above the first gap are not sent until it closes.
        """
        self._releasing = False
        self._drain_until_ms: int | None = None
        self._handed_out = 0
        self._pass_over_skips()

    # What the program sees --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that the service gave to the claim."""
        return self.claim.epoch

    @property
    def current(self) -> int:
        """The offset of the first message that is not committed."""
        return self._tracking.current

    @property
    def is_releasing(self) -> bool:
        """True while the claim is being handed back."""
        return self._releasing

    @property
    def lag(self) -> int:
        """The number of messages of the partition, as far as it was read, that are not committed here."""
        upto = self.end if self.claim.upto is None else min(self.end, self.claim.upto)
        return max(0, upto - self.current)

    @property
    def has_work(self) -> bool:
        """True if the claim's next message exists, as far as this process knows."""
        return self.current < self.end

    @property
    def is_stocked(self) -> bool:
        """True if a message of the claim is in memory, whether or not the lease still holds."""
        return bool(self._ready)

    @property
    def stock(self) -> int:
        """The number of messages at hand."""
        return len(self._ready)

    def has_ready(self, now_ms: int) -> bool:
        """Return whether a message can be handed out now."""
        return bool(self._ready) and self.ended is None and self.lease.holds(now_ms)

    def next_message(self, now_ms: int) -> Message | None:
        """Return the next message to process, or None: there is none, or the claim may be another consumer's by now."""
        if not self.has_ready(now_ms):
            return None
        record = self._ready.popleft()
        self._handed_out += 1
        return Message(self.topic, self.partition, record.offset, record.value, self.epoch)

    def commit(self, offset: int, now_ms: int) -> bool:
        """Note that the message was processed; return False if it was committed before or never handed out."""
        if not self._tracking.commit(offset):
            return False
        self._handed_out -= 1
        self._tell(now_ms + COMMIT_WAIT_MS)
        if self._releasing and not self._handed_out:
            self.due_ms = 0
            self._next_release_ms = min(self._next_release_ms, now_ms)
        if self.claim.upto is not None and self.current >= self.claim.upto:
            self._hurry(now_ms)
        return True

    def is_durable(self, offset: int) -> bool:
        """Return whether the service knows that this message was processed, so that nobody else gets it."""
        return self._are_durable(offset, offset + 1)

    def _are_durable(self, first: int, upto: int) -> bool:
        first = max(first, self.committed)
        return first >= upto or any(a <= first and upto <= b for a, b in self._durable)

    def flush(self, now_ms: int) -> None:
        """Tell the service now what was committed, or as soon as the command under way, which says less, is answered."""
        self.due_ms = 0
        self._tell(now_ms)

    def told_by_flush(self) -> Told:
        """Return what `flush` tells: everything below an offset, and ranges above it."""
        return self.current, () if self._plain else self._tracking.committed_ranges(RANGES_MAX)

    def knows(self, told: Told) -> bool:
        """Return whether the service has stored these commits, as far as it keeps them."""
        committed, ranges = told
        if self.committed < committed:
            return False
        return self.is_scattered or all(self._are_durable(a, b) for a, b in ranges)

    def _tell(self, at_ms: int) -> None:
        self._next_commit_ms = min(self._next_commit_ms, at_ms)

    def _hurry(self, now_ms: int) -> None:
        """Send a heartbeat at once, or as soon as the one under way, which says less, is answered."""
        self._urgent = True
        self._next_beat_ms = now_ms

    def release(self, now_ms: int, *, drain: bool) -> None:
        """Give the claim up: nothing more is fetched.

        With `drain`, wait for what the program has, for one interval at most; at most once also for what was
        claimed ahead, which nobody else would get. At least once a successor gets what was not handed out.
        """
        self.due_ms = 0
        if not self._releasing:
            self._releasing = True
            self._next_release_ms = now_ms
            self._drain_until_ms = now_ms + self.claim.heartbeat_ms
        if not drain:
            self._drain_until_ms = None
        self._staged.clear()
        if not drain or self.claim.mode is Mode.AT_LEAST_ONCE:
            self._ready.clear()

    # Time -------------------------------------------------------------------------------------------------------

    def on_time(self, now_ms: int) -> None:
        """Do what is due by this time, and set `due_ms`."""
        if self.ended is None:
            self._on_time(now_ms)
        self.due_ms = self._next_due_ms(now_ms)

    def _on_time(self, now_ms: int) -> None:
        if not self._beating and self._next_beat_ms <= now_ms and not self._release_sent:
            self._send_heartbeat(now_ms)
        if not self._committing and self._next_commit_ms <= now_ms and not self._release_sent:
            self._send_commit(now_ms)
        if self._releasing:
            self._go_on_releasing(now_ms)
            return
        if self._wants_fetch and self._next_fetch_ms <= now_ms and self.lease.holds(now_ms):
            self._send_fetch(now_ms)
        if self._wants_batch and self._next_batch_ms <= now_ms and self.lease.holds(now_ms):
            self._send_batch(now_ms)

    def _next_due_ms(self, now_ms: int) -> int:
        if self.ended is not None:
            return 0
        due = NEVER
        if not self._release_sent:
            if not self._beating:
                due = self._next_beat_ms
            if not self._committing:
                due = min(due, self._next_commit_ms)
        holds = self.lease.holds(now_ms)
        if self._releasing:
            if not self._release_sent and not self._batching:
                due = min(due, self._next_release_ms)
            if self._wants_batch and self._is_draining(now_ms):
                due = min(due, self._next_batch_ms)
        elif holds:
            if self._wants_fetch:
                due = min(due, self._next_fetch_ms)
            if self._wants_batch:
                due = min(due, self._next_batch_ms)
        return due

    @property
    def _deadline_after_ms(self) -> int:
        return min(self._options.request_timeout_ms, max(1, self.claim.heartbeat_ms // 4))

    @property
    def _retry_wait_ms(self) -> int:
        return min(self._options.request_retry_wait_ms, max(1, self.claim.heartbeat_ms // 8))

    # Heartbeats -------------------------------------------------------------------------------------------------

    def _send_heartbeat(self, now_ms: int) -> None:
        self._beat += 1
        self._urgent = False
        beat, committed = self._beat, self.current
        self._beating = True
        # This happens before it is sent, and so before anybody can have heard it.
        self.lease.on_sent(beat, now_ms)

        def then(answer: ClaimAnswer | None, now_ms: int) -> None:
            self._on_heartbeat(beat, answer, now_ms)

        command = Heartbeat(self.group, self.epoch, beat, committed)
        self._submit(command, now_ms, then)

    def _on_heartbeat(self, beat: int, answer: ClaimAnswer | None, now_ms: int) -> None:
        self.due_ms = 0
        self._beating = False
        if answer is None:
            self._next_beat_ms = now_ms + self._retry_wait_ms
            return
        if not self._is_owner(answer, now_ms):
            return
        self.lease.on_confirmed(beat)
        interval = self.claim.heartbeat_ms
        wait_ms = self._rng.randint(interval // 4, 3 * interval // 4)
        self._next_beat_ms = now_ms if self._urgent else now_ms + wait_ms
        behind = self.health.on_beat(now_ms, self.current, self._end_for_health)
        may_release = self._options.release_claims_if_behind and not self._options.claim_entire_topic
        if behind and may_release and self.claim.upto is None:
            self.release(now_ms, drain=True)

    @property
    def _end_for_health(self) -> int:
        return max(self.end, self.current)

    def _is_owner(self, answer: ClaimAnswer, now_ms: int) -> bool:
        """Note an answer to a command under this claim; return False if the claim is over."""
        if isinstance(answer, Refused):
            # FENCED says so itself. Whatever else is refused, this owner is mistaken about its claim and must stop.
            gave_up = self._release_sent and answer.reason is Reason.FENCED
            self._end(Ended.RELEASED if gave_up else Ended.LOST)
            return False
        assert isinstance(answer, Accepted), f"{answer!r:.80} to a command under a claim"
        if answer.committed > self.committed:
            self.committed = answer.committed
            if self.is_scattered:
                self.is_scattered = False  # a gap closed, and there may be room again
                self._tell(now_ms)
        if answer.ended:
            self._end(Ended.RELEASED if self._release_sent else Ended.COMPLETE)
            return False
        if answer.paused and not self._releasing:
            self.release(now_ms, drain=True)
        return True

    def _end(self, why: Ended) -> None:
        if self.ended is None:
            self.ended = why
            self._ready.clear()
            self._staged.clear()
            self._batch = None

    # Commits ----------------------------------------------------------------------------------------------------

    def _send_commit(self, now_ms: int) -> None:
        """Send all that was committed since, in one command."""
        self._next_commit_ms = NEVER
        committed, ranges = self.told_by_flush()
        if self.is_scattered:
            ranges = self._durable
        if committed <= self.committed and ranges == self._durable:
            return
        command: Commit | CommitRanges = Commit(self.group, self.epoch, committed)
        if ranges != self._durable:
            command = CommitRanges(self.group, self.epoch, committed, ranges)
        self._committing = True

        def then(answer: ClaimAnswer | None, now_ms: int) -> None:
            self._on_commit(ranges, answer, now_ms)

        self._submit(command, now_ms, then)

    def _on_commit(self, ranges: tuple[Range, ...], answer: ClaimAnswer | None, now_ms: int) -> None:
        self.due_ms = 0
        self._committing = False
        if answer is None:
            self._tell(now_ms + self._retry_wait_ms)
        elif isinstance(answer, Refused) and answer.reason is Reason.FULL:
            self.is_scattered = True
            self._tell(now_ms)
        elif self._is_owner(answer, now_ms):
            self._durable = ranges

    # Fetching ---------------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        room = (
            self._options.queue_max - self._tracking.outstanding - len(self._staged) - len(self._batch or ())
        )
        return room if self.claim.upto is None else min(room, self.claim.upto - self._fetch_from)

    @property
    def _wants_fetch(self) -> bool:
        return not self._fetching and self._room > 0

    def _send_fetch(self, now_ms: int) -> None:
        self._fetching = True
        # A waiting fetch may be kept waiting; nothing depends on when the answer comes.
        deadline = now_ms + self._options.request_timeout_ms
        self._requests.fetch(
            self.topic, self.partition, self._fetch_from, self._room, deadline, self._on_fetched
        )

    def _on_fetched(self, fetched: Fetched | None, now_ms: int) -> None:
        self.due_ms = 0
        self._fetching = False
        if fetched is None:
            self._next_fetch_ms = now_ms + self._retry_wait_ms
            return
        self.end = max(self.end, fetched.end)
        if self.ended is not None or self._releasing:
            return
        upto = self.claim.upto
        for record in fetched.records:
            if upto is not None and record.offset >= upto:
                self._fetch_from = upto
                break
            if record.offset < self._fetch_from:
                continue
            self._fetch_from = record.offset + 1
            if not any(a <= record.offset < b for a, b in self._skips):
                self._take(record)
        if not fetched.records:
            # Retention may have removed what would have come next.
            self._fetch_from = max(self._fetch_from, min(fetched.earliest, fetched.end))
            if upto is not None:
                self._fetch_from = min(self._fetch_from, upto)
        self._pass_over_skips()
        self._next_fetch_ms = now_ms if fetched.records else now_ms + self._options.poll_ms
        if upto is not None and self.current >= upto:
            self._hurry(now_ms)

    def _take(self, record: Record) -> None:
        if self.claim.mode is Mode.AT_MOST_ONCE:
            self._staged.append(record)
        else:
            self._tracking.add(record.offset)
            self._ready.append(record)

    def _pass_over_skips(self) -> None:
        """Continue behind what earlier claims have processed."""
        for a, b in self._skips:
            if a <= self._fetch_from < b:
                self._fetch_from = b if self.claim.upto is None else min(b, self.claim.upto)
        if self.claim.mode is Mode.AT_LEAST_ONCE:
            self._tracking.skip_to(self._fetch_from)

    # At most once -----------------------------------------------------------------------------------------------

    @property
    def _wants_batch(self) -> bool:
        if self.claim.mode is not Mode.AT_MOST_ONCE or self._batching:
            return False
        if self._batch is not None:
            return True
        if self._releasing or len(self._ready) >= self._options.batch_messages:
            return False
        # The rest of a range may hold no message any more; it is claimed all the same, to complete it.
        is_rest = self.claim.upto is not None and self._batch_upto < self.claim.upto <= self._fetch_from
        return bool(self._staged) or is_rest

    def _send_batch(self, now_ms: int) -> None:
        """Claim the next batch; one that was not answered is asked for again unchanged."""
        if self._batch is None:
            count = min(len(self._staged), self._options.batch_messages)
            self._batch = tuple(self._staged.popleft() for _ in range(count))
            # Up to where the next message is, so that what needs no processing is claimed along.
            self._batch_upto = self._staged[0].offset if self._staged else self._fetch_from
        self._batching = True
        self._submit(CommitBatch(self.group, self.epoch, self._batch_upto), now_ms, self._on_batch)

    def _on_batch(self, answer: ClaimAnswer | None, now_ms: int) -> None:
        self.due_ms = 0
        self._batching = False
        if self.ended is not None or (answer is not None and not self._is_owner(answer, now_ms)):
            return
        if answer is None:
            self._next_batch_ms = now_ms + self._retry_wait_ms
            return
        assert self._batch is not None, "an answer about no batch"
        for record in self._batch:
            self._tracking.add(record.offset)
        if not self._releasing or self._drain_until_ms is not None:
            self._ready.extend(self._batch)
        self._batch = None
        self._tracking.skip_to(self._batch_upto)
        if self.claim.upto is not None and self.current >= self.claim.upto:
            self._hurry(now_ms)

    # Releasing --------------------------------------------------------------------------------------------------

    def _go_on_releasing(self, now_ms: int) -> None:
        if now_ms >= self.lease.lapses_ms + self.claim.heartbeat_ms:
            # Unheard for so long, it has expired, or will without us.
            self._end(Ended.LOST)
            return
        draining = self._is_draining(now_ms)
        if draining and self._wants_batch and self._next_batch_ms <= now_ms:
            self._send_batch(now_ms)
        if self._release_sent or self._batching or self._next_release_ms > now_ms:
            return
        if draining and (self._handed_out or self._ready or self._batch is not None):
            self._next_release_ms = now_ms + self._retry_wait_ms
            return
        if not self.knows((self.committed, self.told_by_flush()[1])):
            # A release tells only what is processed without a gap.
            if not self._committing:
                self._send_commit(now_ms)
            return
        self._release_sent = True
        self._ready.clear()
        self._submit(Release(self.group, self.epoch, self.current), now_ms, self._on_released)

    def _is_draining(self, now_ms: int) -> bool:
        until = self._drain_until_ms
        return until is not None and now_ms < until and self.lease.holds(now_ms)

    def _on_released(self, answer: ClaimAnswer | None, now_ms: int) -> None:
        self.due_ms = 0
        if answer is None:
            self._release_sent = False
            self._next_release_ms = now_ms + self._retry_wait_ms
        elif isinstance(answer, Refused) and answer.reason is Reason.FENCED:
            # An earlier copy did it, or it expired meanwhile.
            self._end(Ended.RELEASED)
        else:
            self._is_owner(answer, now_ms)

    def _submit(
        self,
        command: Heartbeat | Commit | CommitRanges | CommitBatch | Release,
        now_ms: int,
        then: Then,
    ) -> None:
        deadline = now_ms + self._deadline_after_ms
        self._requests.submit(self.topic, self.partition, command, deadline, then)
