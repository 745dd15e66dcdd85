"""Group 0's share of topics: producers, topics and groups, and what groups are told of them (D-8d, D-8e, D-18).

A part of the coordination group's replicated state: it changes only by `apply`, with the zxid of the command, and ids are
such zxids, never used again. Where replicas of a group should be is somebody else's decision, which is written down here.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from zraft.topics.registry_history import Became, History
from zraft.topics.registry_items import Part, RegistryDigest
from zraft_core.ids import GroupId, Instance, ProducerId, ServerId
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
from zraft_core.topics.view import AnyView, View


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
                return self._topic_changed(seq)
            case DeleteTopic(name):
                return self._delete_topic(name, zxid)
            case Cleared(group, producers, deleting):
                return self._cleared(group, producers, deleting, zxid)
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
        if len(topic.partitions) < topic.wanted or topic.change is not None:
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
        there = len(topic.partitions) + len(topic.adding)
        if there >= topic.wanted:
            return Result(Refusal.COMPLETE)
        if len(self.groups) >= self.settings.groups_max:
            return Result(Refusal.TOO_MANY)
        if not _may_be_placed(founders, preferred):
            return Result(Refusal.BAD_PLACEMENT)
        group = GroupId(zxid)
        first = not topic.partitions
        self._put_group(GroupRecord(group, topic_id, founders, preferred, founders, first))
        self._note(zxid, Became.CREATED, group)
        adding = (*topic.adding, group)
        if there + 1 < topic.wanted:
            self._put(evolve(topic, adding=adding))
        elif first:
            self._put(evolve(topic, partitions=adding, adding=()))
        else:
            self.last_change += 1
            change = Change(self.last_change, topic_id, (*topic.partitions, *adding), self.epoch)
            self.digest.before(Part.CHANGES, change.seq)
            self.changes[change.seq] = change
            self._put(evolve(topic, adding=adding, change=change.seq))
        return Result(created=group)

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

    def _topic_changed(self, seq: int) -> Result:
        if seq not in self.changes:
            return Result()
        self.digest.before(Part.CHANGES, seq)
        change = self.changes.pop(seq)
        topic = self.topics.get(change.topic)
        if topic is not None and topic.change == seq:
            self._put(evolve(topic, partitions=change.partitions, adding=(), change=None))
        return Result()

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
        self.digest.before(Part.DELETING, group)
        self.deleting.setdefault(group, set())
        self.given_up.add(group)
        self._note(zxid, Became.GIVEN_UP, group)
        self.revision += 1
        removed = self._remove_cleared(zxid)
        self._retire(zxid)
        return Result(created=group, removed=removed)

    # -- what groups report

    def _cleared(
        self, group: GroupId, producers: tuple[ProducerId, ...], deleting: tuple[GroupId, ...], zxid: int
    ) -> Result:
        if group not in self.groups or group in self.given_up:
            return Result()
        for producer in producers:
            if producer in self.closed:
                self.digest.before(Part.CLOSED, producer)
                self.closed[producer].add(group)
        for doomed in deleting:
            if doomed in self.deleting:
                self.digest.before(Part.DELETING, doomed)
                self.deleting[doomed].add(group)
        removed = self._remove_cleared(zxid)
        self._retire(zxid)
        return Result(removed=removed)

    def _remove_cleared(self, zxid: int) -> tuple[GroupId, ...]:
        removed = tuple(g for g, heard in self.deleting.items() if self.complete(heard))
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
        """Return the epoch that a change is sent under: a newer one only while all its destinations exist (D-18)."""
        fine = all(g in self.groups and g not in self.deleting for g in change.partitions)
        return self.epoch if fine else change.epoch

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
