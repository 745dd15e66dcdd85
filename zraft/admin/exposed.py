"""Declaration of a metric: its name as scrapers see it, its text, and the source of its value.

The exposition and the tables of docs/reference/metrics.md are made from the declarations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from attrs import field, frozen
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from zraft.monitoring.statistics import Distribution
from zraft.monitoring.statistics import Metric as Monitor

S = TypeVar("S")

TOTAL: Final = "_total"
QUANTILES: Final = (0.5, 0.95, 0.99)

Monitored = Mapping[str, Monitor]
"""The values that `mntr` lists, without `zk_`."""
PREFIX: Final = "zraft_"
"""The prefix of our own names; `mntr` lists the same numbers without it."""


@frozen
class Exposed(ABC, Generic[S]):
    """One metric of which a source `S` has the value. `note` is told by the document only."""

    name: str
    text: str
    note: str = field(default="", kw_only=True)
    labels: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of metric, in Prometheus' words."""

    @abstractmethod
    def family(self, source: S) -> Metric | None:
        """Return the metric with its samples; None if the source has no value."""


@frozen
class Number(Exposed[S]):
    """A counter if the name ends with `_total`, else a gauge."""

    value: Callable[[S], float | None]

    @property
    def kind(self) -> str:
        """The kind "counter" for a name that ends in `_total`, else "gauge"."""
        return "counter" if self.name.endswith(TOTAL) else "gauge"

    def family(self, source: S) -> Metric | None:
        """Return the metric with its samples; None if the source has no value."""
        value = self.value(source)
        if value is None:
            return None
        if self.kind == "counter":
            return CounterMetricFamily(self.name, self.text, value=value)
        return GaugeMetricFamily(self.name, self.text, value=value)


def monitored(name: str, text: str, *, note: str = "") -> Number[Monitored]:
    """Return the declaration of a number that `mntr` lists, too."""
    key = name.removeprefix(PREFIX)
    return Number(name, text, lambda values: float(values[key]) if key in values else None, note=note)


@frozen
class Numbers(Exposed[S]):
    """The same by the values of `labels`."""

    values: Callable[[S], Iterable[tuple[tuple[str, ...], float]]]

    @property
    def kind(self) -> str:
        """The kind "counter" for a name that ends in `_total`, else "gauge"."""
        return "counter" if self.name.endswith(TOTAL) else "gauge"

    def family(self, source: S) -> Metric:
        """Return the metric with its samples; None if the source has no value."""
        family: CounterMetricFamily | GaugeMetricFamily
        if self.kind == "counter":
            family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        else:
            family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.values(source):
            family.add_metric(labels, value)
        return family


@frozen
class Info(Exposed[S]):
    """Words, as labels of a constant."""

    values: Callable[[S], dict[str, str]]

    @property
    def kind(self) -> str:
        """The kind "info"."""
        return "info"

    def family(self, source: S) -> Metric:
        """Return the metric with its samples; None if the source has no value."""
        family = InfoMetricFamily(self.name.removesuffix("_info"), self.text)
        family.add_metric([], self.values(source))
        return family


@frozen
class HistogramMetric(Exposed[S]):
    """A distribution by its buckets."""

    distribution: Callable[[S], Distribution]

    @property
    def kind(self) -> str:
        """The kind "histogram"."""
        return "histogram"

    def family(self, source: S) -> Metric:
        """Return the metric with its samples; None if the source has no value."""
        distribution = self.distribution(source)
        buckets: list[tuple[str, float]] = []
        at_most = 0
        for bound, count in zip((*distribution.bounds, "+Inf"), distribution.counts, strict=True):
            at_most += count
            buckets.append((str(bound), at_most))
        return HistogramMetricFamily(self.name, self.text, buckets=buckets, sum_value=distribution.total)


@frozen
class SummaryMs(Exposed[S]):
    """A distribution of seconds by its quantiles in milliseconds, as ZooKeeper has it."""

    distribution: Callable[[S], Distribution]

    @property
    def kind(self) -> str:
        """The kind "summary"."""
        return "summary"

    def family(self, source: S) -> Metric:
        """Return the metric with its samples; None if the source has no value."""
        seconds = self.distribution(source)
        family = SummaryMetricFamily(
            self.name, self.text, count_value=seconds.count, sum_value=round(seconds.total * 1000, 4)
        )
        for q in QUANTILES:
            family.add_sample(self.name, {"quantile": str(q)}, round(seconds.quantile(q) * 1000, 4))
        return family


def text_of(declared: Iterable[Number[S] | Numbers[S]], source: S, *, openmetrics: bool) -> str:
    """Return the exposition of metrics with many samples, for which prometheus-client would take 25 us each.

    Args:
        openmetrics: whether the format is OpenMetrics, in which a counter's family has no suffix.
    """
    parts: list[str] = []
    written: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    for metric in declared:
        family = metric.name.removesuffix(TOTAL) if openmetrics else metric.name
        parts.append(f"# HELP {family} {metric.text}\n# TYPE {family} {metric.kind}\n")
        if isinstance(metric, Number):
            value = metric.value(source)
            parts.append("" if value is None else f"{metric.name} {value}\n")
            continue
        # Many metrics have samples of the same partitions.
        known = written.setdefault(metric.labels, {})
        for values, value in metric.values(source):
            labels = known.get(values)
            if labels is None:
                labels = known[values] = ",".join(map(_label, metric.labels, values))
            parts.append(f"{metric.name}{{{labels}}} {value}\n")
    return "".join(parts)


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{escaped}"'


def shown(declared: Iterable[Exposed[S]], source: S) -> Iterator[Metric]:
    """Yield the families of those of which the source has a value."""
    for metric in declared:
        if (family := metric.family(source)) is not None:
            yield family
