"""The answers to the console's page, each a declared value. `encoding` makes JSON of them."""

from __future__ import annotations

from attrs import frozen

from zraft.server.operators.status import ClientTraffic, RaftStatus, TopicsStatus

# -- who asks


@frozen
class Caller:
    """Author of a request, as far as this server knows.

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


# -- fleets of peers


@frozen
class GossipNumbers:
    """Gossip of one group, or of several together, since they began; see `zraft_core.fleets.GossipReport`."""

    from_peers: int
    from_servers: int
    own: int
    redundant: int
    received_bytes: int
    sent_bytes: int


@frozen
class FleetGroup:
    """A group of peers whose session lives.

    Attributes:
        silent_ms: how long the servers have heard nothing of it; None unless this server leads or the group is its client.
        timeout_ms: after so long a silence the group is out.
        position: the entry that it had applied when it told of it last; None if it has not yet.
        behind: entries between that and the log's end.
        reported_ms: how long ago it reported, by this server's clock; None if it has not, as peers of earlier releases.
        peers, busy: its virtual peers, and those with a task.
    """

    group: str
    silent_ms: int | None
    timeout_ms: int | None
    position: int | None
    behind: int | None
    reported_ms: int | None
    peers: int | None
    busy: int | None
    gossip: GossipNumbers | None


@frozen
class FleetWorker:
    """A virtual peer that runs a task, as its group reported it; times are of the group's clock."""

    peer: str
    slot: int
    since_ms: int
    segments: int


@frozen
class FleetTask:
    """A task with those who run it.

    `done`, `total` and `left_ms` are None unless all of them know them; `per_s` is the sum of their rates.
    """

    task: str
    workers: tuple[FleetWorker, ...]
    since_ms: int
    segments: int
    per_s: float
    done: int | None
    total: int | None
    left_ms: int | None


@frozen
class FleetJob:
    """A job; `state` "unknown": its specification is there, and no group tells more. `since` is a position of the log."""

    job: str
    state: str
    since: int | None
    since_ms: int | None
    tasks: tuple[FleetTask, ...]


@frozen
class RuleShown:
    """A rule of an audit and the verdict on it."""

    rule: str
    title: str
    verdict: str
    violations: int


@frozen
class AuditShown:
    """The audit that was published last, by `onyxlog audit --publish`."""

    at_ms: int
    title: str
    version: str
    seconds: int
    verdict: str
    rules: tuple[RuleShown, ...]


@frozen
class Fleet:
    """A fleet of peers.

    Attributes:
        tenancy: its name.
        end: the position that the next entry of its log gets; None if there is no log, or the caller may not read it.
        entries: entries that are there.
        groups, jobs: in order; of more than are shown, the numbers are in `…_left_out`.
        gossip: of all groups together; None if none gossips.
        audit: None if none was published.
        unreadable: what is stored there and cannot be read, and why.
    """

    tenancy: str
    end: int | None
    entries: int | None
    groups: tuple[FleetGroup, ...]
    groups_left_out: int
    jobs: tuple[FleetJob, ...]
    jobs_left_out: int
    gossip: GossipNumbers | None
    audit: AuditShown | None
    unreadable: tuple[str, ...]


@frozen
class Fleets:
    """Fleets by name; `left_out` are not in the list."""

    fleets: tuple[Fleet, ...]
    left_out: int
