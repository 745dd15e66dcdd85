"""What tests share: data directories that shipped code has written, and a Spark session, which takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.generating import Generator, Scenario

COMMANDS = 3_000
SCENARIO = Scenario(COMMANDS, batch=20, elections=3, snapshots=2, seed=5, segment_bytes=32 << 10)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three servers; nobody changes them."""
    path = tmp_path_factory.mktemp("generated")
    generator = Generator(str(path), SCENARIO)
    generator.run()
    generator.close()
    age(path)
    return path


def age(path: Path) -> None:
    """As if the last write was long ago, so that it counts as durable."""
    for segment in path.rglob("*.seg"):
        os.utime(segment, (1, 1))


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
                # Plans of a few rows are not worth compiling.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        )
    )
    yield session
    close_session(session)
