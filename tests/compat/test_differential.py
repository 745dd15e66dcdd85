"""The same random operations applied to real ZooKeeper and to zraft; a fresh seed each time, printed by the run."""

from __future__ import annotations

import pytest

from tests.compat.differential.run import main
from tests.compat.install import MissingError, java_jars, program


@pytest.mark.compat
@pytest.mark.processes
@pytest.mark.timeout(2_400)
def test_replies_and_events_equal_those_of_zookeeper(seed: int) -> None:
    try:
        program("java", "default-jre-headless")
        java_jars()
    except MissingError as error:
        pytest.skip(str(error))
    assert main(["--seed", str(seed)]) == 0
