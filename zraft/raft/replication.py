"""Replication of a leader's entries: what each follower gets next, and what is asked for again.

It makes messages and notes that they leave; when they may leave is not decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zraft.raft.log import ENTRY_OVERHEAD_BYTES, Log, entry_bytes
from zraft.raft.matching import next_probe
from zraft.raft.messages import AppendEntries, AppendEntriesReply, Entry
from zraft.raft.progress import Progress, ProgressState
from zraft.raft.settings import RaftSettings
from zraft.raft.statistics import FollowerStatistics
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ServerId


class Replication:
    """The followers of one leadership after the other, and the messages with entries for them.

    What is true of no follower, as mostly, need not be looked for: flags say that it may be true of one.

    Attributes:
        followers: the progress of each; empty while not leading.
        unsent: whether a follower may lack entries that were not sent to it. Whoever appends one says so.
        commits_moved: whether a follower may wait for a commit that it was not told, or what followers were told of
            commits has changed. Whoever has looked into that says so.
        puts_off: whether a follower's entries were put off, see `appends`.
        may_need_snapshot: whether the next entry of a follower may be older than the log. Whoever shortens the log says
            so.
    """

    __slots__ = (
        "_bulk_bytes_min",
        "_group",
        "_log",
        "_newest",
        "_newest_bytes",
        "_newest_is_full",
        "_settings",
        "_term",
        "commits_moved",
        "followers",
        "may_need_snapshot",
        "puts_off",
        "unsent",
    )

    def __init__(self, group: GroupId, settings: RaftSettings, log: Log) -> None:
        self._group = group
        self._settings = settings
        self._log = log
        self._term = 0
        self.followers: dict[ServerId, Progress] = {}
        self._bulk_bytes_min: dict[ServerId, int] = {}
        self._newest: AppendEntries | None = None
        """The last one that was made: followers that are equally far get the same, which is packed once."""
        self._newest_bytes = 0
        self._newest_is_full = False
        """Whether entries that were appended since would not be in it: it may wait for a window in which it has room."""
        self.unsent = self.commits_moved = self.may_need_snapshot = self.puts_off = False

    def lead(self, term: int, followers: Iterable[ServerId]) -> None:
        """Begin a leadership: where a follower's log matches is unknown, so the end is tried first."""
        self._term = term
        self._newest = None
        self.unsent = self.commits_moved = self.may_need_snapshot = True
        self.puts_off = False
        next_index = self._log.last_index + 1
        self.followers = {server: self._progress(server, next_index) for server in followers}

    def add(self, server: ServerId) -> None:
        """Add a member, or another disk of one: nothing is known of it, and its acknowledgements begin anew.

        The entry that made it one is tried first: without an entry to send, it could not be asked where it stands.
        """
        self.followers[server] = self._progress(server, self._log.last_index)
        self.unsent = self.commits_moved = self.may_need_snapshot = True

    def _progress(self, server: ServerId, next_index: int) -> Progress:
        progress = Progress(server, next_index, self._settings)
        progress.bulk_bytes_min = self._bulk_bytes_min.get(server, self._settings.bulk_bytes_min)
        return progress

    def set_bulk_bytes_min(self, server: ServerId, size: int) -> None:
        """Set the size from which messages to that server go by a stream.

        They take longer and must not be overtaken (D-22).
        """
        self._bulk_bytes_min[server] = size
        progress = self.followers.get(server)
        if progress is not None:
            progress.bulk_bytes_min = size

    def remove(self, server: ServerId) -> None:
        """Stop replicating to a server."""
        self.followers.pop(server, None)
        self.commits_moved = True

    def stop(self) -> None:
        """Stop replicating to all servers."""
        self.followers.clear()
        self._newest = None
        self.unsent = self.commits_moved = self.may_need_snapshot = self.puts_off = False

    def appends(
        self, now: int, commit_index: int, put_off: Collection[ServerId] = ()
    ) -> list[tuple[ServerId, AppendEntries]]:
        """Return all that the windows of the followers let leave now, in order, by receiver.

        Args:
            put_off: followers that get nothing now. What they lack is sent by the next call that does not name them.
        """
        appends: list[tuple[ServerId, AppendEntries]] = []
        last_index = self._log.last_index
        self.unsent = False
        self.commits_moved = True
        self.puts_off = bool(put_off)
        for progress in self.followers.values():
            progress.put_off = progress.server in put_off
            if progress.put_off or progress.next_index > last_index:
                continue
            if progress.state is ProgressState.REPLICATE and progress.next_index >= self._log.first_index:
                self._stream(progress, now, commit_index, appends)
            else:
                self._probe(progress, now, commit_index, appends)
            if progress.next_index <= last_index:
                self.unsent = True
        return appends

    def _stream(
        self,
        progress: Progress,
        now: int,
        commit_index: int,
        appends: list[tuple[ServerId, AppendEntries]],
    ) -> None:
        """Add what a follower lacks whose log is known to match, ahead of its acknowledgements."""
        log, settings = self._log, self._settings
        last_index = log.last_index
        while progress.next_index <= last_index and (
            not progress.inflight or progress.inflight_messages < settings.inflight_messages_max
        ):
            newest = self._newest
            if (
                newest is None
                or newest.prev_log_index + 1 != progress.next_index
                or not (self._newest_is_full or newest.entries[-1].index == last_index)
            ):
                entries = log.slice(progress.next_index, last_index + 1, settings.append_bytes_max)
                self._newest = newest = self._append(entries, commit_index)
                self._newest_is_full = entries[-1].index < last_index
                size = 0
                for entry in entries:
                    size += len(entry.payload) + ENTRY_OVERHEAD_BYTES
                self._newest_bytes = size
            elif newest.leader_commit != commit_index:
                self._newest = newest = self._append(newest.entries, commit_index)
            size = self._newest_bytes
            if progress.inflight and not progress.may_send(size):
                return
            last_sent = newest.entries[-1].index
            progress.sent(last_sent, size, now, commit_index if commit_index < last_sent else last_sent)
            appends.append((progress.server, newest))

    def _probe(
        self,
        progress: Progress,
        now: int,
        commit_index: int,
        appends: list[tuple[ServerId, AppendEntries]],
    ) -> None:
        """Add the entry at which a follower's log may match, unless its answer is awaited or needs a snapshot."""
        log, next_index = self._log, progress.next_index
        if next_index < log.first_index:
            if progress.state is not ProgressState.SNAPSHOT:
                progress.await_snapshot(now)
        elif progress.state is ProgressState.PROBE and not progress.inflight:
            entries = log.slice(next_index, next_index + 1, 0)
            probe = self._append(entries, commit_index)
            progress.sent(next_index, entry_bytes(entries[0]), now, min(commit_index, next_index))
            appends.append((progress.server, probe))

    def ask_again(self, progress: Progress, now: int, commit_index: int) -> AppendEntries | None:
        """Return the last entry on its way again: the answer covers all before it, or says what is missing.

        None for a follower that is probed: the next `appends` repeats the probe.
        """
        if progress.state is ProgressState.PROBE:
            self._probe_from(progress, progress.next_index)
            return None
        if progress.next_index <= self._log.first_index:
            self._probe_from(
                progress, self._log.first_index
            )  # that entry was compacted; the first left may do
            return None
        progress.waiting_since = now
        last_sent = progress.next_index - 1
        again = self._append(self._log.slice(last_sent, last_sent + 1, 0), commit_index)
        progress.commit_sent = max(progress.commit_sent, min(commit_index, last_sent))
        self.commits_moved = True
        return again

    def on_reply(self, progress: Progress, reply: AppendEntriesReply, now: int) -> bool:
        """Take a follower's answer; True if it holds more than was known.

        Raises:
            ProtocolError: it acknowledges what was never sent.
        """
        progress.heard_at = now
        if reply.accepted:
            if reply.match_index > self._log.last_index:
                raise ProtocolError(
                    f"server {progress.server} acknowledges entry {reply.match_index} in term {self._term}, "
                    f"the log ends at {self._log.last_index}"
                )
            return progress.accepted(reply.match_index, now)
        if progress.state is ProgressState.SNAPSHOT:
            if reply.conflict_term == 0 and reply.conflict_index >= self._log.first_index:
                # It tells where its log ends since it took a snapshot; what it holds there is asked.
                self._probe_from(progress, min(reply.conflict_index, self._log.last_index))
        elif progress.is_current_refusal(reply.prev_log_index):
            self._probe_from(progress, next_probe(self._log, reply))
        return False

    def on_last_index(self, progress: Progress, last_index: int, now: int) -> None:
        """Take a follower's hint about the end of its log, which came with an answer to its newest heartbeat."""
        if progress.state is ProgressState.REPLICATE and last_index >= progress.beat_next - 1:
            return  # it lacks nothing, as nearly always
        if progress.misses(last_index, now):
            self._probe_from(progress, last_index + 1)
        elif progress.may_have_restored(last_index, self._log.first_index, now):
            self._probe_from(progress, min(last_index + 1, self._log.last_index))

    def _probe_from(self, progress: Progress, next_index: int) -> None:
        progress.probe_from(next_index)
        self.unsent = self.may_need_snapshot = True

    def await_commit(self, server: ServerId, index: int) -> None:
        """Note that clients of a follower, if it is one, wait for it to hear of the commit of `index`."""
        progress = self.followers.get(server)
        if progress is not None and progress.awaits < index:
            progress.awaits = index
            self.commits_moved = True

    def needing_snapshot(self) -> tuple[ServerId, ...]:
        """Return the followers whose next entry is older than the log."""
        first_index = self._log.first_index
        needing: tuple[ServerId, ...] = ()
        for progress in self.followers.values():
            if progress.next_index < first_index:
                needing += (progress.server,)
        self.may_need_snapshot = bool(needing)
        return needing

    def statistics(self) -> tuple[FollowerStatistics, ...]:
        """Return the statistics of all followers."""
        return tuple(
            FollowerStatistics(
                server=progress.server,
                state=progress.state,
                match_index=progress.match_index,
                next_index=progress.next_index,
                inflight_messages=progress.inflight_messages,
                inflight_bytes=progress.inflight_bytes,
                needs_snapshot=progress.next_index < self._log.first_index,
            )
            for progress in self.followers.values()
        )

    def _append(self, entries: tuple[Entry, ...], commit_index: int) -> AppendEntries:
        prev = entries[0].index - 1
        return AppendEntries(self._group, self._term, prev, self._log.term_at(prev), commit_index, entries)
