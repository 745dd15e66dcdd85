"""Schedules of tests: presets of increasing difficulty, or one test from the command line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from attrs import evolve

from zraft_bench.load.workload import Operation, Workload
from zraft_core.errors import ConfigError

MATRIX_ENTRIES: Final = (10, 100, 1000, 5000, 10_000)
MATRIX_WORKERS: Final = (10, 100, 256)
MATRIX_VALUE_BYTES: Final = (100, 1000)


def _matrix(base: Workload) -> Iterator[Workload]:
    """Return Zatt's matrix: every combination with more entries than workers, which leaves none with ten entries."""
    for entries, workers, size in product(MATRIX_ENTRIES, MATRIX_WORKERS, MATRIX_VALUE_BYTES):
        if entries > workers:
            yield evolve(base, entries=entries, workers=workers, value_bytes=size)


def _smoke(base: Workload) -> Iterator[Workload]:
    """Return tests of a minute or less that show whether everything works together."""
    for operation, workers in ((Operation.WRITE, 4), (Operation.WRITE, 32), (Operation.READ, 32)):
        yield evolve(
            base, operation=operation, workers=workers, entries=1000, value_bytes=100, seconds_min=2.0
        )


def _deployment(base: Workload) -> Iterator[Workload]:
    """Return tests that show how a deployment behaves.

    They are writes, reads and both with more and more workers, then large values.
    """
    for operation in (Operation.WRITE, Operation.READ, Operation.MIXED):
        for workers in (1, 8, 64, 256):
            yield evolve(base, operation=operation, workers=workers, entries=10_000, value_bytes=100)
    for size in (1000, 10_000, 100_000):
        yield evolve(base, operation=Operation.WRITE, workers=16, entries=1000, value_bytes=size)


def _cells(base: Workload) -> Iterator[Workload]:
    """Return the cells in which coordination services are compared: sessions x requests that each keeps under way.

    Reads are answered by the asked server's own state.
    """
    if base.rate is not None:
        raise ConfigError(
            f"--rate: found {base.rate:g} with --schedule cells, whose sessions send when an answer comes"
        )
    for operation, sessions, under_way, size in CELLS:
        yield evolve(
            base,
            operation=operation,
            workers=sessions * under_way,
            under_way=under_way,
            value_bytes=size,
            entries=CELL_KEYS,
            linearizable=False,
        )


CELLS: Final = (
    *((Operation.WRITE, *sessions, 100) for sessions in ((1, 1), (8, 1), (64, 1), (8, 64), (64, 16))),
    (Operation.WRITE, 64, 16, 1000),
    *((Operation.READ, *sessions, 100) for sessions in ((1, 1), (64, 1), (64, 16))),
    (Operation.MIXED, 64, 16, 100),
    (Operation.CREATE_SEQUENTIAL, 64, 16, 100),
    (Operation.VISIT, 64, 1, 100),
)
"""Operation, sessions, requests that each has under way, bytes of a value."""

CELL_KEYS: Final = 1_024

PRESETS: Final = {"matrix": _matrix, "smoke": _smoke, "deployment": _deployment}
SESSION_PRESETS: Final = {"cells": _cells}
"""Presets for systems that speak ZooKeeper's protocol."""


def schedule(name: str | None, base: Workload) -> tuple[Workload, ...]:
    """Return the tests of preset `name`, or `base` alone; what a preset does not vary is as in `base`.

    Raises:
        ConfigError: there is no such preset, or it cannot be as `base`.
    """
    if name is None:
        return (base,)
    presets = PRESETS | SESSION_PRESETS
    if name not in presets:
        raise ConfigError(f"--schedule: found {name!r}, expected one of {', '.join(sorted(presets))}")
    return tuple(presets[name](base))
