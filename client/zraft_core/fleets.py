"""Values that a fleet of peers publishes beside its log, their places in the tree, and their bytes. Pure.

Peers (`onyxlog`) write it, and `onyxlog status` and the console of a server read it. Nothing of it enters a replica, and
no decision depends on it. Values travel as MessagePack maps by the names of their fields: a reader ignores fields that it
does not know, and an absent field has its default, so that releases may stand beside each other.
docs/explanation/onyxlog.md, "The log", has the znodes.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgpack
from attrs import field, frozen

from zraft_core.errors import ProtocolError
from zraft_core.layout import NUMBER_MAX, Form, Record, from_one, listed, number, optional, string
from zraft_core.messagepack import unpack

TOP: Final = "/onyx"
LOG: Final = "log"
ORIGIN: Final = "origin/origin"
PULSES: Final = "pulse"
JOBS: Final = "jobs"
STATE: Final = "state"
ENTRY_PREFIX: Final = "entry-"
"""Names below the directory of a tenancy, `/onyx/TENANCY`; and the beginning of an entry's name below `log`."""

DIGESTS: Final = "digests"
REPORTS: Final = "reports"
AUDIT: Final = "audit"
"""Names below `state`: the digest chain of each group, what it reports of itself, and the newest published audit."""

NAME_CHARACTERS_MAX: Final = 200
TEXT_CHARACTERS_MAX: Final = 1_000
WORKERS_MAX: Final = 1_000
"""A group has as many virtual peers at most."""
JOBS_MAX: Final = 200
"""Jobs in one report, the newest."""
RULES_MAX: Final = 100
HEAD_FORMAT: Final = 1

T = TypeVar("T")


@frozen
class WorkerReport:
    """A virtual peer that runs a task.

    Attributes:
        since_ms: when it began, by its group's clock.
        segments: what it has worked on since then.
        recent: segments of the report's last `interval_ms`.
        done, total: how far an input has read, in its own units (bytes or segments); None if it does not know its end.
        recent_done: the part of `done` of the last `interval_ms`.
    """

    peer: str
    job: str
    task: str
    slot: int
    since_ms: int
    segments: int = 0
    recent: int = 0
    done: int | None = None
    total: int | None = None
    recent_done: int = 0


@frozen
class GossipReport:
    """Gossip of a group since it began.

    Attributes:
        from_peers: entries that other groups brought.
        own: entries that this group wrote itself, which the log accepted.
        from_servers: entries that the log's servers brought, read or pushed.
        redundant: copies of entries that were known already.
        reads: requests to the log's servers for entries or for the log's end.
        received_bytes, sent_bytes: of all datagrams.
    """

    from_peers: int = 0
    own: int = 0
    from_servers: int = 0
    redundant: int = 0
    reads: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


@frozen
class JobReport:
    """A job as the log has it: `since` is the position at which it got this state, `since_ms` its writer's clock there."""

    job: str
    state: str
    since: int
    since_ms: int | None = None


@frozen
class GroupReport:
    """Report of one group about itself.

    Attributes:
        at_ms: its clock when it wrote this.
        position: the entry that it had applied last.
        interval_ms: how long the last interval was, to which recent counts belong; at least 1.
        peers: how many virtual peers it has in the fleet.
        workers: those that run a task.
        gossip: None without gossip.
        jobs: the jobs of the whole fleet; None unless this group tells them for all.
    """

    group: str
    at_ms: int
    position: int
    interval_ms: int
    peers: int = 0
    workers: tuple[WorkerReport, ...] = ()
    gossip: GossipReport | None = None
    jobs: tuple[JobReport, ...] | None = None


@frozen
class RuleVerdict:
    """Verdict of an audit on one rule: "holds", "broken" or "no data"; `violations` are those that its report lists."""

    rule: str
    title: str
    verdict: str
    violations: int = 0


@frozen
class AuditReport:
    """A published audit.

    Attributes:
        at_ms: when it ended, by the auditor's clock.
        title: what was audited.
        version: the release that audited.
        seconds: how long it took.
        rules: each with its verdict.
    """

    at_ms: int
    title: str
    version: str
    seconds: int
    rules: tuple[RuleVerdict, ...] = field(factory=tuple)

    @property
    def verdict(self) -> str:
        """Return "broken" if a rule is, "holds" if one had something to judge and none is broken, otherwise "no data"."""
        found = {rule.verdict for rule in self.rules}
        return next((one for one in ("broken", "holds") if one in found), "no data")


_name: Final = string(0, NAME_CHARACTERS_MAX)
_text: Final = string(0, TEXT_CHARACTERS_MAX)
_number: Final = number
_known: Final = optional(number)


def _or_none(record: Record[T]) -> Form:
    return optional(record.map_form)


WORKER: Final = Record(
    WorkerReport, *[_name] * 3, _number, _number, _number, _number, _known, _known, _number
)
GOSSIP: Final = Record(GossipReport, *[_number] * 7)
JOB: Final = Record(JobReport, _name, _name, _number, _known)
GROUP: Final = Record(
    GroupReport,
    _name,
    _number,
    _number,
    from_one,
    _number,
    listed(WORKER.map_form, WORKERS_MAX),
    _or_none(GOSSIP),
    optional(listed(JOB.map_form, JOBS_MAX)),
)
RULE: Final = Record(RuleVerdict, _name, _text, _name, _number)
AUDITED: Final = Record(AuditReport, _number, _text, _name, _number, listed(RULE.map_form, RULES_MAX))


def report_path(group: str) -> str:
    """Return where a group's report stands, below the tenancy's `state/`."""
    return f"{REPORTS}/{group}"


def encode_report(report: GroupReport) -> bytes:
    """Return a group's report as bytes."""
    packed: bytes = msgpack.packb(GROUP.pack_map(report))
    return packed


def decode_report(data: bytes, where: str) -> GroupReport:
    """Decode a group's report.

    Raises:
        ProtocolError: the bytes are none, or one of a release that this one cannot read.
    """
    return GROUP.unpack_map(unpack(data), where)


def encode_audit(report: AuditReport) -> bytes:
    """Return a published audit as bytes."""
    packed: bytes = msgpack.packb(AUDITED.pack_map(report))
    return packed


def decode_audit(data: bytes, where: str) -> AuditReport:
    """Decode a published audit.

    Raises:
        ProtocolError: as `decode_report`.
    """
    return AUDITED.unpack_map(unpack(data), where)


def digest_position(data: bytes, where: str) -> int:
    """Return the position of a digest that a group published, [format, group, position, chain].

    Raises:
        ProtocolError: the bytes are no digest.
    """
    match unpack(data):
        case (int(), str(), int(position), bytes()) if 0 <= position <= NUMBER_MAX:
            return position
    raise ProtocolError(f"{where}: found no digest, expected [format, group, position, chain]")


def inline_data(data: bytes, where: str) -> bytes:
    """Return the data of a znode of a tenancy's state that is small, so that its head has the data itself.

    Raises:
        ProtocolError: the bytes are no head, or one whose data stands in parts.
    """
    match unpack(data):
        case (int(form), int(), bytes(inline)) if form == HEAD_FORMAT:
            return inline
    raise ProtocolError(f"{where}: found no head with its data, expected [{HEAD_FORMAT}, order, data]")
