"""Options that several commands share, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import evolve

from zraft_bench.load.measure import Spread, default_spread
from zraft_bench.load.schedule import PRESETS
from zraft_bench.load.workload import (
    ENTRIES_MAX,
    OF_ALL_TARGETS,
    VALUE_BYTES_MAX,
    WORKERS_MAX,
    Operation,
    Workload,
)

F = TypeVar("F", bound=Callable[..., Any])

WORKLOAD_NAMES: Final = (
    *(
        "entries",
        "value_bytes",
        "operation",
        "read_share",
        "rate",
        "poisson",
        "seconds",
        "warm_up",
        "local_reads",
    ),
    *("deadline", "seed"),
)


def workload_options(command: F) -> F:
    """Add options for everything of a `Workload` but its workers. They arrive as keywords for `workload_of`."""
    for option in reversed(
        (
            click.option(
                "-e",
                "--entries",
                default=1000,
                show_default=True,
                type=click.IntRange(1, ENTRIES_MAX),
                help="How many requests a round has, and how many keys; all workers share them evenly.",
            ),
            click.option(
                "-d",
                "--size",
                "value_bytes",
                default=100,
                show_default=True,
                type=click.IntRange(0, VALUE_BYTES_MAX),
                help="How many bytes each value has.",
            ),
            click.option(
                "--operation",
                default="write",
                show_default=True,
                type=click.Choice([one.value for one in OF_ALL_TARGETS]),
                help="What the requests do.",
            ),
            click.option(
                "--read-share",
                default=0.9,
                show_default=True,
                type=click.FloatRange(0, 1),
                help="With --operation mixed: the part of the requests that reads.",
            ),
            click.option(
                "--rate",
                type=click.FloatRange(0, min_open=True),
                help="Send so many requests per second in all (open loop); latencies count from when each was due.",
            ),
            click.option(
                "--poisson",
                is_flag=True,
                help="With --rate, requests are due at random times instead of even ones.",
            ),
            click.option(
                "--seconds",
                default=10.0,
                show_default=True,
                type=click.FloatRange(0),
                help="Repeat rounds until a test has run so long; 0 for a single round.",
            ),
            click.option(
                "--warm-up",
                default=1.0,
                show_default=True,
                type=click.FloatRange(0),
                help="How many seconds of load come before the measured time.",
            ),
            click.option(
                "--local-reads",
                is_flag=True,
                help="Let the asked server answer reads from its own state, possibly out of date.",
            ),
            click.option(
                "--deadline",
                default=30.0,
                show_default=True,
                type=click.FloatRange(0.1),
                help="After so many seconds a request without an answer has failed.",
            ),
            click.option(
                "--seed",
                default=1,
                show_default=True,
                help="The seed of values and of the order of requests.",
            ),
        )
    ):
        command = option(command)
    return command


def workload_of(workers: int, given: dict[str, Any]) -> Workload:
    """Return the workload that the options of `workload_options` describe; remove them from `given`."""
    taken = {name: given.pop(name) for name in WORKLOAD_NAMES}
    return Workload(
        operation=Operation(taken["operation"]),
        entries=taken["entries"],
        workers=workers,
        value_bytes=taken["value_bytes"],
        read_share=taken["read_share"],
        rate=taken["rate"],
        poisson=taken["poisson"],
        seconds_min=taken["seconds"],
        warm_up_s=taken["warm_up"],
        linearizable=not taken["local_reads"],
        deadline_s=taken["deadline"],
        seed=taken["seed"],
    )


workers_option = click.option(
    *("-c", "--clients", "workers"),
    default=16,
    show_default=True,
    type=click.IntRange(1, WORKERS_MAX),
    help="How many workers there are: clients with one request under way each.",
)
schedule_option = click.option(
    "--schedule",
    type=click.Choice(sorted(PRESETS)),
    help="Run several tests of increasing difficulty instead of one; matrix is the one that Zatt published.",
)
out_option = click.option(
    "--out",
    default="bench-results",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory for the results file (JSON); made if absent.",
)
comment_option = click.option("--comment", default="", help="A comment that is kept with the results.")
settings_option = click.option(
    "--set",
    "settings",
    metavar="KNOB=VALUE",
    multiple=True,
    help="Set a knob of all servers; may be repeated.",
)


def spread_options(command: F) -> F:
    """Add options for how the workers of a machine are spread.

    They arrive as `processes` and `connections`, for `spread_of`.
    """
    command = click.option(
        "--processes",
        type=click.IntRange(1, 1024),
        help="How many processes the load generator has on each client machine.  [default: half of the cores]",
    )(command)
    return click.option(
        "--connections",
        type=click.IntRange(1, 10_000),
        help="How many connections each of these processes has, which its workers share.  [default: one to each server]",
    )(command)


def spread_of(processes: int | None, connections: int | None) -> Spread:
    """Return the spread of workers, with defaults for what is not given."""
    found = default_spread()
    return evolve(found, connections=connections, processes=processes or found.processes)
