"""Tables of a small cluster that kept every promise: what each test of a rule spoils in one place.

Three servers, two leaders, an entry of the first that was never committed; a change of members; a client that writes,
reads and watches; two partitions with multicasts and consumers; two peer groups that gossip; a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from attrs import evolve

from onyxlog.audits.measured_gossip import MeasuredCopies, MeasuredPools
from onyxlog.audits.measured_multicast import MeasuredCell, MeasuredSends
from onyxlog.audits.measurements import MeasuredTest, MeasuredTrial
from onyxlog.audits.tables.claims import ClaimRow
from onyxlog.audits.tables.commands import CommandRow
from onyxlog.audits.tables.deliveries import DeliveryRow
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.files import FileRow
from onyxlog.audits.tables.gossip import GossipRow, LogReadRow
from onyxlog.audits.tables.hard_states import HardStateRow
from onyxlog.audits.tables.histories import HistoryRow
from onyxlog.audits.tables.members import MembershipRow
from onyxlog.audits.tables.multicast import MulticastRow
from onyxlog.audits.tables.onyx_entries import OnyxEntryRow
from onyxlog.audits.tables.replica_digests import ReplicaDigestRow
from onyxlog.audits.tables.snapshots import SnapshotRow
from onyxlog.audits.tables.truncations import TruncationRow
from onyxlog.replica.codec import encode_origin, encode_record, name_of
from onyxlog.replica.commands import AddVirtualPeer, Command, Entry, Gc, JoinDirect, Record
from onyxlog.replica.digests import CHAIN_START, digest
from onyxlog.replica.playing import play
from onyxlog.replica.replica import Replica
from tests.onyxlog.audits import executed

Tables = dict[str, list[Any]]
INSTANCES: Final = {1: "a1", 2: "b2", 3: "c3"}
SERVERS: Final = (1, 2, 3)
TERM: Final = 2**32
TERMS: Final = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2, 8: 2}
"""Of the committed entries of group 0, by index."""
SESSION: Final = 0x100000001
LEFT: Final = 101
RIGHT: Final = 102
PRODUCER: Final = 9


def hashed(*of: object) -> bytes:
    return blake2b(repr(of).encode(), digest_size=16).digest()


def placed(server: int, offset: int, name: str = "wal/0000000001.seg") -> dict[str, Any]:
    return {
        "server": server,
        "instance": INSTANCES[server],
        "file": f"server-{server}/{name}",
        "file_offset": offset,
    }


def entry(server: int, index: int, term: int, **changes: Any) -> EntryRow:
    """As server `server` wrote it: frame and offset follow the index, position has two commands per entry."""
    fields: dict[str, Any] = {
        **placed(server, 1000 + 100 * index),
        "group": 0,
        "index": index,
        "term": term,
        "kind": "commands",
        "previous_term": TERMS.get(index - 1, 0),
        "position": 2 * index - 1,
        "count": 2,
        "size": 50,
        "digest": hashed("entry", index, term),
        "durable_term": term,
        "frame": 10 * index,
    }
    return EntryRow(**{**fields, **changes})


def _group_0(tables: Tables) -> None:
    for server in SERVERS:
        tables["entries"] += [entry(server, index, term) for index, term in TERMS.items()]
        # Servers 1 and 2 vote for 1 in term 1; 2 and 3 for 2 in term 2.
        votes = {1: (1, None), 2: (1, 2), 3: (None, 2)}[server]
        states = [(1, None), (1, votes[0]), (2, None), (2, votes[1])]
        for n, (term, vote) in enumerate(states):
            frame = 2 + n if term == 1 else 55 + n
            state = HardStateRow(
                **placed(server, 100 + frame), group=0, frame=frame, term=term, voted_for=vote
            )
            tables["hard_states"].append(state)
        for at, learners in ((1, ()), (7, (4,))):
            tables["members"].append(
                MembershipRow(
                    **placed(server, 1000 + 100 * at),
                    group=0,
                    index=at,
                    term=TERMS[at],
                    frame=10 * at,
                    servers=(1, 2, 3, *learners),
                    voters=SERVERS,
                    learners=learners,
                )
            )
        tables["snapshots"].append(
            SnapshotRow(
                **placed(server, 0, "groups/0/snap/4.snap"),
                group=0,
                index=4,
                term=1,
                zxid=TERM + 3,
                digest=hashed("state", 4),
                maker_server=server,
            )
        )
        tables["files"].append(FileRow(**placed(server, 0), kind="wal", size=5000, good=5000, items=9))
        tables["events"] += _journal(server)
    # What the first leader wrote and could not commit.
    lost = entry(1, 6, 1, standing="truncated", frame=58, file_offset=1550)
    tables["entries"].append(lost)
    tables["truncations"].append(
        TruncationRow(
            **placed(1, 1590), group=0, frame=60, cause="truncate", from_index=6, last_index=6, last_term=1
        )
    )


def _executed(tables: Tables) -> None:
    """Another server's log with its payloads, which can be carried out again."""
    tables["entry_payloads"], noted = executed.rows()
    tables["events"] += noted


def _journal(server: int) -> list[EventRow]:
    noted: list[dict[str, Any]] = [
        {"kind": "committed", "term": 1, "index": 3},
        {"kind": "digest", "term": 1, "index": 4, "digest": hashed("state", 4)},
        {"kind": "committed", "term": 1, "index": 5},
        {"kind": "committed", "term": 2, "index": 8},
        {"kind": "digest", "term": 2, "index": 8, "digest": hashed("state", 8)},
    ]
    if server == 1:
        noted.insert(0, {"kind": "became_leader", "term": 1, "index": 1, "votes": (1, 2)})
        noted.insert(4, {"kind": "stepped_down", "term": 1, "index": 6})
    if server == 2:
        noted.insert(3, {"kind": "became_leader", "term": 2, "index": 6, "votes": (2, 3)})
    return [
        EventRow(**placed(server, 10 * n, "journal"), boot=1, seq=10 * n, **one)
        for n, one in enumerate(noted)
    ]


def operation(seq: int, kind: str, **changes: Any) -> HistoryRow:
    """Of the only client; one after the other, a millisecond apart."""
    fields: dict[str, Any] = {
        "client": 1,
        "seq": seq,
        "record": "operation",
        "session": SESSION,
        "server": 1,
        "at_us": 1_000 * seq,
        "returned_us": 1_000 * seq + 500,
        "kind": kind,
        "path": "/a",
        "outcome": "ok",
        "code": 0,
        "file": "client-001.jsonl",
        "file_offset": 100 * seq,
    }
    return HistoryRow(**{**fields, **changes})


def _clients(tables: Tables) -> None:
    connected = evolve(
        operation(0, "get"),
        record="connected",
        kind=None,
        path=None,
        outcome=None,
        timeout_ms=4000,
        resumed=False,
    )
    tables["histories"] += [
        connected,
        operation(1, "create", value="one", version=0, zxid=TERM + 1),
        operation(2, "set", value="two", version=1, mzxid=TERM + 2, zxid=TERM + 2),
        operation(3, "get", value="two", version=1, mzxid=TERM + 2, zxid=TERM + 2, watch=True),
        operation(
            4, "set", value="three", version=2, mzxid=TERM + 4, zxid=TERM + 4, client=2, session=SESSION + 1
        ),
        evolve(
            operation(5, "get"),
            record="event",
            kind=None,
            outcome=None,
            event_type=3,
            zxid=TERM + 4,
            returned_us=None,
        ),
        operation(6, "sync get", value="three", version=2, mzxid=TERM + 4, zxid=TERM + 4),
        operation(7, "create", path="/q/n-", created="/q/n-0000000001", value="q1", zxid=TERM + 5),
        operation(8, "create", path="/q/n-", created="/q/n-0000000002", value="q2", zxid=TERM + 6),
        operation(9, "children", path="/q", names=("n-0000000001", "n-0000000002"), zxid=TERM + 6),
    ]
    writes = [("create", "/a", "one"), ("set_data", "/a", "two"), ("set_data", "/a", "three")]
    writes += [("create", "/q/n-", "q1"), ("create", "/q/n-", "q2")]
    for server in SERVERS:
        for n, (name, path, value) in enumerate(writes):
            command = CommandRow(
                **placed(server, 2000 + n),
                group=0,
                index=2 + n // 2,
                term=TERMS[2 + n // 2],
                position=3 + n,
                log_time_ms=100 * n,
                wall_time_ms=100 * n,
                origin_server=1,
                origin_instance="a1",
                origin_boot=1,
                origin_seq=1 + n,
                session=SESSION,
                opcode=1,
                operation=name,
                path=path,
                data_digest=blake2b(value.encode(), digest_size=16).digest(),
                once_seq=1 + n,
                once_floor=0,
            )
            tables["commands"].append(command)
        tables["commands"].append(
            evolve(
                command,
                position=9,
                operation="expire",
                path=None,
                data_digest=None,
                once_seq=None,
                once_floor=None,
                session=0,
                target=SESSION,
                origin_server=0,
                origin_instance="",
                origin_boot=0,
                origin_seq=0,
            )
        )


MESSAGES: Final[tuple[tuple[int, tuple[int, ...], tuple[int, int, int, int], dict[int, int]], ...]] = (
    # number, destinations, stamp, what each destination proposed
    (1, (LEFT, RIGHT), (1, RIGHT, 0, 0), {LEFT: 1, RIGHT: 1}),
    (2, (LEFT,), (1, RIGHT, 1, LEFT), {}),
    (3, (LEFT, RIGHT), (3, RIGHT, 0, 0), {LEFT: 2, RIGHT: 3}),
    (4, (RIGHT,), (3, RIGHT, 1, RIGHT), {}),
    (5, (LEFT, RIGHT), (5, LEFT, 0, 0), {LEFT: 5, RIGHT: 4}),
)


def _partitions(tables: Tables) -> None:
    for server in (1, 2):
        for group in (LEFT, RIGHT):
            tables["entries"].append(entry(server, 1, 1, group=group, previous_term=0, file_offset=group))
            offset = 0
            for number, destinations, stamp, proposals in MESSAGES:
                if group not in destinations:
                    continue
                row = DeliveryRow(
                    **placed(server, 300 * offset, f"groups/{group}/deliveries/0.seg"),
                    group=group,
                    offset=offset,
                    time=stamp[0],
                    time_group=stamp[1],
                    sub=stamp[2],
                    single=stamp[3],
                    producer=PRODUCER,
                    number=number,
                    index=10 + number,
                    wall_time_ms=number,
                    destinations=destinations,
                    payload_digest=hashed("message", number),
                    chain=hashed("chain", group, offset),
                )
                tables["deliveries"].append(row)
                offset += 1
                said: dict[str, Any] = {
                    **placed(server, 5000 + 10 * number),
                    "group": group,
                    "index": number,
                    "term": 1,
                    "log_time_ms": number,
                    "producer": PRODUCER,
                    "number": number,
                }
                contents: dict[str, Any] = {
                    "destinations": destinations,
                    "payload_digest": hashed("message", number),
                }
                tables["multicast"].append(
                    MulticastRow(**said, **contents, position=10 * number, kind="start")
                )
                tables["multicast"] += [
                    MulticastRow(**said, position=10 * number + 1, kind="remote", sender=other, time=time)
                    for other, time in proposals.items()
                    if other != group
                ]
        tables["claims"] += claims(server)
        _rounds(tables, server)


NORTH: Final = 103
SOUTH: Final = 104
ORDERED: Final = 10
"""A producer whose messages are staged and put in order by rounds."""


def _rounds(tables: Tables, server: int) -> None:
    """Message 1 is a batch and goes to one partition, 2 to both; 4 follows in a round of its own."""
    to = {1: (NORTH,), 2: (NORTH, SOUTH), 4: (SOUTH,)}
    rounds = {3: (1, 2, {NORTH: 6, SOUTH: 7}), 5: (4, 4, {SOUTH: 8})}
    for group in (NORTH, SOUTH):
        tables["entries"].append(entry(server, 1, 1, group=group, previous_term=0, file_offset=group))
        offset = 0
        for number, (first, upto, proposals) in rounds.items():
            said: dict[str, Any] = {
                **placed(server, 5000 + 10 * number),
                "group": group,
                "index": number,
                "term": 1,
                "log_time_ms": number,
                "producer": ORDERED,
            }
            if group not in proposals:
                continue
            for place in range(first, upto + 1):
                if group not in to[place]:
                    continue
                payload_digest = hashed("ordered", place)
                contents: dict[str, Any] = {"destinations": to[place], "payload_digest": payload_digest}
                tables["multicast"].append(
                    MulticastRow(**said, **contents, number=place, position=10 * place, kind="stage")
                )
                time, time_group = max((time, sender) for sender, time in proposals.items())
                row = DeliveryRow(
                    **placed(server, 300 * offset, f"groups/{group}/deliveries/0.seg"),
                    **contents,
                    group=group,
                    offset=offset,
                    span=3 if place == 1 else 1,
                    time=time,
                    time_group=time_group,
                    sub=place - first + 1,
                    single=0,
                    producer=ORDERED,
                    number=place,
                    index=10 + number,
                    wall_time_ms=number,
                    chain=hashed("chain", group, offset),
                )
                tables["deliveries"].append(row)
                offset = row.offset + row.span
            said |= {"number": number, "payload_digest": hashed("round", number)}
            start = MulticastRow(
                **said,
                position=10 * number,
                kind="start",
                destinations=tuple(proposals),
                round_first=first,
                round_upto=upto,
            )
            tables["multicast"].append(start)
            del said["payload_digest"]
            tables["multicast"] += [
                MulticastRow(**said, position=10 * number + 1, kind="remote", sender=other, time=time)
                for other, time in proposals.items()
                if other != group
            ]


def claims(server: int) -> list[ClaimRow]:
    """One consumer claims, works, falls silent and expires; another follows, and gives the partition back.

    A third one, with an interval of its own choice, commits out of order before it gives it to a fourth.
    """
    steps: list[dict[str, Any]] = [
        {"kind": "configure", "heartbeat_ms": 1000},
        {"kind": "claim_partition", "client": "ann", "process": "p1", "attempt": 1, "after": 0, "mode": 0},
        {"kind": "heartbeat", "epoch": 2, "beat": 1, "committed": 1},
        {"kind": "claim_partition", "client": "bob", "process": "p2", "attempt": 1, "after": 2, "mode": 0},
        {"kind": "expire", "epoch": 2, "heard_ms": 2000, "log_time_ms": 4500},
        {"kind": "claim_partition", "client": "bob", "process": "p2", "attempt": 2, "after": 2, "mode": 0},
        {"kind": "heartbeat", "epoch": 2, "beat": 2, "committed": 1},
        {"kind": "commit", "epoch": 6, "committed": 2},
        {"kind": "release", "epoch": 6, "committed": 3},
        {
            "kind": "claim_partition",
            "client": "cat",
            "process": "p3",
            "attempt": 1,
            "after": 6,
            "mode": 0,
            "heartbeat_ms": 2000,
            "end": 9,
        },
        {"kind": "commit_ranges", "epoch": 10, "committed": 3, "ranges": (5, 6, 7, 9), "end": 9},
        {"kind": "release", "epoch": 10, "committed": 4, "end": 9},
        {
            "kind": "claim_partition",
            "client": "dan",
            "process": "p4",
            "attempt": 1,
            "after": 10,
            "mode": 0,
            "end": 9,
        },
    ]
    rows = []
    for n, step in enumerate(steps, 1):
        fields = {
            **placed(server, 9000 + n),
            "group": LEFT,
            "index": 20 + n,
            "term": 1,
            "position": n,
            "log_time_ms": 1000 * (n - 1) if n < 5 else 4000 + 100 * n,
            "end": 3,
            "consumer_group": "readers",
        }
        rows.append(ClaimRow(**{**fields, **step}))
    return rows


ONYX: Final[Sequence[Command]] = (
    JoinDirect("ga"),
    JoinDirect("gb"),
    AddVirtualPeer("ga-1", "ga", "127.0.0.1:1"),
    Gc("ga"),
    AddVirtualPeer("gb-1", "gb", "127.0.0.1:2"),
)


def recording(peer: str, entries: Sequence[Command] = ONYX, **changes: Any) -> list[OnyxEntryRow]:
    """What one peer group applied, from the first origin on."""
    replica, chain = Replica(), CHAIN_START
    common = {"tenancy": "t", "peer": peer, "file": f"{peer}.audit", **changes}
    first = encode_origin(replica, chain)
    rows = [
        OnyxEntryRow(
            **common,
            seq=0,
            position=-1,
            kind="origin",
            chain=chain,
            digest=digest(replica),
            entry=first,
            file_offset=0,
        )
    ]
    for position, command in enumerate(entries):
        record = Record(command, "ga", None, position)
        step = play(replica, Entry(position, record), chain)
        replica, chain = step.replica, step.chain
        rows.append(
            OnyxEntryRow(
                **common,
                seq=position + 1,
                position=position,
                kind=name_of(command),
                source="gossip" if (position + len(peer)) % 2 else "log",
                chain=chain,
                digest=digest(replica),
                entry=encode_record(record),
                file_offset=100 * (position + 1),
            )
        )
    return rows


def _peers(tables: Tables) -> None:
    for peer in ("ga", "gb"):
        rows = recording(peer)
        tables["onyx_entries"] += rows
        for row in rows[1:]:
            place: dict[str, Any] = {
                "tenancy": "t",
                "peer": peer,
                "file": row.file,
                "file_offset": row.file_offset + 50,
            }
            tables["replica_digests"].append(
                ReplicaDigestRow(
                    **place, position=row.position, source="recorded", chain=row.chain, digest=row.digest
                )
            )
            if row.source == "gossip":
                for n in range(2):
                    tables["gossip"].append(
                        GossipRow(
                            **place,
                            seq=10 * row.seq + n,
                            at_ms=row.seq + n,
                            what="received",
                            position=row.position,
                            other="gz",
                            first=n == 0,
                            hops=1 + n,
                        )
                    )
            else:
                tables["log_reads"].append(
                    LogReadRow(**place, seq=row.seq, at_ms=row.seq, reason="gap", first=row.position, count=1)
                )


def _benchmark(tables: Tables) -> None:
    tables["measured_tests"].append(
        MeasuredTest(
            file="result_x.json", run="r", number=1, attempt=1, target="zraft", servers=3, machines=1, operation="write",
            workers=10, entries=100, value_bytes=1000, read_share=0.9, rate=None, state="ok", superseded=False,
            acknowledged=4, elapsed_s=2.0, per_second=2.0, seconds_per_entry=0.5, write_kb_per_s=2.0,
            buckets=(100, 130), counts=(3, 1), total_ms=0.44, longest_ms=0.133, mean_ms=0.11,
            percentile_names=("50", "99"), percentiles_ms=(0.1, 0.133),
        )
    )  # fmt: skip
    tables["measured_trials"].append(
        MeasuredTrial(
            file="result_x.json", run="r", kind="election", number=1, state="ok", killed=1, winner=2, term=2,
            stood_ms=100.0, candidate_ms=101.0, led_ms=150.0, served_ms=None,
        )
    )  # fmt: skip
    tables["measured_cells"].append(
        MeasuredCell(
            file="result_m.json", run="m", name="10%", topics=5, partitions=1, producers=2, share=0.1, fanout=5,
            sleep_ms=0.0, servers=3, reason="", messages=10, multicasts=1, elapsed_s=2.0, delivered=(10, 1, 1, 1, 1),
            per_second=(5.0, 0.5, 0.5, 0.5, 0.5), thesis_records=62,
        )
    )  # fmt: skip
    for to, count in ((1, 9), (5, 1)):
        tables["measured_sends"].append(
            MeasuredSends(
                file="result_m.json", run="m", name="10%", destinations=to, buckets=(100,), counts=(count,),
                total_ms=0.1 * count, longest_ms=0.1, published=count, mean_ms=0.1, percentile_names=("50",),
                percentiles_ms=(0.1,),
            )
        )  # fmt: skip
    tables["measured_pools"].append(
        MeasuredPools(
            # Four peers publish on each stream and listen on the other one.
            file="result_g.json", run="g", table="8.1", peers=8, streams=2, drawn=(2, 0, 1, 4, 1, 0, 4), degree=0.5,
            variance=0.0, stream_path=1.0, peer_path=(4 * 3 * 2 + 4 * 4) / (4 * 7), thesis_connected=1, connected=1,
        )
    )  # fmt: skip
    tables["measured_copies"].append(
        MeasuredCopies(
            # Of seven others three have it once and one twice; the origin hears it back.
            file="result_g.json", run="g", table="8.7", reading="first", hops=2, peers=8,
            counted=(3, 1, 2, 0, 3, 1, 3, 2, 1), coverage=5 / 8, redundancy=(1 + 0.5) / 5, overall=2 / 6, sends=2.0,
        )
    )  # fmt: skip


def sound() -> Tables:
    """All tables, anew."""
    tables: Tables = {
        name: []
        for name in (
            *("entries", "commands", "hard_states", "truncations", "members", "snapshots", "deliveries"),
            *("multicast", "claims", "events", "replica_digests", "onyx_entries", "gossip", "log_reads"),
            *("histories", "files", "measured_tests", "measured_trials", "measured_cells", "measured_sends"),
            *("measured_pools", "measured_copies", "entry_payloads"),
        )
    }
    for fill in (_group_0, _clients, _partitions, _peers, _benchmark, _executed):
        fill(tables)
    return tables
