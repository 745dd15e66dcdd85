"""Metrics of what runs now, read from a process' groups when they are asked for: tasks, channels, gossip.

The counts belong to a worker, or to one incarnation of a group; a series ends with it. A new one under the
same labels begins at 0, which is what a counter's reset means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from onyxlog.peer.incarnation import Incarnation

WORKER: Final = ("job", "task", "slot")
TASK_COUNTERS: Final = {
    "onyxlog_task_batches_total": "Batches that a worker has worked on.",
    "onyxlog_task_segments_total": "Segments that a worker has worked on.",
    "onyxlog_task_emitted_total": "Segments that a worker has sent on.",
    "onyxlog_task_replayed_total": "Segments that an input has sent again, as they were not acknowledged in time.",
}
CHANNEL_COUNTERS: Final = {
    "onyxlog_channels_items_sent_total": "Items sent to workers of other groups.",
    "onyxlog_channels_items_received_total": "Items received from workers of other groups.",
    "onyxlog_channels_bytes_sent_total": "Bytes sent to other groups.",
    "onyxlog_channels_reconnects_total": "Connections to other groups that were made again.",
    "onyxlog_channels_rejected_total": "Messages of other groups that were refused.",
}
GOSSIP_COUNTERS: Final = {
    "onyxlog_gossip_published_total": "Entries told to others by their writer.",
    "onyxlog_gossip_looks_total": "Looks of a sentinel at the log's end, before it says that there is nothing new.",
    "onyxlog_gossip_read_entries_total": "Entries that were read from the log, as gossip did not bring them.",
    "onyxlog_gossip_tailed_entries_total": "Entries that the log pushed, while gossip was not relied upon.",
    "onyxlog_gossip_repairs_asked_total": "Questions to other groups for entries that are missing.",
    "onyxlog_gossip_repairs_given_total": "Entries given to others that asked.",
    "onyxlog_gossip_mismatches_total": "Entries that did not fit the digest chain.",
    "onyxlog_gossip_received_bytes_total": "Bytes of datagrams that came from other groups.",
    "onyxlog_gossip_sent_bytes_total": "Bytes of datagrams that were sent to other groups.",
    "onyxlog_gossip_begun_again_total": "Times that this group went on from the log's origin.",
}
GOSSIP_BY: Final = {
    "onyxlog_gossip_applied_total": ("source", "Entries applied, by who brought them."),
    "onyxlog_gossip_reads_total": ("reason", "Reads of the log, by reason."),
    "onyxlog_gossip_offered_total": ("outcome", "Entries received, by what became of them."),
}


class LiveMetrics(Collector):
    """Collector of the metrics of all incarnations that `incarnations` returns when it is called."""

    def __init__(self, incarnations: Callable[[], Iterable[Incarnation]]) -> None:
        self._incarnations = incarnations

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the incarnations that have begun."""
        present = [one for one in self._incarnations() if one.begun]
        yield from _tasks(present)
        yield from _channels(present)
        yield from _gossip(present)


def _count(counted: object, name: str) -> Any:
    """Read the count that a metric shows."""
    return getattr(counted, counter_field(name))


def counter_field(name: str) -> str:
    """Name of the field that holds the count of a metric `onyxlog_PART_FIELD_total`."""
    return name.split("_", 2)[2].removesuffix("_total")


def _tasks(present: Iterable[Incarnation]) -> Iterator[Metric]:
    rows = [
        ((task.job, task.task, str(task.slot)), counted)
        for one in present
        for peer, counted in one.worker_statistics().items()
        if (task := one.running.get(peer)) is not None
    ]
    for name, documentation in TASK_COUNTERS.items():
        counter = CounterMetricFamily(name, documentation, labels=WORKER)
        for labels, counted in rows:
            counter.add_metric(labels, _count(counted, name))
        yield counter
    pending = GaugeMetricFamily(
        "onyxlog_task_pending_segments", "Segments of an input that are not acknowledged yet.", labels=WORKER
    )
    for labels, counted in rows:
        pending.add_metric(labels, counted.pending)
    yield pending


def _channels(present: Iterable[Incarnation]) -> Iterator[Metric]:
    rows = [(one.group, one.plane_statistics()) for one in present]
    for name, documentation in CHANNEL_COUNTERS.items():
        counter = CounterMetricFamily(name, documentation, labels=["group"])
        for group, counted in rows:
            counter.add_metric([group], _count(counted, name))
        yield counter


def _gossip(present: Iterable[Incarnation]) -> Iterator[Metric]:
    rows = [(one.group, counted) for one in present if (counted := one.gossip_counters()) is not None]
    for name, documentation in GOSSIP_COUNTERS.items():
        counter = CounterMetricFamily(name, documentation, labels=["group"])
        for group, counted in rows:
            counter.add_metric([group], _count(counted, name))
        yield counter
    for name, (label, documentation) in GOSSIP_BY.items():
        counter = CounterMetricFamily(name, documentation, labels=["group", label])
        for group, counted in rows:
            for key, count in _count(counted, name).items():
                counter.add_metric([group, key], count)
        yield counter
