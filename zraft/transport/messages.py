"""Messages between servers beside those of Raft.

Values only; the codec of the wire is `zraft.transport.codec`.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.raft.messages import Message as RaftMessage
from zraft_core.ids import GroupId, Instance, ServerId


@frozen
class Hello:
    """Bootstrap and identity (D-1): who I am, and what I know of a cluster.

    `cluster` is the cluster id once the roster entry is in this server's log, else None. `roster` is
    the durable list of (server, instance) this server has agreed to bootstrap with, else None.
    """

    cluster: bytes | None
    roster: tuple[tuple[ServerId, Instance], ...] | None
    wants_reply: bool


@frozen
class OriginBatch:
    """One numbered batch of an origin's client writes, for the leader to append (D-2).

    `blob` is the packed batch exactly as it will stand in the log (see `zraft_core.znodes.txn`); its bytes never
    change once numbered. (boot, seq, count) repeat what the blob says, so that the leader need not unpack it.
    """

    group: GroupId
    boot: int
    seq: int
    count: int
    blob: bytes


@frozen
class TouchReport:
    """Sessions heard from since the last acknowledged report, with their ages in ms at `number`'s sending (D-11)."""

    boot: int
    number: int
    ages: tuple[tuple[int, int], ...]


@frozen
class TouchAck:
    """The leader of `term` has taken report `number`; `refused` lists sessions whose end is already in its log."""

    term: int
    boot: int
    number: int
    refused: tuple[int, ...]


@frozen
class Join:
    """A server whose disk is in no configuration asks to be taken in: to all its peers, the leader acts (D-1).

    `cluster` is the cluster it was told to join, b"" if its disk never saw one; `address` its own "HOST:PORT";
    `features` the highest feature level it can apply (D-5). Its instance is the authenticated sender's.
    """

    cluster: bytes
    address: str
    features: int


@frozen
class Welcome:
    """The joiner's instance is a member as of entry `index`; it may start with this configuration.

    `membership` is the payload of a MEMBERSHIP entry (`zraft.raft.membership.value`).
    """

    cluster: bytes
    index: int
    membership: bytes


@frozen
class NotMember:
    """The receiver's (server, instance) is in no configuration at or after entry `index`."""

    cluster: bytes
    index: int


@frozen
class SnapshotOffer:
    """The leader has a snapshot for a follower that its log no longer reaches: a file of `size` bytes.

    `index` and `snapshot_term` say which entry it ends with, `id` (16 random bytes) names the file.
    """

    group: GroupId
    term: int
    index: int
    snapshot_term: int
    id: bytes
    size: int


@frozen
class SnapshotRequest:
    """The follower pulls: `length` bytes of the offered file from byte `offset`."""

    group: GroupId
    term: int
    id: bytes
    offset: int
    length: int


@frozen
class SnapshotChunk:
    """The answer to one `SnapshotRequest`. `data` may be shorter than what was asked for."""

    group: GroupId
    term: int
    id: bytes
    offset: int
    data: bytes


@frozen
class MemberReport:
    """Report of a member to the leader, with every touch report: what it can apply, and what it computed.

    `features` is the highest feature level it can apply (D-5); `digests` are (entry index, 128-bit digest of
    the state after it), so that a divergence is found by comparison (D-26).
    """

    features: int
    digests: tuple[tuple[int, int], ...]


@frozen
class Verdict:
    """Digests that the majority computed, from the leader to every member (D-26).

    Each is (entry index, digest of the state after it).
    """

    digests: tuple[tuple[int, int], ...]


@frozen
class SharedHeartbeat:
    """One server to another, for all groups that the one leads and the other follows (docs/explanation/groups.md).

    The sender leads all groups of the cover `epoch`: those of all `items` of the epoch that this server agreed to. An
    item is (group, term, index): the sender leads it in `term`, and the receiver's log, which it knows to match its own
    up to there, is committed up to `index`. Term 0 withdraws the group. Items are repeated until they are answered.
    `answered` is the newest number of this epoch that was, 0 if none.
    """

    epoch: int
    number: int
    answered: int
    items: tuple[tuple[GroupId, int, int], ...]


@frozen
class SharedHeartbeatReply:
    """The sender follows, in the terms it agreed to, all groups of the cover `epoch` but those in `lost`.

    As of when it took the heartbeat `number`. Epoch 0: it knows nothing of the cover, which has to begin anew.
    """

    epoch: int
    number: int
    lost: tuple[GroupId, ...]


@frozen
class Bundle:
    """Messages of a group's leader, or of group 0's, to the leader of `to`: what `zraft_core.topics.codec` packs.

    It goes to whoever leads `to` as far as the sender knows. Any other server with a replica of it passes it on, once:
    `passed` says that this was done.
    """

    to: GroupId
    blob: bytes
    passed: bool = False


@frozen
class Edge:
    """Message of a group to group 0's leader: a report, or an answer to it as a producer.

    `zraft_core.topics.codec` packs it.
    """

    blob: bytes


@frozen
class GroupLeader:
    """The sender has a replica of `group`, and follows `server` there in `term`: bundles belong there, not here."""

    group: GroupId
    term: int
    server: ServerId


@frozen
class DeliveryListRequest:
    """A follower that has all bytes of the offered snapshot `id` of a group asks what deliveries go with it."""

    group: GroupId
    id: bytes


@frozen
class DeliveryList:
    """The leader's delivery segments, at least up to where its snapshot `id` stands: a manifest.

    Source: docs/explanation/storage.md.
    """

    group: GroupId
    id: bytes
    manifest: bytes


@frozen
class DeliveryRequest:
    """The follower pulls: `length` bytes of the delivery segment `id` from byte `offset`."""

    group: GroupId
    id: bytes
    offset: int
    length: int


@frozen
class DeliveryPiece:
    """The answer to one `DeliveryRequest`. `data` may be shorter than what was asked for; empty: the segment is gone."""

    group: GroupId
    id: bytes
    offset: int
    data: bytes


@frozen
class GroupDigests:
    """Digests that a member of groups computed, to their leader: (group, entry index, digest after it) (D-26)."""

    digests: tuple[tuple[GroupId, int, int], ...]


@frozen
class GroupVerdict:
    """Digests that the majority of each group computed, from its leader to its members (D-26).

    They are as in `GroupDigests`.
    """

    digests: tuple[tuple[GroupId, int, int], ...]


ServerMessage = (
    Hello
    | OriginBatch
    | TouchReport
    | TouchAck
    | Join
    | Welcome
    | NotMember
    | SnapshotOffer
    | SnapshotRequest
    | SnapshotChunk
    | MemberReport
    | Verdict
    | SharedHeartbeat
    | SharedHeartbeatReply
    | Bundle
    | Edge
    | GroupLeader
    | DeliveryListRequest
    | DeliveryList
    | DeliveryRequest
    | DeliveryPiece
    | GroupDigests
    | GroupVerdict
)
PeerMessage = RaftMessage | ServerMessage

_OF_GROUPS: Final = frozenset(
    {SharedHeartbeat, SharedHeartbeatReply, Bundle, Edge, GroupLeader, GroupDigests, GroupVerdict}
)


def is_of_groups(message: PeerMessage) -> bool:
    """Return whether a message is for the hosts of groups, not for the coordination group."""
    return message.__class__ in _OF_GROUPS or getattr(message, "group", 0) != 0


@frozen
class Sender:
    """Sender of a datagram, as authenticated.

    `boot` is that server's boot number (fsynced before its first datagram).
    """

    server: ServerId
    instance: Instance
    boot: int
