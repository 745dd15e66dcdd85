"""Rights of a native client on topics and consumers, by the ACLs that are applied on this server; no I/O.

`needs` is the table: every request about partitions is in it, with the permissions that it takes. Commands about whole
topics are judged where they are applied (`zraft.tree.commands.topics`).

Source: docs/how-to/security.md, "ACLs of topics and consumers".
"""

from __future__ import annotations

from enum import Enum
from typing import Final, assert_never

from attrs import frozen

from zraft.server.clients.audit import Denial
from zraft.server.clients.native.services import NativeSpeaker
from zraft.tree.machine import Machine
from zraft_core.claims.commands import ClaimCommand, Configure, Forget
from zraft_core.ids import GroupId
from zraft_core.topics.codec import decode_registry
from zraft_core.topics.registry_commands import AlterTopic, CreateTopic, DeleteTopic, RetainTopic
from zraft_core.topics.registry_values import Topic, is_topic_name
from zraft_core.wire.native import partition_requests as wire
from zraft_core.znodes import acl
from zraft_core.znodes.acl import Acl, Ids, permits, user_of
from zraft_core.znodes.txn import Command

GRANTED_MAX: Final = 4_096
"""Permissions that are remembered of one connection until an ACL changes."""

DENIED_MAX: Final = 256
"""Denied requests, by their type and permission, of which one connection's lines tell until an ACL changes."""


class Right(Enum):
    """Permissions, with the bits of which one is enough, and the letter of the one to ask for.

    Whoever may use a topic or a consumer, or delete it, may also see it: a client cannot use what it cannot find.
    """

    CREATE = acl.CREATE, "c"
    WRITE = acl.WRITE, "w"
    READ = acl.READ, "r"
    DELETE = acl.DELETE, "d"
    ADMIN = acl.ADMIN | acl.READ | acl.WRITE | acl.DELETE, "a"

    @property
    def bits(self) -> int:
        """The bits of an ACL's entry of which one is enough."""
        return self.value[0]

    @property
    def letter(self) -> str:
        """The letter that grants it."""
        return self.value[1]


@frozen
class OfGroup:
    """A permission on the topic that a partition belongs to."""

    right: Right
    group: GroupId


@frozen
class OfConsumer:
    """A permission on the name of a consumer."""

    right: Right
    name: bytes


Need = OfGroup | OfConsumer


def needs(request: wire.PartitionRequest) -> list[Need]:
    """Return the permissions that a request takes, all of them."""
    match request:
        case wire.SubscribeProducer():
            return []  # a producer is its session's; what it sends is judged message by message
        case wire.Produce(requests=starts):
            found: dict[Need, None] = {}
            for start in starts:
                for group in start.message.destinations:
                    found[OfGroup(Right.WRITE, group)] = None
                if (condition := start.message.condition) is not None:
                    # It commits an offset as well.
                    found[OfGroup(Right.READ, condition.home)] = None
                    found[OfConsumer(Right.READ, condition.consumer)] = None
            return list(found)
        case wire.Fetch(parts=parts):
            return [OfGroup(Right.READ, part.group) for part in parts]
        case wire.Need(partitions=times):
            return [OfGroup(Right.READ, group) for group, _ in times]
        case wire.Claim(group=group, command=command):
            return _needs_of_claim(group, command)
        case wire.LookAtClaims(group=group, name=name):
            return [OfGroup(Right.ADMIN, group), OfConsumer(Right.ADMIN, _bytes(name))]
        case wire.SeekOffset(group=group, consumer=consumer, offset=offset):
            right = Right.DELETE if offset is None else Right.READ
            return [OfGroup(Right.READ, group), OfConsumer(right, consumer)]
        case wire.ReadOffset(group=group, consumer=consumer):
            return [OfGroup(Right.ADMIN, group), OfConsumer(Right.ADMIN, consumer)]
        case wire.FindOffset(group=group):
            return [OfGroup(Right.READ, group)]
        case wire.ListConsumers(group=group):
            return [OfGroup(Right.ADMIN, group)]
        case _:
            assert_never(request)


def _needs_of_claim(group: GroupId, command: ClaimCommand) -> list[Need]:
    match command:
        case Configure():
            return [OfGroup(Right.DELETE, group)]  # it is for all consumers of the partition
        case Forget():
            return [OfGroup(Right.READ, group), OfConsumer(Right.DELETE, _bytes(command.group))]
        case _:
            return [OfGroup(Right.READ, group), OfConsumer(Right.READ, _bytes(command.group))]


def _bytes(group: str) -> bytes:
    return group.encode(errors="surrogatepass")


class Verdict(Enum):
    """Decision about a need."""

    GRANTED = "granted"
    DENIED = "an ACL does not grant it"
    GONE = "the group belongs to no topic any more: nobody's ACL is left to judge by"
    UNKNOWN = "this server has not yet heard of the group"


class ConnectionAccess:
    """The permissions of one connection. What was granted is remembered until an ACL, or what the client proved, changes."""

    __slots__ = ("_acls", "_connection", "_denied", "_granted", "_ids", "_revision")

    def __init__(self, connection: NativeSpeaker) -> None:
        self._connection = connection
        self._acls = connection.machine.topic_acls
        self._granted: set[Need] = set()
        self._denied: set[tuple[str, Need]] = set()
        """Denials that have a line in the audit log. Whoever repeats one, or has very many, fills no disk with that."""
        self._ids: Ids = ()
        self._revision = -1

    def verdict(self, need: Need) -> Verdict:
        """Return whether the client has a permission now."""
        ids = self._connection.ids
        if self._revision != self._acls.revision or self._ids is not ids:
            self._granted.clear()
            self._denied.clear()
            self._ids, self._revision = ids, self._acls.revision
        if need in self._granted:
            return Verdict.GRANTED
        verdict = self._judge(need, ids)
        if verdict is Verdict.GRANTED:
            if len(self._granted) >= GRANTED_MAX:
                self._granted.clear()
            self._granted.add(need)
        return verdict

    def _judge(self, need: Need, ids: Ids) -> Verdict:
        match need:
            case OfConsumer(right, name):
                return _verdict(self._acls.of_consumer(name), right, ids)
            case OfGroup(right, group):
                topic = topic_of(self._connection.machine, group)
                if topic is not None:
                    return _verdict(self._acls.of_topic(topic.name), right, ids)
                registry = self._connection.machine.registry
                known = group in registry.groups or group <= registry.position
                return Verdict.GONE if known else Verdict.UNKNOWN

    def deny(self, what: str, need: Need) -> str:
        """Count that a request is denied, and return which permission it lacks, and how the client gets it, in words.

        The name of a topic that the client may not see is not told.
        """
        connection = self._connection
        ids = connection.ids
        first = len(self._denied) < DENIED_MAX and (what, need) not in self._denied
        if first:
            self._denied.add((what, need))
        match need:
            case OfConsumer(right, name):
                shown = name.decode(errors="backslashreplace")
                denial = Denial(connection.session, ids, what, "consumer", shown)
                connection.clients.on_denied(denial, first=first)
                return lacking(what, right, f"consumer {shown!r}", f"--consumer {shown}", ids)
            case OfGroup(right, group):
                topic = topic_of(connection.machine, group)
                denial = Denial(connection.session, ids, what, "topic", "" if topic is None else topic.name)
                connection.clients.on_denied(denial, first=first)
                if topic is None or not sees_topic(self._connection, topic.name):
                    return lacking(what, right, f"the topic of group {group}", "TOPIC", ids)
                return lacking(what, right, f"topic {topic.name!r}", topic.name, ids)


def _verdict(found: Acl | None, right: Right, ids: Ids) -> Verdict:
    return Verdict.GRANTED if found is None or permits(found, right.bits, ids) else Verdict.DENIED


def topic_of(machine: Machine, group: GroupId) -> Topic | None:
    """Return the topic that a group is a partition of, None if there is none or it was deleted."""
    registry = machine.registry
    record = registry.groups.get(group)
    return None if record is None else registry.topics.get(record.topic)


def sees_topic(connection: NativeSpeaker, name: str) -> bool:
    """Return whether the client may know that there is a topic of this name."""
    return _may(connection, connection.machine.topic_acls.of_topic(name), Right.ADMIN)


def writes_topic(connection: NativeSpeaker, name: str) -> bool:
    """Return whether the client may produce to a topic of this name."""
    return _may(connection, connection.machine.topic_acls.of_topic(name), Right.WRITE)


def sees_consumer(connection: NativeSpeaker, name: bytes) -> bool:
    """Return whether the client may know that there is a consumer of this name."""
    return _may(connection, connection.machine.topic_acls.of_consumer(name), Right.ADMIN)


def _may(connection: NativeSpeaker, found: Acl | None, right: Right) -> bool:
    return _verdict(found, right, connection.ids) is Verdict.GRANTED


def deny_change(connection: NativeSpeaker, kind: str, command: Command) -> str:
    """Count that a command about topics was denied where it was applied, and return why, in words; empty for others."""
    ids = connection.ids
    match decode_registry(command[1]):
        case CreateTopic(name):
            right = Right.CREATE
        case AlterTopic(name) | RetainTopic(name) | DeleteTopic(name):
            right = Right.DELETE
        case _:  # it has the number of another request, which was answered so
            return ""
    connection.clients.on_denied(Denial(connection.session, ids, kind, "topic", name), first=True)
    return lacking(kind, right, f"topic {name!r}", name if is_topic_name(name) else "TOPIC", ids)


def lacking(what: str, right: Right, of: str, argument: str, ids: Ids) -> str:
    """Return the words for a permission that is missing, and the operator's command that grants it.

    Args:
        what: the type of the request.
        right: the permission.
        of: what it is of, in words.
        argument: the same as the command line names it.
        ids: what the client has proved.
    """
    shown = [(scheme, user_of(scheme, who)) for scheme, who in ids]
    proved = ", ".join(f"{scheme}:{who}" for scheme, who in shown) or "nothing"
    scheme, who = next((one for one in shown if one[0] != "ip"), ("SCHEME", "ID"))
    if scheme == "digest":
        who = f"{who}:HASH"
    return (
        f"{what}: {right.name} of {of} is missing; the client has proved {proved}. Whoever has the cluster's key can "
        f"grant it: `zraft topic acl add {argument} {scheme}:{who}:{right.letter}`"
    )
