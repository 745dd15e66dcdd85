"""Group 0's share of topics: producers, topics and groups, and what groups are told of them (D-8d, D-8e, D-18).

A part of the coordination group's replicated state: it changes only by `apply`, with the zxid of the command, and ids are
such zxids, never used again. Where replicas of a group should be is somebody else's decision, which is written down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve

from zraft.topics.registry_history import Became, History
from zraft.topics.registry_items import Part, RegistryDigest
from zraft_core.ids import EPOCHS_SKIPPED, GroupId, Instance, ProducerId, ServerId
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    GiveUp,
    Placed,
    PlaceGroup,
    RegisterProducer,
    RegistryCommand,
    RetainTopic,
    TopicChanged,
)
from zraft_core.topics.registry_values import (
    OFFSETS_SKIPPED,
    Birth,
    Change,
    Disks,
    GroupRecord,
    PartitionSettings,
    Refusal,
    RegistrySettings,
    Result,
    Retention,
    Table,
    Topic,
    is_topic_name,
)
from zraft_core.topics.stamps import TIME_MAX
from zraft_core.topics.view import AnyView, View

TIMES_SKIPPED: Final = 1 << 44
"""By so many times stamps of a cluster that begins with a copy are above those of the copy: years of a busy partition, and
a quarter of a million copies of copies until there is none left.
"""
TIMES_SKIPPED_IN_PLACE: Final = 1 << 48
"""By so many times its stamps begin above all that were given before: more than there can be between two such groups."""


class Registry:
    """Producers, topics and groups. `closed` and `deleting` have who has reported that nothing of them is left there.

    `settings` are replicated with those of the tree, whose owner sets them here. `revision` is no part of the state: it
    moves whenever topics, groups, or where these belong may have changed, so that others know when to look.
    """

    def __init__(
        self, settings: RegistrySettings | None = None, group_settings: PartitionSettings | None = None
    ) -> None:
        self.settings = settings or RegistrySettings()
        self.group_settings = group_settings or PartitionSettings()
        self.position = 0
        self.epoch = 0
        self.producers: dict[ProducerId, int] = {COORDINATOR: 0}
        """Open ones, and who owns each: a session."""
        self.owned: dict[int, set[ProducerId]] = {}
        self.closed: dict[ProducerId, set[GroupId]] = {}
        self.topics: dict[int, Topic] = {}
        self.names: dict[str, int] = {}
        self.groups: dict[GroupId, GroupRecord] = {}
        self.deleting: dict[GroupId, set[GroupId]] = {}
        self.given_up: set[GroupId] = set()
        """Those of `deleting` that take no part in anything, not even in their own end."""
        self.changes: dict[int, Change] = {}
        self.last_change = 0
        self.last_loss = 0
        """The position at which a group was given up last; 0 if none ever was."""
        self.times = 0
        """The time behind which the last group that took the place of a given-up one began; 0 if none did."""
        self.revision = 0
        self.digest = RegistryDigest(self)
        self._history = History()

    def apply(self, command: RegistryCommand, zxid: int) -> Result:
        """Take a command of group 0's log; a refused one changes nothing."""
        match command:
            case RegisterProducer(owner):
                return self._register(owner, zxid)
            case CloseProducer(producer):
                return self._close(producer, zxid)
            case EndOwner(owner):
                for producer in sorted(self.owned.get(owner, ())):
                    self._close(producer, zxid)
                return Result()
            case CreateTopic(name, partitions, retention):
                return self._create_topic(name, partitions, retention, zxid)
            case AlterTopic(name, partitions):
                return self._alter_topic(name, partitions)
            case RetainTopic(name, retention):
                return self._retain_topic(name, retention)
            case CreateGroup(topic, founders, preferred):
                return self._create_group(topic, founders, preferred, zxid)
            case PlaceGroup(group, wanted, preferred):
                return self._place_group(group, wanted, preferred)
            case Placed(group, voters):
                return self._placed(group, voters)
            case TopicChanged(seq):
                if seq not in self.changes:
                    return Result()
                self._topic_changed(seq)
                return Result(removed=self._remove_cleared(zxid) if self.given_up else ())
            case DeleteTopic(name):
                return self._delete_topic(name, zxid)
            case Cleared():
                return self._cleared(command, zxid)
            case GiveUp(group):
                return self._give_up(group, zxid)

    def groups_on(self, disk: tuple[ServerId, Instance]) -> int:
        """Return how many groups have, or may still have, a voter on `disk`.

        They would be a copy short without it.
        """
        return sum(disk in record.wanted or disk in record.former for record in self.living.values())

    @property
    def living(self) -> Mapping[GroupId, GroupRecord]:
        """The groups that are somewhere: all but those that are given up."""
        if not self.given_up:
            return self.groups
        return {group: record for group, record in self.groups.items() if group not in self.given_up}

    # -- producers

    def _register(self, owner: int, zxid: int) -> Result:
        if len(self.producers) + len(self.closed) > self.settings.producers_max:
            return Result(Refusal.TOO_MANY)
        producer = ProducerId(zxid)
        self.digest.before(Part.PRODUCERS, producer)
        self.producers[producer] = owner
        self.owned.setdefault(owner, set()).add(producer)
        self._note(zxid, Became.OPENED, producer)
        return Result(created=producer)

    def _close(self, producer: ProducerId, zxid: int) -> Result:
        if producer == COORDINATOR or producer not in self.producers:
            return Result(Refusal.NO_PRODUCER)
        self.digest.before(Part.PRODUCERS, producer)
        self.digest.before(Part.CLOSED, producer)
        owner = self.producers.pop(producer)
        self.owned[owner].discard(producer)
        if not self.owned[owner]:
            del self.owned[owner]
        self.closed[producer] = set()
        self._note(zxid, Became.CLOSED, producer)
        self._retire(zxid)
        return Result()

    # -- topics and groups

    def _create_topic(self, name: str, partitions: int, retention: Retention, zxid: int) -> Result:
        if not is_topic_name(name):
            return Result(Refusal.BAD_NAME)
        if name in self.names:
            return Result(Refusal.EXISTS)
        if not 1 <= partitions <= self.settings.partitions_max:
            return Result(Refusal.BAD_COUNT)
        if len(self.topics) >= self.settings.topics_max:
            return Result(Refusal.TOO_MANY)
        self._put(Topic(zxid, name, partitions, retention=retention))
        self.names[name] = zxid
        return Result(created=zxid)

    def _alter_topic(self, name: str, partitions: int) -> Result:
        topic = self.topics.get(self.names.get(name, 0))
        if topic is None:
            return Result(Refusal.NO_TOPIC)
        if partitions > self.settings.partitions_max or partitions < 1:
            return Result(Refusal.BAD_COUNT)
        if topic.change is not None or self.lacking(topic) or topic.adding:
            return Result(Refusal.CHANGING)
        if partitions < topic.wanted:
            return Result(Refusal.SHRINKING)
        if len(self.changes) >= self.group_settings.window:
            return Result(Refusal.TOO_MANY)
        self._put(evolve(topic, wanted=partitions))
        return Result(created=topic.topic)

    def _retain_topic(self, name: str, retention: Retention) -> Result:
        topic = self.topics.get(self.names.get(name, 0))
        if topic is None:
            return Result(Refusal.NO_TOPIC)
        self._put(evolve(topic, retention=retention))
        return Result(created=topic.topic)

    def _create_group(self, topic_id: int, founders: Disks, preferred: ServerId | None, zxid: int) -> Result:
        topic = self.topics.get(topic_id)
        if topic is None:
            return Result(Refusal.NO_TOPIC)
        lacking = self.lacking(topic)
        if not lacking:
            return Result(Refusal.COMPLETE)
        if len(self.groups) >= self.settings.groups_max:
            return Result(Refusal.TOO_MANY)
        if not _may_be_placed(founders, preferred):
            return Result(Refusal.BAD_PLACEMENT)
        group = GroupId(zxid)
        first = not topic.partitions
        record = GroupRecord(group, topic_id, founders, preferred, founders, first)
        if not first and (
            len(topic.partitions) == topic.wanted or self.given_up.issuperset(topic.partitions)
        ):
            self.times = self.next_times
            highest = max(self.groups[group].first_offset for group in topic.partitions)
            record = evolve(record, first_offset=highest + OFFSETS_SKIPPED, first_time=self.times)
        self._put_group(record)
        self._note(zxid, Became.CREATED, group)
        adding = (*topic.adding, group)
        if lacking > 1:
            self._put(evolve(topic, adding=adding))
        elif first:
            self._put(evolve(topic, partitions=adding, adding=()))
        else:
            self.last_change += 1
            change = Change(self.last_change, topic_id, self._partitions_after(topic, adding), self.epoch)
            self.digest.before(Part.CHANGES, change.seq)
            self.changes[change.seq] = change
            self._put(evolve(topic, adding=adding, change=change.seq))
        return Result(created=group)

    def lacking(self, topic: Topic) -> int:
        """Return how many groups are to be created for a topic now.

        While it gets more partitions, those come first; then every one that is given up is replaced.
        """
        if topic.change is not None:
            return 0
        grows = topic.wanted - len(topic.partitions)
        if grows or self.next_times > TIME_MAX:
            return grows - len(topic.adding)
        return self.missing(topic) - len(topic.adding)

    def missing(self, topic: Topic) -> int:
        """Return how many of the partitions that a topic is to have take no messages."""
        lost = sum(group in self.given_up for group in topic.partitions) if self.given_up else 0
        return topic.wanted - len(topic.partitions) + lost

    @property
    def next_times(self) -> int:
        """The time behind which the next group begins that takes another's place: above all times that were given."""
        return (self.times or self.epoch // EPOCHS_SKIPPED * TIMES_SKIPPED) + TIMES_SKIPPED_IN_PLACE

    def _partitions_after(self, topic: Topic, adding: tuple[GroupId, ...]) -> tuple[GroupId, ...]:
        """Return the partitions that a topic has once a change is delivered: more of them, or others in their places."""
        if len(topic.partitions) < topic.wanted:
            return (*topic.partitions, *adding)
        fresh = iter(adding)
        return tuple([next(fresh) if group in self.given_up else group for group in topic.partitions])

    def _place_group(self, group: GroupId, wanted: Disks, preferred: ServerId | None) -> Result:
        record = self.groups.get(group)
        if record is None:
            return Result(Refusal.NO_GROUP)
        if not _may_be_placed(wanted, preferred):
            return Result(Refusal.BAD_PLACEMENT)
        former = record.former
        if wanted != record.wanted:
            # However far the last move got: until somebody reports, each of them may be a voter.
            former = tuple(sorted({*former, *record.wanted}))
        self._put_group(evolve(record, wanted=wanted, preferred=preferred, former=former))
        return Result(created=group)

    def _placed(self, group: GroupId, voters: Disks) -> Result:
        record = self.groups.get(group)
        if record is None:
            return Result(Refusal.NO_GROUP)
        if voters != record.wanted:
            return Result(Refusal.NOT_WANTED)
        if record.former:
            self._put_group(evolve(record, former=()))
        return Result(created=group)

    def _put(self, topic: Topic) -> None:
        self.digest.before(Part.TOPICS, topic.topic)
        self.topics[topic.topic] = topic
        self.revision += 1

    def _put_group(self, record: GroupRecord) -> None:
        self.digest.before(Part.GROUPS, record.group)
        self.groups[record.group] = record
        self.revision += 1

    def _topic_changed(self, seq: int) -> None:
        self.digest.before(Part.CHANGES, seq)
        change = self.changes.pop(seq)
        topic = self.topics.get(change.topic)
        if topic is not None and topic.change == seq:
            self._put(evolve(topic, partitions=change.partitions, adding=(), change=None))

    def _delete_topic(self, name: str, zxid: int) -> Result:
        topic = self.topics.get(self.names.get(name, 0))
        if topic is None:
            return Result(Refusal.NO_TOPIC)
        self.digest.before(Part.TOPICS, topic.topic)
        del self.names[name]
        del self.topics[topic.topic]
        doomed = [
            g for g in (*topic.partitions, *topic.adding) if g in self.groups and g not in self.deleting
        ]
        if doomed:
            self.epoch += 1
        for group in doomed:
            self.digest.before(Part.DELETING, group)
            self.deleting[group] = set()
            self._note(zxid, Became.DELETING, group)
        self.revision += 1
        return Result(created=topic.topic)

    def _give_up(self, group: GroupId, zxid: int) -> Result:
        if group not in self.groups or group in self.given_up:
            return Result(Refusal.NO_GROUP)
        self.epoch += 1
        self.last_loss = zxid
        self._mark_given_up(group, zxid)
        topic = self.topics.get(self.groups[group].topic)
        if topic is not None and topic.partitions and self.given_up.issuperset(topic.partitions):
            # Nobody is left whose times would tell those that were to be added where to begin. They are empty.
            for added in topic.adding:
                if added not in self.given_up and not self.groups[added].first_time:
                    self._mark_given_up(added, zxid)
        # Others may begin what only this group had begun until they log that it is given up, so what they have reported
        # before says nothing any more (G-7).
        for doomed in self.deleting:
            self.digest.before(Part.DELETING, doomed)
            self.deleting[doomed] = set()
        for producer in self.closed:
            self.digest.before(Part.CLOSED, producer)
            self.closed[producer] = set()
        self.revision += 1
        for seq, change in list(self.changes.items()):
            if self.given_up.issuperset(change.partitions):
                self._topic_changed(seq)  # nobody is left who could deliver it
        removed = self._remove_cleared(zxid)
        self._retire(zxid)
        return Result(created=group, removed=removed)

    def _mark_given_up(self, group: GroupId, zxid: int) -> None:
        self.digest.before(Part.DELETING, group)
        self.deleting.setdefault(group, set())
        self.given_up.add(group)
        self._note(zxid, Became.GIVEN_UP, group)

    # -- what groups report

    def _cleared(self, command: Cleared, zxid: int) -> Result:
        group = command.group
        if group not in self.groups or group in self.given_up or command.position < self.last_loss:
            return Result()
        for producer in command.producers:
            if producer in self.closed:
                self.digest.before(Part.CLOSED, producer)
                self.closed[producer].add(group)
        for doomed in command.deleting:
            if doomed in self.deleting:
                self.digest.before(Part.DELETING, doomed)
                self.deleting[doomed].add(group)
        removed = self._remove_cleared(zxid)
        self._retire(zxid)
        return Result(removed=removed)

    def _remove_cleared(self, zxid: int) -> tuple[GroupId, ...]:
        removed = tuple(filter(self.removable, self.deleting))
        for gone in removed:
            self.digest.before(Part.DELETING, gone)
            self.digest.before(Part.GROUPS, gone)
            del self.deleting[gone], self.groups[gone]
            self.given_up.discard(gone)
            self._note(zxid, Became.REMOVED, gone)
        if removed:
            self.revision += 1
            self._drop_changes()
        return removed

    def removable(self, group: GroupId) -> bool:
        """Return whether nothing of a group that is being deleted is left, and no topic has it any more.

        A given-up one stays until another is in its place, or who has the topic's partitions would miss one.
        """
        if not self.complete(self.deleting[group]):
            return False
        topic = self.topics.get(self.groups[group].topic) if group in self.given_up else None
        if topic is None:
            return True
        return group not in topic.partitions and group not in topic.adding

    def complete(self, heard: set[GroupId]) -> bool:
        """Return whether every group that exists has said so, after it logged the end (D-8e).

        Groups that are given up are not asked.
        """
        if self.given_up:
            return heard.issuperset(self.groups.keys() - self.given_up)
        return len(heard) >= len(self.groups) and heard.issuperset(self.groups)

    def _retire(self, zxid: int) -> None:
        for producer in [p for p, heard in self.closed.items() if self.complete(heard)]:
            self.digest.before(Part.CLOSED, producer)
            del self.closed[producer]
            self._note(zxid, Became.RETIRED, producer)

    def _drop_changes(self) -> None:
        """Drop a change whose destinations are all removed: it is nobody's concern any more."""
        for seq, change in list(self.changes.items()):
            if not any(group in self.groups for group in change.partitions):
                self.digest.before(Part.CHANGES, seq)
                del self.changes[seq]

    # -- what is read

    @property
    def changes_floor(self) -> int:
        """Every change up to this number is decided everywhere: the floor of group 0 as a producer."""
        return min(self.changes, default=self.last_change + 1) - 1

    def current_epoch(self, change: Change) -> int:
        """Return the epoch that a change is sent under: a newer one only while all its destinations exist (D-18).

        While its topic exists, they all do. Those that are given up meanwhile stay, and the others decide without them.
        """
        return self.epoch if change.topic in self.topics else change.epoch

    def table(self) -> Table:
        """Return the table of groups for producers."""
        return Table(
            self.position,
            self.epoch,
            frozenset(g for g in self.groups if g not in self.deleting),
            frozenset(self.deleting),
        )

    def view(self) -> View:
        """Return the view of producers and groups as of now."""
        return View(
            self.position,
            self.epoch,
            frozenset(self.producers),
            frozenset(self.closed),
            frozenset(self.groups),
            frozenset(self.deleting),
            frozenset(self.given_up),
        )

    def view_since(self, position: int) -> AnyView | None:
        """Return what a group that has logged the view of `position` lacks; None if nothing.

        It is a difference if that is remembered.
        """
        if position >= self.position:
            return None
        return self._history.since(position, self.position, self.epoch) or self.view()

    def birth_of(self, group: GroupId) -> Birth:
        """Return what that group, which exists, begins with."""
        return Birth(self.groups[group], self.view(), self.group_settings)

    def _note(self, zxid: int, what: Became, which: int) -> None:
        self._history.note(zxid, what, which)
        self.position = zxid

    # -- snapshots

    def frozen(self) -> Registry:
        """Return the state as it is now, to be written down while this object goes on; a few milliseconds at most."""
        copy = Registry(self.settings, self.group_settings)
        copy._take_tables(self)
        copy.closed = {producer: set(heard) for producer, heard in self.closed.items()}
        copy.deleting = {group: set(heard) for group, heard in self.deleting.items()}
        return copy

    def become(self, other: Registry) -> None:
        """Take on another state, whose object must not be used any more."""
        self._take_tables(other)
        self.closed, self.deleting = other.closed, other.deleting
        self.owned = other.owned
        self.digest.restart(other.digest)
        self.revision += 1
        self.forget_history()

    def _take_tables(self, other: Registry) -> None:
        self.group_settings = other.group_settings
        self.position, self.epoch, self.last_change = other.position, other.epoch, other.last_change
        self.last_loss, self.times = other.last_loss, other.times
        self.producers, self.topics, self.names = dict(other.producers), dict(other.topics), dict(other.names)
        self.groups, self.changes = dict(other.groups), dict(other.changes)
        self.given_up = set(other.given_up)

    def restore_producer(self, producer: ProducerId, owner: int) -> None:
        """Add a producer from a snapshot."""
        self.digest.before(Part.PRODUCERS, producer)
        self.producers[producer] = owner
        if producer != COORDINATOR:
            self.owned.setdefault(owner, set()).add(producer)

    def restore_closed(self, producer: ProducerId, heard: set[GroupId]) -> None:
        """Add a closed producer from a snapshot."""
        self.digest.before(Part.CLOSED, producer)
        self.closed[producer] = heard

    def restore_topic(self, topic: Topic) -> None:
        """Add a topic from a snapshot."""
        self._put(topic)
        self.names[topic.name] = topic.topic

    def restore_group(self, record: GroupRecord) -> None:
        """Add a group from a snapshot."""
        self._put_group(record)

    def restore_deleting(self, group: GroupId, heard: set[GroupId], *, given_up: bool = False) -> None:
        """Add a group that is being deleted, or is given up, from a snapshot."""
        self.digest.before(Part.DELETING, group)
        self.deleting[group] = heard
        if given_up:
            self.given_up.add(group)

    def restore_change(self, change: Change) -> None:
        """Add an unfinished change from a snapshot."""
        self.digest.before(Part.CHANGES, change.seq)
        self.changes[change.seq] = change

    def forget_history(self) -> None:
        """Forget the changes before a restore, which are not known; older views get the whole."""
        self._history.forget(self.position)


def _may_be_placed(disks: Disks, preferred: ServerId | None) -> bool:
    return bool(disks) and (preferred is None or any(server == preferred for server, _ in disks))
