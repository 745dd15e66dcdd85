"""The knobs of one Raft group, in ticks of one millisecond and in bytes, and what must hold between them."""

from __future__ import annotations

from math import inf
from typing import Final

from attrs import fields, frozen

from zraft_core.errors import ConfigError

NEVER: Final = inf
"""A tick that is later than all others."""

HEARTBEATS_PER_TIMEOUT_MIN = 3
"""Fewer heartbeats within an election timeout, and two lost datagrams would start an election."""


@frozen(kw_only=True)
class RaftSettings:
    """Every bound of the core. A value is checked by `validate`, which `Raft` calls before it uses them.

    Attributes:
        election_timeout_ticks: a follower campaigns after a silence drawn evenly from [this, 2 * this); a
            server that heard a leader more recently than this refuses to vote; a leader without a confirmed
            round for this long steps down.
        heartbeat_ticks: time between two rounds of heartbeats when nothing asks for one earlier, unless nothing
            is under way (`idle_heartbeat_ticks`); also how often a candidate repeats requests that were not
            answered.
        append_bytes_max: entries of one AppendEntries, at least one entry always.
        inflight_messages_max: unacknowledged AppendEntries per follower. Small on purpose: while the window
            is full, later entries gather into one message.
        inflight_bytes_max: the same in bytes; what a receiver's socket buffer must be able to hold.
        bulk_bytes_min: from this size on the transport uses a stream instead of datagrams (D-22). Such a
            message may be overtaken by later datagrams, so none is sent behind it and it gets more time.
        resend_ticks: an unacknowledged AppendEntries is asked for again after this.
        bulk_resend_ticks: the same while one of at least `bulk_bytes_min` is on its way.
        uncommitted_bytes_max: proposals are refused while more than this awaits its quorum, so that a leader
            without one does not fill its memory.
        pending_reads_max: ReadIndex requests held by the leader; more are dropped and asked again.
        commit_told_ticks: by when all followers know of a commit. Those for whose clients it matters are told at once.
        put_off_ticks: so long entries for followers that no quorum needs gather, if they come so soon one after
            the other.
        put_off_ticks_max: by when they are sent if none follows and the commit was not told: the quorum may be
            slow, or dead.
        at_once_bytes_min: from this size on entries are sent to all followers at once, as what they cost is their
            bytes and not the round; 1: nothing is put off.
    """

    election_timeout_ticks: int = 300
    heartbeat_ticks: int = 50
    append_bytes_max: int = 512 * 1024
    inflight_messages_max: int = 8
    inflight_bytes_max: int = 2 * 1024 * 1024
    bulk_bytes_min: int = 8 * 1200
    resend_ticks: int = 50
    bulk_resend_ticks: int = 1000
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    pending_reads_max: int = 10_000
    commit_told_ticks: int = 3
    put_off_ticks: int = 3
    put_off_ticks_max: int = 6
    at_once_bytes_min: int = 16 * 1024

    @property
    def idle_heartbeat_ticks(self) -> int:
        """Time between two rounds while nothing is under way: as long as the election timeout allows.

        Such a round only says that all still live. What is sent after it, and may be lost, brings the next one forward.
        """
        return max(self.heartbeat_ticks, self.election_timeout_ticks // HEARTBEATS_PER_TIMEOUT_MIN)

    @property
    def lost_leader_ticks(self) -> int:
        """A silence that is long enough to replace a leader, once the connection to its process has ended.

        A leader that lives is heard before: its rounds come every `idle_heartbeat_ticks`, and may be a little late.
        """
        return self.idle_heartbeat_ticks + self.heartbeat_ticks

    def validate(self) -> None:
        """Check each value and the relations between them.

        Raises:
            ConfigError: names the knob, what was found and what it must be.
        """
        for field in fields(RaftSettings):
            value = getattr(self, field.name)
            if value < 1:
                raise ConfigError(f"raft.{field.name} is {value}, it must be at least 1")
        if self.election_timeout_ticks < HEARTBEATS_PER_TIMEOUT_MIN * self.heartbeat_ticks:
            raise ConfigError(
                f"raft.election_timeout_ticks is {self.election_timeout_ticks}, it must be at least "
                f"{HEARTBEATS_PER_TIMEOUT_MIN} * raft.heartbeat_ticks ({self.heartbeat_ticks}): "
                "a lost heartbeat must not start an election"
            )
        if self.inflight_bytes_max < self.append_bytes_max:
            raise ConfigError(
                f"raft.inflight_bytes_max is {self.inflight_bytes_max}, it must be at least "
                f"raft.append_bytes_max ({self.append_bytes_max}): one message must fit the window"
            )
        if self.put_off_ticks_max < self.put_off_ticks:
            raise ConfigError(
                f"raft.put_off_ticks_max is {self.put_off_ticks_max}, it must be at least "
                f"raft.put_off_ticks ({self.put_off_ticks}): entries that gather are sent by then"
            )
        if self.bulk_resend_ticks < self.resend_ticks:
            raise ConfigError(
                f"raft.bulk_resend_ticks is {self.bulk_resend_ticks}, it must be at least "
                f"raft.resend_ticks ({self.resend_ticks}): a stream is slower than a datagram"
            )
