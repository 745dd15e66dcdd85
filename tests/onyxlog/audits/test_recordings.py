"""What a fleet recorded, as tables: every entry with the chain that playing it gives, and how it came."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from onyxlog.audits.source.directories import find
from onyxlog.audits.source.follow import follow
from onyxlog.replica.codec import decode_origin, decode_record
from onyxlog.replica.commands import Entry
from onyxlog.replica.playing import play
from tests.onyxlog.audits.conftest import ENTRIES, GROUPS
from tests.onyxlog.audits.reading import chosen, read, rows_of


def test_every_group_recorded_its_origin_and_every_entry_with_what_playing_it_gives(recorded: Path) -> None:
    by_peer: dict[str, list[Any]] = defaultdict(list)
    for row in read(recorded, "onyx_entries"):
        by_peer[row.peer].append(row)
    assert len(by_peer) == GROUPS
    for rows in by_peer.values():
        replica, chain = decode_origin(rows[0].entry, "origin")
        assert (rows[0].kind, rows[0].chain) == ("origin", chain)
        for row in rows[1:]:
            step = play(replica, Entry(row.position, decode_record(row.entry, "entry")), chain)
            replica, chain = step.replica, step.chain
            assert (row.chain, row.kind in ("join-direct", "backpressure-off", "group-leave")) == (
                chain,
                True,
            )
        assert rows[-1].position >= GROUPS + ENTRIES - 1


def test_digests_of_all_groups_agree_at_every_position(recorded: Path) -> None:
    found: dict[int, set[tuple[bytes, bytes]]] = defaultdict(set)
    for row in read(recorded, "replica_digests"):
        assert row.source == "recorded"
        found[row.position].add((row.chain, row.digest))
    assert all(len(said) == 1 for said in found.values())
    assert len(found) >= GROUPS + ENTRIES


def test_what_gossip_brought_was_sent_by_somebody_and_received_first_once(recorded: Path) -> None:
    rows = read(recorded, "gossip")
    received = [row for row in rows if row.what == "received"]
    sent = {row.position for row in rows if row.what == "sent"}
    assert received
    assert {row.position for row in received} <= sent
    first = [(row.peer, row.position) for row in received if row.first]
    assert len(first) == len(set(first))
    brought = {(row.peer, row.position) for row in read(recorded, "onyx_entries") if row.source == "gossip"}
    assert brought <= set(first)
    assert brought


def test_recourse_to_the_log_is_told(recorded: Path) -> None:
    reasons = {row.reason for row in read(recorded, "log_reads")}
    assert reasons <= {"gap", "poll", "mismatch", "behind", "look", "tail"}
    assert "tail" in reasons


def test_a_recording_is_followed_as_it_grows(recorded: Path, tmp_path: Path) -> None:
    (source, *_) = sorted(recorded.iterdir())
    data = source.read_bytes()
    copy = tmp_path / source.name
    copy.write_bytes(data[: len(data) // 2])
    options = chosen(tmp_path, "onyx_entries")
    following = follow(options, find(options.paths))
    given: list[Any] = []
    start = following.initial()
    for size in (len(data) // 2, len(data) // 2 + 7, len(data)):
        copy.write_bytes(data[:size])
        end = following.latest(start, None)
        given += rows_of(options, following.pieces(start, end))
        start = end
    assert [row.seq for row in given] == [
        row.seq for row in read(recorded, "onyx_entries") if row.file == str(source)
    ]
