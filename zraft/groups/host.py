"""All groups of one server but the coordination group: what arrived, what is due, and what follows from it in one turn.

No clock, socket, disk or asyncio: an owner feeds messages and finished writes and calls `turn`, and carries out the
`GroupEffects`. A turn looks at the groups that something happened to, or that have something due, and at no other:
hundreds that are idle cost what one costs. Source: rules D-7, D-13 and D-18, and docs/GROUPS.md.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zraft.errors import ProtocolError
from zraft.groups.commit import SharedCommit
from zraft.groups.description import GroupDescription
from zraft.groups.effects import GroupEffects, GroupMessage, SnapshotTask
from zraft.groups.leadership import Moves
from zraft.groups.machine import StateMachine
from zraft.groups.members import Await, next_step, target_of
from zraft.groups.peer import Peer
from zraft.groups.replica import Replica, StoredGroup
from zraft.groups.retention import Retention
from zraft.groups.settings import GroupSettings
from zraft.groups.statistics import GroupsStatistics
from zraft.groups.timers import Timers
from zraft.ids import GroupId, Instance, ServerId
from zraft.raft.core import Raft
from zraft.raft.quorum import majority
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply

MISTAKES_KEPT_MAX: Final = 16
"""Messages that no correct peer sends, remembered for the log; all are counted."""


class GroupHost:
    """The groups of one server. Not thread-safe: one owner calls it.

    Args:
        server, instance: who this is (D-1).
        rng: draws election timeouts; nothing else is random.

    Raises:
        ConfigError: the settings contradict each other.

    Attributes:
        now: ticks of 1 ms that the turns were told, in which this process ran.
    """

    def __init__(
        self, *, server: ServerId, instance: Instance, settings: GroupSettings, rng: random.Random
    ) -> None:
        settings.validate()
        self.server = server
        self.instance = instance
        self.settings = settings
        self.now = 0
        self.groups: dict[GroupId, Replica] = {}
        self.mistakes: deque[tuple[ServerId, str]] = deque(maxlen=MISTAKES_KEPT_MAX)
        self.peers: dict[ServerId, Peer] = {}
        self._rng = rng
        self._vouched: dict[ServerId, Instance] = {}
        self._touched: dict[GroupId, Replica] = {}
        self._timers = Timers()
        self._commit = SharedCommit()
        self._retention = Retention(settings)
        self._moves = Moves(settings)
        self._effects = GroupEffects()
        self._turns = self._touches = self._mistakes = self._strangers = self._snapshots = 0

    # -- which groups there are

    def create(self, description: GroupDescription, machine: StateMachine, stored: StoredGroup) -> None:
        """Take part in a group from now on, with what the disk holds of it.

        A disk that knows nothing of the group votes for itself only if it is one of the founders; any other starts as a
        learner and is told by the leader who the members are (D-18).

        Raises:
            StorageError: hard state and log contradict each other.
            ProtocolError: a membership, or the snapshot's image, cannot be read.
        """
        group = description.group
        assert group not in self.groups, f"group {group} is here already"
        raft = Raft(
            group=group,
            server=self.server,
            instance=self.instance,
            settings=self.settings.raft,
            hard_state=stored.hard_state,
            log=stored.log,
            membership=description.membership_for(self.server, self.instance),
            rng=self._rng,
        )
        for server, instance in {**description.founders, **self._vouched}.items():
            raft.vouch(server, instance)
        replica = Replica(group, raft, machine, self.now)
        replica.preferred = description.preferred
        if stored.snapshot is not None:
            meta, image = stored.snapshot
            replaced = raft.restore(meta)
            assert not replaced, f"group {group}: its log does not reach its newest snapshot"
            replica.restored(meta, image)
        self._retention.recovered(group, stored.log.bytes_in_memory)
        self.groups[group] = replica
        if description.preferred == self.server and stored.log.last_index == 0 and raft.is_voter:
            # Nobody leads a group that was founded this moment: who should need not wait to find that out.
            raft.hasten_election()
        self._touch(replica)

    def remove(self, group: GroupId) -> None:
        """The group is gone for good (D-18): its log is forgotten with the next frame, here or not."""
        self.groups.pop(group, None)
        for peer in self.peers.values():
            peer.led.pop(group, None)
            peer.given.withdraw(group)
            peer.taken.lose(group)
        self._touched.pop(group, None)
        self._timers.clear(group)
        self._moves.discard(group)
        self._retention.removed(group)
        self._commit.forget(group)

    def vouch(self, server: ServerId, instance: Instance) -> None:
        """That disk belongs to the same cluster (the coordination group says so): see `Raft.vouch`."""
        self._vouched[server] = instance
        for replica in self.groups.values():
            replica.raft.vouch(server, instance)

    def prefer(self, group: GroupId, server: ServerId | None) -> None:
        """That server should lead the group; None if it does not matter."""
        replica = self.groups[group]
        replica.preferred = server
        self._touch(replica)

    def want_members(self, group: GroupId, wanted: Mapping[ServerId, Instance]) -> None:
        """These disks should be the group's voters: while this server leads it, it makes the next safe step, and the next."""
        replica = self.groups[group]
        replica.wanted = dict(wanted)
        self._touch(replica)

    # -- what happened

    def receive(self, sender: Sender, messages: Sequence[GroupMessage]) -> None:
        """Messages of one authenticated peer, in the order they came."""
        peer = self._peer(sender.server)
        if peer.is_late(sender.instance, sender.boot):
            return
        if peer.begins_anew(sender.instance, sender.boot):
            self._touch_all(peer.led)
            self._touch_all(peer.taken.groups)
            peer.restart()
        peer.run = (sender.instance, sender.boot)
        for message in messages:
            if isinstance(message, SharedHeartbeat):
                self._on_heartbeat(peer, message)
            elif isinstance(message, SharedHeartbeatReply):
                self._on_reply(peer, message)
            else:
                replica = self.groups.get(message.group)
                if replica is None:
                    self._strangers += 1
                    continue
                self._touch(replica)
                try:
                    replica.raft.step(sender.server, sender.instance, message)
                except ProtocolError as error:
                    # It costs that one message: whoever sends it must not be able to end this server.
                    self._mistakes += 1
                    self.mistakes.append((sender.server, str(error)))

    def persisted(self) -> None:
        """The frame of the last `GroupEffects.records` is durable."""
        numbers, forgotten = self._commit.durable()
        self._effects.forgotten += forgotten
        for group, number in numbers.items():
            replica = self.groups.get(group)
            if replica is not None:
                self._touch(replica)
                replica.raft.persisted(number)

    def propose(self, group: GroupId, payload: bytes, count: int) -> tuple[int, int] | None:
        """Append one batch of `count` commands; (index, term) of its entry, None if the caller keeps it: see `Raft.propose`."""
        replica = self.groups.get(group)
        if replica is None or replica.raft.role is not Role.LEADER:
            return None
        self._touch(replica)
        index = replica.raft.propose(payload, count)
        return None if index is None else (index, replica.raft.term)

    def read_index(self, group: GroupId, context: int) -> None:
        """Ask for a linearizable read: see `Raft.read_index`. It is a round of that group, which no shared heartbeat answers."""
        replica = self.groups.get(group)
        if replica is not None:
            self._touch(replica)
            replica.raft.read_index(context)

    def transfer(self, group: GroupId, target: ServerId) -> bool:
        """Hand the group over to `target`; False if that cannot be begun."""
        replica = self.groups.get(group)
        if replica is None:
            return False
        self._touch(replica)
        return replica.raft.transfer_leadership(target)

    def snapshotted(self, group: GroupId, meta: SnapshotMeta, *, durable: bool) -> None:
        """A `SnapshotTask` ended: it is durable, or could not be made so."""
        replica = self.groups.get(group)
        if replica is None:
            return
        self._touch(replica)
        if durable and meta.index > replica.snapshot_index:
            self._snapshots += 1
            replica.kept_bytes += self._retention.size_of(group)
            replica.snapshot_index = meta.index
        needs_more = durable and self._compact(replica) < replica.raft.log.last_index
        self._retention.ended(group, durable=durable, needs_more=needs_more)

    def install(self, group: GroupId, meta: SnapshotMeta, image: bytes) -> bool:
        """Another server's snapshot is durable here: become it, if that is ahead; False if it is not needed.

        Raises:
            ProtocolError: the image or the membership in it cannot be read.
        """
        replica = self.groups.get(group)
        if replica is None:
            return False
        self._touch(replica)
        if meta.index <= replica.applied_index or not replica.raft.restore(meta):
            return False
        replica.restored(meta, image)
        self._retention.removed(group)
        return True

    @property
    def wants_turn(self) -> bool:
        """Does what arrived since the last turn give one something to do now?"""
        return (
            bool(self._touched)
            or self._commit.due
            or bool(self._effects.forgotten)
            or any(peer.taken.answer_due for peer in self.peers.values())
        )

    # -- one turn

    def turn(self, elapsed: int) -> GroupEffects:
        """Everything that follows from what arrived, and from `elapsed` more ticks in which this process ran."""
        assert elapsed >= 0
        self.now += elapsed
        self._turns += 1
        for group in self._timers.take_due(self.now):
            self._touch(self.groups[group])
        for peer in self.peers.values():
            self._watch(peer)
        self._moves.begin(self.now, self._begin_move)
        if self._retention.is_due:
            self._keep_log_short()
        touched, self._touched = self._touched, {}
        self._touches += len(touched)
        for replica in touched.values():
            self._settle(replica)
        for peer in self.peers.values():
            self._speak(peer)
        effects, self._effects = self._effects, GroupEffects()
        effects.touched = list(touched)
        effects.records = self._commit.next_frame()
        effects.wake_in = self._wake_in()
        return effects

    def _wake_in(self) -> int | None:
        if self._touched:
            return 0
        due: list[float] = [tick for peer in self.peers.values() if (tick := peer.due_at()) is not None]
        for tick in (self._timers.next_due(), self._moves.next_due()):
            if tick is not None:
                due.append(tick)
        if not due:
            return None
        left = min(due) - self.now
        return 0 if left <= 0 else int(left) + (left > int(left))

    def _peer(self, server: ServerId) -> Peer:
        peer = self.peers.get(server)
        if peer is None:
            peer = self.peers[server] = Peer(server, self.settings)
        return peer

    # -- bringing a group up to date

    def _touch(self, replica: Replica) -> None:
        """Something happens to it: its clock stands at the present tick, and what others vouched for it counts."""
        self._touched[replica.group] = replica
        raft = replica.raft
        now = self.now - replica.born
        if raft.now == now:
            return
        if raft.role is Role.LEADER:
            self._credit_leader(replica, now)
        elif raft.leader is not None:
            peer = self.peers.get(raft.leader)
            if peer is not None and peer.taken.term_of(replica.group) == raft.term:
                raft.note_leader_heard(peer.taken.heard_at - replica.born)
        raft.tick(now - raft.now)

    def _touch_all(self, groups: Sequence[GroupId] | Mapping[GroupId, Replica]) -> None:
        for group in tuple(groups):
            replica = self.groups.get(group)
            if replica is not None:
                self._touch(replica)

    def _credit_leader(self, replica: Replica, now: int) -> None:
        raft, contacts, reached, everybody = replica.raft, dict[ServerId, int](), 1, True
        voters = raft.membership.voters
        for server in raft.matches:
            peer = self.peers.get(server)
            tick = None
            if peer is not None and raft.membership.has(server, peer.instance):
                tick = peer.given.contact_of(replica.group, raft.term)
            if tick is not None:
                contacts[server] = max(0, tick - replica.born)
                reached += server in voters
            elif peer is None or not peer.silent:
                everybody = False
        everybody = everybody and reached >= majority(len(voters)) and not raft.membership.joint
        raft.note_contacts(contacts, now, everybody=everybody)

    # -- shared heartbeats

    def _on_heartbeat(self, peer: Peer, message: SharedHeartbeat) -> None:
        if peer.taken.is_late(message):
            return
        # Who leaves the cover by this message was led until the one before.
        if message.epoch != peer.taken.epoch:
            self._touch_all(peer.taken.groups)
        self._touch_all([group for group, _, _ in message.items])

        def agrees(group: GroupId, term: int, index: int) -> bool:
            return self._agrees(peer, group, term, index)

        peer.taken.on_heartbeat(message, self.now, agrees)
        if peer.unheard and len(peer.taken):
            peer.unheard = False
            self._touch_all(peer.taken.groups)

    def _agrees(self, peer: Peer, group: GroupId, term: int, index: int) -> bool:
        replica = self.groups.get(group)
        if replica is None:
            return False
        raft = replica.raft
        if not raft.knows(peer.server, peer.instance) or not raft.agrees(peer.server, term, index):
            return False
        if replica.taken_from not in (None, peer.server):
            self._lose(replica)
        replica.taken_from = peer.server
        return True

    def _lose(self, replica: Replica) -> None:
        """It follows whom it followed no more: that server has to know before it counts on it again."""
        if replica.taken_from is not None:
            self._peer(replica.taken_from).taken.lose(replica.group)
            replica.taken_from = None

    def _on_reply(self, peer: Peer, reply: SharedHeartbeatReply) -> None:
        # What counted until now is credited before it ends to count.
        self._touch_all(reply.lost if reply.epoch else peer.led)
        answer = peer.given.on_reply(reply)
        if answer is None:
            return
        self._touch_all(answer.agreed)
        if peer.silent and not answer.began_anew:
            peer.silent = False
            peer.steady_since = self.now
            for group, replica in peer.led.items():
                raft = replica.raft
                if not peer.given.agrees(group, raft.term, raft.log.last_index):
                    self._touch(replica)

    def _watch(self, peer: Peer) -> None:
        """Silence of a server concerns all groups that counted on it, once."""
        if not peer.silent and self.now >= peer.silent_at:
            peer.silent = True
            self._touch_all(peer.led)
        if not peer.unheard and self.now >= peer.unheard_at:
            peer.unheard = True
            self._touch_all(peer.taken.groups)

    def _speak(self, peer: Peer) -> None:
        """What is said for all groups at once: the answer to a shared heartbeat, and the next one."""
        if peer.taken.answer_due:
            if peer.taken.overflows:
                self._touch_all(peer.taken.groups)
                peer.taken.give_up()
            self._send(peer.server, peer.taken.answer())
        if peer.has_to_beat and self.now >= peer.beat_at:
            peer.beat_at = self.now + self.settings.raft.heartbeat_ticks
            if peer.given.overflows:
                self._touch_all(peer.led)
                peer.given.begin_anew()
            self._send(peer.server, peer.given.heartbeat(self.now))

    # -- what became of a group in this turn

    def _settle(self, replica: Replica) -> None:
        raft, group = replica.raft, replica.group
        ready = raft.ready()
        for to, message in ready.messages:
            self._send(to, message)
        if ready.write is not None:
            size = self._commit.add(group, ready.write)
            if ready.write.entries:
                self._retention.wrote(group, size)
        if ready.read_states:
            replica.reads += ready.read_states
        if replica.apply(self.settings.apply_bytes_max):
            self._effects.applied.append(group)
        if replica.reads:
            self._effects.reads += [(group, context) for context in replica.take_reads()]
        if raft.log.bytes_in_memory > self.settings.log_bytes_max:
            raft.log.evict_to(replica.applied_index)
        self._show(replica)
        if replica.has_more_to_apply:
            self._touched[group] = replica
        if raft.role is Role.LEADER:
            self._rest_leading(replica)
        else:
            self._rest_following(replica)

    def _show(self, replica: Replica) -> None:
        """Bring the covers in line with what the group has become, before anything is said of them."""
        raft, group = replica.raft, replica.group
        if replica.taken_from is not None and not self._still_follows(replica):
            self._lose(replica)
        leads = raft.role is Role.LEADER
        followers = raft.matches if leads else {}
        shown = (raft.term if leads else 0, raft.members_changed_index, len(followers))
        if shown == replica.shown:
            return
        same_term = shown[0] == replica.shown[0]
        replica.shown = shown
        for server in followers:
            self._peer(server)
        for server, peer in self.peers.items():
            if not same_term or server not in followers:
                peer.given.withdraw(group)
            if server in followers:
                peer.led[group] = replica
            else:
                peer.led.pop(group, None)
        if not leads:
            self._moves.discard(group)

    def _still_follows(self, replica: Replica) -> bool:
        server = replica.taken_from
        assert server is not None
        term = self._peer(server).taken.term_of(replica.group)
        return term is not None and replica.raft.follows(server, term)

    def _rest_leading(self, replica: Replica) -> None:
        raft, group, now = replica.raft, replica.group, self.now
        needing = raft.followers_needing_snapshot
        if needing:
            self._effects.needs_snapshot += [(group, server) for server in needing]
        if replica.wanted is not None and raft.may_change_membership:
            self._change_members(replica)
        rests = raft.settled and self._all_agree(replica)
        self._place(replica, settled=raft.settled)
        replica.asleep = rests
        if rests:
            self._timers.clear(group)
            if raft.log.bytes_in_memory > self.settings.asleep_log_bytes_max:
                raft.log.evict_to(replica.applied_index)
        else:
            self._timers.set(group, max(now + 1, replica.born + raft.due_at))

    def _all_agree(self, replica: Replica) -> bool:
        """Offer the group to every follower that has caught up; True if all have agreed that can be reached, and a majority."""
        raft, group = replica.raft, replica.group
        term, index, voters = raft.term, raft.log.last_index, raft.membership.voters
        agreed, complete = 1, True
        for server, match in raft.matches.items():
            peer = self._peer(server)
            if match == index and raft.membership.has(server, peer.instance):
                if peer.given.agrees(group, term, index):
                    agreed += server in voters and not peer.silent
                    continue
                peer.given.offer(group, term, self._offered_index(replica, match))
            if not peer.silent:
                complete = False
        return complete and agreed >= majority(len(voters))

    def _offered_index(self, replica: Replica, match: int) -> int:
        """What a follower may take for committed: no further than its log is known to agree (D-7)."""
        return min(replica.raft.commit_index, match)

    def _rest_following(self, replica: Replica) -> None:
        raft, group = replica.raft, replica.group
        peer = self.peers.get(raft.leader) if raft.leader is not None else None
        replica.asleep = (
            peer is not None and not peer.unheard and peer.taken.term_of(group) == raft.term
            and raft.role is Role.FOLLOWER
        )
        if replica.asleep:
            self._timers.clear(group)
            if raft.log.bytes_in_memory > self.settings.asleep_log_bytes_max:
                raft.log.evict_to(replica.applied_index)
        else:
            self._timers.set(group, max(self.now + 1, replica.born + raft.due_at))

    # -- who should lead, and who should belong

    def _place(self, replica: Replica, *, settled: bool) -> None:
        preferred = replica.preferred
        if preferred is None or preferred == self.server or preferred not in replica.raft.membership.voters:
            self._moves.discard(replica.group)
        elif settled and not self._peer(preferred).silent:
            self._moves.add(replica.group, self.now)

    def _begin_move(self, group: GroupId) -> bool:
        replica = self.groups[group]
        target = replica.preferred
        raft = replica.raft
        if target is None or raft.role is not Role.LEADER:
            return False
        peer = self._peer(target)
        steady = self.now - peer.steady_since >= self.settings.raft.election_timeout_ticks
        if peer.silent or not steady or raft.matches.get(target) != raft.log.last_index:
            return False
        self._touch(replica)
        return raft.transfer_leadership(target)

    def _change_members(self, replica: Replica) -> None:
        raft = replica.raft
        assert replica.wanted is not None
        step = next_step(raft.membership, replica.wanted, raft.matches, raft.commit_index)
        if step is None or isinstance(step, Await):
            return
        if raft.change_membership(target_of(step, raft.membership)) is not None:
            self._touched[replica.group] = replica

    # -- how much log is kept

    def _keep_log_short(self) -> None:
        for group in tuple(self._retention.due()):
            replica = self.groups[group]
            if not replica.applied_index:
                self._retention.put_off(group)
            elif replica.applied_index == replica.snapshot_index:
                # Its state is on the disk; what is left of its log was kept for who is slow.
                self._touch(replica)
                replica.kept_bytes = self.settings.keep_log_bytes_max + 1
                self._retention.begun(group)
                needs_more = self._compact(replica) < replica.raft.log.last_index
                self._retention.ended(group, durable=True, needs_more=needs_more)
            else:
                self._retention.begun(group)
                machine = replica.machine
                self._effects.snapshots.append(
                    SnapshotTask(group, replica.where_applied(), machine.snapshot(), machine.digest())
                )

    def _compact(self, replica: Replica) -> int:
        """Let go of what the snapshot covers, but for what slow followers lack; the log now begins after the returned index."""
        raft = replica.raft
        index = replica.snapshot_index
        if raft.role is Role.LEADER and replica.kept_bytes <= self.settings.keep_log_bytes_max:
            reachable = [match for server, match in raft.matches.items() if not self._peer(server).silent]
            index = min([index, *reachable])
        if index == replica.snapshot_index:
            replica.kept_bytes = 0
        if index >= raft.log.first_index:
            raft.compact(index)
            self._effects.compactions.append((replica.group, index))
        return index

    # -- what others see

    def _send(self, to: ServerId, message: GroupMessage) -> None:
        self._effects.sends.setdefault(to, []).append(message)

    def statistics(self) -> GroupsStatistics:
        """Counts of this moment; looks at every group, so it is for who scrapes metrics and not for a turn."""
        leading = campaigning = learning = leaderless = asleep = 0
        for replica in self.groups.values():
            raft = replica.raft
            leading += raft.role is Role.LEADER
            campaigning += raft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
            learning += not raft.is_voter
            leaderless += raft.leader is None
            asleep += replica.asleep
        count = len(self.groups)
        return GroupsStatistics(
            groups=count,
            leading=leading,
            following=count - leading - campaigning,
            campaigning=campaigning,
            learning=learning,
            leaderless=leaderless,
            asleep=asleep,
            misplaced=len(self._moves),
            silent_servers=sum(peer.silent for peer in self.peers.values() if peer.led),
            log_needed_bytes=self._retention.needed_bytes,
            turns_total=self._turns,
            touched_total=self._touches,
            mistakes_total=self._mistakes,
            strangers_total=self._strangers,
            moves_total=self._moves.begun,
            snapshots_total=self._snapshots,
        )
