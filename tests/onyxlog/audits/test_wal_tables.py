"""Tables of write-ahead logs: what is committed is proven, what was taken back shows as that, and live ones are safe."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.errors import AuditError
from onyxlog.audits.generating import Generator, Scenario
from onyxlog.audits.source import directories
from onyxlog.audits.source.plan import plan
from tests.onyxlog.audits.conftest import COMMANDS, SCENARIO, age
from tests.onyxlog.audits.reading import chosen, read, rows_of
from zraft.storage.errors import CorruptionError


def copied(generated: Path, tmp_path: Path) -> Path:
    shutil.copytree(generated, tmp_path / "copy")
    return tmp_path / "copy"


def segments(path: Path, server: int) -> list[Path]:
    return sorted((path / f"server-{server}" / "wal").iterdir())


def test_all_servers_show_the_same_committed_entries(generated: Path) -> None:
    logs = {
        server: [
            (row.index, row.term, row.digest, row.previous_term)
            for row in read(generated, "entries")
            if row.server == server
        ]
        for server in (1, 2, 3)
    }
    assert len(logs[1]) > COMMANDS // SCENARIO.batch
    assert logs[1] == logs[2] == logs[3]


def test_indices_are_contiguous_and_terms_follow_previous_terms(generated: Path) -> None:
    for server in (1, 2, 3):
        last_index, last_term = 0, 0
        for row in read(generated, "entries"):
            if row.server == server:
                assert (row.index, row.previous_term) == (last_index + 1, last_term)
                last_index, last_term = row.index, row.term
        assert last_term == SCENARIO.elections + 1


def test_entries_that_only_a_cut_off_leader_had_are_shown_as_truncated_and_only_if_asked_for(
    generated: Path,
) -> None:
    written = Counter(row.standing for row in read(generated, "entries", entries="written"))
    assert written["truncated"] == SCENARIO.elections
    assert written["open"] == 0
    assert written["committed"] == len(read(generated, "entries"))


def test_a_truncation_never_reaches_what_its_server_had_been_part_of_committing(generated: Path) -> None:
    found = read(generated, "truncations")
    assert len(found) == SCENARIO.elections
    for row in found:
        assert row.committed_index == row.from_index - 1
        assert row.cause == "truncate"


def test_one_directory_alone_proves_no_more_than_its_newest_snapshot(generated: Path) -> None:
    newest = max(row.index for row in read(generated / "server-2", "snapshots"))
    assert max(row.index for row in read(generated / "server-2", "entries")) == newest
    assert max(row.index for row in read(generated / "server-2", "entries", entries="live")) > newest


def test_two_of_three_directories_prove_what_all_three_do(generated: Path) -> None:
    pair = f'["{generated}/server-1", "{generated}/server-3"]'
    options = directories.find([f"{generated}/server-1", f"{generated}/server-3"])
    assert [one.server for one in options.servers] == [1, 3]
    found = {row.index for row in read(generated / "server-1", "entries", paths=pair)}
    assert found == {row.index for row in read(generated, "entries")}


def test_commands_have_contiguous_positions_and_no_passwords(generated: Path) -> None:
    rows = [row for row in read(generated, "commands", payloads="true") if row.server == 1]
    positions = [row.position for row in rows if row.part == 0]
    assert positions == list(range(1, len(positions) + 1))
    assert len(positions) > COMMANDS
    operations = Counter(row.operation for row in rows)
    assert {
        "feature",
        "register",
        "create_session",
        "create",
        "set_data",
        "multi",
        "check",
        "create2",
    } <= operations.keys()
    assert all(row.data is None for row in rows if row.operation in ("create_session", "attach"))
    numbered = [row for row in rows if row.once_seq is not None]
    assert [row.once_seq for row in numbered] == list(range(1, len(numbered) + 1))


def test_payloads_are_shown_only_if_asked_for(generated: Path) -> None:
    assert {row.payload for row in read(generated, "entries")} == {None}
    assert all(len(row.payload) == row.size for row in read(generated, "entries", payloads="true"))


def test_votes_are_told_once_per_term_and_the_configuration_is_the_founders(generated: Path) -> None:
    votes: dict[tuple[int, int], set[int]] = {}
    for row in read(generated, "hard_states"):
        if row.voted_for is not None:
            votes.setdefault((row.server, row.term), set()).add(row.voted_for)
    assert len(votes) >= 2 * (SCENARIO.elections + 1)
    assert all(len(voted) == 1 for voted in votes.values())
    assert {row.voters for row in read(generated, "members")} == {(1, 2, 3)}


def test_snapshots_of_one_index_have_one_digest(generated: Path) -> None:
    found = read(generated, "snapshots")
    assert len(found) == 3 * SCENARIO.snapshots
    assert len({(row.index, row.digest) for row in found}) == SCENARIO.snapshots


def test_a_torn_tail_is_no_damage(generated: Path, tmp_path: Path) -> None:
    path = copied(generated, tmp_path)
    last = segments(path, 1)[-1]
    data = last.read_bytes()
    torn = len(data.rstrip(b"\0")) - 10
    last.write_bytes(data[:torn] + bytes(len(data) - torn))
    age(path)
    before = {row.index for row in read(generated, "entries")}
    after = [row.index for row in read(path, "entries")]
    assert set(after) == before, "the other two prove it"
    (file,) = (row for row in read(path, "files") if row.file == str(last))
    assert file.torn > 0
    assert file.damage is None


def test_a_log_that_was_cut_is_damage(generated: Path, tmp_path: Path) -> None:
    """Between two frames as well, where nothing else shows it."""
    path = copied(generated, tmp_path)
    last = segments(path, 1)[-1]
    (file,) = (row for row in read(path, "files") if row.file == str(last))
    assert file.damage is None
    made = last.stat().st_size
    os.truncate(last, made - 1)
    (file,) = (row for row in read(path, "files") if row.file == str(last))
    assert file.damage == f"the file was cut: {made - 1} bytes are left of {made}"
    assert file.file_offset == made - 1


def test_damage_is_told_with_its_place(generated: Path, tmp_path: Path) -> None:
    path = copied(generated, tmp_path)
    hurt = segments(path, 2)[0]
    data = bytearray(hurt.read_bytes())
    data[len(data) // 2] ^= 1
    hurt.write_bytes(data)
    with pytest.raises(CorruptionError, match=str(hurt)):
        read(path, "entries")
    found = [row for row in read(path, "files") if row.damage is not None]
    assert [(row.server, row.file) for row in found] == [(2, str(hurt))]
    assert 0 < found[0].file_offset <= len(data) // 2


def test_a_segment_that_is_compacted_after_planning_is_left_out(generated: Path, tmp_path: Path) -> None:
    path = copied(generated, tmp_path)
    options = chosen(path, "entries")
    pieces = plan(options, directories.find(options.paths))
    gone = segments(path, 1)[0]
    gone.unlink()
    rows = rows_of(options, pieces)
    assert all(row.file != str(gone) for row in rows)
    assert {row.index for row in rows if row.server == 2} == {row.index for row in read(generated, "entries")}


def test_a_log_that_begins_behind_a_compaction_is_read_from_there(generated: Path, tmp_path: Path) -> None:
    path = copied(generated, tmp_path)
    for server in (1, 2, 3):
        segments(path, server)[0].unlink()
    rows = read(path, "entries")
    whole = {(row.server, row.index): row for row in read(generated, "entries")}
    assert len({row.server for row in rows}) == 3
    for row in rows:
        first = whole[row.server, row.index]
        assert (row.digest, row.previous_term) == (first.digest, first.previous_term)
    assert {row.source for row in read(path, "members")} == {"base"}
    assert any(row.restated for row in read(path, "hard_states"))


def test_the_newest_write_counts_only_when_it_is_settled(generated: Path, tmp_path: Path) -> None:
    path = copied(generated, tmp_path)
    settled = max(row.index for row in read(generated, "entries"))
    for server in (1, 2, 3):
        os.utime(segments(path, server)[-1])
    assert max(row.index for row in read(path, "entries", entries="live")) < settled


def test_columns_group_and_table_are_as_asked_for(generated: Path) -> None:
    options = chosen(generated, "entries", columns="term, index")
    assert options.ddl == "`term` BIGINT NOT NULL, `index` BIGINT NOT NULL"
    assert read(generated, "entries", group="7") == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"table": "entrys"}, "did you mean 'entries'"),
        ({}, "no table"),
        ({"table": "entries", "colums": "a"}, "did you mean 'columns'"),
        ({"table": "entries", "columns": "nothing"}, "has no 'nothing'"),
        ({"table": "entries", "entries": "all"}, "one of committed, live, written"),
        ({"table": "entries", "batch_rows": "0"}, "an integer from 1"),
        ({"table": "entries", "payloads": "yes"}, "one of true, false"),
        ({"table": "entries", "paths": "/a,/b"}, "a JSON list"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_what_was_expected(
    generated: Path, given: dict[str, str], expected: str
) -> None:
    from onyxlog.audits.source.options import parse

    with pytest.raises(AuditError, match=expected):
        parse({"path": str(generated), **given})


def test_all_that_is_wrong_is_told_at_once() -> None:
    from onyxlog.audits.source.options import parse

    with pytest.raises(AuditError, match=r"unknown.*no path.*no table"):
        parse({"nonsense": "1"})


def test_a_path_without_anything_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="no data directory"):
        directories.find([str(tmp_path)])
    with pytest.raises(AuditError, match="no such file"):
        directories.find([str(tmp_path / "missing")])


def test_logs_of_group_0_alone_are_not_read_for_what_partitions_wrote(generated: Path, served: Path) -> None:
    for table in ("multicast", "claims"):
        options = chosen(generated, table)
        assert plan(options, directories.find(options.paths)) == []
        options = chosen(served, table)
        assert len(plan(options, directories.find(options.paths))) >= 3


def test_of_one_copy_each_committed_command_is_given_once_and_nothing_is_missing(
    generated: Path, tmp_path: Path
) -> None:
    """Also where the first log has lost its beginning: then another one gives that."""
    path = copied(generated, tmp_path)
    segments(path, 1)[0].unlink()
    age(path)
    every, once = (read(path, "commands", entries="written", copies=copies) for copies in ("all", "one"))

    def said(row: Any) -> tuple[Any, ...]:
        return (
            row.index,
            row.term,
            row.position,
            row.part,
            row.opcode,
            row.path,
            row.data_digest,
            row.once_seq,
        )

    committed = [said(row) for row in once if row.standing == "committed"]
    assert len(committed) == len(set(committed))
    assert set(committed) == {said(row) for row in every if row.standing == "committed"}
    assert len({row.server for row in once if row.standing == "committed"}) > 1
    others = [(row.server, said(row)) for row in every if row.standing != "committed"]
    assert others
    assert [(row.server, said(row)) for row in once if row.standing != "committed"] == others
    assert {row.server for row in read(path, "entries", copies="one")} == {1, 2, 3}, "S2 compares them"


def test_partitions_of_one_copy_are_whole(served: Path) -> None:
    for table in ("multicast", "claims"):
        every, once = (read(served, table, copies=copies) for copies in ("all", "one"))
        places = [(row.group, row.index, row.position) for row in once]
        assert len(places) == len(set(places))
        assert set(places) == {(row.group, row.index, row.position) for row in every}


def test_a_generated_server_that_is_down_has_nothing_of_what_the_others_commit(tmp_path: Path) -> None:
    generator = Generator(str(tmp_path), Scenario(200, batch=10, elections=0, snapshots=0, down=1))
    generator.run()
    generator.write(3)
    generator.close()
    age(tmp_path)
    assert generator.commands == 203
    last = {
        server: max(row.index for row in read(tmp_path, "entries") if row.server == server)
        for server in (1, 2, 3)
    }
    # With the first entry of who leads now: with this seed the one that is down did.
    assert last[1] == last[2] == last[3] + 22
    assert {row.standing for row in read(tmp_path, "entries")} == {"committed"}


def test_so_many_generated_servers_down_that_nobody_can_lead_are_refused() -> None:
    with pytest.raises(
        ValueError, match="expected 0 at most, or nobody is left to lead while elections go on"
    ):
        Scenario(10, down=1)
    with pytest.raises(ValueError, match="2 of 4 servers are down: expected 1 at most"):
        Scenario(10, servers=4, elections=0, down=2)
    Scenario(10, servers=5, down=1)
