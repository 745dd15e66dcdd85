"""Feature levels: which behaviour of apply is in force, so that releases can be mixed while a cluster rolls (D-5).

The level is part of the state. A leader proposes FEATURE once every member has announced that it knows the level;
apply behaves as the level in force, not as the newest it knows.

====== ==============================================================================
level  what is in force beside what the levels below it have
====== ==============================================================================
1      the first release
2      MEMBERS, which writes the configuration of the ensemble into /zookeeper/config
3      ONCE, PUT, ADD, WILL, TRUNCATE, and writes without a session
4      TOPICS, and the settings of topics
5      server lines of /zookeeper/config that ZooKeeper's Java classes read; in partitions:
       messages in rounds, claims whose owners choose an interval, commits of ranges
6      in partitions: messages that are record batches, with an offset for each record; partitions
       that are given up, and others in their places; ACLs of topics and consumers, which only the
       super user writes
====== ==============================================================================
"""

from __future__ import annotations

from typing import Final

from zraft_core.errors import ZraftError

FEATURE_LEVEL_MIN: Final = 1
FEATURE_LEVEL_MAX: Final = 6
"""The newest level that this release knows."""

LEVEL_OF_MEMBERS: Final = 2
LEVEL_OF_NATIVE: Final = 3
LEVEL_OF_TOPICS: Final = 4
LEVEL_OF_ONE_PORT: Final = 5
LEVEL_OF_ROUNDS: Final = 5
LEVEL_OF_RECORDS: Final = 6
LEVEL_OF_ACCESS: Final = 6
LEVEL_OF_GIVING_UP: Final = 6


class FeatureLevelError(ZraftError):
    """The cluster works at a feature level that this release does not know: this server cannot follow, and stops."""


def check_level(level: int, where: str) -> None:
    """Accept a feature level that this release knows.

    Raises:
        FeatureLevelError: `level` is none that this release knows.
    """
    if not FEATURE_LEVEL_MIN <= level <= FEATURE_LEVEL_MAX:
        raise FeatureLevelError(
            f"{where} is of feature level {level}, this release knows {FEATURE_LEVEL_MIN} to {FEATURE_LEVEL_MAX}: "
            f"install the release that the other servers run, then start this server again"
        )
