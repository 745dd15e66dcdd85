"""Metrics of what runs now, read from a process' groups when they are asked for: tasks, channels, gossip.

The counts belong to a worker, or to one incarnation of a group; a series ends with it. A new one under the
same labels begins at 0, which is what a counter's reset means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from onyxlog.peer.incarnation import Incarnation

WORKER: Final = ("job", "task", "slot")
TASK_COUNTERS: Final = {
    "batches": "Batches that a worker has worked on.",
    "segments": "Segments that a worker has worked on.",
    "emitted": "Segments that a worker has sent on.",
    "replayed": "Segments that an input has sent again, as they were not acknowledged in time.",
}
CHANNEL_COUNTERS: Final = {
    "items_sent": "Items sent to workers of other groups.",
    "items_received": "Items received from workers of other groups.",
    "bytes_sent": "Bytes sent to other groups.",
    "reconnects": "Connections to other groups that were made again.",
    "rejected": "Messages of other groups that were refused.",
}
GOSSIP_COUNTERS: Final = {
    "published": "Entries told to others by their writer.",
    "looks": "Looks of a sentinel at the log's end, before it says that there is nothing new.",
    "read_entries": "Entries that were read from the log, as gossip did not bring them.",
    "tailed_entries": "Entries that the log pushed, while gossip was not relied upon.",
    "repairs_asked": "Questions to other groups for entries that are missing.",
    "repairs_given": "Entries given to others that asked.",
    "mismatches": "Entries that did not fit the digest chain.",
    "begun_again": "Times that this group went on from the log's origin.",
}
GOSSIP_BY: Final = {
    "applied": ("source", "Entries applied, by who brought them."),
    "reads": ("reason", "Reads of the log, by reason."),
    "offered": ("outcome", "Entries received, by what became of them."),
}


class LiveMetrics(Collector):
    """Collects the metrics of all incarnations that `incarnations` returns when it is called."""

    def __init__(self, incarnations: Callable[[], Iterable[Incarnation]]) -> None:
        self._incarnations = incarnations

    def collect(self) -> Iterator[Metric]:
        present = [one for one in self._incarnations() if one.begun]
        yield from _tasks(present)
        yield from _channels(present)
        yield from _gossip(present)


def _tasks(present: Iterable[Incarnation]) -> Iterator[Metric]:
    rows = [
        ((task.job, task.task, str(task.slot)), counted)
        for one in present
        for peer, counted in one.worker_statistics().items()
        if (task := one.running.get(peer)) is not None
    ]
    for name, documentation in TASK_COUNTERS.items():
        counter = CounterMetricFamily(f"onyxlog_task_{name}", documentation, labels=WORKER)
        for labels, counted in rows:
            counter.add_metric(labels, getattr(counted, name))
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
        counter = CounterMetricFamily(f"onyxlog_channels_{name}", documentation, labels=["group"])
        for group, counted in rows:
            counter.add_metric([group], getattr(counted, name))
        yield counter


def _gossip(present: Iterable[Incarnation]) -> Iterator[Metric]:
    rows = [(one.group, counted) for one in present if (counted := one.gossip_counters()) is not None]
    for name, documentation in GOSSIP_COUNTERS.items():
        counter = CounterMetricFamily(f"onyxlog_gossip_{name}", documentation, labels=["group"])
        for group, counted in rows:
            counter.add_metric([group], getattr(counted, name))
        yield counter
    for name, (label, documentation) in GOSSIP_BY.items():
        counter = CounterMetricFamily(f"onyxlog_gossip_{name}", documentation, labels=["group", label])
        for group, counted in rows:
            for key, count in getattr(counted, name).items():
                counter.add_metric([group, key], count)
        yield counter
