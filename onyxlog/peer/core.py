"""One incarnation of a peer group, as decisions: entries and events go in, appends and acts come out. Pure.

It plays the log, knows which of its own records the log has not shown yet, and decides what follows when
entries were truncated before it could read them. The shell around it (`incarnation`) has the log, the clock
and the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import evolve, frozen

from onyxlog.errors import OnyxlogError
from onyxlog.ids import GroupId, PeerId, Position, Site
from onyxlog.peer.log.port import Origin
from onyxlog.peer.turns import Act, Append, Truncate, Turn
from onyxlog.replica import ring
from onyxlog.replica.commands import (
    AbortJoin,
    AddVirtualPeer,
    Command,
    Entry,
    GroupLeave,
    JoinDirect,
    Leave,
    PrepareJoin,
    Record,
)
from onyxlog.replica.effects import Effect, RestartGroup, RestartPeer, StoreOrigin
from onyxlog.replica.kind import Viewer
from onyxlog.replica.membership import is_known
from onyxlog.replica.playing import Step, effects, jump_effects, owed, play, reactions
from onyxlog.replica.replica import Replica

UNSEEN_MAX: Final = 10_000
"""The most records that wait for the log. A group that has more begins again, as it is cut off."""


@frozen
class SentRecord:
    """A record that was handed to the outbox; `position` is set once the log has answered."""

    record: Record
    position: Position | None = None


class GroupCore:
    """The core of a group. All methods return what is to be done because of the call.

    `now_ms` is the wall clock, which is only written into records.
    """

    def __init__(
        self,
        group: GroupId,
        origin: Origin,
        *,
        offers: Iterable[tuple[str, ...]] = (),
        join_once: bool = False,
    ) -> None:
        """Begin with these virtual peers; `offers` has the tags of each."""
        self.replica: Replica = origin.replica
        self.chain = origin.chain
        self.over = False
        """True once a restart was decided: nothing is played, said or done any more."""
        self._group = group
        self._site: Site = ""
        self._tags: dict[PeerId, tuple[str, ...]] = {}
        self._peers_made = 0
        self._unseen: dict[int, SentRecord] = {}
        self._appends = 0
        self._left_on_purpose = False
        self._offers = tuple(offers)
        self._viewer = Viewer(group, join_once=join_once)

    # -- what is known

    @property
    def group(self) -> GroupId:
        """The group's id."""
        return self._group

    @property
    def version(self) -> Position:
        """The position of the entry that was applied last."""
        return self.replica.version

    @property
    def viewer(self) -> Viewer:
        """The group and its virtual peers, as effects are computed for them."""
        return self._viewer

    @property
    def joined(self) -> bool:
        """True while the log says that the group has joined."""
        return self._group in self.replica.groups

    @property
    def unseen(self) -> tuple[SentRecord, ...]:
        """The records of this incarnation that it has not read in the log yet, oldest first."""
        return tuple(self._unseen.values())

    # -- acts of its own

    def begin(self, site: Site, now_ms: int) -> Turn:
        """Ask to join, and offer the virtual peers, reached at `site`. The pulse, or the will, must stand."""
        self._site = site
        turn = Turn(self._append(owed(self.replica, self._viewer), None, now_ms))
        for tags in self._offers:
            turn += self._offer(tags, now_ms)
        return turn

    def say(self, command: Command, now_ms: int) -> Turn:
        """Append a command that no entry caused: of a task, of a timer, of the program that runs the group."""
        return Turn(self._append((command,), None, now_ms))

    def pulse_gone(self, subject: GroupId, now_ms: int) -> Turn:
        """Note that a group that this one looked after is gone."""
        if subject in self.replica.left:
            return Turn()
        return self.say(GroupLeave(subject), now_ms)

    def peer_failed(self, peer: PeerId, now_ms: int) -> Turn:
        """Note that a virtual peer cannot continue: it leaves, and begins again once the log says so."""
        return self.say(Leave(peer, self._group), now_ms) if peer in self._viewer.peers else Turn()

    def peer_again(self, peer: PeerId, now_ms: int) -> Turn:
        """Begin a virtual peer that is out again, under a new id."""
        tags = self._tags.pop(peer, None)
        return Turn() if tags is None else self._offer(tags, now_ms)

    def leave(self, now_ms: int) -> Turn:
        """Leave with the whole group, on purpose. A RestartGroup that follows is ignored."""
        self._left_on_purpose = True
        return self.say(GroupLeave(self._group), now_ms)

    # -- what comes from the log

    def accepted(self, number: int, position: Position, now_ms: int) -> Turn:
        """Note that the log accepted an append, at this position.

        This may be told after the group continued from an origin that has it: then the core looks at what
        became of it.
        """
        if self.over or number not in self._unseen:
            return Turn()
        if position > self.replica.version:
            self._unseen[number] = evolve(self._unseen[number], position=position)
            return Turn()
        del self._unseen[number]
        return self._unread(self.replica, now_ms)

    def take(self, entry: Entry, now_ms: int) -> Turn:
        """Play the next entry. One that was played already does nothing."""
        if self.over or entry.position <= self.replica.version:
            return Turn()
        before = self.replica
        step = play(self.replica, entry, self.chain)
        self.replica, self.chain = step.replica, step.chain
        self._see(entry)
        acts = tuple(self._acts(effects(step, self._viewer), entry.position, before, step))
        appends = self._append(reactions(step, self._viewer), entry.position, now_ms)
        if self._waits_to_join() and ring.has_turn(self.replica, self._group):
            appends += self._append((PrepareJoin(self._group),), entry.position, now_ms)
        return self._settled(Turn(appends, acts))

    def join_again(self, now_ms: int) -> Turn:
        """Try to join again, as `JoinLater` has waited; this does nothing if the group's turn came meanwhile."""
        return self.say(PrepareJoin(self._group), now_ms) if self._waits_to_join() else Turn()

    def _waits_to_join(self) -> bool:
        """Return whether the last attempt to join was given up, and there is no other one."""
        return (
            self._group in self.replica.aborted
            and not self._viewer.join_once
            and not any(
                isinstance(sent.record.command, PrepareJoin | AbortJoin) for sent in self._unseen.values()
            )
        )

    def jump(self, origin: Origin, now_ms: int) -> Turn:
        """Continue from an origin, as the entries before it are gone; this does nothing if all of them were played.

        Whatever the entries would have asked of this group is done, or stands in the replica that they led
        to: as a join that waits for it, a task that it was given, or its own absence.
        """
        if self.over or origin.position <= self.replica.version:
            return Turn()
        before, self.replica, self.chain = self.replica, origin.replica, origin.chain
        self._unseen = {
            number: sent
            for number, sent in self._unseen.items()
            if sent.position is None or sent.position > origin.position
        }
        return self._unread(before, now_ms)

    def _jump_effects(self, before: Replica) -> tuple[Effect, ...]:
        """Add what only this core can know: that something of its own was both said and undone in the entries it missed."""
        under_way = [sent.record.command for sent in self._unseen.values()]
        offered = {command.peer for command in under_way if isinstance(command, AddVirtualPeer)}
        wanted = jump_effects(before, self.replica, self._viewer, self._viewer.peers - offered)
        joining = any(isinstance(command, PrepareJoin | JoinDirect) for command in under_way)
        if RestartGroup() not in wanted and not joining and not is_known(self.replica, self._group):
            return (*wanted, RestartGroup())
        return wanted

    # -- inside

    def _unread(self, before: Replica, now_ms: int) -> Turn:
        """Return what follows for this group from entries that it could not read.

        They led from `before` to the replica.
        """
        wanted = self._jump_effects(before)
        commands = () if RestartGroup() in wanted else owed(self.replica, self._viewer)
        under_way = {sent.record.command for sent in self._unseen.values()}
        position = self.replica.version
        appends = self._append(
            [command for command in commands if command not in under_way], position, now_ms
        )
        return self._settled(Turn(appends, tuple(Act(position, effect) for effect in wanted)))

    def _offer(self, tags: tuple[str, ...], now_ms: int) -> Turn:
        peer = f"{self._group}.{self._peers_made}"
        self._peers_made += 1
        self._tags[peer] = tags
        self._viewer = evolve(self._viewer, peers=self._viewer.peers | {peer})
        return self.say(AddVirtualPeer(peer, self._group, self._site, tags), now_ms)

    def _append(self, commands: Iterable[Command], cause: Position | None, now_ms: int) -> tuple[Append, ...]:
        appends = []
        for command in commands:
            if self.over or self._said(command):
                continue
            record = Record(command, self._group, cause, now_ms)
            appends.append(Append(self._appends, record))
            self._unseen[self._appends] = SentRecord(record)
            self._appends += 1
        if len(self._unseen) > UNSEEN_MAX:
            raise OnyxlogError(
                f"group {self._group}: {len(self._unseen)} records wait for the log, expected at most {UNSEEN_MAX}: "
                "it takes none, or this group reads none"
            )
        return tuple(appends)

    def _said(self, command: Command) -> bool:
        """Return whether this death was reported.

        A watch, a look and a detector notice it; one entry is enough.
        """
        return isinstance(command, GroupLeave) and any(
            sent.record.command == command for sent in self._unseen.values()
        )

    def _see(self, entry: Entry) -> None:
        if entry.record.author != self._group:
            return
        for number, sent in self._unseen.items():
            # A group's own appends keep their order, so that it is nearly always the first.
            if sent.record == entry.record:
                del self._unseen[number]
                return

    def _acts(
        self, wanted: Iterable[Effect], position: Position, before: Replica, step: Step
    ) -> Iterator[Act]:
        for effect in wanted:
            if isinstance(effect, StoreOrigin):
                forgotten = tuple(group for group in before.left if group not in step.replica.left)
                yield Act(position, Truncate(Origin(position, step.replica, step.chain), forgotten))
            else:
                yield Act(position, effect)

    def _settled(self, turn: Turn) -> Turn:
        """Note what the acts mean for this core: which peers are out, and whether all of it is over."""
        for act in turn.acts:
            match act.what:
                case RestartPeer(peer):
                    self._viewer = evolve(self._viewer, peers=self._viewer.peers - {peer})
                case RestartGroup():
                    self.over = True
                case _:
                    pass
        if self.over and self._left_on_purpose:
            return evolve(turn, acts=tuple(a for a in turn.acts if not isinstance(a.what, RestartGroup)))
        return turn
