"""Tasks that decode tables into files, and plans of several tables at a time; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from onyxlog.audits.source import directories, options, plan
from onyxlog.audits.source.server_log import ServerLog
from onyxlog.audits.tables import TABLES
from tests.onyxlog.audits.reading import chosen, read, rows_of

pytest.importorskip("pyarrow", reason="needs the extra `audits`")


def test_tables_that_are_planned_together_hold_what_each_holds_alone(
    generated: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every log is read once for all of them."""
    logs: list[str] = []
    advance = ServerLog.advance

    def noted(self: ServerLog) -> Any:
        logs.append(self.directory.path)
        return advance(self)

    monkeypatch.setattr(ServerLog, "advance", noted)
    for path in (generated, served):
        tables = [evolve(chosen(path, name), entries=options.WRITTEN) for name in TABLES]
        tables.append(chosen(path, "entries", entries="live", payloads="true", group="0"))
        found = directories.find((str(path),))
        logs.clear()
        together = plan.plan_together(tables, found)
        assert sorted(logs) == sorted(one.path for one in found.servers)
        for asked, pieces in zip(tables, together, strict=True):
            assert rows_of(asked, pieces) == rows_of(asked, plan.plan(asked, found)), asked.table.name


def test_a_task_leaves_a_file_with_the_rows_of_its_pieces(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    from onyxlog.audits.jobs import decoding

    monkeypatch.setattr(decoding, "ROW_GROUP_ROWS", 500)
    asked = evolve(chosen(generated, "commands"), batch_rows=300)
    pieces = tuple(plan.plan(asked, directories.find((str(generated),))))
    file = tmp_path / "commands.parquet"
    done = decoding.decoded(decoding.DecodingTask(asked, pieces, str(file)))
    expected = read(generated, "commands")
    assert [*asked.table.rows(pq.read_table(file).to_pylist())] == expected
    assert (done.table, done.rows) == ("commands", len(expected))
    assert pq.ParquetFile(file).num_row_groups > 3


def test_a_task_without_pieces_leaves_a_file_with_columns_and_no_rows(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from onyxlog.audits.jobs.decoding import DecodingTask, decoded

    asked = options.parse({"path": str(tmp_path), "table": "claims"})
    assert decoded(DecodingTask(asked, (), str(tmp_path / "claims.parquet"))).rows == 0
    assert pq.read_table(tmp_path / "claims.parquet").schema.names == [
        column.name for column in TABLES["claims"].columns
    ]


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onyxlog.audits.jobs import decoding

    def failing(piece: plan.Piece) -> Iterator[Any]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(decoding, "read_piece", failing)
    asked = options.parse({"path": str(tmp_path), "table": "members"})
    task = decoding.DecodingTask(asked, (plan.RowsPiece("members", ()),), str(tmp_path / "members.parquet"))
    with pytest.raises(OSError, match="the disk is gone"):
        decoding.decoded(task)
    assert [*tmp_path.iterdir()] == []
