"""Real servers on directories of the last release: all is there, they write on, and the last release takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.cluster import wait_until
from tests.upgrade.content import check, write_on
from tests.upgrade.golden import NAMES, Golden, golden, make
from tests.upgrade.releases import OLD_LEVEL, MixedCluster
from zraft.config.features import FEATURE_LEVEL_MAX

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def placed(
    directory: Path, name: str, *settings: str, release: Path | None = None
) -> tuple[MixedCluster, Golden]:
    """A cluster of one server, which is not started, on a golden directory."""
    kept = golden(name)
    cluster = MixedCluster(directory, servers=1, release=release, settings=settings)
    kept.write(cluster.servers[1].data)
    return cluster, kept


@pytest.mark.parametrize("name", NAMES)
def test_a_server_goes_on_with_what_the_last_release_wrote(name: str, tmp_path: Path) -> None:
    cluster, kept = placed(tmp_path, name)
    with cluster:
        cluster.start(1)
        cluster.wait_ready()
        check(cluster, kept)
        write_on(cluster, kept, "written-on")
        cluster.change_release(1, old=False)
        check(cluster, kept)
        wait_until(lambda: cluster.level() == FEATURE_LEVEL_MAX, "the level to rise")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_last_release_goes_on_with_what_this_one_wrote(
    name: str, tmp_path: Path, last_release: Path
) -> None:
    """As long as the feature level was not raised; and this one takes it over from there."""
    cluster, kept = placed(tmp_path, name, f"features_max={OLD_LEVEL}", release=last_release)
    with cluster:
        cluster.start(1)
        cluster.wait_ready()
        for round_number in range(2):
            for release in ("this", "last"):
                cluster.change_release(1, old=release == "last")
                check(cluster, kept)
                write_on(cluster, kept, f"{release}-{round_number}")
                assert cluster.level() == OLD_LEVEL
        cluster.settings = ()
        cluster.change_release(1, old=False)
        check(cluster, kept)
        wait_until(lambda: cluster.level() == FEATURE_LEVEL_MAX, "the level to rise")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_last_release_writes_the_same_directory_again(name: str, last_release: Path) -> None:
    assert make(name, last_release) == golden(name)
