"""kazoo's own test-suite against servers of ours, as the command in docs/explanation/testing.md runs it."""

from __future__ import annotations

import pytest

from tests.compat.install import MissingError, kazoo_suite
from tests.compat.kazoo_suite.runner import main


@pytest.mark.compat
@pytest.mark.processes
@pytest.mark.timeout(2_400)
def test_kazoos_own_suite_passes_but_for_what_is_excused() -> None:
    try:
        kazoo_suite()
    except MissingError as error:
        pytest.skip(str(error))
    assert main([]) == 0
