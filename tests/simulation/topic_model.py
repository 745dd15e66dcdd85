"""What feature level 4 means in the reference history: producers, topics and groups, written for clarity only.

Every change is remembered with its zxid, so that servers can be compared with what they should have been at theirs. Of the
product only the classes of commands are used.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from attrs import evolve, frozen

from tests.simulation import rights
from zraft.topics.registry import Registry
from zraft_core.errors import Code
from zraft_core.topics import registry_commands as said

LEVEL: Final = 4
PARTITIONS_MAX: Final = 1_024

Disks = tuple[tuple[int, bytes], ...]


class RefusedError(Exception):
    """Nothing changes; `code` is what the client is told."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__(code)


@frozen
class Topic:
    name: str
    wanted: int
    retention: tuple[int | None, int | None]
    partitions: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    change: int | None = None


@frozen
class Group:
    topic: int
    founders: Disks
    preferred: int | None
    wanted: Disks
    born: bool
    former: Disks = ()


@frozen
class State:
    """All of it at one moment. `closed` and `deleting` have who reported; `changes` are (topic, partitions, epoch)."""

    producers: dict[int, int]
    closed: dict[int, frozenset[int]]
    topics: dict[int, Topic]
    groups: dict[int, Group]
    deleting: dict[int, frozenset[int]]
    changes: dict[int, tuple[int, tuple[int, ...], int]]
    position: int = 0
    epoch: int = 0
    last_change: int = 0

    def view(self) -> tuple[Any, ...]:
        """What groups are told."""
        return (
            self.position,
            self.epoch,
            {0, *self.producers},
            set(self.closed),
            set(self.groups),
            set(self.deleting),
        )


class Topics:
    """The history of topics; `states` are (zxid, state), the newest last."""

    def __init__(self) -> None:
        self.states: list[tuple[int, State]] = [(0, State({}, {}, {}, {}, {}, {}))]

    @property
    def now(self) -> State:
        return self.states[-1][1]

    def at(self, zxid: int) -> State:
        """As of after the command with this zxid."""
        return self.states[bisect_right(self.states, zxid, key=lambda entry: entry[0]) - 1][1]

    def change(
        self, command: Any, session: int, ids: rights.Ids, root: rights.Acl, zxid: int
    ) -> tuple[int | None]:
        """What a command comes to: the id that it made, if any.

        Raises:
            RefusedError: nothing happened.
        """
        self._judge(command, session, ids, root)
        state, made = self._changed(self.now, command, zxid)
        if state is not self.now:
            self.states.append((zxid, state))
        return (made,)

    def end_session(self, session: int, zxid: int) -> None:
        state = self.now
        for producer, owner in sorted(state.producers.items()):
            if owner == session:
                state = _closed(state, producer, zxid)
        if state is not self.now:
            self.states.append((zxid, state))

    def _judge(self, command: Any, session: int, ids: rights.Ids, root: rights.Acl) -> None:
        by_client = session != 0 or bool(ids)
        if isinstance(command, said.RegisterProducer):
            allowed = session != 0 and command.owner == session
        elif isinstance(command, said.CloseProducer):
            allowed = not by_client or self.now.producers.get(command.producer) == session
        elif isinstance(command, said.EndOwner):
            allowed = False
        elif isinstance(command, said.CreateTopic | said.AlterTopic | said.RetainTopic | said.DeleteTopic):
            bits = {said.CreateTopic: rights.CREATE, said.DeleteTopic: rights.DELETE}.get(
                type(command), rights.WRITE
            )
            if by_client and not rights.grants(root, bits, ids):
                raise RefusedError(Code.NO_AUTH)
            allowed = True
        else:
            allowed = not by_client
        if not allowed:
            raise RefusedError(Code.BAD_ARGUMENTS)

    def _changed(self, state: State, command: Any, zxid: int) -> tuple[State, int | None]:
        match command:
            case said.RegisterProducer(owner):
                producers = {**state.producers, zxid: owner}
                return evolve(state, producers=producers, position=zxid), zxid
            case said.CloseProducer(producer):
                if producer not in state.producers:
                    raise RefusedError(Code.NO_NODE)
                return _closed(state, producer, zxid), None
            case said.CreateTopic(name, partitions, retention):
                if any(topic.name == name for topic in state.topics.values()):
                    raise RefusedError(Code.NODE_EXISTS)
                if not 1 <= partitions <= PARTITIONS_MAX:
                    raise RefusedError(Code.BAD_ARGUMENTS)
                kept = (retention.bytes_min, retention.age_ms_max)
                return evolve(state, topics={**state.topics, zxid: Topic(name, partitions, kept)}), zxid
            case said.AlterTopic(name, partitions):
                number, topic = _named(state, name)
                if not 1 <= partitions <= PARTITIONS_MAX:
                    raise RefusedError(Code.BAD_ARGUMENTS)
                if len(topic.partitions) < topic.wanted or topic.change is not None:
                    raise RefusedError(Code.RECONFIG_IN_PROGRESS)
                if partitions < topic.wanted:
                    raise RefusedError(Code.BAD_ARGUMENTS)
                return _put(state, number, evolve(topic, wanted=partitions)), number
            case said.RetainTopic(name, retention):
                number, topic = _named(state, name)
                kept = (retention.bytes_min, retention.age_ms_max)
                return _put(state, number, evolve(topic, retention=kept)), number
            case said.DeleteTopic(name):
                number, topic = _named(state, name)
                topics = {one: other for one, other in state.topics.items() if one != number}
                doomed = (*topic.partitions, *topic.adding)
                if not doomed:
                    return evolve(state, topics=topics), number
                deleting = {**state.deleting, **dict.fromkeys(doomed, frozenset[int]())}
                return (
                    evolve(state, topics=topics, deleting=deleting, epoch=state.epoch + 1, position=zxid),
                    number,
                )
            case said.CreateGroup(topic_id, founders, preferred):
                return _grown(state, topic_id, founders, preferred, zxid), zxid
            case said.PlaceGroup(group, wanted, preferred):
                record = _group(state, group)
                _judge_place(wanted, preferred)
                former = record.former
                if wanted != record.wanted:
                    former = tuple(sorted({*former, *record.wanted}))
                moved = evolve(record, wanted=wanted, preferred=preferred, former=former)
                return evolve(state, groups={**state.groups, group: moved}), group
            case said.Placed(group, voters):
                record = _group(state, group)
                if record.wanted != voters:
                    raise RefusedError(Code.BAD_VERSION)
                if not record.former:
                    return state, group
                return evolve(state, groups={**state.groups, group: evolve(record, former=())}), group
            case said.TopicChanged(seq):
                return _announced(state, seq), None
            case said.Cleared(group, producers, deleting):
                return _cleared(state, group, set(producers), set(deleting), zxid), None
        raise AssertionError(command)


def _named(state: State, name: str) -> tuple[int, Topic]:
    for number, topic in state.topics.items():
        if topic.name == name:
            return number, topic
    raise RefusedError(Code.NO_NODE)


def _group(state: State, group: int) -> Group:
    if group not in state.groups:
        raise RefusedError(Code.NO_NODE)
    return state.groups[group]


def _put(state: State, number: int, topic: Topic) -> State:
    return evolve(state, topics={**state.topics, number: topic})


def _judge_place(disks: Disks, preferred: int | None) -> None:
    if not disks or (preferred is not None and preferred not in dict(disks)):
        raise RefusedError(Code.BAD_ARGUMENTS)


def _grown(state: State, topic_id: int, founders: Disks, preferred: int | None, zxid: int) -> State:
    """A topic gets a group. The first ones take messages as soon as all are there, later ones after an announcement."""
    if topic_id not in state.topics:
        raise RefusedError(Code.NO_NODE)
    topic = state.topics[topic_id]
    if len(topic.partitions) + len(topic.adding) >= topic.wanted:
        raise RefusedError(Code.NODE_EXISTS)
    _judge_place(founders, preferred)
    first = not topic.partitions
    group = Group(topic_id, founders, preferred, founders, first)
    state = evolve(state, groups={**state.groups, zxid: group}, position=zxid)
    adding = (*topic.adding, zxid)
    if len(topic.partitions) + len(adding) < topic.wanted:
        return _put(state, topic_id, evolve(topic, adding=adding))
    if first:
        return _put(state, topic_id, evolve(topic, partitions=adding, adding=()))
    seq = state.last_change + 1
    change = (topic_id, (*topic.partitions, *adding), state.epoch)
    state = evolve(state, last_change=seq, changes={**state.changes, seq: change})
    return _put(state, topic_id, evolve(topic, adding=adding, change=seq))


def _announced(state: State, seq: int) -> State:
    if seq not in state.changes:
        return state
    number, partitions, _ = state.changes[seq]
    state = evolve(state, changes={one: change for one, change in state.changes.items() if one != seq})
    topic = state.topics.get(number)
    if topic is None or topic.change != seq:
        return state
    return _put(state, number, evolve(topic, partitions=partitions, adding=(), change=None))


def _closed(state: State, producer: int, zxid: int) -> State:
    producers = {one: owner for one, owner in state.producers.items() if one != producer}
    closed = {**state.closed, producer: frozenset[int]()}
    return _retired(evolve(state, producers=producers, closed=closed, position=zxid), zxid)


def _retired(state: State, zxid: int) -> State:
    """D-8e: a producer is forgotten when every group that exists has reported."""
    kept = {one: heard for one, heard in state.closed.items() if not set(state.groups) <= heard}
    return state if kept == state.closed else evolve(state, closed=kept, position=zxid)


def _cleared(state: State, group: int, producers: set[int], deleting: set[int], zxid: int) -> State:
    if group not in state.groups:
        return state
    state = evolve(
        state,
        closed={one: heard | {group} if one in producers else heard for one, heard in state.closed.items()},
        deleting={
            one: heard | {group} if one in deleting else heard for one, heard in state.deleting.items()
        },
    )
    everybody = set(state.groups)
    gone = {one for one, heard in state.deleting.items() if everybody <= heard}
    if gone:
        groups = {one: record for one, record in state.groups.items() if one not in gone}
        state = evolve(
            state,
            groups=groups,
            deleting={one: heard for one, heard in state.deleting.items() if one not in gone},
            changes={seq: change for seq, change in state.changes.items() if set(change[1]) & set(groups)},
            position=zxid,
        )
    return _retired(state, zxid)


def state_of(registry: Registry) -> State:
    """The product's registry in these words."""
    return State(
        {int(p): owner for p, owner in registry.producers.items() if p},
        {int(p): frozenset(map(int, heard)) for p, heard in registry.closed.items()},
        {
            t.topic: Topic(
                t.name,
                t.wanted,
                (t.retention.bytes_min, t.retention.age_ms_max),
                tuple(t.partitions),
                tuple(t.adding),
                t.change,
            )
            for t in registry.topics.values()
        },
        {
            int(g.group): Group(g.topic, g.founders, g.preferred, g.wanted, g.born, g.former)
            for g in registry.groups.values()
        },
        {int(g): frozenset(map(int, heard)) for g, heard in registry.deleting.items()},
        {c.seq: (c.topic, tuple(c.partitions), c.epoch) for c in registry.changes.values()},
        registry.position,
        registry.epoch,
        registry.last_change,
    )
