"""Tests that the files in deploy/ work: the unit of systemd, the manifests of Kubernetes, the dashboard of Grafana."""

import pytest

# It has assertions that tests share.
pytest.register_assert_rewrite("tests.deploy.manifests")
