"""What tests share: data directories that shipped code has written, and a Spark session, which takes seconds."""

from __future__ import annotations

import os
import sys
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
    sql = pytest.importorskip("pyspark.sql", reason="needs the extra `audits`")
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    session = (
        sql.SparkSession.builder.master("local[1]")
        .appName("tests")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
