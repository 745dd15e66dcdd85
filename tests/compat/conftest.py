"""The fixtures that start real servers, for the clients here, too."""

from tests.processes.conftest import cluster, open_sessions, pytest_runtest_makereport, start_cluster

__all__ = ["cluster", "open_sessions", "pytest_runtest_makereport", "start_cluster"]
