"""Statistics of a server's partitions for metrics and operators: counts of all, and the state of each at a moment."""

from __future__ import annotations

from attrs import frozen

from zraft.groups.statistics import FollowerState
from zraft_core.ids import GroupId, ServerId


@frozen
class Delivered:
    """Numbers of what was delivered: `messages`, their `records`, and the bytes of the messages."""

    messages: int = 0
    records: int = 0
    bytes: int = 0

    def __add__(self, other: Delivered) -> Delivered:
        """Return both together."""
        return Delivered(
            self.messages + other.messages, self.records + other.records, self.bytes + other.bytes
        )

    def __sub__(self, other: Delivered) -> Delivered:
        """Return what these are more."""
        return Delivered(
            self.messages - other.messages, self.records - other.records, self.bytes - other.bytes
        )


@frozen(kw_only=True)
class PartitionState:
    """A partition's replica on this server at a moment.

    Attributes:
        term, leader: of its Raft group, as known here; the leader is None while none is known.
        leads: whether this server leads it and takes messages.
        first, end: the offset of the oldest record that is kept here, and the one behind the newest.
        stored_bytes: length of its deliveries on this disk.
        oldest_ms: wall time of the oldest delivery on this disk, to within a frame; None if there is none.
        problem: why the partition does not work here; "" while it does.
        delivered: what was delivered while this server led it, since the server's start.
        followers: the other members; empty unless it is led here.
        too_few: whether it is led here and fewer replicas are in sync than there should be.
    """

    group: GroupId
    term: int
    leader: ServerId | None
    leads: bool
    first: int
    end: int
    stored_bytes: int
    oldest_ms: int | None
    problem: str
    delivered: Delivered
    followers: tuple[FollowerState, ...]
    too_few: bool


@frozen
class PartitionsStatistics:
    """A moment of one server; the `_total` fields count since its start.

    Of those led here: `pending` messages are begun and not delivered, the oldest of them for `pending_age_ms_max` in log
    time; `settled` are delivered, perhaps not everywhere; `started` are in the log. `unborn`: whose log has no birth yet.
    `stopped` met an entry that this release cannot carry out, `failed` have deliveries that cannot be used.
    `under_replicated`: led here, with fewer replicas in sync than there should be. `led_messages_total`, `led_records_total`
    and `led_bytes_total` were delivered while the partition was led here, so that those of all servers add up.
    `fetches_waiting`: consumers at the end of a partition. `entries_total`, `commands_total`: proposed by leaders here.
    Bundles are between this server's partitions and those of others, edges to the leader of group 0.
    `bundles_passed_total`, `strays_total`: for leaders, but arrived at another replica, or where nobody knew better.
    """

    partitions: int
    leading: int
    unborn: int
    stopped: int
    failed: int
    under_replicated: int
    pending: int
    pending_bytes: int
    pending_age_ms_max: int
    settled: int
    started: int
    tails_bytes: int
    fetches_waiting: int
    reads_under_way: int
    entries_total: int
    commands_total: int
    delivered_total: int
    led_messages_total: int
    led_records_total: int
    led_bytes_total: int
    fetches_total: int
    deliveries_read_total: int
    replies_total: int
    refusals_total: int
    bundles_sent_total: int
    bundles_received_total: int
    bundles_passed_total: int
    edges_sent_total: int
    strays_total: int
    mistakes_total: int
