"""One Spark session for all tests of this process: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A small local session; tests that take it carry the mark `spark`."""
    pytest.importorskip("pyspark", reason="needs the extra `audits`")
    from onyxlog.audits.session import SessionSettings, close_session, open_session

    session = open_session(
        SessionSettings(
            master="local[1]",
            memory="700m",
            partitions=2,
            more={
                # A batch ends in the middle of a key, and plans of a few rows are not worth compiling.
                "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        )
    )
    yield session
    close_session(session)
