"""Pace of this server's disk beside that of the others, and what follows for the leadership.

A leader whose disk is slow, stuck or full holds up only its own clients: the others commit without it. But it
answers these clients late, or not at all, and every election that it wins begins with a write. So it hands
its leadership over when the others are clearly faster, and a server with a write that does not end does not
stand for election. If all disks are equally slow, nothing can be gained, and nothing is done.

Writes are measured by the clock of turns, so one that the loop did itself takes no time here. That hides no slow
disk: after a single long sync of the loop the thread does the next ones, and these are measured
(`zraft.server.process.sync_pace`). While the loop syncs, its server is silent, and needs nobody to hold it back.

Pure.
"""

from __future__ import annotations

from typing import Final

from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft_core.ids import ServerId

SLOW_IN_A_ROW: Final = 3
"""The leadership is handed over after this many slow writes, each of them committed by the others meanwhile."""

RETRY_MS: Final = 5_000
"""How long after a handover that failed the next one is tried."""

COOL_DOWN_MS: Final = 60_000
"""How long after a successful handover no other is tried: two servers with bad disks must not play ping-pong."""


def best_successor(raft: Raft, at_least: int = 0) -> ServerId | None:
    """Return the voter that answers and holds most of the log, and at least up to `at_least`; None if there is none."""
    answering = raft.followers_at(at_least)
    matches = {follower.server: follower.match_index for follower in raft.statistics().followers}
    able = [server for server in raft.membership.voters if server != raft.server and server in answering]
    return max(able, key=lambda server: (matches.get(server, 0), -server), default=None)


class DiskPace:
    """A stopwatch for the writes of one server's log, in milliseconds that this process ran.

    Attributes:
        notices: sentences about what was decided, for the log; the process takes them.
        handovers_total: how often the leadership was handed over because of the disk, or that was tried.
    """

    def __init__(self, slow_ms: int, election_timeout_ms: int) -> None:
        """Begin without a write.

        Args:
            slow_ms: a write that takes this long is slow; 0 means that none is, and only a full disk counts.
        """
        self._slow_ms = slow_ms
        self._full_ms = election_timeout_ms
        self._began: int | None = None
        self._slow = 0
        self._full = False
        self._next_at = 0
        self._tried = False
        self.notices: list[str] = []
        self.handovers_total = 0

    # -- what is measured

    def began(self, run_ms: int) -> None:
        """Take note that a frame was given to the disk."""
        self._began = run_ms

    def ended(self, run_ms: int, *, overtaken: bool) -> None:
        """Take note that the frame is durable.

        Args:
            overtaken: whether the others committed what it holds before that.
        """
        began, self._began = self._began, None
        if began is None:
            return
        if overtaken and self._slow_ms and run_ms - began >= self._slow_ms:
            self._slow += 1
        else:
            self._slow = 0

    def full(self, is_full: bool) -> None:
        """Take note that the disk has no room for the frame under way, or has room again."""
        self._full = is_full

    # -- what follows

    def is_stuck(self, run_ms: int) -> bool:
        """Return whether the write under way does not end, so that this server could not even vote for itself."""
        if self._began is None:
            return False
        age = run_ms - self._began
        return (self._full and age >= self._full_ms) or (
            self._slow_ms > 0 and age >= SLOW_IN_A_ROW * self._slow_ms
        )

    def step(self, raft: Raft, run_ms: int) -> None:
        """Do the turn's share: hold back from elections, or hand the leadership over."""
        stuck = self._began is not None and self.is_stuck(run_ms)
        raft.holds_back = stuck
        if raft.role is not Role.LEADER:
            if self._tried:
                self._tried = False
                self._slow = 0
                self._next_at = run_ms + COOL_DOWN_MS
            return
        if not (stuck or self._slow >= SLOW_IN_A_ROW) or run_ms < self._next_at or raft.transferring:
            return
        if stuck and raft.commit_index <= raft.durable_index:
            # The others commit no faster.
            return
        target = best_successor(raft, raft.commit_index)
        if target is None or not raft.transfer_leadership(target):
            return
        self._next_at = run_ms + RETRY_MS
        self._tried = True
        self.handovers_total += 1
        self.notices.append(f"{self._why(run_ms, stuck)}: server {target} is to lead instead")

    def _why(self, run_ms: int, stuck: bool) -> str:
        if stuck and self._full:
            return "the disk of this leader is full, and those of the others are not"
        if stuck:
            assert self._began is not None
            return (
                f"a write of this leader has not ended after {run_ms - self._began} ms, and the others' have"
            )
        return (
            f"{self._slow} writes in a row took this leader {self._slow_ms} ms or more (wal.slow_fsync_ms), and the "
            "others were faster"
        )
