"""Owns what shared heartbeats were promised: they say no more than the groups' own messages could have said.

White-box on purpose: each side's belief is compared with what the other side was when it spoke, at the first moment it is
used. Checked, each under its name: `cover` (who is kept alive led when that was said), `cover contact` (who is counted on
followed when it answered), `cover commit` (what is said to be committed is on the follower's disk, D-7), `round` and `match`
(what a leader counts was said by that follower in a message of that group, 6.4 and D-7).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TypeVar

from attrs import define

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.groups.process import GroupsProcess
from tests.simulation.raft_checks import RaftChecks
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.host import GroupHost
from zraft.raft.messages import HeartbeatReply
from zraft.raft.role import Role
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId, ServerId

_Held = TypeVar("_Held")

KEPT_PER_PAIR = 256
"""Statements of one run to one server that are remembered: any that can still be answered."""


@define
class _Said:
    """By one run to one server: (epoch, number) of a heartbeat -> what held for each group when it was said."""

    leads: dict[tuple[int, int], dict[GroupId, int]]
    follows: dict[tuple[int, int], dict[GroupId, tuple[int, int]]]


class CoverChecks:
    """All pairs of servers."""

    def __init__(self, groups: Mapping[GroupId, RaftChecks]) -> None:
        self._groups = groups
        self._said: dict[tuple[Sender, ServerId], _Said] = {}
        self._rounds: set[tuple[GroupId, int, ServerId, int]] = set()
        self._looked_at: dict[tuple[str, Sender, Sender], tuple[int, int]] = {}
        self.heartbeats = self.covered = self.counted = self.items = 0

    def fail(self, checker: str, found: str) -> None:
        raise BrokenPromiseError(checker, found)

    def _of(self, sender: Sender, to: ServerId) -> _Said:
        return self._said.setdefault((sender, to), _Said({}, {}))

    # -- when something is said
    def sent(self, process: GroupsProcess, to: ServerId, messages: Sequence[GroupMessage]) -> None:
        host = process.host
        assert host is not None
        for message in messages:
            if isinstance(message, HeartbeatReply) and message.round:
                self._rounds.add((message.group, message.term, process.server, message.round))
            elif isinstance(message, SharedHeartbeat):
                self._heartbeat(process, host, to, message)
            elif isinstance(message, SharedHeartbeatReply) and message.epoch:
                said = self._of(process.sender, to).follows
                said[message.epoch, message.number] = {
                    group: (replica.raft.term, replica.raft.commit_index)
                    for group, replica in host.groups.items()
                    if replica.raft.follows(to, replica.raft.term)
                }
                _bound(said)

    def _heartbeat(
        self, process: GroupsProcess, host: GroupHost, to: ServerId, message: SharedHeartbeat
    ) -> None:
        self.heartbeats += 1
        leads = {
            group: replica.raft.term
            for group, replica in host.groups.items()
            if replica.raft.role is Role.LEADER
        }
        said = self._of(process.sender, to).leads
        said[message.epoch, message.number] = leads
        _bound(said)
        for group, term, index in message.items:
            if not term:
                continue
            self.items += 1
            checks = self._groups[group]
            if leads.get(group) != term:
                # What was offered may have ended; it must then be withdrawn by the very same message.
                self.fail(
                    "cover",
                    f"S{process.server} offers group {group} in term {term}, it leads {leads.get(group)}",
                )
            entry = checks.committed[index] if index < len(checks.committed) else None
            holders = [shadow for (server, _), shadow in checks.disks.items() if server == to]
            if entry is None or not any(shadow.holds(index, entry.term) for shadow in holders):
                self.fail(
                    "cover commit",
                    f"S{process.server} tells S{to} that entry {index} of group {group} is committed, which its disk "
                    "does not hold (D-7)",
                )

    # -- when it is used
    def turned(self, process: GroupsProcess, effects: GroupEffects) -> None:
        host = process.host
        assert host is not None
        for server, peer in host.peers.items():
            if peer.run is None:
                continue
            other = Sender(server, *peer.run)
            self._taken(process, host, other)
            self._given(process, host, other)
        for group in effects.touched:
            replica = host.groups.get(group)
            if replica is not None and replica.raft.role is Role.LEADER:
                self._counted(process, group, host)

    def _is_news(self, side: str, process: GroupsProcess, other: Sender, epoch: int, number: int) -> bool:
        """Was a heartbeat or an answer taken since this was looked at? Only these add to a belief."""
        key = (side, process.sender, other)
        if self._looked_at.get(key) == (epoch, number):
            return False
        self._looked_at[key] = (epoch, number)
        return True

    def _taken(self, process: GroupsProcess, host: GroupHost, other: Sender) -> None:
        """Whoever is not ticked because of a heartbeat was led when that was sent, and follows that leader."""
        taken = host.peers[other.server].taken
        if not self._is_news("taken", process, other, taken.epoch, taken._number) or not len(taken):
            return
        leads = self._of(other, process.server).leads.get((taken.epoch, taken._number))
        if leads is None:
            return  # too long ago to be remembered: then nothing was heard since
        for group in taken.groups:
            self.covered += 1
            term = taken.term_of(group)
            if leads.get(group) != term:
                self.fail(
                    "cover",
                    f"S{process.server} is kept from campaigning in group {group} by S{other.server} in term {term}, "
                    f"which led {leads.get(group)} when it said so",
                )

    def _given(self, process: GroupsProcess, host: GroupHost, other: Sender) -> None:
        """Whoever is counted on for check-quorum followed when it answered."""
        given = host.peers[other.server].given
        if not self._is_news("given", process, other, given.epoch, given._answered) or not given._agreed:
            return
        follows = self._of(other, process.server).follows.get((given.epoch, given._answered))
        if follows is None:
            self.fail(
                "cover contact",
                f"S{process.server} counts on S{other.server} for {len(given)} groups; that run never answered "
                f"heartbeat {given._answered} of cover {given.epoch}",
            )
            return
        for group, (term, index) in given._agreed.items():
            self.counted += 1
            followed, commit = follows.get(group, (0, 0))
            if followed != term or commit < index:
                self.fail(
                    "cover contact",
                    f"S{process.server} counts on S{other.server} in group {group}, term {term}, commit {index}; "
                    f"it followed in term {followed} with commit {commit} when it answered",
                )

    def _counted(self, process: GroupsProcess, group: GroupId, host: GroupHost) -> None:
        raft = host.groups[group].raft
        checks = self._groups[group]
        for server, progress in raft._replication.followers.items():
            if progress.round and (group, raft.term, server, progress.round) not in self._rounds:
                self.fail(
                    "round",
                    f"S{process.server} takes round {progress.round} of group {group}, term {raft.term} for answered by "
                    f"S{server}, which never did (6.4)",
                )
            index = progress.match_index
            if index > raft.log.last_index:
                self.fail("match", f"S{process.server} matches S{server} beyond its own log in group {group}")
            if index < raft.log.first_index - 1 or not index:
                continue
            term = raft.log.term_at(index)
            holders = [shadow for (holder, _), shadow in checks.disks.items() if holder == server]
            if not any(shadow.holds(index, term) for shadow in holders):
                self.fail(
                    "match",
                    f"S{process.server} matches S{server} up to entry {index} of group {group}, which its disk does not "
                    "hold (D-7)",
                )


def _bound(said: MutableMapping[tuple[int, int], _Held]) -> None:
    while len(said) > KEPT_PER_PAIR:
        del said[next(iter(said))]
