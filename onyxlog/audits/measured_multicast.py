"""Results of `zraft-bench multicast` as rows: what was sent and read, and what the program made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from onyxlog.audits.tables.table import OF_RESULTS, Table


@frozen
class MeasuredCell:
    """One cell: a mix of messages that producers sent and consumers read.

    Attributes:
        reason: why it does not count, "" if it does.
        delivered, per_second: of each partition, in order.
        thesis_records: what the program says that the thesis' algorithm writes and reads for the same messages.
    """

    file: str
    run: str
    name: str
    topics: int
    partitions: int
    producers: int
    share: float
    fanout: int
    sleep_ms: float
    servers: int
    reason: str
    messages: int
    multicasts: int
    elapsed_s: float
    delivered: tuple[int, ...]
    per_second: tuple[float, ...]
    thesis_records: int
    file_offset: int = 0


@frozen
class MeasuredSends:
    """The messages of a cell that went to so many destinations, until their producers were told that all have them.

    `buckets` and `counts` are the histogram of durations; the rest is published of them.
    """

    file: str
    run: str
    name: str
    destinations: int
    buckets: tuple[int, ...]
    counts: tuple[int, ...]
    total_ms: float
    longest_ms: float
    published: int
    mean_ms: float
    percentile_names: tuple[str, ...]
    percentiles_ms: tuple[float, ...]
    file_offset: int = 0


MEASURED_CELLS: Final = Table(
    "measured_cells",
    MeasuredCell,
    "cells of multicast: what was sent and what was read",
    streams=False,
    comes_from=OF_RESULTS,
)
MEASURED_SENDS: Final = Table(
    "measured_sends",
    MeasuredSends,
    "messages of cells by number of destinations",
    streams=False,
    comes_from=OF_RESULTS,
)


def cells_of(file: str, run: str, plain: Mapping[str, Any]) -> Iterator[MeasuredCell]:
    """Yield the cells of a result.

    Raises:
        KeyError, TypeError, ValueError: it is not what the program writes.
    """
    for one in (plain.get("multicast") or {}).get("cells", ()):
        cell, places = one["cell"], one.get("places", ())
        yield MeasuredCell(
            file=file,
            run=run,
            name=str(cell["name"]),
            topics=int(cell["topics"]),
            partitions=int(cell["partitions"]),
            producers=int(cell["producers"]),
            share=float(cell["share"]),
            fanout=int(cell["fanout"]),
            sleep_ms=float(cell["sleep_ms"]),
            servers=int(one["servers"]),
            reason=str(one.get("reason", "")),
            messages=int(one.get("messages", 0)),
            multicasts=int(one.get("multicasts", 0)),
            elapsed_s=float(one.get("elapsed_s", 0.0)),
            delivered=tuple(int(place["delivered"]) for place in places),
            per_second=tuple(float(place["per_second"]) for place in places),
            thesis_records=int(one.get("thesis_records", 0)),
        )


def sends_of(file: str, run: str, plain: Mapping[str, Any]) -> Iterator[MeasuredSends]:
    """Yield the numbers of sent messages of a result.

    Raises:
        KeyError, TypeError, ValueError: it is not what the program writes.
    """
    for one in (plain.get("multicast") or {}).get("cells", ()):
        for destinations, histogram in one.get("histograms", {}).items():
            counted = sorted((int(bucket), int(count)) for bucket, count in histogram["counts"].items())
            latency = one["latency"][destinations]
            yield MeasuredSends(
                file=file,
                run=run,
                name=str(one["cell"]["name"]),
                destinations=int(destinations),
                buckets=tuple(bucket for bucket, _ in counted),
                counts=tuple(count for _, count in counted),
                total_ms=float(histogram["total"]),
                longest_ms=float(histogram["largest"] or 0.0),
                published=int(latency["count"]),
                mean_ms=float(latency["mean_ms"]),
                percentile_names=tuple(map(str, latency["percentiles"])),
                percentiles_ms=tuple(map(float, latency["percentiles"].values())),
            )
