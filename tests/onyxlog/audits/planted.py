"""Violations planted into sound tables, each with the rule that must see it and the witness that it must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve, frozen

from onyxlog.audits.rules.published_gossip import DRAWN
from onyxlog.audits.rules.published_multicast import ACCOUNTS
from onyxlog.audits.tables.gossip import GossipRow
from onyxlog.replica.codec import decode_origin, encode_origin
from onyxlog.replica.commands import Entry, Record
from onyxlog.replica.digests import CHAIN_START, digest
from onyxlog.replica.playing import play
from onyxlog.replica.pool import GroupArc
from onyxlog.replica.replica import Replica
from tests.onyxlog.audits.sound import (
    INSTANCES,
    LEFT,
    NORTH,
    ONYX,
    RIGHT,
    SESSION,
    SOUTH,
    TERM,
    Tables,
    entry,
    hashed,
    operation,
    placed,
    recording,
    sound,
)


@frozen
class Plant:
    """`spoil` changes sound tables; then exactly `rule`'s `promise` is broken, with a witness that has `witness`.

    `also`: rules that must see it, too, because no such violation can be without breaking theirs.
    """

    name: str
    rule: str
    promise: str
    spoil: Callable[[Tables], None]
    witness: dict[str, Any]
    also: tuple[str, ...] = ()

    def tables(self) -> Tables:
        tables = sound()
        self.spoil(tables)
        return tables


PLANTS: Final[dict[str, Plant]] = {}


def plant(rule: str, promise: str, also: tuple[str, ...] = (), **witness: Any) -> Callable[..., None]:
    """Decorates what spoils the tables; the function's name is the plant's."""

    def register(spoil: Callable[[Tables], None]) -> None:
        PLANTS[spoil.__name__] = Plant(spoil.__name__, rule, promise, spoil, witness, also)

    return register


def change(tables: Tables, table: str, which: Callable[[Any], bool], **fields: Any) -> None:
    """Change the only row that `which` picks."""
    rows = tables[table]
    (at,) = (n for n, row in enumerate(rows) if which(row))
    rows[at] = evolve(rows[at], **fields)


def having(**fields: object) -> Callable[[Any], bool]:
    """Pick rows by the values of these fields."""
    return lambda row: all(getattr(row, name) == value for name, value in fields.items())


# Consensus ------------------------------------------------------------------------------------------------------


@plant(
    "S1", "a vote is given once", server=2, group=0, index=1, expected="server 1, as before", found="server 3"
)
def a_server_votes_twice(tables: Tables) -> None:
    row = next(row for row in tables["hard_states"] if row.server == 2 and row.voted_for == 1)
    tables["hard_states"].append(evolve(row, frame=9, voted_for=3, file_offset=109))


@plant(
    "S1", "a vote is given once", server=3, index=1, expected="term 2 or higher, which is durable before it"
)
def a_term_goes_back(tables: Tables) -> None:
    row = next(row for row in tables["hard_states"] if row.server == 3 and row.term == 1)
    tables["hard_states"].append(evolve(row, frame=99, file_offset=199))


@plant("S1", "one leader per term", server=3, group=0, index=1, file="server-3/journal", offset=70)
def two_leaders_of_a_term(tables: Tables) -> None:
    row = next(row for row in tables["events"] if row.kind == "became_leader" and row.term == 1)
    tables["events"].append(evolve(row, **placed(3, 70, "journal"), seq=70))


@plant(
    "S1", "one leader per term", server=3, index=2, expected="server 2, which counted this vote", found="none"
)
def a_counted_vote_was_never_given(tables: Tables) -> None:
    change(
        tables,
        "hard_states",
        lambda row: row.server == 3 and row.term == 2 and row.voted_for is not None,
        voted_for=None,
    )


@plant(
    "S1", "a majority elects", server=2, index=2, expected="a majority of voters 1, 2, 3", found="votes of 2"
)
def a_leader_of_a_minority(tables: Tables) -> None:
    change(tables, "events", lambda row: row.kind == "became_leader" and row.term == 2, votes=(2,))


@plant("S2", "equal index and term, equal entry and predecessor", server=3, group=0, index=8, offset=1800)
def an_entry_differs(tables: Tables) -> None:
    change(
        tables,
        "entries",
        lambda row: (row.server, row.group, row.index) == (3, 0, 8),
        digest=hashed("another"),
        standing="open",
    )


@plant("S2", "equal index and term, equal entry and predecessor", server=2, group=0, index=8)
def an_entry_follows_another(tables: Tables) -> None:
    change(tables, "entries", lambda row: (row.server, row.group, row.index) == (2, 0, 8), previous_term=1)


@plant("S3", "a leader's log reaches what was committed", server=2, group=0, index=4, file="server-2/journal")
def a_leader_lacks_what_was_committed(tables: Tables) -> None:
    change(tables, "events", lambda row: row.kind == "became_leader" and row.term == 2, index=4)


@plant(
    "S3", "no later leader has another entry", server=3, group=0, index=8, found="one of term 4", offset=1900
)
def a_later_leader_overwrites(tables: Tables) -> None:
    tables["entries"].append(
        entry(3, 8, 4, standing="open", previous_term=2, frame=90, file_offset=1900, durable_term=4)
    )
    tables["truncations"].append(
        evolve(tables["truncations"][0], **placed(3, 1890), frame=89, from_index=8, last_index=8, last_term=2)
    )


@plant("S4", "one committed entry per index", server=3, group=0, index=8, offset=1800)
def two_entries_are_committed_at_an_index(tables: Tables) -> None:
    change(
        tables,
        "entries",
        lambda row: (row.server, row.group, row.index) == (3, 0, 8),
        term=3,
        durable_term=3,
        digest=hashed("another"),
    )
    change(tables, "events", lambda row: (row.server, row.kind, row.index) == (3, "committed", 8), term=3)


@plant(
    "S4",
    "one state per index",
    server=3,
    group=0,
    index=8,
    found=hashed("wrong").hex(),
    file="server-3/journal",
)
def a_state_differs(tables: Tables) -> None:
    change(
        tables,
        "events",
        lambda row: (row.server, row.kind, row.index) == (3, "digest", 8),
        digest=hashed("wrong"),
    )


@plant("S4", "one state per index", server=2, index=4, file="server-2/groups/0/snap/4.snap")
def a_snapshot_is_not_the_state(tables: Tables) -> None:
    change(tables, "snapshots", lambda row: row.server == 2, digest=hashed("wrong"))


@plant("S5", "a commit index does not go back", server=3, index=2, expected="8 or higher, of term 2 or later")
def a_commit_index_goes_back(tables: Tables) -> None:
    row = next(row for row in tables["events"] if row.server == 3 and row.kind == "committed")
    tables["events"].append(evolve(row, seq=90, index=2, term=1, file_offset=90))


@plant("S5", "a leader commits by an entry of its term", server=2, index=5, found="one of term 1", offset=36)
def a_leader_counts_replicas_of_an_older_entry(tables: Tables) -> None:
    row = next(
        row for row in tables["events"] if row.server == 2 and (row.kind, row.index) == ("committed", 5)
    )
    tables["events"].remove(row)
    # It leads from 30 on, with entry 6 as its first one.
    tables["events"] += [evolve(row, seq=35, index=4, file_offset=35), evolve(row, seq=36, file_offset=36)]


@plant(
    "S5",
    "a commit names an entry of the log",
    server=3,
    index=8,
    expected="an entry of term 3",
    found="of term 2",
)
def a_commit_is_of_an_entry_that_is_not_there(tables: Tables) -> None:
    change(tables, "events", lambda row: (row.server, row.kind, row.index) == (3, "committed", 8), term=3)


@plant("S6", "a log has no gap and its terms do not go back", server=2, group=0, index=6, expected="index 5")
def an_entry_is_missing(tables: Tables) -> None:
    tables["entries"] = [row for row in tables["entries"] if (row.server, row.group, row.index) != (2, 0, 5)]


@plant("S6", "a log has no gap and its terms do not go back", server=1, index=5, expected="position 9")
def a_position_is_skipped(tables: Tables) -> None:
    for index in (5, 6, 7, 8):
        change(
            tables,
            "entries",
            having(server=1, group=0, index=index, standing="committed"),
            position=2 * index + 1,
        )


@plant("S6", "nothing committed is truncated", server=1, group=0, index=4, offset=1840)
def what_was_committed_is_truncated(tables: Tables) -> None:
    tables["truncations"].append(
        evolve(tables["truncations"][0], **placed(1, 1840), frame=84, from_index=4, last_index=8, last_term=2)
    )


@plant(
    "S6",
    "files are whole",
    server=2,
    file="server-2/wal/0000000001.seg",
    offset=777,
    found="checksum of frame 7",
)
def a_file_is_damaged(tables: Tables) -> None:
    change(tables, "files", lambda row: row.server == 2, damage="checksum of frame 7", file_offset=777)


@plant("S6", "states are the fold of the log", server=4, group=0, index=7, file="server-4/journal", offset=7)
def a_state_is_not_that_of_the_log(tables: Tables) -> None:
    change(tables, "events", lambda row: (row.server, row.index) == (4, 7), digest=hashed("wrong"))


@plant("S7", "configurations follow one another by joint ones", server=1, group=0, index=8)
def voters_change_without_a_joint_configuration(tables: Tables) -> None:
    row = next(row for row in tables["members"] if row.server == 1 and row.index == 7)
    tables["members"].append(evolve(row, index=8, frame=80, voters=(1, 2, 3, 4), learners=()))


@plant("S7", "only voters' votes count", server=2, group=0, index=2, found="one of [4] as well")
def a_learner_votes(tables: Tables) -> None:
    change(tables, "events", lambda row: row.kind == "became_leader" and row.term == 2, votes=(2, 3, 4))


# The tree and its clients -----------------------------------------------------------------------------------------


@plant("S8", "a number names one command", group=0, index=6, expected="set_data /a with")
def a_number_names_two_commands(tables: Tables) -> None:
    for server in INSTANCES:
        change(tables, "commands", having(server=server, position=6), once_seq=2)


@plant(
    "S8", "what was acknowledged is in the log, once", index=TERM + 4, found="not in the log of any server"
)
def an_acknowledged_write_is_lost(tables: Tables) -> None:
    for server in INSTANCES:
        change(
            tables,
            "commands",
            having(server=server, position=5),
            data_digest=hashed("other"),
        )


@plant("S8", "what was acknowledged is in the log, once", index=TERM + 2, expected="in the log once")
def a_write_is_done_twice(tables: Tables) -> None:
    for server in INSTANCES:
        row = next(row for row in tables["commands"] if (row.server, row.position) == (server, 4))
        tables["commands"].append(evolve(row, position=20, once_seq=20, origin_seq=20))


@plant("S9", "each key is linearizable", file="client-001.jsonl", offset=600)
def a_synced_read_is_stale(tables: Tables) -> None:
    change(
        tables,
        "histories",
        lambda row: row.kind == "sync get",
        value="two",
        version=1,
        mzxid=TERM + 2,
        at_us=6100,
    )
    change(tables, "histories", lambda row: row.record == "event", seq=9, at_us=9000)
    tables["histories"] = [row for row in tables["histories"] if row.kind in ("create", "set", "sync get")]
    change(tables, "histories", lambda row: row.kind == "sync get", zxid=TERM + 4, client=3, session=5)


@plant("S9", "zxids are one order", subject="zxid order")
def zxids_go_back_within_a_session(tables: Tables) -> None:
    change(tables, "histories", lambda row: row.kind == "children", zxid=TERM + 5, names=("n-0000000001",))


@plant("S9", "reads show a moment of it", subject="read")
def a_read_shows_what_nobody_wrote(tables: Tables) -> None:
    tables["histories"].append(
        operation(11, "get", path="/b", value="nothing", version=0, mzxid=TERM + 7, zxid=TERM + 7)
    )


@plant(
    "S10",
    "only a leader's own command expires a session",
    server=1,
    group=0,
    index=9,
    found="one of server 3",
)
def a_server_expires_a_session(tables: Tables) -> None:
    for server in INSTANCES:
        change(
            tables,
            "commands",
            having(server=server, operation="expire"),
            origin_server=3,
            origin_instance="c3",
        )


@plant("S10", "a session ends after its timeout, and for ever", subject="expiry")
def a_session_expires_early(tables: Tables) -> None:
    row = evolve(operation(11, "get"), kind=None, path=None, outcome=None, returned_us=None)
    tables["histories"].append(
        evolve(row, record="expired", client=2, session=SESSION + 1, heard_us=10_000, timeout_ms=4000)
    )


@plant("S10", "ephemerals live as long as their session", subject="ephemeral")
def an_ephemeral_outlives_its_session(tables: Tables) -> None:
    common = {"client": 4, "session": 77, "path": "/e"}
    tables["histories"] += [
        operation(
            1, "create", **common, value="e", version=0, ephemeral=True, zxid=TERM + 11, at_us=20_000,
            returned_us=20_100,
        ),
        evolve(operation(2, "close", **{**common, "path": ""}), zxid=TERM + 12, at_us=21_000, returned_us=21_100),
        operation(
            12, "get", path="/e", value="e", version=0, owner=77, mzxid=TERM + 11, zxid=TERM + 13, at_us=22_000,
            returned_us=22_100,
        ),
    ]  # fmt: skip
    for server in INSTANCES:
        row = next(row for row in tables["commands"] if (row.server, row.position) == (server, 4))
        from hashlib import blake2b

        tables["commands"].append(
            evolve(
                row, position=11, path="/e", once_seq=11, origin_seq=11,
                data_digest=blake2b(b"e", digest_size=16).digest(),
            )
        )  # fmt: skip


@plant("S11", "numbers grow and are given once", subject="sequence")
def numbers_go_back(tables: Tables) -> None:
    change(tables, "histories", lambda row: row.created == "/q/n-0000000002", created="/q/n-0000000000")
    change(tables, "histories", lambda row: row.kind == "children", names=("n-0000000000", "n-0000000001"))


@plant("S11", "lists show what is there", subject="children")
def a_list_lacks_a_child(tables: Tables) -> None:
    change(tables, "histories", lambda row: row.kind == "children", names=("n-0000000001",))


@plant("S12", "an event for each change, before it shows", subject="watch")
def an_event_is_lost(tables: Tables) -> None:
    tables["histories"] = [row for row in tables["histories"] if row.record != "event"]


# Peers ------------------------------------------------------------------------------------------------------------


@plant("S13", "one chain per position", index=2, file="gb.audit", found=hashed("wrong").hex())
def a_published_chain_differs(tables: Tables) -> None:
    change(
        tables,
        "replica_digests",
        lambda row: (row.peer, row.position) == ("gb", 2),
        chain=hashed("wrong"),
        at_ms=1,
    )


@plant(
    "S13",
    "no position is skipped or repeated",
    index=4,
    file="gb.audit",
    expected="position 3",
    found="position 4",
)
def a_position_is_not_applied(tables: Tables) -> None:
    tables["onyx_entries"] = [row for row in tables["onyx_entries"] if (row.peer, row.position) != ("gb", 3)]


@plant("S13", "chains and digests follow from the entries", index=4)
def all_peers_compute_something_else(tables: Tables) -> None:
    for table in ("onyx_entries", "replica_digests"):
        tables[table] = [
            evolve(row, digest=hashed("wrong")) if row.position == 4 else row for row in tables[table]
        ]


@plant("S14", "invariants hold at every position", index=5, file="gz.audit")
def an_origin_breaks_an_invariant(tables: Tables) -> None:
    tables["onyx_entries"] += _unsound_origin()


def _unsound_origin() -> list[Any]:
    last = recording("gz")[-1]
    origin = recording("gz")[0]
    replica, chain = decode_origin(origin.entry, "here")
    # A group that has not joined has an arc of the pool.
    replica = evolve(replica, version=5, arcs=replica.arcs.set("ghost", GroupArc(0, 1)))
    return [
        evolve(
            last, seq=0, position=5, kind="origin", source="", chain=chain, digest=digest(replica),
            entry=encode_origin(replica, chain), file_offset=7,
        )
    ]  # fmt: skip


@plant("S14", "an origin is that of a garbage collection", index=4, file="ga.audit")
def an_origin_is_no_collection(tables: Tables) -> None:
    replica, chain = Replica(), CHAIN_START
    for position, command in enumerate(ONYX):
        step = play(replica, Entry(position, Record(command, "ga", None, position)), chain)
        replica, chain = step.replica, step.chain
    last = recording("ga")[-1]
    tables["onyx_entries"].append(
        evolve(last, seq=99, kind="origin", source="", entry=encode_origin(replica, chain), file_offset=900)
    )


@plant("S15", "one reception is the first", index=1, file="ga.audit")
def an_event_is_new_twice(tables: Tables) -> None:
    row: GossipRow = next(row for row in tables["gossip"] if row.peer == "ga")
    tables["gossip"].append(evolve(row, seq=999, at_ms=row.at_ms + 5, position=row.position))


@plant(
    "S15", "an applied entry came by a recorded way", index=3, file="ga.audit", expected="a reception of it"
)
def an_entry_came_from_nowhere(tables: Tables) -> None:
    tables["gossip"] = [row for row in tables["gossip"] if (row.peer, row.position) != ("ga", 3)]


# Topics -----------------------------------------------------------------------------------------------------------


def _delivered(server: int, group: int, number: int) -> Callable[[Any], bool]:
    return lambda row: (row.server, row.group, row.number) == (server, group, number)


@plant("S16", "one stamp and content per message", group=RIGHT, index=3, expected="stamp (5, 101, 0, 0)")
def a_message_has_two_stamps(tables: Tables) -> None:
    for server in (1, 2):
        change(tables, "deliveries", _delivered(server, RIGHT, 5), time=6)
    tables["multicast"] = [row for row in tables["multicast"] if row.number != 5]


@plant("S16", "stamps grow with offsets", server=2, group=LEFT, index=1)
def stamps_go_back(tables: Tables) -> None:
    change(tables, "deliveries", _delivered(2, LEFT, 2), time=0, payload_digest=hashed("message", 2))
    change(tables, "deliveries", _delivered(1, LEFT, 2), time=0)
    tables["deliveries"] = [row for row in tables["deliveries"] if (row.server, row.group) != (1, LEFT)]


@plant("S16", "replicas deliver alike", server=2, group=RIGHT, index=3)
def a_replica_delivers_another_order(tables: Tables) -> None:
    change(tables, "deliveries", _delivered(2, RIGHT, 5), chain=hashed("wrong"))


@plant("S16", "the stamp is the largest proposal", group=LEFT, expected="the largest proposal, (7, 101)")
def a_stamp_is_not_the_largest_proposal(tables: Tables) -> None:
    for server in (1, 2):
        change(
            tables,
            "multicast",
            having(server=server, sender=LEFT, number=5),
            time=7,
        )


@plant("S17", "deliveries of all logs have one order", also=("S16",), subject="a cycle of 2 messages")
def two_groups_deliver_in_two_orders(tables: Tables) -> None:
    for server in (1, 2):
        rows = {row.number: row for row in tables["deliveries"] if (row.server, row.group) == (server, RIGHT)}
        tables["deliveries"] = [
            row for row in tables["deliveries"] if (row.server, row.group) != (server, RIGHT)
        ]
        # Message 3 before message 1, each with its own stamp.
        swapped = {1: 3, 3: 1}
        for number, row in rows.items():
            other = rows[swapped.get(number, number)]
            tables["deliveries"].append(
                evolve(
                    row,
                    offset=other.offset,
                    index=other.index,
                    file_offset=other.file_offset,
                    chain=other.chain,
                )
            )


@plant("S18", "delivered once", also=("S16",), server=1, group=LEFT, found="again at offset 4")
def a_message_is_delivered_twice(tables: Tables) -> None:
    row = next(row for row in tables["deliveries"] if _delivered(1, LEFT, 5)(row))
    tables["deliveries"].append(evolve(row, offset=4, index=16))


@plant(
    "S18",
    "delivered at one destination, delivered at all",
    group=LEFT,
    index=2,
    expected="a delivery by group 102 on",
)
def a_destination_passes_a_message_by(tables: Tables) -> None:
    for server in (1, 2):
        tables["deliveries"] = [
            evolve(row, offset=row.offset - (row.number > 3))
            if (row.server, row.group) == (server, RIGHT)
            else row
            for row in tables["deliveries"]
            if not _delivered(server, RIGHT, 3)(row)
        ]


@plant("S18", "delivered as it was sent", found=hashed("forged").hex())
def a_message_is_changed_on_the_way(tables: Tables) -> None:
    tables["deliveries"] = [
        evolve(row, payload_digest=hashed("forged")) if row.number == 5 else row
        for row in tables["deliveries"]
    ]


@plant(
    "S18",
    "only destinations take part",
    server=1,
    group=RIGHT,
    found="start in the log of group 102, of group 102",
)
def a_group_handles_what_is_not_its_own(tables: Tables) -> None:
    row = next(row for row in tables["multicast"] if row.number == 2)
    tables["multicast"].append(evolve(row, group=RIGHT, position=99))


@plant("S19", "a stamp is one message's", group=RIGHT, found="message 9:4")
def two_messages_share_a_stamp(tables: Tables) -> None:
    for server in (1, 2):
        three = next(row for row in tables["deliveries"] if _delivered(server, RIGHT, 3)(row))
        change(
            tables,
            "deliveries",
            _delivered(server, RIGHT, 4),
            time=1, time_group=RIGHT, sub=1, single=LEFT, offset=three.offset, index=three.index,
        )  # fmt: skip
        change(tables, "deliveries", _delivered(server, RIGHT, 3), offset=three.offset + 1, index=14)


@plant("S20", "offsets are dense and follow the Raft log", server=2, group=LEFT, index=4, expected="offset 3")
def an_offset_is_skipped(tables: Tables) -> None:
    change(tables, "deliveries", _delivered(2, LEFT, 5), offset=4)


@plant(
    "S20", "offsets are dense and follow the Raft log", server=2, group=NORTH, index=1, expected="offset 3"
)
def a_batch_takes_one_offset(tables: Tables) -> None:
    change(tables, "deliveries", _delivered(2, NORTH, 2), offset=1)


@plant(
    "S20", "a producer's messages stay in order", server=1, group=LEFT, index=4, expected="a number above 2"
)
def a_producer_is_overtaken(tables: Tables) -> None:
    last = next(row for row in tables["deliveries"] if _delivered(1, LEFT, 5)(row))
    tables["deliveries"].append(
        evolve(
            last, offset=4, number=1_000_000 - 999_999, producer=9, index=16, destinations=(LEFT,), time=6,
            payload_digest=hashed("older"),
        )
    )  # fmt: skip
    tables["deliveries"] = [
        row
        for row in tables["deliveries"]
        if row.number != 1 or row.payload_digest == hashed("older") or row.group == RIGHT
    ]
    tables["deliveries"] = [row for row in tables["deliveries"] if row.number != 1 or row.group == LEFT]
    tables["multicast"] = [row for row in tables["multicast"] if row.number != 1]


@plant("S20", "a producer's messages stay in order", group=SOUTH, index=1, expected="a number above 2")
def what_a_round_put_in_order_is_overtaken(tables: Tables) -> None:
    for server in (1, 2):
        change(tables, "deliveries", _delivered(server, SOUTH, 4), number=0, destinations=(SOUTH, 105))


@plant("S16", "a round's messages are at its stamp", group=SOUTH, found="stamp (8, 104, 2, 0)")
def a_message_is_at_another_place_of_its_round(tables: Tables) -> None:
    for server in (1, 2):
        change(tables, "deliveries", _delivered(server, SOUTH, 4), sub=2)


# Benchmarks -------------------------------------------------------------------------------------------------------


@plant(
    "S22",
    "figures follow from counts",
    index=1,
    file="result_x.json",
    expected="2, from 4 requests in 2 s",
    found="2.5",
)
def a_rate_was_made_up(tables: Tables) -> None:
    change(tables, "measured_tests", lambda row: True, per_second=2.5)


@plant("S22", "figures follow from counts", index=1, subject="p99 ms of test 1.1 of run r", found="0.12")
def a_percentile_was_made_up(tables: Tables) -> None:
    change(tables, "measured_tests", lambda row: True, percentiles_ms=(0.1, 0.12))


@plant("S22", "elections in order of time", server=2, index=1)
def a_leader_before_its_candidacy(tables: Tables) -> None:
    change(tables, "measured_trials", lambda row: True, led_ms=100.5)


@plant("S22", ACCOUNTS, subject="deliveries, cell 10%", found="13")
def a_delivery_was_not_read(tables: Tables) -> None:
    change(
        tables,
        "measured_cells",
        lambda row: True,
        delivered=(9, 1, 1, 1, 1),
        per_second=(4.5, 0.5, 0.5, 0.5, 0.5),
    )


@plant("S22", ACCOUNTS, subject="records of the thesis' algorithm", expected="62", found="60")
def records_were_accounted_for_otherwise(tables: Tables) -> None:
    change(tables, "measured_cells", lambda row: True, thesis_records=60)


@plant("S22", DRAWN, subject="degree of table 8.1", expected="0.5", found="0.4322")
def a_degree_was_copied_from_elsewhere(tables: Tables) -> None:
    change(tables, "measured_pools", lambda row: True, degree=0.4322)


@plant("S22", DRAWN, subject="coverage of table 8.7", expected="0.625", found="0.75")
def a_coverage_was_made_up(tables: Tables) -> None:
    change(tables, "measured_copies", lambda row: True, coverage=0.75)
