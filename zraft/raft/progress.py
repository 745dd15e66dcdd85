"""Progress of one follower as the leader knows it: the match, what is on its way, and when to ask again.

PROBE: where the logs match is not known (or was lost); one message of one entry at a time until it is.
REPLICATE: entries are sent ahead of their acknowledgements, within a window of messages and bytes.
SNAPSHOT: its next entry is no longer in the leader's log; it gets heartbeats only, until it says that it holds
a snapshot that reaches the log.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from zraft.raft.settings import RaftSettings
from zraft_core.ids import ServerId


class ProgressState(Enum):
    """Ways in which a leader sends entries to a follower."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """One follower, within one leadership.

    `match_index < next_index` always; `match_index` never falls, because only an acknowledgement of verified,
    durable entries raises it (never a heartbeat's reply, whose last index is a hint).

    Attributes:
        inflight: (last index, bytes, bulk) of messages that are not acknowledged.
    """

    __slots__ = (
        "_bulk_inflight",
        "_settings",
        "awaits",
        "beat_next",
        "beat_round",
        "bulk_bytes_min",
        "commit_sent",
        "heard_at",
        "inflight",
        "inflight_bytes",
        "match_index",
        "next_index",
        "put_off",
        "round",
        "server",
        "state",
        "waiting_since",
    )

    def __init__(self, server: ServerId, next_index: int, settings: RaftSettings) -> None:
        self.server = server
        self.state = ProgressState.PROBE
        self.match_index = 0
        self.next_index = next_index
        self.inflight_bytes = 0
        self.commit_sent = 0  # highest commit index that a message sent to it lets it use
        self.awaits = 0  # newest committed entry for which clients of it wait, so that it is told at once
        self.round = 0  # newest round it answered
        self.beat_round = 0  # newest round sent to it, and next_index then
        self.beat_next = 0
        self.heard_at = -1  # tick of its last answer in this leadership
        self.put_off = False  # what it lacks waits for more, because a quorum has it without this follower
        self.waiting_since = 0  # tick of the last progress, or of the last message after a pause
        self.bulk_bytes_min = settings.bulk_bytes_min  # less where a path loses datagrams
        self.inflight: deque[tuple[int, int, bool]] = deque()
        self._bulk_inflight = 0
        self._settings = settings

    @property
    def inflight_messages(self) -> int:
        """The number of messages that are not acknowledged."""
        return len(self.inflight)

    def may_send(self, size: int) -> bool:
        """Return whether a message of `size` bytes may follow those under way.

        It must keep to the window, and overtake no bulk message (D-22).
        """
        if self._bulk_inflight and size < self.bulk_bytes_min:
            return False
        return self.inflight_bytes + size <= self._settings.inflight_bytes_max

    def sent(self, last_index: int, size: int, now: int, commit_index: int) -> None:
        """Note that a message left, with entries of `size` bytes up to `last_index`.

        Args:
            commit_index: up to where the message lets it use its entries.
        """
        if commit_index > self.commit_sent:
            self.commit_sent = commit_index
        if not self.inflight:
            self.waiting_since = now
        bulk = size >= self.bulk_bytes_min
        self.inflight.append((last_index, size, bulk))
        self.inflight_bytes += size
        self._bulk_inflight += bulk
        if self.state is ProgressState.REPLICATE:
            self.next_index = last_index + 1

    def accepted(self, match_index: int, now: int) -> bool:
        """Note that the follower holds the leader's log up to `match_index`, durably.

        Return False if that was known.
        """
        if match_index <= self.match_index:
            return False
        self.match_index = match_index
        self.waiting_since = now
        inflight = self.inflight
        while inflight and inflight[0][0] <= match_index:
            _, size, bulk = inflight.popleft()
            self.inflight_bytes -= size
            self._bulk_inflight -= bulk
        if match_index >= self.next_index:
            self.next_index = match_index + 1
            self.state = ProgressState.REPLICATE
        return True

    def is_current_refusal(self, prev_log_index: int) -> bool:
        """Return whether a refusal tells anything new.

        If a pipeline is refused as a whole, only the first one does.
        """
        if self.state is ProgressState.PROBE:
            return prev_log_index == self.next_index - 1
        return self.match_index < prev_log_index < self.next_index

    def probe_from(self, next_index: int) -> None:
        """Forget what is on its way and try `next_index`, since something was lost or does not match."""
        self.state = ProgressState.PROBE
        self.next_index = max(self.match_index + 1, next_index)
        self._forget_all()

    def await_snapshot(self, now: int) -> None:
        """Wait until the follower has a snapshot, since its next entry is gone; none is sent from here."""
        self.state = ProgressState.SNAPSHOT
        self.waiting_since = now
        self._forget_all()

    def may_have_restored(self, last_index: int, first_index: int, now: int) -> bool:
        """Return whether a log that ends at `last_index` may be that of the snapshot, whose answer was lost.

        Asked once in an election timeout: an old log that is long but conflicts looks the same.
        """
        if self.state is not ProgressState.SNAPSHOT or last_index < first_index - 1:
            return False
        if now - self.waiting_since < self._settings.election_timeout_ticks:
            return False
        self.waiting_since = now
        return True

    def misses(self, last_index: int, now: int) -> bool:
        """Return whether a log that ends at `last_index` lacks what was sent before the newest heartbeat.

        A bulk message may still be on its way when the heartbeat sent after it arrives (D-22).
        """
        if self.state is not ProgressState.REPLICATE or last_index >= self.beat_next - 1:
            return False
        return not self._bulk_inflight or now - self.waiting_since >= self._settings.bulk_resend_ticks

    def is_overdue(self, now: int) -> bool:
        """Return whether an acknowledgement is missing for so long that it must be asked for.

        A follower that answers nothing gets heartbeats only: its silence does not fill anybody's buffers.
        """
        if not self.inflight or self.heard_at <= self.waiting_since:
            return False
        settings = self._settings
        patience = settings.bulk_resend_ticks if self._bulk_inflight else settings.resend_ticks
        return now - self.waiting_since >= patience

    @property
    def due_at(self) -> int | None:
        """The tick from which `is_overdue` may be true; None if nothing is on its way, or nothing is heard."""
        if not self.inflight or self.heard_at <= self.waiting_since:
            return None
        settings = self._settings
        patience = settings.bulk_resend_ticks if self._bulk_inflight else settings.resend_ticks
        return self.waiting_since + patience

    def _forget_all(self) -> None:
        self.inflight.clear()
        self.inflight_bytes = self._bulk_inflight = 0
