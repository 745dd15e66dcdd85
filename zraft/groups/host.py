"""The host of a server's groups: it takes what arrived and what is due, and says in one turn what follows from it.

It hosts all groups but the coordination group. It has no clock, socket, disk or asyncio: its owner feeds
messages and finished writes, calls `turn`, and carries out the `GroupEffects`. A turn looks at the groups to
which something happened, and at those for which something is due, and at no other: hundreds that are idle
cost what one costs. Source: rules D-7, D-13 and D-18, and docs/explanation/groups.md.

The host schedules. Decisions are taken by parts that share one `HostState`: `Covers` (shared heartbeats),
`Keeping` (the length of the log) and `Placing` (leaders and members).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from zraft.groups.covers.sharing import Covers
from zraft.groups.description import GroupDescription
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.frame import Durable, LogFrame
from zraft.groups.hosting import HostState
from zraft.groups.keeping import Keeping
from zraft.groups.machine import StateMachine
from zraft.groups.placing import Placing
from zraft.groups.replica import HostedReplica, StoredGroup
from zraft.groups.retention import LogRetention
from zraft.groups.settings import GroupSettings
from zraft.groups.statistics import AbsentVoter, FollowerState, GroupsStatistics
from zraft.raft.core import Raft
from zraft.raft.progress import ProgressState
from zraft.raft.role import Role
from zraft.raft.settings import NEVER
from zraft.raft.snapshot import SnapshotMeta
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply
from zraft_core.errors import ProtocolError
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId

ABSENT_AFTER_TIMEOUTS: Final = 3
"""Election timeouts of silence after which a voter counts as absent. It campaigns within two of them if it lives."""
MISTAKES_KEPT_MAX: Final = 16
"""How many messages that no correct peer sends are remembered for the log; all are counted."""


class GroupHost:
    """The groups of one server. Not thread-safe: one owner calls it.

    Args:
        server, instance, boot: the server, its disk, and the number of this start of it (D-1).
        rng: draws election timeouts; nothing else is random.
        retention, frame: what each group holds back of the log, and what waits to be written to it. They are
            given if groups that are not hosted here write to the same log.

    Raises:
        ConfigError: the settings contradict each other.

    Attributes:
        server, instance, boot: as given.
        settings: every bound.
        groups, peers: the replicas of this server, and the other servers as they are seen from here.
        frame: what waits for the log: the owner takes it after a turn, and tells `persisted` when it is
            durable.
        mistakes: (sender, problem) of the newest messages that no correct peer sends.
    """

    def __init__(
        self,
        *,
        server: ServerId,
        instance: Instance,
        boot: int,
        settings: GroupSettings,
        rng: random.Random,
        retention: LogRetention | None = None,
        frame: LogFrame | None = None,
    ) -> None:
        settings.validate()
        self._state = state = HostState(server, instance, boot, settings)
        self.server = server
        self.instance = instance
        self.boot = boot
        self.settings = settings
        self.groups = state.groups
        self.peers = state.peers
        self.frame = frame if frame is not None else LogFrame()
        self.mistakes: deque[tuple[ServerId, str]] = deque(maxlen=MISTAKES_KEPT_MAX)
        self._rng = rng
        self._vouched: dict[ServerId, Instance] = {}
        self._covers = Covers(state)
        self._keeping = Keeping(state, retention if retention is not None else LogRetention(settings))
        self._placing = Placing(state)
        raft = settings.raft
        self._look_again_ticks = min(raft.heartbeat_ticks, raft.resend_ticks)
        self._held = False
        self._turns = self._touches = self._mistakes = self._strangers = 0
        self._entries = self._commands = 0

    # -- which groups there are

    def create(
        self,
        description: GroupDescription,
        machine: StateMachine,
        stored: StoredGroup,
        *,
        covered: bool = True,
    ) -> None:
        """Take part in a group from now on, with what the disk holds of it.

        A disk that knows nothing of the group votes only if it is one of the founders'. Any other starts as a
        learner, and the leader tells it who the members are (D-18).

        Args:
            covered: see `HostedReplica`; it must be the same for all members.

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
        replica = HostedReplica(group, raft, machine, self._state.now, self.settings.digest_interval)
        replica.preferred = description.preferred
        replica.covered = covered
        if stored.snapshot is not None:
            meta, image = stored.snapshot
            adopt = machine.prepare_restore(image)
            replaced = raft.restore(meta)
            assert not replaced, f"group {group}: its log does not reach its newest snapshot"
            replica.restored(meta, adopt)
        self._keeping.retention.recovered(group, stored.log.bytes_in_memory, stored.held_bytes)
        self.groups[group] = replica
        if description.preferred == self.server and stored.log.last_index == 0 and raft.is_voter:
            # Nobody leads a group that was founded this moment, so its preferred leader need not wait for a timeout.
            raft.hasten_election()
        self._state.touch(replica)

    def remove(self, group: GroupId) -> None:
        """Remove a group that is gone for good (D-18), whether it is here or not. The next frame lets the log forget it."""
        self.groups.pop(group, None)
        self._covers.forget(group)
        self._state.touched.pop(group, None)
        self._state.timers.clear(group)
        self._placing.moves.discard(group)
        self._keeping.retention.removed(group)
        self.frame.forget(group)

    def vouch(self, server: ServerId, instance: Instance) -> None:
        """Take note that a disk belongs to the same cluster, as the coordination group says: see `Raft.vouch`."""
        self._vouched[server] = instance
        for replica in self.groups.values():
            replica.raft.vouch(server, instance)

    # -- what is wanted of them

    def prefer(self, group: GroupId, server: ServerId | None) -> None:
        """Set which server should lead the group; None if that does not matter."""
        self._placing.prefer(group, server)

    def want_members(self, group: GroupId, wanted: Mapping[ServerId, Instance]) -> None:
        """Set which disks should be the group's voters."""
        self._placing.want_members(group, wanted)

    def retire(self, group: GroupId) -> None:
        """Retire the replica of a group that has left this server: see `Placing.retire`."""
        self._placing.retire(group)

    def transfer(self, group: GroupId, target: ServerId) -> bool:
        """Hand the leadership of the group over to `target`; return False if that cannot be begun."""
        return self._placing.transfer(group, target)

    def snapshotted(self, group: GroupId, meta: SnapshotMeta, *, durable: bool) -> None:
        """Take note that a `SnapshotTask` has ended: the snapshot is durable, or could not be made so."""
        self._keeping.snapshotted(group, meta, durable=durable)

    def install(self, group: GroupId, meta: SnapshotMeta, image: bytes) -> bool:
        """Take over another server's snapshot, which is durable here, if it is ahead of the group's state.

        Returns:
            Whether it was taken over; False if it was not needed.

        Raises:
            ProtocolError: the image or the membership in it cannot be read; nothing was changed.
        """
        return self._keeping.install(group, meta, image)

    # -- what happened

    def receive(self, sender: Sender, messages: Sequence[GroupMessage], ahead: int = 0) -> None:
        """Take messages of one authenticated peer, in the order in which they came.

        A message that no correct peer sends is counted and noted in `mistakes`.

        Args:
            ahead: how many ticks after the last turn they came.
        """
        state, server, instance = self._state, sender.server, sender.instance
        peer = state.peers[server] if server in state.peers else state.peer(server)
        if peer.run != (instance, sender.boot) and not self._covers.meet(peer, sender):
            return
        peer.heard_at = state.now
        for message in messages:
            match message:
                case SharedHeartbeat():
                    self._covers.on_heartbeat(peer, message, ahead)
                    continue
                case SharedHeartbeatReply():
                    self._covers.on_reply(peer, message)
                    continue
            if message.group not in state.groups:
                self._strangers += 1
                continue
            replica = state.groups[message.group]
            raft = replica.raft
            state.stir(replica)
            try:
                raft.step(server, instance, message)
            except ProtocolError as error:
                # Only that message is lost: a peer must not be able to end this server.
                self._mistakes += 1
                self.mistakes.append((server, str(error)))
            if not state.stirred and (
                raft.commit_index > replica.applied_index or raft.leader != replica.seen[2] or raft.has_ready
            ):
                state.stirred = True

    def note_lost(self, server: ServerId) -> None:
        """Take note that the connection to the process of `server` has ended: see `Raft.note_lost`.

        All groups that it led lose their leader at once, so their elections are spread over an election timeout.
        """
        self._covers.lose_peer(server)
        for replica in self.groups.values():
            if replica.raft.leader == server:
                self._state.touch(replica)
                replica.raft.note_lost(server, self.settings.raft.election_timeout_ticks)

    def persisted(self, durable: Durable) -> None:
        """Take note that a frame is durable. Its writes of groups that are not hosted here are skipped."""
        state = self._state
        if durable.forgotten:
            state.effects.forgotten += durable.forgotten
            state.stirred = True
        for group in durable.numbers:
            if group in state.groups:
                replica = state.groups[group]
                raft = replica.raft
                state.stir(replica)
                raft.persisted(durable.numbers[group])
                if not state.stirred and (raft.commit_index > replica.applied_index or raft.has_ready):
                    state.stirred = True

    def propose(self, group: GroupId, payload: bytes, count: int) -> tuple[int, int] | None:
        """Append one batch of `count` commands: see `Raft.propose`.

        Returns:
            (index, term) of its entry; None if it was not taken, and the caller keeps it.
        """
        state = self._state
        if group not in state.groups or self._held:
            return None
        replica = state.groups[group]
        if replica.raft.role is not Role.LEADER:
            return None
        state.stir(replica)
        index = replica.raft.propose(payload, count)
        if index is None:
            return None
        state.stirred = True
        self._entries += 1
        self._commands += count
        return index, replica.raft.term

    def read_index(self, group: GroupId, context: int) -> None:
        """Ask for a linearizable read: see `Raft.read_index`.

        It takes a round of the group's own; shared heartbeats confirm no read.
        """
        replica = self.groups.get(group)
        if replica is not None:
            self._state.touch(replica)
            replica.raft.read_index(context)

    def hold(self, held: bool) -> None:
        """Hold all groups, or let them go on: while they are held, nothing is applied and no proposal is taken.

        This is for a time in which the results of applying have nowhere to go. Everything else goes on.
        """
        if held == self._held:
            return
        self._held = held
        if not held:
            self._state.touch_all(
                [group for group, replica in self.groups.items() if replica.has_more_to_apply]
            )

    @property
    def leaders(self) -> set[ServerId]:
        """The other servers that lead groups which this one follows, as far as their heartbeats are heard."""
        found = {server for server, peer in self.peers.items() if len(peer.taken) and not peer.unheard}
        for replica in self.groups.values():
            # One that sleeps does not notice by itself that its leader is silent.
            if not replica.asleep and replica.raft.role is Role.FOLLOWER and replica.raft.leader is not None:
                found.add(replica.raft.leader)
        return found

    @property
    def wants_turn(self) -> bool:
        """True if what arrived since the last turn gives a turn something to do now.

        Many messages only confirm what is known: the next turn, whenever that is, looks at their groups as
        well.
        """
        return self._state.stirred or self.frame.due

    @property
    def stirred(self) -> bool:
        """The same as `wants_turn`, except for writes that only wait for the disk."""
        return self._state.stirred

    # -- one turn

    def turn(self, elapsed: int, *, joining: bool = False) -> GroupEffects:
        """Do everything that follows from what arrived, and from `elapsed` more ticks in which this process ran.

        Args:
            joining: whether this turn says something to all other servers anyway.
        """
        assert elapsed >= 0
        state, covers, moves, retention = (
            self._state,
            self._covers,
            self._placing.moves,
            self._keeping.retention,
        )
        now = state.now = state.now + elapsed
        self._turns += 1
        if state.timers.next_at <= now:
            for group in state.timers.take_due(now):
                state.touch(state.groups[group])
        if covers.due_at <= now:
            covers.watch()
        if moves.due_at <= now:
            moves.begin(now, self._placing.begin_move)
        if retention.due_at <= retention.written:
            self._keeping.keep_log_short()
        touched, state.touched, state.stirred = state.touched, {}, False
        for group in touched:
            self._settle(touched[group])
            self._touches += 1
        if covers.stirred or covers.due_at <= (now + covers.early_ticks if joining else now):
            covers.speak(joining=joining)
        effects, state.effects = state.effects, GroupEffects()
        effects.touched = list(touched)
        due = state.timers.next_at
        if covers.due_at < due:
            due = covers.due_at
        if moves.due_at < due:
            due = moves.due_at
        if state.stirred or due <= now:
            effects.wake_in = 0
        elif due != NEVER:
            effects.wake_in = -int((now - due) // 1)
        return effects

    # -- what became of a group in this turn

    def _settle(self, replica: HostedReplica) -> None:
        """Take what the group's core has for others and for the disk, and apply what is committed."""
        state, settings, raft, group = self._state, self.settings, replica.raft, replica.group
        ready = raft.ready()
        sends = state.effects.sends
        for to, message in ready.messages:
            if to in sends:
                sends[to].append(message)
            else:
                sends[to] = [message]
        if ready.write is not None:
            size = self.frame.add(group, ready.write)
            if ready.write.entries:
                self._keeping.retention.wrote(group, size)
        if ready.read_states:
            replica.reads += ready.read_states
        if (
            raft.commit_index > replica.applied_index
            and not self._held
            and replica.apply(settings.apply_bytes_max)
        ):
            state.effects.applied.append(group)
            if raft.commit_index > replica.applied_index and replica.has_more_to_apply:
                state.touch(replica)
            kept = settings.asleep_log_bytes_max if replica.asleep else settings.log_bytes_max
            if raft.log.bytes_in_memory > kept:
                raft.log.evict_to(replica.applied_index, kept)
        if replica.reads:
            state.effects.reads += [(group, context) for context in replica.take_reads()]
        leads = raft.role is Role.LEADER
        seen = (raft.term, raft.role, raft.leader, raft.membership)
        if replica.reconsider or seen != replica.seen or (leads and replica.asleep):
            replica.reconsider, replica.seen = False, seen
            self._reconsider(replica)
        elif leads:
            if replica.wanted is not None and not replica.placed and raft.may_change_membership:
                self._placing.change_members(replica)
        elif not replica.asleep and not replica.retired:
            # The core draws another deadline whenever it hears of its leader, which may be earlier than the last one.
            due = replica.born + raft.due_at
            if due < state.timers.due.get(group, NEVER):
                state.timers.set(group, max(state.now + 1, due))

    def _reconsider(self, replica: HostedReplica) -> None:
        """Look at whether another server leads the group now, and whether the group may fall asleep or has to wake."""
        raft = replica.raft
        leads = raft.role is Role.LEADER
        if raft.leader is not None:
            replica.leaderless_at = None
        elif replica.leaderless_at is None:
            replica.leaderless_at = self._state.now
        if self._covers.show(replica):
            replica.placed = False
            if not leads:
                self._placing.moves.discard(replica.group)
        if leads:
            self._rest_leading(replica)
        else:
            self._rest_following(replica)

    def _rest_leading(self, replica: HostedReplica) -> None:
        state, raft, group = self._state, replica.raft, replica.group
        needing = raft.followers_needing_snapshot
        if needing:
            state.effects.needs_snapshot += [(group, server) for server in needing]
        if replica.wanted is not None and not replica.placed and raft.may_change_membership:
            self._placing.change_members(replica)
        settled = raft.settled
        self._placing.place(replica, settled=settled)
        replica.asleep = replica.covered and settled and self._covers.all_agree(replica)
        if replica.asleep:
            self._rest(replica)
        else:
            # This is early enough for whatever entries sent from now on may need, such as a resend. At the next shared
            # heartbeat the followers can be offered the group.
            due = min(replica.born + raft.due_at, state.now + self._look_again_ticks)
            if state.now < self._covers.due_at < due:
                due = self._covers.due_at
            state.timers.set(group, max(state.now + 1, due))

    def _rest_following(self, replica: HostedReplica) -> None:
        state, raft, group = self._state, replica.raft, replica.group
        peer = state.peers.get(raft.leader) if raft.leader is not None else None
        replica.asleep = (
            peer is not None
            and not peer.unheard
            and peer.taken.term_of(group) == raft.term
            and raft.role is Role.FOLLOWER
        )
        if replica.asleep or replica.retired:
            self._rest(replica)
        else:
            state.timers.set(group, max(state.now + 1, replica.born + raft.due_at))

    def _rest(self, replica: HostedReplica) -> None:
        """Clear the alarm of a group that has nothing due, and keep little of its log in memory."""
        self._state.timers.clear(replica.group)
        log = replica.raft.log
        if log.bytes_in_memory > self.settings.asleep_log_bytes_max:
            log.evict_to(replica.applied_index)

    # -- what others see

    @property
    def held(self) -> bool:
        """True if all groups are held: see `hold`."""
        return self._held

    def leaderless_ms(self, group: GroupId) -> int | None:
        """Return for how long no leader of a group that is here has been known; None while one is."""
        since = self.groups[group].leaderless_at
        return None if since is None else self._state.now - since

    def absent_voters(self, group: GroupId) -> tuple[AbsentVoter, ...]:
        """Return the voters of a group without a leader that do not answer.

        Voters that miss their leader speak to each other at every election timeout. Those of a group that
        has a leader may have no reason to.
        """
        state, membership = self._state, self.groups[group].raft.membership
        silent_after = ABSENT_AFTER_TIMEOUTS * self.settings.raft.election_timeout_ticks
        found: list[AbsentVoter] = []
        for server in membership.electorate:
            if server == self.server:
                continue
            peer = state.peers.get(server)
            if peer is None or peer.heard_at < 0:
                found.append(AbsentVoter(server, None))
            elif state.now - peer.heard_at > silent_after:
                found.append(AbsentVoter(server, state.now - peer.heard_at))
            elif not membership.has(server, peer.instance):
                found.append(AbsentVoter(server, state.now - peer.heard_at, replaced=True))
        return tuple(found)

    def followers(self, group: GroupId) -> tuple[FollowerState, ...]:
        """Return the other members of a group that is led here, as they are known at this moment; none of any other group.

        A group that sleeps hears of its followers by shared heartbeats alone, so both ways to be heard count.
        """
        replica = self.groups.get(group)
        if replica is None or replica.raft.role is not Role.LEADER:
            return ()
        raft = replica.raft
        last, commit, patience = raft.log.last_index, raft.commit_index, raft.settings.election_timeout_ticks
        silences = raft.silences
        found = []
        for one in raft.statistics().followers:
            silence = silences[one.server]
            contact = self._covers.contact(replica, one.server)
            if silence is not None:
                contact = max(contact, replica.born + raft.now - silence)
            silent = self._state.now - contact if contact >= 0 else None
            has_all = one.match_index >= commit
            streams = one.state is ProgressState.REPLICATE and one.next_index > last
            found.append(
                FollowerState(
                    one.server,
                    last - one.match_index if one.match_index else None,
                    silent,
                    silent is not None
                    and silent <= patience
                    and one.match_index > 0
                    and (has_all or streams),
                )
            )
        return tuple(found)

    def statistics(self) -> GroupsStatistics:
        """Count what is so at this moment.

        It looks at every group, so it is for scrapes of metrics and not for a turn.
        """
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
            misplaced=len(self._placing.moves),
            silent_servers=sum(peer.silent for peer in self.peers.values() if peer.led),
            log_needed_bytes=self._keeping.retention.needed_bytes,
            log_oldest_group=self._keeping.retention.oldest or COORDINATION_GROUP,
            turns_total=self._turns,
            touched_total=self._touches,
            mistakes_total=self._mistakes,
            strangers_total=self._strangers,
            moves_total=self._placing.moves.begun,
            snapshots_total=self._keeping.snapshots,
            entries_total=self._entries,
            commands_total=self._commands,
        )
