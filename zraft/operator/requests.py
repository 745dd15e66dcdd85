"""Requests of operators, and their answers.

Values only; `zraft.operator.protocol` has their bytes.

Whoever has the cluster key may ask for any of it (docs/how-to/security.md, "Who may administer").
"""

from __future__ import annotations

from attrs import field, frozen

from zraft_core.ids import Instance, ServerId
from zraft_core.topics.access import Guarded
from zraft_core.znodes.acl import Acl, user_of


@frozen
class MemberList:
    """List the members, and how far each one is."""


@frozen
class MemberAdd:
    """Add server `server` at `address` ("HOST:PORT"): a voter once it has caught up, or an observer for good."""

    server: ServerId
    address: str
    observer: bool = False


@frozen
class MemberMove:
    """Move member `server` to `address` ("HOST:PORT"); its part stays."""

    server: ServerId
    address: str


@frozen
class MemberRemove:
    """Remove a server, dead or alive."""

    server: ServerId


@frozen
class MemberPromote:
    """Make an observer, or a learner that has caught up, a voter."""

    server: ServerId


@frozen
class Transfer:
    """Hand the leadership to `server`, or to the voter that is the furthest (None)."""

    server: ServerId | None


@frozen
class SnapshotTake:
    """Write a snapshot of this server's state now; the answer is a `SnapshotFile`."""


@frozen
class SnapshotRead:
    """Read `length` bytes of the snapshot `snapshot` (its id) of this very server, from byte `offset`."""

    snapshot: bytes
    offset: int
    length: int


@frozen
class SettingsShow:
    """Show the replicated settings, and the feature level."""


@frozen
class SettingsSet:
    """Change a replicated setting, on all servers at the same point of the log."""

    name: str
    value: int


@frozen
class FeatureRaise:
    """Raise the feature level to `level`, or to what every member can do (None). It never falls again."""

    level: int | None


@frozen
class TopicList:
    """List a page of topics whose names come after `after`, in the order of names."""

    after: str = ""


@frozen
class TopicDescribe:
    """Describe one topic, with a page of its partitions from number `first` on."""

    name: str
    first: int = 0


@frozen
class TopicReplicas:
    """Show what this very server holds of the partitions with these groups."""

    groups: tuple[int, ...]


@frozen
class TopicCreate:
    """Create a topic. What is kept of each partition is bounded by its size, its age, both, or (None) not at all."""

    name: str
    partitions: int
    retention_bytes: int | None = None
    retention_age_ms: int | None = None


@frozen
class TopicAlter:
    """Add partitions to a topic."""

    name: str
    partitions: int


@frozen
class TopicRetain:
    """Change the bound of what is kept; None: no bound."""

    name: str
    retention_bytes: int | None
    retention_age_ms: int | None


@frozen
class TopicDelete:
    """Delete a topic, with everything in it."""

    name: str


def _without_hashes(acl: Acl) -> str:
    return ",".join(f"{scheme}:{user_of(scheme, who)}:{bits}" for bits, scheme, who in acl)


@frozen
class AclList:
    """List a page of the topics or consumers that have an ACL of their own, behind the one that is written `after`."""

    kind: Guarded
    after: str = ""


@frozen
class AclShow:
    """Show the ACL of a topic or a consumer; without a name the default."""

    kind: Guarded
    name: bytes = b""


@frozen
class AclSet:
    """Give a topic or a consumer an ACL; without a name the default.

    `version` is that of the ACL that it has, None if it has none of its own.
    """

    kind: Guarded
    name: bytes
    acl: Acl = field(repr=_without_hashes)
    version: int | None = None


@frozen
class AclDefaults:
    """Give topics and consumers the same default ACL, both at once, whatever they have."""

    acl: Acl = field(repr=_without_hashes)


@frozen
class AclRemove:
    """Remove the ACL of a topic or a consumer, so that the default counts."""

    kind: Guarded
    name: bytes


@frozen
class TopicGiveUp:
    """Give up the partition of a deleted topic whose group is `group`, because its disks are lost for good.

    Without `sure`, nothing is done; the answer says what would be given up, or why it is refused.
    """

    group: int
    sure: bool


OperatorRequest = (
    MemberList
    | MemberAdd
    | MemberMove
    | MemberRemove
    | MemberPromote
    | Transfer
    | SnapshotTake
    | SnapshotRead
    | SettingsShow
    | SettingsSet
    | FeatureRaise
    | TopicList
    | TopicDescribe
    | TopicReplicas
    | TopicCreate
    | TopicAlter
    | TopicRetain
    | TopicDelete
    | AclList
    | AclShow
    | AclSet
    | AclDefaults
    | AclRemove
    | TopicGiveUp
)


@frozen
class MemberLine:
    """One member. `role` is "voter", "learner", "observer" or "leaving".

    `match_index` is how far its log is known to agree with the leader's, None if it is not known; `silent_ms`
    since when the leader has not heard of it, None for the leader itself or if it never did; `features` is
    the highest feature level it can apply, None until it told. `instance` is b"" for a server that never
    showed up.
    """

    server: ServerId
    address: str
    role: str
    instance: Instance
    leads: bool
    match_index: int | None
    silent_ms: int | None
    features: int | None


@frozen
class MemberListing:
    """The configuration of entry `index`; `changing` while it is not committed, or joint."""

    cluster: bytes
    index: int
    last_index: int
    changing: bool
    members: tuple[MemberLine, ...]


@frozen
class Done:
    """The change is done, or was so already; `text` says what, for people."""

    text: str


@frozen
class SnapshotFile:
    """A snapshot that can be read from server `server`: `size` bytes, the state after entry `index`.

    `snapshot` is its id, 16 bytes.
    """

    server: ServerId
    snapshot: bytes
    size: int
    index: int
    zxid: int


@frozen
class SnapshotPart:
    """Bytes of a snapshot from `offset`; fewer than asked for only at its end."""

    offset: int
    data: bytes


@frozen
class SettingLine:
    """A replicated setting: the value in force, and the one in this server's configuration (None: nothing)."""

    name: str
    value: int
    configured: int | None


@frozen
class SettingsListing:
    """The settings. `feature_level` is in force; `feature_level_possible` is what all members can do."""

    settings: tuple[SettingLine, ...]
    feature_level: int
    feature_level_possible: int


@frozen
class TopicLine:
    """A topic: `partitions` take messages, `wanted` should; `moving` of them are on their way to other disks."""

    name: str
    topic: int
    partitions: int
    wanted: int
    moving: int
    retention_bytes: int | None
    retention_age_ms: int | None


@frozen
class TopicListing:
    """A page of topics; `more` if there are others after it.

    `deleting` partitions of deleted topics are not empty yet.
    """

    topics: tuple[TopicLine, ...]
    more: bool
    producers: int
    deleting: int


@frozen
class PartitionLine:
    """A partition: its group, its replicas and its preferred leader.

    `state` is "ready", "moving", "adding" while it does not take messages yet, or "given up" until another group has taken
    its place; that one has the same number.
    """

    number: int
    group: int
    preferred: ServerId | None
    servers: tuple[int, ...]
    state: str


@frozen
class TopicDescription:
    """A topic and a page of its partitions; `more` if others follow."""

    name: str
    topic: int
    wanted: int
    retention_bytes: int | None
    retention_age_ms: int | None
    partitions: tuple[PartitionLine, ...]
    more: bool


@frozen
class AclLine:
    """A name with an ACL of its own; `written` is the name of its znode."""

    written: str
    name: bytes
    acl: Acl


@frozen
class AclListing:
    """A page of names; `default` is None if nobody has set it; `more` if there are others after it."""

    default: Acl | None
    lines: tuple[AclLine, ...]
    more: bool


@frozen
class AclShown:
    """The ACL of a name, None if it has none of its own, and the default, None if nobody has set it."""

    acl: Acl | None
    version: int | None
    default: Acl | None


@frozen
class FollowerLine:
    """A replica of a partition as the partition's leader knows it.

    Attributes:
        behind: entries of the leader's log that the replica is not known to have; None while that is not known.
        silent_ms: time since it last answered the leader; None if it did not in this leadership.
        in_sync: whether it answers, and has everything that is committed or is sent the rest right now.
    """

    server: ServerId
    behind: int | None
    silent_ms: int | None
    in_sync: bool


@frozen
class ReplicaLine:
    """A replica of a partition on the server that answers.

    Attributes:
        term, leader: as known there; the leader is None while none is known. `leads` if it is that server.
        first, end: the offset of the oldest record that is kept there, and the one behind the newest.
        stored_bytes: length of its deliveries on the disk.
        oldest_age_ms: age of the oldest delivery on the disk; None if there is none.
        problem: why the partition does not work there; "" while it does.
        followers: the other replicas; empty unless it is led there.
    """

    group: int
    term: int
    leader: ServerId | None
    leads: bool
    first: int
    end: int
    stored_bytes: int
    oldest_age_ms: int | None
    problem: str
    followers: tuple[FollowerLine, ...]


@frozen
class ReplicaListing:
    """The replicas that server `server` holds of the groups that were asked for."""

    server: ServerId
    replicas: tuple[ReplicaLine, ...]


@frozen
class Refused:
    """The change was not done, and `text` says why and what to do.

    `leader` is the address to ask instead, if this server refused only because another one leads.
    `retriable`: the same request may succeed in a moment.
    """

    text: str
    leader: str | None = None
    retriable: bool = False


OperatorReply = (
    MemberListing
    | Done
    | SnapshotFile
    | SnapshotPart
    | SettingsListing
    | TopicListing
    | TopicDescription
    | AclListing
    | AclShown
    | ReplicaListing
    | Refused
)

READ_ONLY = (
    *(MemberList, SettingsShow, SnapshotRead, TopicList, TopicDescribe, TopicReplicas),
    *(AclList, AclShow),
)
"""Repeating these, when an answer was lost, changes nothing."""
