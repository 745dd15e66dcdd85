"""Group 0's share of topics: producers, topics and groups, and what groups are told of them (D-8d, D-8e, D-18).

A part of the coordination group's replicated state: it changes only by `apply`, with the zxid of the command, and ids are
such zxids, never used again. Where replicas of a group are placed is somebody else's matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final

from zraft.ids import GroupId, Instance, ProducerId
from zraft.topics.applied import PartitionSettings
from zraft.topics.message import COORDINATOR
from zraft.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    RegisterProducer,
    RegistryCommand,
    TopicChanged,
)
from zraft.topics.registry_values import (
    Birth,
    Change,
    GroupRecord,
    Refusal,
    RegistrySettings,
    Result,
    Table,
    Topic,
    is_topic_name,
)
from zraft.topics.view import AnyView, View, ViewDelta

CHANGES_KEPT: Final = 4096
"""Changes of ids that are remembered, so that a group whose view is older gets a difference; a bound, not a promise."""


class _Became(Enum):
    OPENED = "opened"
    CLOSED = "closed"
    RETIRED = "retired"
    CREATED = "created"
    DELETING = "deleting"
    REMOVED = "removed"


class Registry:
    """Producers, topics and groups. `closed` and `deleting` have who has reported that nothing of them is left there."""

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
        self.changes: dict[int, Change] = {}
        self.last_change = 0
        self._history: deque[tuple[int, _Became, int]] = deque(maxlen=CHANGES_KEPT)
        self._forgotten = 0
        """The position up to which the history may lack something."""

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
            case CreateTopic(name, partitions):
                return self._create_topic(name, partitions, zxid)
            case AlterTopic(name, partitions):
                return self._alter_topic(name, partitions)
            case CreateGroup(topic, founder):
                return self._create_group(topic, founder, zxid)
            case TopicChanged(seq):
                return self._topic_changed(seq)
            case DeleteTopic(name):
                return self._delete_topic(name, zxid)
            case Cleared(group, producers, deleting):
                return self._cleared(group, producers, deleting, zxid)

    # -- producers

    def _register(self, owner: int, zxid: int) -> Result:
        if len(self.producers) + len(self.closed) > self.settings.producers_max:
            return Result(Refusal.TOO_MANY)
        producer = ProducerId(zxid)
        self.producers[producer] = owner
        self.owned.setdefault(owner, set()).add(producer)
        self._note(zxid, _Became.OPENED, producer)
        return Result(created=producer)

    def _close(self, producer: ProducerId, zxid: int) -> Result:
        if producer == COORDINATOR or producer not in self.producers:
            return Result(Refusal.NO_PRODUCER)
        owner = self.producers.pop(producer)
        self.owned[owner].discard(producer)
        if not self.owned[owner]:
            del self.owned[owner]
        self.closed[producer] = set()
        self._note(zxid, _Became.CLOSED, producer)
        self._retire(zxid)
        return Result()

    # -- topics and groups

    def _create_topic(self, name: str, partitions: int, zxid: int) -> Result:
        if not is_topic_name(name):
            return Result(Refusal.BAD_NAME)
        if name in self.names:
            return Result(Refusal.EXISTS)
        if not 1 <= partitions <= self.settings.partitions_max:
            return Result(Refusal.BAD_COUNT)
        if len(self.topics) >= self.settings.topics_max:
            return Result(Refusal.TOO_MANY)
        self.topics[zxid] = Topic(zxid, name, partitions)
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
        self.topics[topic.topic] = Topic(topic.topic, name, partitions, topic.partitions)
        return Result(created=topic.topic)

    def _create_group(self, topic_id: int, founder: Instance, zxid: int) -> Result:
        topic = self.topics.get(topic_id)
        if topic is None:
            return Result(Refusal.NO_TOPIC)
        there = len(topic.partitions) + len(topic.adding)
        if there >= topic.wanted:
            return Result(Refusal.COMPLETE)
        if len(self.groups) >= self.settings.groups_max:
            return Result(Refusal.TOO_MANY)
        group = GroupId(zxid)
        first = not topic.partitions
        record = GroupRecord(group, topic_id, founder, born=first)
        self.groups[group] = record
        self._note(zxid, _Became.CREATED, group)
        adding = (*topic.adding, group)
        if there + 1 < topic.wanted:
            self._put(topic, topic.partitions, adding)
        elif first:
            self._put(topic, adding, ())
        else:
            self.last_change += 1
            change = Change(self.last_change, topic_id, (*topic.partitions, *adding), self.epoch)
            self.changes[change.seq] = change
            self._put(topic, topic.partitions, adding, change.seq)
        return Result(created=group, birth=Birth(record, self.view(), self.group_settings))

    def _put(
        self,
        topic: Topic,
        partitions: tuple[GroupId, ...],
        adding: tuple[GroupId, ...],
        change: int | None = None,
    ) -> None:
        self.topics[topic.topic] = Topic(topic.topic, topic.name, topic.wanted, partitions, adding, change)

    def _topic_changed(self, seq: int) -> Result:
        change = self.changes.pop(seq, None)
        if change is None:
            return Result()
        topic = self.topics.get(change.topic)
        if topic is not None and topic.change == seq:
            self._put(topic, change.partitions, ())
        return Result()

    def _delete_topic(self, name: str, zxid: int) -> Result:
        topic = self.topics.get(self.names.get(name, 0))
        if topic is None:
            return Result(Refusal.NO_TOPIC)
        del self.names[name]
        del self.topics[topic.topic]
        doomed = (*topic.partitions, *topic.adding)
        if doomed:
            self.epoch += 1
        for group in doomed:
            self.deleting[group] = set()
            self._note(zxid, _Became.DELETING, group)
        return Result(created=topic.topic)

    # -- what groups report

    def _cleared(
        self, group: GroupId, producers: tuple[ProducerId, ...], deleting: tuple[GroupId, ...], zxid: int
    ) -> Result:
        if group not in self.groups:
            return Result()
        for producer in producers:
            if producer in self.closed:
                self.closed[producer].add(group)
        for doomed in deleting:
            if doomed in self.deleting:
                self.deleting[doomed].add(group)
        removed = tuple(g for g, heard in self.deleting.items() if self.complete(heard))
        for gone in removed:
            del self.deleting[gone], self.groups[gone]
            self._note(zxid, _Became.REMOVED, gone)
        if removed:
            self._drop_changes()
        self._retire(zxid)
        return Result(removed=removed)

    def complete(self, heard: set[GroupId]) -> bool:
        """Every group that exists has said so, after it logged the end (D-8e)."""
        return heard.issuperset(self.groups)

    def _retire(self, zxid: int) -> None:
        for producer in [p for p, heard in self.closed.items() if self.complete(heard)]:
            del self.closed[producer]
            self._note(zxid, _Became.RETIRED, producer)

    def _drop_changes(self) -> None:
        """A change whose destinations are all removed is nobody's concern any more."""
        for seq, change in list(self.changes.items()):
            if not any(group in self.groups for group in change.partitions):
                del self.changes[seq]

    # -- what is read

    @property
    def changes_floor(self) -> int:
        """Every change up to this number is decided everywhere: the floor of group 0 as a producer."""
        return min(self.changes, default=self.last_change + 1) - 1

    def current_epoch(self, change: Change) -> int:
        """The epoch that a change is sent under: a newer one only while all its destinations exist (D-18)."""
        fine = all(g in self.groups and g not in self.deleting for g in change.partitions)
        return self.epoch if fine else change.epoch

    def table(self) -> Table:
        return Table(
            self.position,
            self.epoch,
            frozenset(g for g in self.groups if g not in self.deleting),
            frozenset(self.deleting),
        )

    def view(self) -> View:
        return View(
            self.position,
            self.epoch,
            frozenset(self.producers),
            frozenset(self.closed),
            frozenset(self.groups),
            frozenset(self.deleting),
        )

    def view_since(self, position: int) -> AnyView | None:
        """What a group that has logged the view of `position` lacks; None if nothing. A difference, if it is remembered."""
        if position >= self.position:
            return None
        if position < self._forgotten:
            return self.view()
        became: dict[tuple[bool, int], _Became] = {}
        for _, what, which in self._changes_after(position):
            of_groups = what in (_Became.CREATED, _Became.DELETING, _Became.REMOVED)
            became[of_groups, which] = what
        named = {
            what: tuple(sorted(which for (_, which), last in became.items() if last is what))
            for what in _Became
        }
        return ViewDelta(
            position,
            self.position,
            self.epoch,
            tuple(map(ProducerId, named[_Became.OPENED])),
            tuple(map(ProducerId, named[_Became.CLOSED])),
            tuple(map(ProducerId, named[_Became.RETIRED])),
            tuple(map(GroupId, named[_Became.CREATED])),
            tuple(map(GroupId, named[_Became.DELETING])),
            tuple(map(GroupId, named[_Became.REMOVED])),
        )

    def _changes_after(self, position: int) -> Iterator[tuple[int, _Became, int]]:
        newest: list[tuple[int, _Became, int]] = []
        for change in reversed(self._history):
            if change[0] <= position:
                break
            newest.append(change)
        return reversed(newest)

    def _note(self, zxid: int, what: _Became, which: int) -> None:
        if len(self._history) == CHANGES_KEPT:
            self._forgotten = self._history[0][0]
        self._history.append((zxid, what, which))
        self.position = zxid

    # -- from a snapshot

    def restore_producer(self, producer: ProducerId, owner: int) -> None:
        self.producers[producer] = owner
        if producer != COORDINATOR:
            self.owned.setdefault(owner, set()).add(producer)

    def restore_topic(self, topic: Topic) -> None:
        self.topics[topic.topic] = topic
        self.names[topic.name] = topic.topic

    def forget_history(self) -> None:
        """After a restore: what changed before is not known, so older views get the whole."""
        self._history.clear()
        self._forgotten = self.position
