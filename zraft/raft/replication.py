"""Replication of a leader's entries: what each follower gets next, and what is asked for again.

It makes messages and notes that they leave; when they may leave is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zraft.raft.log import Log, entry_bytes
from zraft.raft.matching import next_probe
from zraft.raft.messages import AppendEntries, AppendEntriesReply, Entry
from zraft.raft.progress import Progress, ProgressState
from zraft.raft.settings import RaftSettings
from zraft.raft.statistics import FollowerStatistics
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ServerId


class Replication:
    """The followers of one leadership after the other, and the messages with entries for them.

    Attributes:
        followers: the progress of each; empty while not leading.
    """

    __slots__ = (
        "_bulk_bytes_min",
        "_group",
        "_log",
        "_newest",
        "_newest_bytes",
        "_settings",
        "_term",
        "followers",
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

    def lead(self, term: int, followers: Iterable[ServerId]) -> None:
        """Begin a leadership: where a follower's log matches is unknown, so the end is tried first."""
        self._term = term
        self._newest = None
        next_index = self._log.last_index + 1
        self.followers = {server: self._progress(server, next_index) for server in followers}

    def add(self, server: ServerId) -> None:
        """Add a member, or another disk of one: nothing is known of it, and its acknowledgements begin anew.

        The entry that made it one is tried first: without an entry to send, it could not be asked where it stands.
        """
        self.followers[server] = self._progress(server, self._log.last_index)

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

    def stop(self) -> None:
        """Stop replicating to all servers."""
        self.followers.clear()
        self._newest = None

    def appends(self, progress: Progress, now: int, commit_index: int) -> Iterator[AppendEntries]:
        """Yield all that its window lets leave now."""
        log = self._log
        if progress.next_index < log.first_index:
            if progress.state is not ProgressState.SNAPSHOT:
                progress.await_snapshot(now)
            return
        if progress.state is ProgressState.PROBE:
            if not progress.inflight_messages:
                entries = log.slice(progress.next_index, progress.next_index + 1, 0)
                progress.sent(entries[-1].index, entry_bytes(entries[0]), now)
                probe = self._append(entries, commit_index)
                progress.tell_commit(probe)
                yield probe
            return
        settings = self._settings
        last_index = log.last_index
        while (
            progress.next_index <= last_index and progress.inflight_messages < settings.inflight_messages_max
        ):
            newest = self._newest
            if (
                newest is None
                or newest.prev_log_index + 1 != progress.next_index
                or newest.entries[-1].index != last_index
                or newest.leader_commit != commit_index
            ):
                entries = log.slice(progress.next_index, last_index + 1, settings.append_bytes_max)
                self._newest = newest = self._append(entries, commit_index)
                self._newest_bytes = sum(map(entry_bytes, entries))
            if not progress.may_send(self._newest_bytes):
                return
            progress.sent(newest.entries[-1].index, self._newest_bytes, now)
            progress.tell_commit(newest)
            yield newest

    def ask_again(self, progress: Progress, now: int, commit_index: int) -> AppendEntries | None:
        """Return the last entry on its way again: the answer covers all before it, or says what is missing.

        None for a follower that is probed: the next `appends` repeats the probe.
        """
        if progress.state is ProgressState.PROBE:
            progress.probe_from(progress.next_index)
            return None
        if progress.next_index <= self._log.first_index:
            progress.probe_from(self._log.first_index)  # that entry was compacted; the first left may do
            return None
        progress.waiting_since = now
        again = self._append(self._log.slice(progress.next_index - 1, progress.next_index, 0), commit_index)
        progress.tell_commit(again)
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
                progress.probe_from(min(reply.conflict_index, self._log.last_index))
        elif progress.is_current_refusal(reply.prev_log_index):
            progress.probe_from(next_probe(self._log, reply))
        return False

    def on_last_index(self, progress: Progress, last_index: int, now: int) -> None:
        """Take a follower's hint about the end of its log, which came with an answer to its newest heartbeat."""
        if progress.misses(last_index, now):
            progress.probe_from(last_index + 1)
        elif progress.may_have_restored(last_index, self._log.first_index, now):
            progress.probe_from(min(last_index + 1, self._log.last_index))

    def needing_snapshot(self) -> tuple[ServerId, ...]:
        """Return the followers whose next entry is older than the log."""
        first_index = self._log.first_index
        needing: tuple[ServerId, ...] = ()
        for progress in self.followers.values():
            if progress.next_index < first_index:
                needing += (progress.server,)
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
