"""Streams: batches add up to the table, are the same when they are read again, and give nothing that may be taken back."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.errors import AuditError
from onyxlog.audits.source import directories
from onyxlog.audits.source.live_logs import LiveLogs
from tests.onyxlog.audits.conftest import age
from tests.onyxlog.audits.reading import chosen, read, rows_of
from zraft.storage.filesystem import ReadOnlyFileSystem


def following(path: Path, table: str = "entries", **given: str) -> LiveLogs:
    options = chosen(path, table, **given)
    return LiveLogs(options, directories.find(options.paths).servers, ReadOnlyFileSystem())


def batches(
    live: LiveLogs, path: Path, table: str, bytes_max: int, **given: str
) -> list[tuple[Any, Any, list[Any]]]:
    """(start, end, rows) of all batches there are."""
    options = chosen(path, table, **given)
    found, start = [], live.initial()
    while (end := live.latest(start, bytes_max)) != start:
        found.append((start, end, rows_of(options, live.pieces(start, end))))
        live.done(end)
        start = json.loads(json.dumps(end))
    return found


@pytest.mark.parametrize("table", ["entries", "commands", "hard_states", "truncations", "members"])
def test_batches_add_up_to_the_table_in_the_order_of_each_log(generated: Path, table: str) -> None:
    found = batches(following(generated, table), generated, table, 20_000)
    assert len(found) > 3
    for server in (1, 2, 3):
        streamed = [row for _, _, rows in found for row in rows if row.server == server]
        assert streamed == [row for row in read(generated, table) if row.server == server]


def test_a_batch_is_the_same_when_another_process_reads_it_again(generated: Path) -> None:
    found = batches(following(generated), generated, "entries", 30_000)
    for start, end, rows in found:
        again = following(generated)
        assert rows_of(chosen(generated, "entries"), again.pieces(start, end)) == rows


def test_a_stream_goes_on_where_a_checkpoint_says(generated: Path) -> None:
    found = batches(following(generated), generated, "entries", 30_000)
    start, end, rows = found[2]
    again = following(generated)
    assert again.latest(start, 30_000) == end
    assert rows_of(chosen(generated, "entries"), again.pieces(start, end)) == rows


def test_what_one_server_alone_has_is_not_given_before_others_have_it(
    generated: Path, tmp_path: Path
) -> None:
    """Logs that grow: first one server's, then a second one's."""
    short = tmp_path / "short"
    shutil.copytree(generated, short)
    last = {}
    for server in (1, 2, 3):
        segments = sorted((short / f"server-{server}" / "wal").iterdir())
        last[server] = segments[-1]
        segments[-1].unlink()
        shutil.rmtree(short / f"server-{server}" / "groups")
    age(short)
    live = following(short)
    start = live.initial()
    first = live.latest(start, None)
    whole = {
        name: path.read_bytes() for name, path in ((s, generated / last[s].relative_to(short)) for s in last)
    }
    last[1].write_bytes(whole[1])
    age(short)
    options = chosen(short, "entries")
    alone = live.latest(first, None)
    assert rows_of(options, live.pieces(first, alone)) == []
    last[2].write_bytes(whole[2])
    age(short)
    second = live.latest(alone, None)
    grown = [path for path in second if second[path] != alone[path]]
    assert sorted(grown) == [str(short / "server-1"), str(short / "server-2")]
    given = [row for a, b in ((start, first), (alone, second)) for row in rows_of(options, live.pieces(a, b))]
    known = {(row.index, row.term) for row in read(generated, "entries")}
    assert {(row.index, row.term) for row in given} == known


def test_freezing_gives_what_was_there_then_and_no_more(generated: Path, tmp_path: Path) -> None:
    live = following(generated)
    live.freeze()
    end = live.latest(live.initial(), None)
    assert live.latest(end, None) == end


def test_a_stream_from_now_on_begins_behind_what_is_there(generated: Path) -> None:
    live = following(generated, starting="latest")
    start = live.initial()
    assert live.latest(start, None) == start


def test_a_checkpoint_of_other_directories_is_refused(generated: Path, tmp_path: Path) -> None:
    live = following(generated)
    start = live.initial()
    with pytest.raises(AuditError, match="checkpoint is of"):
        live.latest({next(iter(start)): {"segment": 0, "offset": 0, "frame": 0}}, None)


def test_what_was_compacted_before_it_was_read_is_told(generated: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(generated, path)
    age(path)
    live = following(path)
    start = live.initial()
    first = live.latest(start, 3_000)
    for server in (1, 2, 3):
        for segment in sorted(os.listdir(path / f"server-{server}" / "wal"))[:2]:
            os.unlink(path / f"server-{server}" / "wal" / segment)
    with pytest.raises(AuditError, match=r"compacted|begins later"):
        following(path).latest(first, None)
