"""This release beside the last one: directories that one wrote and the other opens, servers of both in one cluster."""

import pytest

# It has assertions that tests share.
pytest.register_assert_rewrite("tests.upgrade.content")
