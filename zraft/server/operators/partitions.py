"""The partitions of one server as operators see them: what it holds of each, for commands and for metrics.

Everything is read at the moment of asking, so partitions cost nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from zraft.config.server import ServerConfig
from zraft.groups.statistics import FollowerState
from zraft.operator.requests import FollowerLine, ReplicaLine, ReplicaListing
from zraft.server.engine.driver import Driver
from zraft.server.operators.status import ConsumerLag, PartitionsStatus, PartitionStatus
from zraft.server.partitions.partitions import Partitions
from zraft.server.partitions.statistics import PartitionState
from zraft.topics.registry import Registry
from zraft_core.ids import GroupId
from zraft_core.topics.registry_values import numbered

TICK_MS: Final = 1
"""A tick of a group's clock."""


class PartitionsReport:
    """Reports of the partitions of one running server.

    `wall_now` gives ms since 1970.
    """

    def __init__(
        self, driver: Driver, partitions: Partitions, config: ServerConfig, wall_now: Callable[[], int]
    ) -> None:
        self._driver = driver
        self._partitions = partitions
        self._config = config
        self._wall_now = wall_now

    def replicas(self, groups: Sequence[GroupId]) -> ReplicaListing:
        """Return what this server holds of these groups; nothing of those that it does not hold."""
        states = [state for group in groups if (state := self._partitions.state_of(group)) is not None]
        return ReplicaListing(self._config.id, tuple([self._line(state) for state in states]))

    def _line(self, state: PartitionState) -> ReplicaLine:
        return ReplicaLine(
            group=state.group,
            term=state.term,
            leader=state.leader,
            leads=state.leads,
            first=state.first,
            end=state.end,
            stored_bytes=state.stored_bytes,
            oldest_age_ms=self._age_ms(state),
            problem=state.problem,
            followers=tuple([_follower(one) for one in state.followers]),
        )

    def _age_ms(self, state: PartitionState) -> int | None:
        return None if state.oldest_ms is None else max(0, self._wall_now() - state.oldest_ms)

    def status(self) -> PartitionsStatus:
        """Return the partitions and consumers of topics, each up to a bound, in an order that stays the same."""
        homes = homes_of(self._driver.machine.registry)
        here = sorted((homes[group], group) for group in self._partitions.hosted if group in homes)
        shown = here[: self._config.admin_partitions_max]
        consumers, left_out = self._consumers(here)
        return PartitionsStatus(
            partitions=tuple(
                [
                    PartitionStatus(topic, number, state, self._age_ms(state))
                    for (topic, number), group in shown
                    if (state := self._partitions.state_of(group)) is not None
                ]
            ),
            partitions_left_out=len(here) - len(shown),
            consumers=consumers,
            consumers_left_out=left_out,
        )

    def _consumers(
        self, here: Sequence[tuple[tuple[str, int], GroupId]]
    ) -> tuple[tuple[ConsumerLag, ...], int]:
        """Return the lag of each consumer of a topic in the partitions led here, and how many are left out."""
        most = self._config.admin_consumers_max
        lags: dict[tuple[str, bytes], int] = {}
        left_out: set[tuple[str, bytes]] = set()
        for (topic, _), group in here:
            found = self._partitions.consumers_of(group)
            if found is None:
                continue
            for name, offset, _ in found.found:
                key = topic, name
                if key in lags or len(lags) < most:
                    lags[key] = lags.get(key, 0) + max(0, found.end - offset)
                else:
                    left_out.add(key)
        return tuple([ConsumerLag(*key, lag) for key, lag in lags.items()]), len(left_out)


def homes_of(registry: Registry) -> dict[GroupId, tuple[str, int]]:
    """Return the topic's name and the partition's number of each group that a topic has."""
    return {
        group: (topic.name, number)
        for topic in registry.topics.values()
        for number, group in numbered(topic.partitions, topic.adding, topic.wanted, registry.given_up)
    }


def _follower(one: FollowerState) -> FollowerLine:
    silent_ms = None if one.silent_ticks is None else one.silent_ticks * TICK_MS
    return FollowerLine(one.server, one.behind, silent_ms, one.in_sync)
