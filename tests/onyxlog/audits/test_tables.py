"""Tables: columns follow from row types, without Spark or Arrow; with Arrow rows come back as they went."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import attrs
import pytest

from onyxlog.audits.tables import TABLES
from onyxlog.audits.tables.deliveries import DELIVERIES, DeliveryRow
from onyxlog.audits.tables.members import MEMBERS, MembershipRow
from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table, signed


def test_the_names_of_tables_are_their_keys_and_each_says_what_a_row_is() -> None:
    assert len(TABLES) == 16
    for name, table in TABLES.items():
        assert table.name == name
        assert table.about


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_row_type_is_frozen_and_says_where_it_stands(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert "file" in names
    assert "file_offset" in names
    required = {f.name: 0 for f in attrs.fields(table.row) if f.default is attrs.NOTHING}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        table.row(**required).file = "another"


def test_the_schema_for_spark_follows_from_the_row_type() -> None:
    found = dict(zip((c.name for c in MEMBERS.columns), (c.ddl for c in MEMBERS.columns), strict=True))
    assert found["voters"] == "ARRAY<BIGINT>"
    assert found["instances"] == "ARRAY<STRING>"
    assert "`group` BIGINT NOT NULL" in MEMBERS.ddl
    assert "`destinations` ARRAY<BIGINT>, " in DELIVERIES.ddl


def test_a_field_of_another_type_is_no_column() -> None:
    @attrs.frozen
    class Wrong:
        ratio: complex

    with pytest.raises(AssertionError, match="ratio"):
        Table("wrong", Wrong, "nothing")


def test_a_session_keeps_its_bits() -> None:
    assert signed(1) == 1
    assert signed((1 << 64) - 1) == -1
    assert signed(3 << 62) & ((1 << 64) - 1) == 3 << 62


def test_rows_come_back_from_arrow_as_they_went() -> None:
    pytest.importorskip("pyarrow", reason="needs the extra `audits`")
    rows: list[tuple[Table, Any]] = [
        (MEMBERS, MembershipRow(server=1, group=0, index=3, term=2, servers=(1, 2), voters=(1,), learners=(2,))),
        (
            DELIVERIES,
            DeliveryRow(
                server=2, group=7, offset=0, time=5, time_group=7, sub=0, single=0, producer=3, number=1, index=9,
                wall_time_ms=1000, chain=b"\0" * 16, payload_digest=b"\1" * 16,
            ),
        ),
    ]  # fmt: skip
    for table, row in rows:
        assert list(table.rows(table.batch([row]).to_pylist())) == [row]
        assert isinstance(row, Placed)


def test_importing_the_tables_needs_neither_spark_nor_arrow() -> None:
    code = (
        "import sys; from onyxlog.audits.tables import TABLES; [t.ddl for t in TABLES.values()];"
        "sys.exit(any(n.split('.')[0] in ('pyspark', 'pyarrow', 'pandas') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
