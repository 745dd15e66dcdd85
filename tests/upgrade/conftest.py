"""The last release's code, extracted once for all tests that run it; clusters are those of `tests.processes`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.processes.conftest import open_sessions, pytest_runtest_makereport, start_cluster
from tests.upgrade.golden import NoReleaseError, extract_release

__all__ = ["open_sessions", "pytest_runtest_makereport", "start_cluster"]


@pytest.fixture(scope="session")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with its files. A checkout without that commit is told so; in CI that is a failure."""
    try:
        return extract_release(tmp_path_factory.mktemp("last-release"))
    except NoReleaseError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
