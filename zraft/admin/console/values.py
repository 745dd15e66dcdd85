"""The answers to the console's page, each a declared value. `encoding` makes JSON of them."""

from __future__ import annotations

from attrs import frozen

from zraft.server.operators.status import ClientTraffic, RaftStatus, TopicsStatus

# -- who asks


@frozen
class Caller:
    """Who asks, as far as this server knows.

    Attributes:
        server: the server that answers.
        reach: the value of `admin.console`.
        may_look: whether data, topics and consumers are shown to this browser.
        user: who has signed in; None if nobody has.
        csrf: what a request that changes something must carry; None unless signed in.
        has_users: whether one can sign in with a user's name and password.
    """

    server: int
    reach: str
    may_look: bool
    user: str | None
    csrf: str | None
    has_users: bool


@frozen
class Refusal:
    """A request that came to nothing, in words; `code` is that of the protocol or of this console.

    What a client would be told is an answer with status 200; what the console itself refuses has another one.
    """

    code: str
    error: str


@frozen
class Done:
    """A change that was made, to the znode at `path`; `version` is that of its data by now, None if it is gone."""

    path: str
    version: int | None


# -- overview


@frozen
class Alarm:
    """Something that an operator should look at; `bad` if it keeps somebody from being served."""

    text: str
    bad: bool


@frozen
class MemberRow:
    """A member of the cluster. `page` is where its console probably is: at the same distance from its port of clients."""

    server: int
    address: str
    role: str
    leads: bool
    is_me: bool
    page: str | None
    match_index: int | None
    lag_entries: int | None
    inflight_bytes: int | None
    silent_ms: int | None
    snapshot_percent: int | None


@frozen
class Histogram:
    """Durations in ms: `counts[i]` took at most `bounds[i]` and more than the bound before; the last has no bound."""

    name: str
    about: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    mean: float
    p50: float
    p99: float
    max: float


@frozen
class Counts:
    """Counters that only grow; the page shows by how much per second."""

    requests: int
    writes: int
    reads: int
    records: int
    events: int
    bytes_received: int
    bytes_sent: int


@frozen
class TreeNumbers:
    """The tree of znodes and its sessions, in numbers."""

    zxid: str
    znodes: int
    ephemerals: int
    data_bytes: int
    watches: int
    sessions: int


@frozen
class DiskNumbers:
    """Bytes on this server's disk. `snapshot_at_ms` is wall time."""

    log_bytes: int
    snapshots_bytes: int
    free_bytes: int
    size_bytes: int
    snapshot_index: int | None
    snapshot_at_ms: int | None


@frozen(kw_only=True)
class Overview:
    """One server at one moment; `at_ms` is its own clock, from which the page takes the time between two of them."""

    at_ms: int
    server: int
    version: str
    address: str
    cluster: str | None
    mode: str | None
    ready: bool
    leader_page: str | None
    alarms: tuple[Alarm, ...]
    members: tuple[MemberRow, ...]
    counts: Counts
    times: tuple[Histogram, ...]
    tree: TreeNumbers | None
    disk: DiskNumbers
    raft: RaftStatus | None
    clients: ClientTraffic
    topics: TopicsStatus


# -- znodes


@frozen
class StatShown:
    """A znode's stat under ZooKeeper's names; zxids and the owner are text."""

    czxid: str
    mzxid: str
    pzxid: str
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeralOwner: str | None
    dataLength: int
    numChildren: int


@frozen
class AclEntry:
    """An entry of an ACL; `rights` are letters of "cdrwa"."""

    rights: str
    scheme: str
    id: str


@frozen
class Node:
    """A znode; `data` are its first bytes, None if it has none; `acl` None: the caller may not see it."""

    path: str
    stat: StatShown
    data: bytes | None
    acl: tuple[AclEntry, ...] | None


@frozen
class Child:
    """A child of a znode; what is not known of it is None: the caller may not read it."""

    name: str
    children: int | None
    length: int | None
    ephemeral: bool


@frozen
class Children:
    """Some of a znode's children in order; `after` is where the next ones begin, None behind the last."""

    path: str
    children: tuple[Child, ...]
    total: int
    after: str | None


# -- sessions and watches


@frozen
class SessionRow:
    """A session and what it holds. `address`, `last_operation` and watches are known of sessions at this server only."""

    session: str
    timeout_ms: int
    address: str | None
    last_operation: str | None
    ephemerals: tuple[str, ...]
    ephemerals_count: int
    watches: tuple[str, ...]
    watches_count: int


@frozen
class Sessions:
    """Sessions of the cluster; `left_out` are not in the list."""

    sessions: tuple[SessionRow, ...]
    left_out: int


@frozen
class WatchRow:
    """A path that clients of this server watch."""

    path: str
    sessions: tuple[str, ...]
    count: int


@frozen
class Watches:
    """Watched paths; `left_out` counts pairs of path and session that are not in the list."""

    watches: tuple[WatchRow, ...]
    left_out: int


# -- topics


@frozen
class ReplicaHere:
    """The replica of a partition on this server. `records` and `bytes` grow while it is led here."""

    leader: int | None
    leads: bool
    first: int
    end: int
    stored_bytes: int
    oldest_age_ms: int | None
    problem: str
    records: int
    bytes: int
    in_sync: tuple[int, ...]
    behind: tuple[int, ...]


@frozen
class PartitionRow:
    """A partition of a topic; `here` None: this server has no replica, or does not tell of so many."""

    number: int
    group: int
    servers: tuple[int, ...]
    should_lead: int | None
    here: ReplicaHere | None


@frozen
class TopicShown:
    """A topic that the caller may see."""

    name: str
    retention_bytes: int | None
    retention_age_ms: int | None
    partitions: tuple[PartitionRow, ...]
    partitions_left_out: int


@frozen
class Topics:
    """Topics by name; `left_out` are not in the list. `pages` are the consoles of the servers, as in the overview."""

    topics: tuple[TopicShown, ...]
    left_out: int
    pages: tuple[tuple[int, str | None], ...]


@frozen
class RecordShown:
    """A record; of long keys and values only the first bytes are there, and their whole lengths."""

    offset: int
    timestamp: int | None
    key: bytes | None
    key_length: int
    value: bytes | None
    value_length: int
    headers: tuple[tuple[str, bytes], ...]


@frozen
class Records:
    """Records of a partition; `first` is the oldest offset that there is, `end` the one behind the newest."""

    group: int
    first: int
    end: int
    next: int
    records: tuple[RecordShown, ...]


@frozen
class ConsumerRow:
    """The position of a consumer in a partition; if `owners` is None, it stores its offset itself, without claims."""

    name: str
    partition: int
    offset: int
    end: int
    lag: int
    owners: tuple[str, ...] | None


@frozen
class Elsewhere:
    """A partition that another server has to be asked about, or that nobody can tell of now."""

    partition: int
    leader: int | None
    page: str | None
    why: str


@frozen
class Consumers:
    """The consumers of a topic in the partitions that this server leads; `left_out` partitions were not asked about."""

    topic: str
    consumers: tuple[ConsumerRow, ...]
    elsewhere: tuple[Elsewhere, ...]
    left_out: int
